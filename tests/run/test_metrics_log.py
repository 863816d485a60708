from __future__ import annotations

import json
import math
import sys
import types

import numpy as np
import pytest
import torch

from nmt.run import metrics_log
from nmt.run.lifecycle import TrainingFolder
from nmt.run.metrics_log import MetricsLog
from tests.run_cases import RECIPE


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setattr(metrics_log.importlib.util, "find_spec", lambda name: None)
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


class Board:
    def __init__(self, folder, purge_step):
        self.folder, self.purge_step, self.drawn = folder, purge_step, []
        Board.last = self

    def add_scalar(self, tag, value, update):
        self.drawn.append((tag, value, update))

    def close(self):
        self.closed = True


@pytest.fixture
def board(run, monkeypatch):
    monkeypatch.setattr(metrics_log.importlib.util, "find_spec", lambda name: object())
    module = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Board
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    return Board


def test_tensorboard_gets_numbers_grouped_by_kind(run, board):
    with MetricsLog(run) as log:
        log.rewind(9)
        log.record({"update": 10, "loss": 0.5, "kind": "train", "note": "text"})
        log.record({"update": 10, "bleu": 12.5, "kind": "dev"})
    assert board.last.purge_step == 10
    assert board.last.drawn == [("train/loss", 0.5, 10), ("dev/bleu", 12.5, 10)]
    assert board.last.closed


def test_a_failing_tensorboard_causes_one_warning(run, board, monkeypatch, capsys):
    def fail(self, *arguments):
        raise RuntimeError("event file is broken")

    monkeypatch.setattr(Board, "add_scalar", fail)
    log = MetricsLog(run)
    log.record({"update": 1, "loss": 0.5, "ppl": 2.0})
    log.record({"update": 2, "loss": 0.25, "ppl": 1.5})
    warning = "warning: TensorBoard is off, it failed: event file is broken\n"
    assert capsys.readouterr().err == warning
    assert [record["loss"] for record in records(run)] == [0.5, 0.25]


def test_real_tensorboard_writes_events(run, monkeypatch, capsys):
    pytest.importorskip("tensorboard")
    monkeypatch.undo()
    with MetricsLog(run) as log:
        log.record({"update": 1, "loss": 0.5})
    assert "warning" not in capsys.readouterr().err
    assert any((run.path / "tensorboard").iterdir())


def test_a_closed_terminal_does_not_stop_training(run, monkeypatch):
    class Gone:
        def write(self, text):
            raise OSError(5, "Input/output error")

        def flush(self):
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(sys, "stderr", Gone())
    MetricsLog(run).text("still here")
    assert "still here" in run.log_file.read_text()
