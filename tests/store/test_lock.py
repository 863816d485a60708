from __future__ import annotations

import errno
import json
import os

import filelock
import pytest

from nmt.errors import MachineError
from nmt.runtime.files import write_atomic
from nmt.store.lock import FolderLock
from tests.children import kill, start_holding


def test_a_second_lock_is_refused_with_the_owner(tmp_path):
    first = FolderLock(tmp_path)
    first.acquire()
    assert FolderLock(tmp_path).in_use()
    with pytest.raises(MachineError, match=rf"in use by pid {os.getpid()} on \S+ since 20\d\d-"):
        FolderLock(tmp_path).acquire()
    first.check()
    first.release()
    assert not FolderLock(tmp_path).in_use()
    second = FolderLock(tmp_path)
    second.acquire()
    second.check()


def test_the_lock_of_a_killed_process_is_free(tmp_path):
    def take() -> FolderLock:
        lock = FolderLock(tmp_path)
        lock.acquire()
        return lock

    child = start_holding(take)
    with pytest.raises(MachineError, match=f"in use by pid {child} "):
        FolderLock(tmp_path).refuse_if_held()
    kill(child)
    assert not FolderLock(tmp_path).in_use()
    mine = FolderLock(tmp_path)
    mine.acquire()
    mine.check()
    assert json.loads((tmp_path / "lock.json").read_text())["pid"] == os.getpid()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x"}', "[" * 5000])
def test_a_lock_whose_owner_cannot_be_read_is_still_held(tmp_path, text):
    first = FolderLock(tmp_path)
    first.acquire()
    (tmp_path / "lock.json").write_text(text)
    with pytest.raises(MachineError, match="just started"):
        FolderLock(tmp_path).refuse_if_held()


def test_lock_json_of_a_dead_process_does_not_lock(tmp_path):
    (tmp_path / "lock.json").write_text("{}")
    assert not FolderLock(tmp_path).in_use()
    FolderLock(tmp_path).acquire()


def test_acquire_waits_for_a_process_that_tests_the_lock(tmp_path):
    (tmp_path / "lock.json").write_text("{}")  # left by a killed process
    probe = filelock.FileLock(tmp_path / "lock")
    probe.acquire()
    mine = FolderLock(tmp_path)
    real = mine._lock.acquire

    def acquire(timeout):
        assert timeout > 0
        probe.release()
        return real(timeout=timeout)

    mine._lock.acquire = acquire  # type: ignore[method-assign]
    mine.acquire()
    mine.check()


def test_release_keeps_the_lock_json_of_another_process(tmp_path):
    mine = FolderLock(tmp_path)
    mine.acquire()
    write_atomic(tmp_path / "lock.json", "theirs")
    with pytest.raises(MachineError, match="has taken over the run folder"):
        mine.check()
    mine.release()
    assert (tmp_path / "lock.json").read_text() == "theirs"


@pytest.mark.parametrize(
    "failure",
    [OSError(errno.ENOLCK, "No locks"), OSError(errno.EINVAL, "Invalid"), NotImplementedError()],
)
def test_a_file_system_without_locks_is_an_error(tmp_path, monkeypatch, failure):
    def refuse(*arguments, **named):
        raise failure

    monkeypatch.setattr(filelock.FileLock, "acquire", refuse)
    with pytest.raises(
        MachineError, match=r"not support file locks\n  -> use a folder on a local disk"
    ):
        FolderLock(tmp_path).acquire()
