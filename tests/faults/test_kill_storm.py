"""Commands that are killed again and again end as if they had never been stopped."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from nmt.cli.train import main
from nmt.training.trainer import Trainer
from tests import final_reports
from tests.long import kill_storm
from tests.test_resume import call_after
from tests.toy import toy_corpus, toy_recipe

TRAINING: dict[str, Any] = {
    "model": {"dropout": 0.3},
    "train": {"validate_every": 20, "max_validations": 5, "log_every": 5, "keep": 2},
}


def ended(child: int) -> int:
    """Wait for a process; return its exit code, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def log_of(run: Path) -> bytes:
    log = run / "train.log"
    return log.read_bytes() if log.exists() else b""


@pytest.mark.slow
def test_commands_survive_kills_at_any_time(capsys):
    pytest.importorskip("transformers", reason="nmt-convert needs a model to convert")
    pytest.importorskip("fastapi", reason="nmt-serve needs it")
    assert kill_storm.main(["--kills", "20"]) == 0, capsys.readouterr().out


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
