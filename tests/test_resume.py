"""A run that was stopped and resumed equals an uninterrupted one, bit for bit."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nmt.cli.train import main
from nmt.model.transformer import Transformer
from nmt.runtime.distributed import World
from nmt.store.lock import FolderLock
from nmt.training.trainer import Trainer
from tests import final_reports
from tests.toy import toy_corpus, toy_recipe

UPDATES = 12  # three validations; about one and a half passes over the data
# times and what follows from them: hashes, and the commit, because somebody may edit meanwhile
TIMES = {"seconds", "hours", "tokens_per_second", "seconds_left", "sha256", "commit"}
TRAINING: dict[str, Any] = {
    "data": {"batch_tokens": 128},
    "model": {"dropout": 0.3, "word_dropout": 0.1},
    "optim": {"accumulate": 2},
    "schedule": {"kind": "val_decay", "scale": 0.05, "warmup_updates": 2, "patience": 1},
    "train": {"validate_every": 4, "max_validations": 3, "log_every": 3},
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    toy_corpus(folder, {"train": 150, "dev": 8, "test": 8})
    return folder


@pytest.fixture(scope="module")
def recipe(corpus) -> str:
    return str(toy_recipe(corpus, TRAINING))


@pytest.fixture(scope="module")
def uninterrupted(recipe, tmp_path_factory) -> dict[str, Any]:
    run = tmp_path_factory.mktemp("uninterrupted") / "run"
    assert main([recipe, f"out={run}"]) == 0
    return result(run)


def result(run: Path) -> dict[str, Any]:
    """Return everything that a run writes, except times and lines for people."""
    left: dict[str, Any] = {}
    left["metrics"] = [
        timeless(json.loads(line)) for line in (run / "metrics.jsonl").read_text().splitlines()
    ]
    left["summary"] = timeless(json.loads((run / "summary.json").read_text()))
    for path in [
        *run.glob("dev/*"),
        *run.glob("checkpoints/*/*"),
        *run.glob("model/*.*"),
        run / "test.hyp",
    ]:
        name = str(path.relative_to(run))
        if path.name == "state.json":
            left[name] = timeless(json.loads(path.read_text()))
        elif path.name != "manifest.json":  # it has the hash of state.json, which has times
            left[name] = path.read_bytes()
    return left


def timeless(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: timeless(value) if isinstance(value, dict) else value
        for name, value in values.items()
        if name not in TIMES
    }


def call_after(monkeypatch, owner: type, name: str, act: Callable[[Any], None]) -> None:
    """Call ``act`` at the end of each call of a method."""
    real = getattr(owner, name)

    def method(self, *arguments, **named):
        returned = real(self, *arguments, **named)
        act(self)
        return returned

    monkeypatch.setattr(owner, name, method)


def terminate_after(monkeypatch, owner: type, name: str, call: int) -> None:
    """Send SIGTERM at the end of the ``call``-th call of a method."""
    calls = itertools.count(1)

    def act(_: Any) -> None:
        if next(calls) == call:
            signal.raise_signal(signal.SIGTERM)

    call_after(monkeypatch, owner, name, act)


def stop_and_resume(
    recipe: str, run: Path, monkeypatch, owner: type, name: str, call: int
) -> dict[str, Any]:
    with monkeypatch.context() as patch:
        terminate_after(patch, owner, name, call)
        assert main([recipe, f"out={run}"]) == 143
    assert main([recipe, f"out={run}", "--resume"]) == 0
    return result(run)


def difference(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    return [name for name in sorted(a.keys() | b.keys()) if a.get(name) != b.get(name)]


@pytest.mark.slow
def test_the_uninterrupted_run_covers_what_is_tested(uninterrupted):
    state = uninterrupted[f"checkpoints/u{UPDATES:06d}/state.json"]
    assert state["update"] == UPDATES
    assert state["epoch"] >= 1  # a stop can fall into a later epoch
    assert len(state["history"]) == 3
    assert [r["kind"] for r in uninterrupted["metrics"]].count("train") == UPDATES // 3
    lrs = {r["lr"] for r in uninterrupted["metrics"] if r["kind"] == "train"}
    assert len(lrs) > 1  # history has decayed the rate


def test_stopped_again_and_again(uninterrupted, recipe, tmp_path, monkeypatch):
    """Each row: end this call of a method in the resumed process, and the update that is saved."""
    stops = [
        (Trainer, "__init__", 1, 0),
        (Trainer, "update", 1, 1),
        (Trainer, "update", 2, 3),
        (Trainer, "update", 1, 4),  # the stop comes before the validation of this update
        (Transformer, "eval", 1, 4),  # in the validation, before its dev pairs
        (Trainer, "validate", 1, 4),
        (Trainer, "update", 2, 6),
        (Trainer, "update", 1, 7),
        (Transformer, "eval", 1, 8),
        (Trainer, "validate", 1, 8),
        (Trainer, "update", 3, 11),
        (Trainer, "update", 1, 12),
        (Trainer, "validate", 1, 12),
        (Transformer, "eval", 1, 12),  # of the test set
    ]
    run, flags = tmp_path / "run", []
    for owner, name, call, update in stops:
        with monkeypatch.context() as patch:
            terminate_after(patch, owner, name, call)
            assert main([recipe, f"out={run}", *flags]) == 143
        assert max(path.name for path in run.glob("checkpoints/u*")) == f"u{update:06d}"
        flags = ["--resume"]
    assert main([recipe, f"out={run}", "--resume"]) == 0
    assert not difference(result(run), uninterrupted)


@pytest.mark.slow
def test_a_resumed_run_has_no_test_output_until_it_ends_again(recipe, tmp_path, monkeypatch):
    """Else nmt-score would take the output of an earlier checkpoint for that of the best one.

    The report of the earlier end would be outdated too.
    """
    final_reports.write(monkeypatch)
    command = [recipe, f"out={tmp_path / 'run'}"]
    assert main([*command, "time_limit=1e-9"]) == 0
    outputs = [tmp_path / "run" / name for name in ("test.hyp", "test.words", "report.html")]
    assert all(path.is_file() for path in outputs)
    with monkeypatch.context() as patch:
        terminate_after(patch, Trainer, "update", 2)
        assert main([*command, "--resume"]) == 143
    assert not any(path.exists() for path in outputs)


@pytest.mark.slow
@pytest.mark.usefixtures("jumping_clock")
def test_a_wall_clock_that_jumps_changes_nothing(uninterrupted, recipe, tmp_path, monkeypatch):
    """Neither a result, nor a time, the time limit, or what another process sees of the lock."""
    run, began = tmp_path / "run", time.monotonic()
    in_use = []
    call_after(monkeypatch, Trainer, "update", lambda _: in_use.append(FolderLock(run).in_use()))
    for flags, update in (([], 3), (["--resume"], 4)):
        with monkeypatch.context() as patch:
            terminate_after(patch, Trainer, "update", update)
            assert main([recipe, f"out={run}", "time_limit=24", *flags]) == 143
    assert main([recipe, f"out={run}", "time_limit=24", "--resume"]) == 0
    assert in_use == [True] * UPDATES
    assert not difference(result(run), uninterrupted)
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    times = [record["seconds"] for record in records if "seconds" in record]
    assert times == sorted(times)
    assert 0 < times[0] < times[-1] < time.monotonic() - began
    steps = [record for record in records if record["kind"] == "train"]
    assert all(record["seconds_left"] >= 0 < record["tokens_per_second"] for record in steps)
    assert 0 < json.loads((run / "summary.json").read_text())["hours"] < times[-1] / 3600 + 0.1


def test_a_stop_of_another_process_is_named(recipe, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(World, "all_reduce_max", lambda world, stop, seconds: [True, seconds])
    assert main([recipe, f"out={tmp_path / 'run'}"]) == 143
    assert "a signal to another process: saved update 0; to continue" in capsys.readouterr().err


@pytest.mark.slow
def test_killed_without_a_save_continues_from_the_last_validation(
    uninterrupted, recipe, tmp_path, monkeypatch
):
    def killed(trainer: Trainer) -> None:
        if trainer.state.update == 7:
            raise MemoryError

    with monkeypatch.context() as patch:
        call_after(patch, Trainer, "update", killed)
        assert main([recipe, f"out={tmp_path / 'run'}"]) == 4
    assert main([recipe, f"out={tmp_path / 'run'}", "--resume"]) == 0
    assert not difference(result(tmp_path / "run"), uninterrupted)
    assert " resumed from update 4\n" in (tmp_path / "run" / "train.log").read_text()


@pytest.mark.slow
def test_killed_while_it_saves_the_validation_of_a_stopped_update(
    uninterrupted, recipe, tmp_path, monkeypatch
):
    """The validation is logged, but the newest checkpoint is from the stop before it."""
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        terminate_after(patch, Trainer, "update", 4)
        assert main([recipe, f"out={run}"]) == 143

    def killed(trainer: Trainer) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "save", killed)
        assert main([recipe, f"out={run}", "--resume"]) == 4
    assert main([recipe, f"out={run}", "--resume"]) == 0
    assert not difference(result(run), uninterrupted)


@pytest.mark.slow
def test_a_stopped_run_averages_the_same_checkpoints(recipe, tmp_path, monkeypatch):
    averaging = [recipe, "train.average=2"]
    assert main([*averaging, f"out={tmp_path / 'uninterrupted'}"]) == 0
    command = [*averaging, f"out={tmp_path / 'run'}"]
    stops = [
        (Trainer, "update", 11),  # the checkpoint of this stop is not averaged
        (Transformer, "eval", 2),  # after the validation of update 12: the average's on dev
        (Transformer, "eval", 2),  # after that of the average: the test's
    ]
    for owner, name, call in stops:
        with monkeypatch.context() as patch:
            terminate_after(patch, owner, name, call)
            assert main(command) == 143
        command = [*averaging, f"out={tmp_path / 'run'}", "--resume"]
    assert main(command) == 0
    assert not difference(result(tmp_path / "run"), result(tmp_path / "uninterrupted"))


@pytest.mark.slow
def test_a_resumed_lr_ramp_knows_its_lowest_loss(recipe, tmp_path, monkeypatch):
    """It ends by the ratio to the lowest loss, which may lie before the stop."""
    ramp = [recipe, "schedule.kind=lr_ramp", "schedule.lr_per_update=0.05"]
    ramp += ["schedule.stop_loss_ratio=1.02", "train.log_every=1"]
    assert main([*ramp, f"out={tmp_path / 'uninterrupted'}"]) == 0
    uninterrupted = result(tmp_path / "uninterrupted")
    assert uninterrupted["summary"]["reason"] == (
        "loss over 1.02 times its lowest (stop_loss_ratio)"
    )
    last = uninterrupted["summary"]["updates"]
    losses = [r["loss"] for r in uninterrupted["metrics"] if r["kind"] == "train"]
    assert losses.index(min(losses)) < last - 1
    for update in (last - 1, last):
        run = tmp_path / f"run{update}"
        with monkeypatch.context() as patch:
            terminate_after(patch, Trainer, "update", update)
            assert main([*ramp, f"out={run}"]) == 143
        assert main([*ramp, f"out={run}", "--resume"]) == 0
        assert not difference(result(run), uninterrupted)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_stops_the_command(number, code, recipe, tmp_path):
    run = tmp_path / "run"
    command = [
        sys.executable,
        "-m",
        "nmt.cli.train",
        recipe,
        f"out={run}",
        "train.max_validations=9999",
    ]
    command += ["train.stop_patience=9999"]
    started = time.monotonic()
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        while not list(run.glob("checkpoints/u*")):
            assert process.poll() is None
            assert time.monotonic() - started < 120
            time.sleep(0.1)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == code
    saved = max(run.glob("checkpoints/u*"))
    assert f"{signal.Signals(number).name}: saved update {int(saved.name[1:])}" in err
    assert main([recipe, f"out={run}", "train.max_validations=1", "--resume"]) == 0
