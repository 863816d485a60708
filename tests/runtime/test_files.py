"""A folder gets its name when it is complete, and a failure changes nothing."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from nmt.runtime import files
from nmt.runtime.files import atomic_folder


def content(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}


def test_a_folder_gets_its_name_at_the_end(tmp_path):
    with atomic_folder(tmp_path / "model") as folder:
        (folder / "file").write_text("new")
        assert not (tmp_path / "model").exists()
    assert content(tmp_path) == {"model/file": "new"}


def test_a_failure_leaves_nothing(tmp_path):
    def fail(folder: Path) -> None:
        (folder / "file").write_text("new")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), atomic_folder(tmp_path / "model") as folder:
        fail(folder)
    with pytest.raises(FileNotFoundError), atomic_folder(tmp_path / "gone" / "model"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_replaced_only_if_asked(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "old").write_text("old")
    with pytest.raises(FileExistsError), atomic_folder(tmp_path / "model"):
        pass
    assert content(tmp_path) == {"model/old": "old"}
    with atomic_folder(tmp_path / "model", replace=True) as folder:
        (folder / "file").write_text("new")
    assert content(tmp_path) == {"model/file": "new"}
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("failing", [1, 2])
def test_the_old_folder_stays_when_a_rename_fails(tmp_path, monkeypatch, failing):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "old").write_text("old")
    rename, calls = os.rename, []

    def fail_once(source: Path, target: Path) -> None:
        calls.append(target)
        if len(calls) == failing:
            raise PermissionError(13, "Permission denied", str(target))
        rename(source, target)

    monkeypatch.setattr(files, "_exchange", lambda one, other: False)  # as on other systems
    monkeypatch.setattr(os, "rename", fail_once)
    with pytest.raises(PermissionError), atomic_folder(tmp_path / "model", replace=True) as folder:
        (folder / "file").write_text("new")
    assert content(tmp_path) == {"model/old": "old"}
    assert len(list(tmp_path.iterdir())) == 1


def test_what_a_killed_process_left_is_not_deleted(tmp_path):
    for name in ("model", ".old-model"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    with atomic_folder(tmp_path / "model", replace=True):
        pass
    assert content(tmp_path) == {".old-model/file": ".old-model"}


@pytest.mark.skipif(sys.platform == "win32", reason="it has no locks of folders")
def test_drafts_of_killed_processes_are_removed_and_those_in_use_stay(tmp_path):
    child = os.fork()
    if child == 0:
        try:
            with atomic_folder(tmp_path / "model"):
                os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    os.waitpid(child, 0)
    assert len(list(tmp_path.iterdir())) == 1
    (tmp_path / ".tmp-model-of-a-user").mkdir()
    with atomic_folder(tmp_path / "model") as first:
        with atomic_folder(tmp_path / "model") as second:
            assert {*tmp_path.iterdir()} == {first, second, tmp_path / ".tmp-model-of-a-user"}
        (tmp_path / "model").rename(tmp_path / "other")
    assert content(tmp_path) == {}
    assert {path.name for path in tmp_path.iterdir()} == {"model", "other", ".tmp-model-of-a-user"}
