from __future__ import annotations

import json
import math
import sys

import numpy as np
import pytest
import torch

from nmt.store.lifecycle import TrainingFolder
from nmt.store.metrics_log import MetricsLog
from tests.run_cases import RECIPE


@pytest.fixture
def run(tmp_path):
    with TrainingFolder(tmp_path / "run", RECIPE) as run:
        yield run


def records(run):
    return [json.loads(line) for line in run.metrics_file.read_text().splitlines()]


def test_a_line_is_printed_and_logged_with_its_time(run, capsys):
    MetricsLog(run).text("update 100 · loss 3.21")
    assert capsys.readouterr().err == "update 100 · loss 3.21\n"
    assert run.log_file.read_text().endswith(" update 100 · loss 3.21\n")


def test_a_record_is_valid_json(run):
    log = MetricsLog(run)
    log.record({"update": np.int64(3), "loss": torch.tensor(0.5), "a": [math.nan, -math.inf]})
    assert records(run) == [{"update": 3, "loss": 0.5, "a": [None, None]}]


def test_rewind_removes_records_after_the_update(run):
    log = MetricsLog(run)
    for update in (1, 2, 3, 4):
        log.record({"update": update})
    log.rewind(2)
    log.record({"update": 3, "again": True})
    assert records(run) == [{"update": 1}, {"update": 2}, {"update": 3, "again": True}]


@pytest.mark.parametrize(("validated", "kept"), [(True, [2, 4, 4]), (False, [2, 4])])
def test_rewind_removes_a_validation_that_the_checkpoint_does_not_know(run, validated, kept):
    """A stop saves update 4 before its validation; a kill may follow after the record of that."""
    log = MetricsLog(run)
    for kind, update in (("dev", 2), ("train", 4), ("dev", 4)):
        log.record({"kind": kind, "update": update})
    log.rewind(4, validated)
    assert [record["update"] for record in records(run)] == kept


@pytest.mark.parametrize("torn", ['{"update": 2, "lo', "\0\0\0", '{"update": 2}\n{"upd', "[1]\n"])
def test_rewind_removes_an_incomplete_last_line(run, torn):
    MetricsLog(run).record({"update": 1})
    with open(run.metrics_file, "a") as file:
        file.write(torn)
    log = MetricsLog(run)
    log.rewind(5)
    log.record({"update": 6})
    assert [record["update"] for record in records(run)] in ([1, 6], [1, 2, 6])


def test_rewind_does_not_rewrite_an_intact_file(run):
    log = MetricsLog(run)
    log.record({"update": 1, "text": "é\u2028"})
    before = run.metrics_file.stat()
    log.rewind(1)
    assert run.metrics_file.stat().st_ino == before.st_ino
    assert len(run.metrics_file.read_text().split("\n")) == 2


class Failing:
    """A tracker that fails with the first record."""

    name = "Tracker"

    def begin(self, update):
        self.calls = [("begin", update)]

    def log(self, update, values):
        self.calls.append(("log", update, values))
        raise RuntimeError("it is broken")

    def close(self):
        self.calls.append("close")


class Working(Failing):
    def log(self, update, values):
        self.calls.append(("log", update, values))


def test_a_failing_tracker_causes_one_warning_and_the_others_continue(run, capsys):
    failing, working = Failing(), Working()
    with MetricsLog(run, [failing, working]) as log:
        log.rewind(3)
        log.record({"update": 4, "loss": 0.5, "kind": "dev", "note": "text"})
        log.record({"update": 5, "loss": 0.25})
    assert capsys.readouterr().err == "warning: Tracker is off, it failed: it is broken\n"
    assert [record["loss"] for record in records(run)] == [0.5, 0.25]
    assert failing.calls == [("begin", 3), ("log", 4, {"dev/loss": 0.5})]
    assert working.calls == [*failing.calls, ("log", 5, {"train/loss": 0.25}), "close"]


def test_without_a_console_lines_are_only_in_the_file(run, capsys):
    MetricsLog(run, console=False).text("one")
    log = MetricsLog(run)
    log.text("two", on_console=False)
    log.text("three")
    assert capsys.readouterr().err == "three\n"
    assert [line[-3:] for line in run.log_file.read_text().splitlines()] == ["one", "two", "ree"]


def test_a_closed_terminal_does_not_stop_training(run, monkeypatch):
    class Gone:
        def write(self, text):
            raise OSError(5, "Input/output error")

        def flush(self):
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(sys, "stderr", Gone())
    MetricsLog(run).text("still here")
    assert "still here" in run.log_file.read_text()
