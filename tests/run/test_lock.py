from __future__ import annotations

import json
import os
import time

import pytest

from nmt.errors import MachineError
from nmt.run import lock
from nmt.run.lock import FolderLock


def plant(folder, **changes):
    """The lock of this very process, with some facts changed."""
    mine = FolderLock(folder)
    mine.acquire()
    owner = json.loads((folder / "lock").read_text())
    mine.release()
    (folder / "lock").write_text(json.dumps({**owner, **changes}))


def gone_pid() -> int:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return child


def test_a_second_lock_is_refused_and_says_who(tmp_path):
    first = FolderLock(tmp_path)
    first.acquire()
    with pytest.raises(MachineError, match=rf"in use by pid {os.getpid()} on \S+ since 20\d\d-"):
        FolderLock(tmp_path).acquire()
    first.check()
    first.release()
    FolderLock(tmp_path).acquire()


def test_a_lock_of_a_process_that_is_gone_is_broken(tmp_path):
    plant(tmp_path, pid=gone_pid())
    mine = FolderLock(tmp_path)
    mine.acquire()
    mine.check()
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_a_process_with_a_reused_number_does_not_count(tmp_path):
    plant(tmp_path, started="1")
    FolderLock(tmp_path).acquire()


def test_a_lock_of_another_machine_lives_while_it_is_touched(tmp_path):
    plant(tmp_path, scope="other boot", host="node7", pid=gone_pid())
    with pytest.raises(MachineError, match="on node7"):
        FolderLock(tmp_path).acquire()
    long_ago = time.time() - lock.STALE_SECONDS - 1
    os.utime(tmp_path / "lock", (long_ago, long_ago))
    FolderLock(tmp_path).acquire()


def test_a_clock_that_jumped_back_keeps_the_lock(tmp_path):
    plant(tmp_path, scope="other boot")
    ahead = time.time() + 10_000
    os.utime(tmp_path / "lock", (ahead, ahead))
    with pytest.raises(MachineError, match="in use"):
        FolderLock(tmp_path).acquire()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x"}', "[" * 5000])
def test_a_half_written_lock_counts_until_it_is_old(tmp_path, text):
    (tmp_path / "lock").write_text(text)
    with pytest.raises(MachineError, match="just starting"):
        FolderLock(tmp_path).acquire()
    os.utime(tmp_path / "lock", (0, 0))
    FolderLock(tmp_path).acquire()


def test_the_owner_keeps_touching_its_lock(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "BEAT_SECONDS", 0.01)
    mine = FolderLock(tmp_path)
    mine.acquire()
    os.utime(tmp_path / "lock", (0, 0))
    until = time.monotonic() + 5
    while (tmp_path / "lock").stat().st_mtime == 0 and time.monotonic() < until:
        time.sleep(0.01)
    assert (tmp_path / "lock").stat().st_mtime > 0
    mine.release()


def test_a_lock_taken_between_look_and_rename_stays_theirs(tmp_path, monkeypatch):
    plant(tmp_path, pid=gone_pid())
    real, other = os.rename, FolderLock(tmp_path)

    def rename(source, target):
        monkeypatch.setattr(os, "rename", real)
        (tmp_path / "lock").unlink()
        other.acquire()
        real(source, target)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(MachineError, match="in use"):
        FolderLock(tmp_path).acquire()
    other.check()


def test_release_leaves_a_lock_of_another(tmp_path):
    mine = FolderLock(tmp_path)
    mine.acquire()
    (tmp_path / "lock").write_text("theirs")
    with pytest.raises(MachineError, match="took the run folder over"):
        mine.check()
    mine.release()
    assert (tmp_path / "lock").read_text() == "theirs"
