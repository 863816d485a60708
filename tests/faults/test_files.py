"""Files, disk, locks, checkpoints, signals: whatever happens, nothing is lost or half believed."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import pickle
import re
import shutil
import signal
import struct
from pathlib import Path

import pytest
import safetensors.torch
import torch

from nmt.errors import MachineError, UserError
from nmt.run import checkpoint as checkpoint_module
from nmt.run import files
from nmt.run.checkpoint import load_checkpoint
from nmt.run.folder import RunFolder, update_of
from nmt.run.logs import MetricsLog
from nmt.run.signals import stop_signals
from tests.run_cases import RECIPE, moments, same, save, trained, weights

FILES = ("model.safetensors", "optimizer.safetensors", "state.json", "manifest.json")


def reopen(path: Path) -> RunFolder:
    return RunFolder.for_training(path, RECIPE, resume=True)


def load(run: RunFolder, which: str = "latest"):
    """(checkpoint, what was said)"""
    said: list[str] = []
    return load_checkpoint(run, which, say=said.append), said


def holds(checkpoint, update: int) -> bool:
    return (
        checkpoint.state.update == update
        and same(checkpoint.model, weights(update))
        and same(checkpoint.optimizer, moments(update))
    )


def resign(folder: Path) -> None:
    """Makes the manifest fit the files, as one who means harm would."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    for name in manifest["files"]:
        data = (folder / name).read_bytes()
        manifest["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    path.write_text(json.dumps(manifest))


class Steps:
    """Counts the file operations of a save, and acts before the n-th."""

    def __init__(self, monkeypatch, act, at: int | None) -> None:
        self.count, self.act, self.at = 0, act, at
        for name in ("fsync", "rename", "replace", "mkdir", "unlink"):
            monkeypatch.setattr(os, name, self.wrap(getattr(os, name)))
        monkeypatch.setattr(files, "open", self.wrap(open), raising=False)
        monkeypatch.setattr(shutil, "rmtree", self.wrap(shutil.rmtree))

    def wrap(self, real):
        def step(*arguments, **named):
            self.count += 1
            if self.count == self.at:
                self.act()
            return real(*arguments, **named)

        return step


def outcome(act) -> str | None:
    """What a MachineError says, None when all went well."""
    try:
        act()
    except MachineError as error:
        return str(error)
    return None


def count_steps(run: RunFolder, *updates: int) -> int:
    with pytest.MonkeyPatch.context() as patch:
        steps = Steps(patch, None, None)
        for update in updates:
            save(run, update, best=update)
    return steps.count


# --- killed, at any step and any byte -----------------------------------------------------------


@pytest.mark.parametrize("update", [2, 1], ids=["a new update", "the same update again"])
def test_sigkill_at_every_step_of_a_save(tmp_path, update):
    with RunFolder.for_training(tmp_path / "counted", RECIPE) as run:
        save(run, 1, best=1)
        steps = count_steps(run, update)
    assert steps > 10
    for at in range(1, steps + 1):
        path = tmp_path / f"run{at}"
        child = os.fork()
        if child == 0:
            try:
                run = RunFolder.for_training(path, RECIPE)
                with run, pytest.MonkeyPatch.context() as patch:
                    save(run, 1, best=1)
                    Steps(patch, lambda: os.kill(os.getpid(), signal.SIGKILL), at)
                    save(run, update, best=update)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL

        with reopen(path) as run:  # the dead process' lock is stale
            found, said = load(run)
            assert holds(found, 1) or holds(found, update)
            if update > 1 and holds(found, 1):
                drafts = list(run.checkpoints_dir.glob(".tmp-*"))
                assert bool(drafts) == bool(said)
                assert set(said) <= {"checkpoint u000002 is incomplete, using u000001"}
            for folder in run.checkpoints():  # a name that is there is complete
                name = folder.name.removeprefix(".old-")
                assert holds(load(run, name)[0], update_of(name))
            assert load(run, "best")[0].state.update in (1, update)
            save(run, 3, best=3)
            assert [p.name for p in run.checkpoints_dir.iterdir()] == ["u000003"]
            assert run.best() == "u000003"


def test_a_checkpoint_whose_replacement_was_killed_comes_back(tmp_path):
    run = trained(tmp_path / "run", 1)
    run.checkpoints()[0].rename(run.checkpoints_dir / ".old-u000001")
    with reopen(run.path) as run:
        assert run.resuming
        assert holds(load(run)[0], 1)
        assert holds(load(run, "u000001")[0], 1)
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


def test_a_checkpoint_cut_at_any_byte_is_not_believed(tmp_path):
    run = trained(tmp_path / "run", 1, 2)
    newest = run.checkpoints()[-1]
    for name in FILES:
        whole = (newest / name).read_bytes()
        for size in range(0, len(whole), 7):
            (newest / name).write_bytes(whole[:size])
            found, said = load(run)
            assert holds(found, 1)
            assert name in said[0]
            assert said[-1] == "using checkpoint u000001 instead"
        (newest / name).write_bytes(whole)
    assert holds(load(run)[0], 2)


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
def test_a_flipped_bit_anywhere_is_not_believed(tmp_path, name):
    run = trained(tmp_path / "run", 1, 2)
    path = run.checkpoints()[-1] / name
    whole = path.read_bytes()
    for place in range(0, len(whole), 5):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        found, said = load(run)
        assert holds(found, 1)
        assert f"{name}: damaged: its SHA-256" in said[0]


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(tmp_path, name):
    run = trained(tmp_path / "run", 1, 2)
    (run.checkpoints()[-1] / name).unlink()
    found, said = load(run)
    assert holds(found, 1)
    assert f"{name}: missing" in said[0]
    with pytest.raises(UserError, match=f"{name}: missing"):
        load(run, "u000002")


def test_a_damaged_best_is_an_error_not_another_model(tmp_path):
    with RunFolder.for_training(tmp_path / "run", RECIPE) as run:
        save(run, 1, best=1, keep=9)
        save(run, 2, best=1, keep=9)
    (run.checkpoints()[0] / "model.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match=r"u000001/model\.safetensors: damaged"):
        load(run, "best")


def test_all_damaged_lists_each(tmp_path):
    run = trained(tmp_path / "run", 1, 2)
    for folder in run.checkpoints():
        (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match=r"(?s)u000002.*u000001.*--fresh"):
        load(run)


def test_after_a_fallback_the_damaged_one_does_not_outlive_the_good(tmp_path):
    with RunFolder.for_training(tmp_path / "run", RECIPE) as run:
        save(run, 10, best=10, keep=2)
        save(run, 20, best=20, keep=2)
    (run.checkpoints()[-1] / "model.safetensors").write_bytes(b"")
    with reopen(run.path) as run:
        assert holds(load(run)[0], 10)
        save(run, 15, best=10, keep=1)
        assert [path.name for path in run.checkpoints()] == ["u000010", "u000015"]
        assert load(run, "best")[0].state.update == 10
        assert holds(load(run)[0], 15)


def test_a_power_cut_finds_everything_flushed_before_its_name(tmp_path, monkeypatch):
    events: list[str] = []
    real_fsync, real_rename = os.fsync, os.rename

    def fsync(descriptor):
        events.append("flush " + os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        real_fsync(descriptor)

    def rename(source, target):
        events.append(f"name {Path(target).name}")
        real_rename(source, target)

    with RunFolder.for_training(tmp_path / "run", RECIPE) as run:
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

    with RunFolder.for_training(tmp_path / "run", RECIPE) as run:
        save(run, 1, best=1)
        steps = count_steps(run, 2)
        for at in range(1, steps + 1):
            update = at + 2
            before = load(run)[0].state.update
            with pytest.MonkeyPatch.context() as patch:
                Steps(patch, full, at)
                message = outcome(lambda update=update: save(run, update, best=update))
            found, said = load(run)
            assert said == []
            if message is None:  # removing old ones may fail, the save is whole
                assert found.state.update == update
            else:
                assert re.search("full.*needed, .* free", message)
                assert found.state.update in (before, update)
            assert holds(found, found.state.update)
            best = load(run, "best")[0]
            assert holds(best, best.state.update)


def test_too_little_room_is_found_before_a_byte_is_written(tmp_path, monkeypatch):
    with RunFolder.for_training(tmp_path / "run", RECIPE) as run:
        save(run, 1)
        usage = shutil.disk_usage(tmp_path)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=100))
        with pytest.raises(MachineError, match=r"disk .* is full: .* needed, 100 B free"):
            save(run, 2)
        assert [path.name for path in run.checkpoints_dir.iterdir()] == ["u000001"]


def test_disk_full_in_the_logs_leaves_no_torn_line(tmp_path, monkeypatch):
    with RunFolder.for_training(tmp_path / "run", RECIPE) as run:
        log = MetricsLog(run, echo=lambda line: None)
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


def test_disk_full_in_a_report_keeps_the_old_one(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    with RunFolder.for_training(tmp_path / "run", RECIPE) as run:
        run.write_summary({"status": "stopped"})
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(MachineError, match="is full"):
            run.write_summary({"status": "finished"})
        monkeypatch.undo()
        assert run.summary() == {"status": "stopped"}
        assert not list(run.path.glob(".tmp-*"))


def test_no_permission_is_found_before_training(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(MachineError, match=f"{tmp_path}: no permission to write") as caught:
        RunFolder.for_training(tmp_path / "run", RECIPE)
    assert caught.value.exit_code == 4


def test_a_read_only_file_system_names_the_path(tmp_path, monkeypatch):
    def refuse(*arguments, **named):
        raise OSError(errno.EROFS, "Read-only file system")

    run = RunFolder.for_training(tmp_path / "run", RECIPE)
    monkeypatch.setattr(os, "mkdir", refuse)
    with pytest.raises(MachineError, match=r"(?s)run: Read-only file system.*out=PATH"):
        run.__enter__()


@pytest.mark.parametrize("gone", ["deleted", "renamed"])
def test_a_folder_that_goes_away_during_the_run_is_not_made_anew(tmp_path, gone):
    with RunFolder.for_training(tmp_path / "run", RECIPE) as run:
        log = MetricsLog(run, echo=lambda line: None)
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
            lambda: run.write_summary({}),
            lambda: run.set_best("u000001"),
        ):
            with pytest.raises(MachineError, match="No such file"):
                write()
    assert not run.path.exists()


def test_a_strict_umask_and_no_home(tmp_path, monkeypatch):
    monkeypatch.delenv("HOME", raising=False)
    before = os.umask(0o077)
    try:
        run = trained(tmp_path / "run", 1)
    finally:
        os.umask(before)
    assert holds(load(run)[0], 1)
    assert (run.checkpoints()[0] / "state.json").stat().st_mode & 0o077 == 0


# --- two trainings ------------------------------------------------------------------------------


def test_a_second_training_is_refused_until_the_first_is_gone(tmp_path):
    ready = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with RunFolder.for_training(tmp_path / "run", RECIPE) as run:
                save(run, 1)
                os.write(ready[1], b"x")
                signal.pause()
        finally:
            os._exit(1)
    os.read(ready[0], 1)
    for flags in ({}, {"resume": True}, {"fresh": True}):
        with pytest.raises(MachineError, match=f"in use by pid {child} on .* since") as caught:
            RunFolder.for_training(tmp_path / "run", RECIPE, **flags)
        assert caught.value.exit_code == 4
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with reopen(tmp_path / "run") as run:
        assert holds(load(run)[0], 1)


def test_two_that_start_at_once(tmp_path):
    first = RunFolder.for_training(tmp_path / "run", RECIPE)
    second = RunFolder.for_training(tmp_path / "run", RECIPE)
    with first:
        save(first, 1)
        with pytest.raises(MachineError, match="in use"):
            second.__enter__()
    with pytest.raises(UserError, match="--resume"):  # the first one's work is there now
        second.__enter__()
    assert holds(load(RunFolder.open(tmp_path / "run"))[0], 1)
    assert not (tmp_path / "run" / "lock").exists()


def test_a_training_that_lost_its_folder_writes_nothing(tmp_path):
    with RunFolder.for_training(tmp_path / "run", RECIPE) as run:
        save(run, 1)
        (run.path / "lock").unlink()
        with reopen(run.path) as other:
            with pytest.raises(MachineError, match="took the run folder over"):
                save(run, 2)
            assert holds(load(other)[0], 1)


# --- signals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_during_a_save_lets_it_end(tmp_path, number):
    with RunFolder.for_training(tmp_path / "run", RECIPE) as run, stop_signals() as stop:
        with pytest.MonkeyPatch.context() as patch:
            Steps(patch, lambda: os.kill(os.getpid(), number), 3)
            save(run, 1)
        assert stop.requested == number.name
        assert holds(load(run)[0], 1)


def test_the_second_ctrl_c_at_every_step_of_a_save(tmp_path):
    with RunFolder.for_training(tmp_path / "run", RECIPE) as run:
        save(run, 1, best=1)
        steps = count_steps(run, 2)
        for at in range(1, steps + 1):
            before, update = load(run)[0].state.update, at + 2
            with pytest.MonkeyPatch.context() as patch, stop_signals():
                os.kill(os.getpid(), signal.SIGINT)
                Steps(patch, lambda: os.kill(os.getpid(), signal.SIGINT), at)
                with pytest.raises(KeyboardInterrupt):
                    save(run, update, best=update)
            found = load(run)[0]
            assert found.state.update in (before, update)
            assert holds(found, found.state.update)


# --- what others made ---------------------------------------------------------------------------


class Harm:
    def __reduce__(self):
        return (os._exit, (99,))


def test_a_pt_file_in_place_of_safetensors_runs_no_code(tmp_path):
    run = trained(tmp_path / "run", 1)
    folder = run.checkpoints()[0]
    for write in (
        lambda path: torch.save({"w": Harm()}, path),
        lambda path: path.write_bytes(pickle.dumps(Harm())),
    ):
        write(folder / "model.safetensors")
        resign(folder)
        with pytest.raises(UserError, match="not a checkpoint of this toolkit"):
            load(run, "u000001")


def test_a_folder_with_a_pt_file_alone(tmp_path):
    run = trained(tmp_path / "run", 1)
    shutil.rmtree(run.checkpoints()[0])
    (run.checkpoints_dir / "u000002").mkdir()
    torch.save({"w": torch.ones(1)}, run.checkpoints_dir / "u000002" / "model.pt")
    with pytest.raises(UserError, match="not a complete checkpoint of this toolkit"):
        load(run)


@pytest.mark.parametrize("name", ["../../../secret", "/etc/passwd", "model.safetensors/../x", ""])
def test_a_manifest_reaches_nothing_outside_its_folder(tmp_path, name, monkeypatch):
    (tmp_path / "secret").write_text("secret")
    run = trained(tmp_path / "run", 1)
    path = run.checkpoints()[0] / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["files"][name] = manifest["files"].pop("model.safetensors")
    path.write_text(json.dumps(manifest))
    read = []
    real = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda self: read.append(self.name) or real(self))
    with pytest.raises(UserError, match="not a checkpoint of this toolkit"):
        load(run, "u000001")
    assert read == ["manifest.json"]


@pytest.mark.parametrize("name", FILES)
def test_a_link_is_refused(tmp_path, name):
    run = trained(tmp_path / "run", 1)
    path = run.checkpoints()[0] / name
    path.rename(tmp_path / "outside")
    path.symlink_to(tmp_path / "outside")
    with pytest.raises(UserError, match=r"(?s)not a checkpoint.*links"):
        load(run, "u000001")


def test_a_checkpoint_that_is_a_link_or_a_file_is_refused(tmp_path):
    other = trained(tmp_path / "other", 1)
    run = trained(tmp_path / "run", 1)
    (run.checkpoints_dir / "u000002").symlink_to(other.checkpoints()[0])
    (run.checkpoints_dir / "u000003").write_text("")
    for name in ("u000002", "u000003"):
        with pytest.raises(UserError, match="not a checkpoint of this toolkit"):
            load(run, name)


@pytest.mark.parametrize("name", ["../other/checkpoints/u000001", "/etc", "", "u1", "x" * 10**6])
def test_best_cannot_name_anything_else(tmp_path, name):
    run = trained(tmp_path / "run", 1)
    run.best_file.write_text(name)
    with pytest.raises(UserError, match=r"best: names no checkpoint of this run"):
        load(run, "best")


@pytest.mark.parametrize(
    "header",
    [
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 2) + b"{}" + b"\0" * 100,
        (lambda text: struct.pack("<Q", len(text)) + text)(
            b'{"w":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}}'
        ),
        (lambda text: struct.pack("<Q", len(text)) + text)(b"[" * 100_000),
        b"",
        b"\0" * 7,
    ],
    ids=["header", "rest", "tensor", "nesting", "empty", "short"],
)
def test_a_header_with_huge_sizes_is_refused(tmp_path, header):
    run = trained(tmp_path / "run", 1)
    folder = run.checkpoints()[0]
    (folder / "model.safetensors").write_bytes(header)
    resign(folder)
    with pytest.raises(UserError, match="not a checkpoint of this toolkit"):
        load(run, "u000001")


@pytest.mark.parametrize("text", ["[" * 10**6, '{"a":' * 10**5, "\xff", "null", "[]", "1e999999"])
def test_a_json_bomb_is_refused(tmp_path, text):
    run = trained(tmp_path / "run", 1)
    folder = run.checkpoints()[0]
    (folder / "state.json").write_text(text, encoding="latin-1")
    resign(folder)
    with pytest.raises(UserError, match="not a checkpoint of this toolkit"):
        load(run, "u000001")
    (folder / "manifest.json").write_text(text, encoding="latin-1")
    with pytest.raises(UserError, match="not a checkpoint of this toolkit"):
        load(run, "u000001")
    run.summary_file.write_text(text)
    assert run.summary() == {}


def test_a_huge_json_file_is_not_read(tmp_path):
    run = trained(tmp_path / "run", 1)
    with open(run.checkpoints()[0] / "manifest.json", "ab") as file:
        file.truncate(1 << 40)
    with pytest.raises(UserError, match="over 16777216 bytes"):
        load(run, "u000001")


def test_a_newer_format_says_who_wrote_it(tmp_path):
    run = trained(tmp_path / "run", 1)
    path = run.checkpoints()[0] / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 2, "nmt": "9.1"}))
    with pytest.raises(UserError, match=r"(?s)written by version 9\.1.*install version 9\.1"):
        load(run, "u000001")


def test_nan_weights_on_the_disk_are_refused_with_their_names(tmp_path):
    run = trained(tmp_path / "run", 1, 2)
    folder = run.checkpoints()[-1]
    broken = {**weights(2), "out_bias": torch.tensor([0.0, float("nan")])}
    safetensors.torch.save_file(broken, folder / "model.safetensors")
    resign(folder)
    with pytest.raises(UserError, match="NaN or infinity in out_bias"):
        load(run, "u000002")
    found, said = load(run)
    assert holds(found, 1)
    assert "NaN or infinity in out_bias" in said[0]


def test_a_checkpoint_replaced_while_it_is_read(tmp_path, monkeypatch):
    with RunFolder.for_training(tmp_path / "run", RECIPE) as run:
        save(run, 1, best=1)
        reader = RunFolder.open(run.path)
        real = checkpoint_module.read_checkpoint

        def late(path, with_optimizer=True):
            monkeypatch.undo()
            save(run, 2, best=2)
            return real(path, with_optimizer)

        for which, update in (("best", 2), ("latest", 2)):
            monkeypatch.setattr(checkpoint_module, "read_checkpoint", late)
            assert holds(load(reader, which)[0], update)


def test_metrics_torn_at_any_byte_are_repaired(tmp_path):
    with RunFolder.for_training(tmp_path / "run", RECIPE) as run:
        log = MetricsLog(run, echo=lambda line: None)
        for update in (1, 2, 3):
            log.record({"update": update, "text": "é"})
        whole = run.metrics_file.read_bytes()
        for size in range(len(whole)):
            run.metrics_file.write_bytes(whole[:size])
            log.rewind(3)
            log.record({"update": 4})
            updates = [json.loads(line)["update"] for line in run.metrics_file.open()]
            complete = whole[:size].count(b"}")
            assert updates == [*range(1, complete + 1), 4]
