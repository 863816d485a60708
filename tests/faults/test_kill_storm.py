"""Runs that are killed again and again end as if they had never been stopped."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from nmt.cli.train import main
from nmt.training.trainer import Trainer
from tests import final_reports
from tests.test_resume import call_after, difference, result
from tests.toy import toy_corpus, toy_recipe

KILLS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
ENDINGS = {
    0,
    -signal.SIGKILL,
    130,
    *(-number for number in KILLS),  # before the command has installed its handlers
    *(128 + number for number in KILLS),
}
MUON = {"kind": "muon", "betas": [0.9, 0.98]}
NOISE = {"kind": "fastbpe", "merges": 12, "dropout": 0.1}
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "adam": {},
    "muon": {"optim": MUON},
    "bpe-dropout": {"segment": NOISE},
    "bf16": {"precision": "bf16"},
    "all": {"optim": MUON, "segment": NOISE, "precision": "bf16"},
}
TRAINING: dict[str, Any] = {
    "model": {"dropout": 0.3},
    "train": {"validate_every": 20, "max_validations": 5, "log_every": 5, "keep": 2},
}


def start(recipe: str, run: Path, *flags: str) -> int:
    """Start nmt-train in a process of its own and return its id."""
    child = os.fork()
    if child:
        return child
    code = 99
    try:
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        os.dup2(1, 2)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code = main([recipe, f"out={run}", *flags])
    except KeyboardInterrupt:  # before the command handles it
        code = 130
    finally:
        os._exit(code)


def ended(child: int) -> int:
    """Wait for a process; return its exit code, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def log_of(run: Path) -> bytes:
    log = run / "train.log"
    return log.read_bytes() if log.exists() else b""


def wait_for_lines(run: Path, count: int, child: int) -> None:
    """Wait until a process has logged this many lines more, or has ended."""

    before = log_of(run).count(b"\n")
    while log_of(run).count(b"\n") < before + count:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT | os.WNOHANG):
            return
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_training_survives_kills_at_any_time(name, tmp_path):
    toy_corpus(tmp_path, {"train": 150, "dev": 8, "test": 8})
    recipe = str(toy_recipe(tmp_path, {**TRAINING, **CONFIGURATIONS[name]}))
    assert main([recipe, f"out={tmp_path / 'expected'}"]) == 0  # here: the others start faster
    rng, run, killed = random.Random(name), tmp_path / "run", 0
    for number in KILLS:
        child = start(recipe, run, "--resume")
        wait_for_lines(run, rng.randrange(1, 6), child)
        time.sleep(rng.uniform(0, 0.05))
        os.kill(child, number)
        code = ended(child)
        assert code in ENDINGS, (number, code)
        killed += code != 0
    assert killed == len(KILLS)  # none came after the end
    assert ended(start(recipe, run, "--resume")) == 0
    assert not difference(result(run), result(tmp_path / "expected"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_has_its_exit_code_also_when_nobody_reads_the_errors(
    number, tmp_path, monkeypatch
):
    toy_corpus(tmp_path, {"train": 40, "dev": 4, "test": 4})
    reader, writer = os.pipe()
    os.close(reader)
    monkeypatch.setattr(sys, "stderr", open(writer, "w"))  # noqa: SIM115
    with monkeypatch.context() as patch:
        call_after(patch, Trainer, "update", lambda _: signal.raise_signal(number))
        assert main([str(toy_recipe(tmp_path))]) == 128 + number
    assert list((tmp_path / "run" / "checkpoints").iterdir())
    sys.stderr.close()  # as at the end of the process


@pytest.mark.slow
def test_a_closed_terminal_saves_the_state(tmp_path):
    """The system sends SIGHUP, and nothing can be written to the terminal any more."""
    toy_corpus(tmp_path, {"train": 150, "dev": 8, "test": 8})
    longer = {**TRAINING, "train": {"validate_every": 5000, "max_validations": 1, "log_every": 5}}
    recipe, run = str(toy_recipe(tmp_path, longer)), tmp_path / "run"
    child, terminal = os.forkpty()
    if child == 0:
        code = 99
        try:
            sys.stdout, sys.stderr = open(1, "w"), open(2, "w")  # noqa: SIM115
            code = main([recipe])
        finally:
            os._exit(code)
    try:
        while b"update " not in log_of(run):
            os.read(terminal, 1000)
    finally:
        os.close(terminal)
    assert ended(child) == 128 + signal.SIGHUP
    assert [path.name for path in (run / "checkpoints").iterdir()]


@pytest.mark.slow
def test_the_report_that_a_kill_prevented_is_written(short_run, tmp_path, monkeypatch, capsys):
    run = shutil.copytree(short_run, tmp_path / "run")
    report = run / "report.html"
    assert not report.exists()  # as after a kill between it and summary.json
    command = [str(short_run.parent / "toy.yaml"), f"out={run}", "--resume"]
    final_reports.write(monkeypatch)
    assert main([*command, "--dry-run"]) == 0
    assert not report.exists()
    assert main(command) == 0
    assert report.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert "already finished" in capsys.readouterr().err
