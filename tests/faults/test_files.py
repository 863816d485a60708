"""Faults of files and disks: no checkpoint is lost, and no incomplete one is used."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import signal
from pathlib import Path

import pytest
import safetensors.torch
import torch

from nmt.errors import MachineError, UserError
from nmt.runtime import files
from nmt.store import checkpoint as module
from nmt.store.folder import RunFolder, update_of
from nmt.store.lifecycle import TrainingFolder
from nmt.store.metrics_log import MetricsLog
from nmt.store.model import WEIGHTS, read_models
from nmt.store.results import read_summary, write_summary
from nmt.store.tensors import read_tensors
from tests.run_cases import (
    FILES,
    RECIPE,
    Steps,
    count_steps,
    holds,
    load,
    recipe,
    reopen,
    resign,
    same,
    save,
    trained,
    update_of_model,
    weights,
)


def outcome(act) -> str | None:
    """Return the text of a MachineError, or None without an error."""
    try:
        act()
    except MachineError as error:
        return str(error)
    return None


# --- killed, at any step and any byte -----------------------------------------------------------


@pytest.mark.parametrize(
    "update",
    [pytest.param(2, id="new"), pytest.param(1, id="the same again", marks=pytest.mark.slow)],
)
def test_sigkill_at_every_step_of_a_save(tmp_path, update):
    with TrainingFolder(tmp_path / "counted", RECIPE) as run:
        save(run, 1, best=1)
        steps = count_steps(run, update)
    assert steps > 10
    for at in range(1, steps + 1):
        path = tmp_path / f"run{at}"
        child = os.fork()
        if child == 0:
            try:
                run = TrainingFolder(path, RECIPE)
                with run, pytest.MonkeyPatch.context() as patch:
                    save(run, 1, best=1)
                    Steps(patch, lambda: os.kill(os.getpid(), signal.SIGKILL), at)
                    save(run, update, best=update)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL

        with reopen(path) as run:  # the lock of the killed process is free
            found, notes = load(run)
            assert holds(found, 1) or holds(found, update)
            if update > 1 and holds(found, 1):
                drafts = list(run.checkpoints_dir.glob(".tmp-*"))
                assert bool(drafts) == bool(notes)
                assert set(notes) <= {"checkpoint u000002 is incomplete, using u000001"}
            for folder in run.checkpoints():  # each name is a complete checkpoint
                name = folder.name.removeprefix(".old-")
                assert holds(load(run, name)[0], update_of(name))
            assert update_of_model(run) in (1, update)
            assert not list(run.path.glob(".*model*"))
            save(run, 3, best=3)
            assert [p.name for p in run.checkpoints_dir.iterdir()] == ["u000003"]
            assert update_of_model(run) == 3


def test_a_kill_while_a_finished_run_is_extended_leaves_a_run_to_resume(tmp_path):
    more = recipe("train.max_validations=300")

    def kill():
        raise KeyboardInterrupt

    def extend(path, at):
        run = trained(path, 1)
        write_summary(run, {"status": "finished"})
        with pytest.MonkeyPatch.context() as patch:
            steps = Steps(patch, kill, at)
            with contextlib.suppress(KeyboardInterrupt), TrainingFolder(path, more, resume=True):
                pass
        return steps.count

    steps = extend(tmp_path / "counted", None)
    assert steps > 4
    for at in range(1, steps + 1):
        extend(tmp_path / f"run{at}", at)
        assert not TrainingFolder(tmp_path / f"run{at}", more, resume=True).finished


def test_a_checkpoint_is_restored_after_a_kill_during_its_replacement(tmp_path):
    run = trained(tmp_path / "run", 1)
    run.checkpoints()[0].rename(run.checkpoints_dir / ".old-u000001")
    with reopen(run.path) as run:
        assert run.resuming
        assert holds(load(run)[0], 1)
        save(run, 2, keep=9)
        assert sorted(p.name for p in run.checkpoints_dir.iterdir()) == ["u000001", "u000002"]
        assert holds(load(run, "u000001")[0], 1)


def test_drafts_of_a_killed_start_are_removed(tmp_path):
    run = trained(tmp_path / "run", 1)
    drafts = run.path / ".tmp-summary.json-0a", run.dev_dir / ".tmp-u000001.hyp-0b"
    for draft in drafts:
        draft.write_text("half")
    with reopen(run.path):
        assert not any(draft.exists() for draft in drafts)


def test_a_truncated_checkpoint_is_refused(tmp_path):
    run = trained(tmp_path / "run", 1, 2)
    newest = run.checkpoints()[-1]
    for name in FILES:
        intact = (newest / name).read_bytes()
        for size in range(0, len(intact), 7):
            (newest / name).write_bytes(intact[:size])
            found, notes = load(run)
            assert holds(found, 1)
            assert name in notes[0]
            assert notes[-1] == "using checkpoint u000001 instead"
        (newest / name).write_bytes(intact)
    assert holds(load(run)[0], 2)


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
def test_a_flipped_bit_is_detected(tmp_path, name):
    run = trained(tmp_path / "run", 1, 2)
    path = run.checkpoints()[-1] / name
    intact = path.read_bytes()
    for place in range(0, len(intact), 5):
        path.write_bytes(intact[:place] + bytes([intact[place] ^ 1]) + intact[place + 1 :])
        found, notes = load(run)
        assert holds(found, 1)
        assert f"{name}: damaged or edited: its SHA-256" in notes[0]


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(tmp_path, name):
    run = trained(tmp_path / "run", 1, 2)
    (run.checkpoints()[-1] / name).unlink()
    found, notes = load(run)
    assert holds(found, 1)
    assert f"{name}: missing" in notes[0]
    with pytest.raises(UserError, match=f"{name}: missing"):
        load(run, "u000002")


def test_the_error_lists_each_damaged_checkpoint(tmp_path):
    run = trained(tmp_path / "run", 1, 2)
    for folder in run.checkpoints():
        (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match=r"(?s)u000002.*u000001.*restore"):
        load(run)


def test_nan_weights_are_refused_by_name(tmp_path):
    run = trained(tmp_path / "run", 1, 2)
    folder = run.checkpoints()[-1]
    broken = {**weights(2), "out_bias": torch.tensor([0.0, float("nan")])}
    safetensors.torch.save_file(broken, folder / "model.safetensors")
    resign(folder)
    with pytest.raises(UserError, match="NaN or infinity in out_bias"):
        load(run, "u000002")
    found, notes = load(run)
    assert holds(found, 1)
    assert "NaN or infinity in out_bias" in notes[0]


def test_after_a_fallback_later_damaged_checkpoints_are_removed(tmp_path):
    with TrainingFolder(tmp_path / "run", RECIPE) as run:
        save(run, 10, best=10, keep=2)
        save(run, 20, best=20, keep=2)
    (run.checkpoints()[-1] / "model.safetensors").write_bytes(b"")
    with reopen(run.path) as run:
        assert holds(load(run)[0], 10)
        save(run, 15, best=10, keep=1)
        assert [path.name for path in run.checkpoints()] == ["u000010", "u000015"]
        assert holds(load(run)[0], 15)


def test_files_are_flushed_before_the_rename(tmp_path, monkeypatch):
    events: list[str] = []
    real_fsync, real_rename = os.fsync, os.rename

    def fsync(descriptor):
        events.append("flush " + os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        real_fsync(descriptor)

    def rename(source, target):
        events.append(f"name {Path(target).name}")
        real_rename(source, target)

    with TrainingFolder(tmp_path / "run", RECIPE) as run:
        monkeypatch.setattr(os, "fsync", fsync)
        monkeypatch.setattr(os, "rename", rename)
        save(run, 1)
        monkeypatch.undo()
    *flushed, draft, named, parent = events
    assert flushed == [f"flush {name}" for name in FILES]
    assert draft.startswith("flush .tmp-u000001")
    assert [named, parent] == ["name u000001", "flush checkpoints"]


# --- disk full, read-only, gone -----------------------------------------------------------------


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_disk_full_at_every_step_of_a_save(tmp_path, code):
    def full():
        raise OSError(code, os.strerror(code))

    with TrainingFolder(tmp_path / "run", RECIPE) as run:
        save(run, 1, best=1)
        steps = count_steps(run, 2)
        for at in range(1, steps + 1):
            update = at + 2
            before = load(run)[0].state.update
            with pytest.MonkeyPatch.context() as patch:
                Steps(patch, full, at)
                message = outcome(lambda update=update: save(run, update, best=update))
            found, notes = load(run)
            assert notes == []
            if message is None:  # removing old ones may fail after a complete save
                assert found.state.update == update
            else:
                assert re.search("full.*needed, .* free", message)
                assert found.state.update in (before, update)
            assert holds(found, found.state.update)
            assert update_of_model(run) <= found.state.update


def test_missing_disk_space_is_found_before_writing(tmp_path, monkeypatch):
    with TrainingFolder(tmp_path / "run", RECIPE) as run:
        save(run, 1)
        usage = shutil.disk_usage(tmp_path)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=100))
        with pytest.raises(MachineError, match=r"disk .* is full: .* needed, 100 B free"):
            save(run, 2)
        assert [path.name for path in run.checkpoints_dir.iterdir()] == ["u000001"]


def test_a_full_disk_leaves_no_partial_log_line(tmp_path, monkeypatch):
    with TrainingFolder(tmp_path / "run", RECIPE) as run:
        log = MetricsLog(run)
        log.record({"update": 1})
        real = os.write
        monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:5]))
        with pytest.raises(MachineError, match=r"metrics\.jsonl: the disk .* is full"):
            log.record({"update": 2})
        with pytest.raises(MachineError, match=r"train\.log: the disk .* is full"):
            log.text("a line")
        monkeypatch.undo()
        assert run.metrics_file.read_text() == '{"update": 1}\n'
        assert run.log_file.read_text() == ""


def test_a_full_disk_keeps_the_old_summary(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    with TrainingFolder(tmp_path / "run", RECIPE) as run:
        write_summary(run, {"status": "stopped"})
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(MachineError, match="is full"):
            write_summary(run, {"status": "finished"})
        monkeypatch.undo()
        assert read_summary(run) == {"status": "stopped"}
        assert not list(run.path.glob(".tmp-*"))


def test_no_permission_is_found_before_training(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(MachineError, match=f"{tmp_path}: no permission to write") as caught:
        TrainingFolder(tmp_path / "run", RECIPE)
    assert caught.value.exit_code == 4


def test_a_read_only_file_system_names_the_path(tmp_path, monkeypatch):
    def refuse(*arguments, **named):
        raise OSError(errno.EROFS, "Read-only file system")

    run = TrainingFolder(tmp_path / "run", RECIPE)
    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(MachineError, match=r"(?s)run: Read-only file system.*out=PATH"):
        run.__enter__()


@pytest.mark.parametrize("gone", ["deleted", "renamed"])
def test_a_folder_that_disappears_is_not_created_again(tmp_path, gone):
    with TrainingFolder(tmp_path / "run", RECIPE) as run:
        log = MetricsLog(run)
        save(run, 1)
        if gone == "deleted":
            shutil.rmtree(run.path)
        else:
            run.path.rename(tmp_path / "other")
        with pytest.raises(MachineError, match="moved, deleted or unmounted"):
            save(run, 2)
        for write in (
            lambda: log.text("a line"),
            lambda: log.record({"update": 2}),
            lambda: write_summary(run, {}),
        ):
            with pytest.raises(MachineError, match="No such file"):
                write()
    assert not run.path.exists()


def test_a_strict_umask_and_a_missing_home_work(tmp_path, monkeypatch):
    monkeypatch.delenv("HOME", raising=False)
    before = os.umask(0o077)
    try:
        run = trained(tmp_path / "run", 1)
    finally:
        os.umask(before)
    assert holds(load(run)[0], 1)
    assert (run.checkpoints()[0] / "state.json").stat().st_mode & 0o077 == 0


def test_a_checkpoint_that_is_replaced_while_it_is_read(tmp_path, monkeypatch):
    with TrainingFolder(tmp_path / "run", RECIPE) as run:
        save(run, 1, best=1)
        real = module.read_checkpoint

        def late(path, with_optimizer=True):
            monkeypatch.undo()
            save(run, 2, best=2)
            return real(path, with_optimizer)

        monkeypatch.setattr(module, "read_checkpoint", late)
        assert holds(load(RunFolder.open(run.path))[0], 2)


@pytest.mark.parametrize("exchanges", [True, False])
def test_a_model_that_is_replaced_while_it_is_read(tmp_path, exchanges, monkeypatch):
    if not exchanges:  # on a disk that cannot exchange two names
        monkeypatch.setattr(files, "_exchange", lambda one, other: False)
    with TrainingFolder(tmp_path / "run", RECIPE) as run:
        save(run, 1, best=1)
        read = iter((2, 3))

        def late(models):
            (model,) = models
            if update := next(read, None):
                save(run, update, best=update)
            return read_tensors(model.path / WEIGHTS, model.entry(WEIGHTS))

        assert same(read_models([run.path], late), weights(3))


def test_metrics_truncated_at_any_byte_are_repaired(tmp_path):
    with TrainingFolder(tmp_path / "run", RECIPE) as run:
        log = MetricsLog(run)
        for update in (1, 2, 3):
            log.record({"update": update, "text": "é"})
        intact = run.metrics_file.read_bytes()
        for size in range(len(intact)):
            run.metrics_file.write_bytes(intact[:size])
            log.rewind(3)
            log.record({"update": 4})
            updates = [json.loads(line)["update"] for line in run.metrics_file.open()]
            complete = intact[:size].count(b"}")
            assert updates == [*range(1, complete + 1), 4]
