"""Results of a run are read in any state."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nmt.store.folder import RunFolder
from nmt.store.lifecycle import TrainingFolder
from nmt.store.results import read_result, write_summary
from tests.run_cases import RECIPE, recipe, trained

DEV = [
    {"kind": "dev", "update": 1, "ppl": 9.0, "bleu": 3.0, "tokenized_bleu": 4.0},
    {"kind": "dev", "update": 2, "ppl": 8.0, "bleu": 2.0, "tokenized_bleu": 5.0},
]
TEST = [{"name": "bleu", "value": 2.5}, {"name": "tokenized_bleu", "value": 3.5}]


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """Return a stopped run that is selected by tokenized BLEU."""
    run = trained(tmp_path / "run", 1, 2, recipe=recipe("score.select_by=tokenized_bleu"))
    run.metrics_file.write_text("".join(json.dumps(record) + "\n" for record in DEV))
    write_summary(run, {"status": "stopped", "select_by": "tokenized_bleu", "test": TEST})
    return run


def test_a_folder_without_a_run_is_not_started(tmp_path):
    assert read_result(tmp_path).status == "not started"


def test_a_stopped_run_is_reported(run):
    result = read_result(run.path)
    assert (result.status, result.updates) == ("stopped", 2)
    assert (result.dev, result.ppl) == (5.0, 8.0)  # the best by tokenized BLEU, not by BLEU


def test_a_run_in_progress_is_training_until_its_process_ends(tmp_path):
    run = TrainingFolder(tmp_path / "run", RECIPE)
    with run:
        assert read_result(run.path).status == "training"
        lines = "".join(json.dumps(record) + "\n" for record in DEV)
        run.metrics_file.write_text(lines + '{"kind": "dev", "upd')
    result = read_result(run.path)
    assert (result.status, result.updates, result.dev, result.ppl) == ("stopped", 2, 3.0, 9.0)


def test_of_equal_scores_the_later_counts(tmp_path):
    run = trained(tmp_path / "run", 1, 2, recipe=RECIPE)
    records = [{**record, "bleu": 3.0} for record in DEV]
    run.metrics_file.write_text("".join(json.dumps(record) + "\n" for record in records))
    write_summary(run, {"status": "finished"})
    result = read_result(run.path)
    assert (result.dev, result.ppl) == (3.0, 8.0)


@pytest.mark.parametrize("text", ["", "[1]", "[" * 10**5, '{"test": [1, {"name": [2]}]}', "{]"])
def test_a_damaged_summary_does_not_prevent_a_resume(tmp_path, text):
    run = trained(tmp_path / "run", 1)
    run.summary_file.write_text(text)
    assert TrainingFolder(run.path, RECIPE, resume=True).resuming
