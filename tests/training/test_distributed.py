"""Processes with one batch each train like one process with as many batches."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.cli.train import main
from nmt.errors import UserError
from nmt.runtime.distributed import World, init_distributed
from nmt.store.checkpoint import TrainState, load_checkpoint
from nmt.store.folder import RunFolder
from nmt.store.results import read_summary
from nmt.store.same_run import require_same_update
from tests.toy import toy_corpus, toy_recipe
from tests.training.test_bad_numbers import spoil

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TRAINING: dict[str, Any] = {
    "data": {"batch_tokens": 128},
    # the exact gradient of a key's bias is 0, and Adam turns its rounding errors into real steps
    "model": {"bias": False},
    "schedule": {"kind": "val_decay", "scale": 0.05, "warmup_updates": 2, "patience": 1},
    "train": {"validate_every": 4, "max_validations": 2, "log_every": 3},
}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("digits")
    toy_corpus(folder, {"train": 150, "dev": 8, "test": 8})
    return str(toy_recipe(folder, TRAINING))


PPL = ("ppl", "smoothed_ppl")


def torchrun(
    *arguments: str, processes: int = 2, restarts: int = 0
) -> subprocess.CompletedProcess[str]:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    launch += [f"--nproc-per-node={processes}", f"--max-restarts={restarts}"]
    command = [*launch, "-m", "tests.training.two_processes", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=240)


def records(run: Path) -> list[dict[str, Any]]:
    times = {"seconds", "tokens_per_second", "seconds_left"}
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [{name: r[name] for name in r if name not in times} for r in lines]


@pytest.fixture(scope="module")
def alone(recipe, tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("alone") / "run"
    assert main([recipe, f"out={run}", "optim.accumulate=2"]) == 0
    return run


def stored_tensors(run: Path) -> dict[str, torch.Tensor]:
    checkpoint = load_checkpoint(RunFolder.open(run))
    return checkpoint.model | checkpoint.optimizer


def assert_same_weights(run: Path, other: Path) -> None:
    one, two = (load_checkpoint(RunFolder.open(path)) for path in (run, other))
    assert two.state.history == one.state.history
    for kind in ("model", "optimizer"):
        tensors, others = getattr(one, kind), getattr(two, kind)
        assert tensors.keys() == others.keys()
        for name, tensor in tensors.items():
            torch.testing.assert_close(others[name], tensor, atol=1e-6, rtol=0)


def assert_same_training(run: Path, other: Path) -> None:
    assert_same_weights(run, other)
    for one_record, two_record in zip(records(run), records(other), strict=True):
        one_ppl, two_ppl = ([r.pop(name, 1.0) for name in PPL] for r in (one_record, two_record))
        assert two_ppl == pytest.approx(one_ppl, rel=1e-6)  # of about 12: 1e-6 is below its digits
        assert two_record == pytest.approx(one_record, abs=1e-6)


@pytest.fixture(scope="module", params=["off", pytest.param("full", marks=pytest.mark.slow)])
def together(recipe, tmp_path_factory, request) -> tuple[Path, str]:
    """Return a run of two processes and its ``train.shard``."""
    run, shard = tmp_path_factory.mktemp("together") / "run", request.param
    done = torchrun("terminates", "99", recipe, f"out={run}", f"train.shard={shard}")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("2 processes") == done.stderr.count("training ended") == 1
    assert "the second process ends after the report: True" in done.stderr
    return run, shard


def test_two_processes_equal_one_that_accumulates(alone, together):
    assert_same_training(alone, together[0])


def test_four_processes_and_two_that_continue_equal_one(recipe, tmp_path):
    run, whole = tmp_path / "run", tmp_path / "whole"
    words = ["terminates", "99", recipe, f"out={run}"]
    begun = torchrun(*words, "train.max_validations=1", processes=4)
    assert begun.returncode == 0, begun.stderr
    resumed = torchrun(*words, "optim.accumulate=2", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert main([recipe, f"out={whole}", "optim.accumulate=4"]) == 0
    assert_same_training(whole, run)


@pytest.mark.parametrize(("rank", "shard"), [(0, "off"), (1, "off"), (1, "full")])
def test_a_killed_process_ends_the_other_which_names_it(recipe, tmp_path, rank, shard):
    run = tmp_path / "run"
    words = [recipe, f"out={run}", f"train.shard={shard}", "train.max_validations=9999"]
    done = torchrun(f"kills-{rank}", "3", *words)
    assert time.time() - (run / "killed").stat().st_mtime < 60
    message = next(line for line in done.stderr.splitlines() if line.startswith("nmt-train: "))
    assert f"process {rank} of 2 " in message
    assert "phase: update" in message
    assert "\n  update      3 " in done.stderr  # its last line
    assert re.search(rf"rank +: {1 - rank} .*\n +exitcode +: 3 ", done.stderr)


def test_torchrun_restarts_a_run_from_its_last_checkpoint(alone, recipe, tmp_path):
    run = tmp_path / "run"
    done = torchrun("kills-1", "6", recipe, f"out={run}", "--resume", restarts=1)
    assert done.returncode == 0, done.stderr
    assert "resumed from update 4" in done.stderr
    assert_same_training(alone, run)


def test_restarts_need_resume(recipe, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "1")
    assert main([recipe, f"out={tmp_path / 'run'}"]) == 2
    assert "--resume" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_signal_to_one_process_stops_all(alone, together, recipe, tmp_path):
    """Both continue: the same processes, bit for bit, and one process without sharding."""
    run, (whole, shard) = tmp_path / "run", together
    stopped = torchrun("terminates", "3", recipe, f"out={run}", f"train.shard={shard}")
    assert stopped.returncode != 0
    assert "a signal to another process: saved update 3; to continue, run" in stopped.stderr
    assert load_checkpoint(RunFolder.open(run)).state.update == 3
    other = tmp_path / "other"
    shutil.copytree(run, other)
    same = [recipe, f"out={run}", f"train.shard={shard}", "--resume"]
    resumed = torchrun("terminates", "99", *same)
    assert resumed.returncode == 0, resumed.stderr
    assert_same_training(alone, run)
    expected = stored_tensors(whole)
    for name, tensor in stored_tensors(run).items():
        assert torch.equal(tensor, expected[name]), name
    assert main([recipe, f"out={other}", "--resume", "optim.accumulate=2"]) == 0
    assert_same_training(alone, other)


@pytest.mark.parametrize("shard", ["off", "full"])
@pytest.mark.parametrize("again", [False, True])
def test_bad_gradients_of_one_process_roll_all_back_once(
    recipe, tmp_path, monkeypatch, shard, again
):
    """They equal one process; with bad gradients again, one of them says that all stop."""
    run, whole = tmp_path / "run", tmp_path / "whole"
    keys = [recipe, "train.max_bad_updates=3", "train.max_validations=3"]
    spoil(monkeypatch, again=again)
    assert main([*keys, f"out={whole}", "optim.accumulate=2"]) == (3 if again else 0)
    event = "spoils-again" if again else "spoils"
    done = torchrun(event, "0", *keys, f"out={run}", f"train.shard={shard}")
    assert (done.returncode != 0) == again, done.stderr
    assert done.stderr.count("back at update 4, with half the learning rate") == 1
    assert done.stderr.count("nmt-train: gradients were not finite for 3 updates") == again
    assert load_checkpoint(RunFolder.open(run)).state.rolled_back
    assert read_summary(RunFolder.open(run))["skipped_updates"] == (6 if again else 3)
    if not again:
        assert_same_training(whole, run)
        return
    assert_same_weights(whole, run)
    one, two = ({r["kind"]: r for r in records(path)}["not_finite"] for path in (whole, run))
    assert two["rows"] == one["rows"]  # of both processes
    assert [name for name, norm in two["norms"].items() if norm is None] == ["encoder.layers.0"]


def test_a_run_of_one_process_continues_sharded(alone, recipe, tmp_path):
    run, model = tmp_path / "run", ["model.res_scale=scalar", "optim.kind=radam"]
    begin = [recipe, f"out={run}", *model, "optim.accumulate=2", "train.max_validations=1"]
    assert main(begin) == 0
    done = torchrun(
        "terminates", "99", recipe, f"out={run}", *model, "train.shard=full", "--resume"
    )
    assert done.returncode == 0, done.stderr
    whole = tmp_path / "whole"
    assert main([recipe, f"out={whole}", *model, "optim.accumulate=2"]) == 0
    assert_same_weights(whole, run)


@pytest.mark.parametrize(
    "wrong", ["optim.kind=muon", "precision=fp16", "analysis.observe=[gains] analysis.every=1"]
)
def test_what_does_not_work_sharded_is_refused(recipe, tmp_path, capsys, wrong):
    assert main([recipe, f"out={tmp_path / 'run'}", "train.shard=full", *wrong.split(" ")]) == 2
    message = capsys.readouterr().err
    assert "train.shard: full" in message
    assert wrong.partition("=")[0] in message


def test_another_number_of_processes_needs_the_same_batches(alone, recipe, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(alone, run)
    before = [(run / name).read_bytes() for name in ("config.yaml", "summary.json")]
    more = [recipe, f"out={run}", "train.max_validations=3", "--resume"]
    assert main(more) == 2  # as if two processes had begun it, and one continued
    assert "an update of this run has 2 batches, and would now have 1" in capsys.readouterr().err
    assert [(run / name).read_bytes() for name in ("config.yaml", "summary.json")] == before
    assert main([*more, "optim.accumulate=2"]) == 0


@pytest.mark.parametrize(
    ("known", "accumulate", "processes", "same"),
    [
        (4, 1, 4, True),
        (4, 2, 2, True),
        (4, 1, 2, False),
    ],
)
def test_an_update_keeps_its_number_of_batches(known, accumulate, processes, same):
    state = TrainState(update_batches=known)
    with contextlib.nullcontext() if same else pytest.raises(UserError, match=r"optim\.accumulate"):
        require_same_update(state, accumulate, processes)


def test_a_process_that_fails_ends_all(recipe, tmp_path):
    failed = torchrun("fails", "2", recipe, f"out={tmp_path / 'run'}", "train.max_validations=9999")
    assert failed.returncode != 0
    assert "out of memory (limit of this process)" in failed.stderr
    assert "nmt-train: process 1 of 2 " in failed.stderr
    assert not (tmp_path / "run" / "summary.json").exists()


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="needs Linux's priorities of threads")
@pytest.mark.parametrize("shard", ["off", "full"])
def test_processes_end_well_where_the_threads_of_gloo_are_late(recipe, tmp_path, shard):
    """Such a thread released its tensor while Python ended, and Python aborted."""
    done = torchrun("delays", "0", recipe, f"out={tmp_path / 'run'}", f"train.shard={shard}")
    assert "training ended" in done.stderr
    assert done.returncode == 0, done.stderr


def test_one_process_exchanges_nothing():
    with init_distributed() as world:
        assert world == World()
    assert world.local_device(torch.device("cuda", 1)) == torch.device("cuda", 1)
    tensor = torch.ones(2)
    world.all_reduce_sum([tensor])
    assert tensor.tolist() == [1, 1]
    assert world.all_reduce_max(True, 2.5) == [True, 2.5]
    assert world.broadcast("x") == "x"


def test_processes_cannot_share_a_named_gpu():
    with pytest.raises(UserError, match="device=cuda"):
        World(1, 2, 1).local_device(torch.device("cuda", 1))
    assert World(1, 2, 1).local_device(torch.device("cpu")) == torch.device("cpu")


def test_an_error_is_printed_once(recipe, tmp_path):
    wrong = torchrun("terminates", "99", recipe, f"out={tmp_path / 'run'}", "model.nrom=1")
    assert wrong.returncode != 0
    assert wrong.stderr.count('did you mean "norm"') == 1
    assert "process 0" not in wrong.stderr
