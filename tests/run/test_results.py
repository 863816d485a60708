"""Results of a run are read in any state, and from runs of older versions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nmt.run.folder import RunFolder
from nmt.run.lifecycle import TrainingFolder
from nmt.run.metrics_log import MetricsLog
from nmt.run.results import read_metrics, read_result, read_summary, write_summary
from tests.run_cases import RECIPE, save, trained

BY_TOKENIZED_BLEU = RECIPE + "score: {select_by: tokenized_bleu}\n"
DEV = [
    {"kind": "dev", "update": 1, "ppl": 9.0, "bleu": 3.0, "paper_bleu": 4.0},
    {"kind": "dev", "update": 2, "ppl": 8.0, "bleu": 2.0, "paper_bleu": 5.0},
]
TEST = [{"name": "bleu", "value": 2.5}, {"name": "paper_bleu", "value": 3.5}]


@pytest.fixture
def old(tmp_path: Path) -> RunFolder:
    """Return a stopped run of version 0.2, which called tokenized BLEU paper_bleu."""
    run = trained(tmp_path / "run", 1, 2, recipe=BY_TOKENIZED_BLEU)
    run.metrics_file.write_text("".join(json.dumps(record) + "\n" for record in DEV))
    write_summary(run, {"status": "stopped", "select_by": "paper_bleu", "test": TEST})
    return run


def test_a_folder_without_a_run_is_not_started(tmp_path):
    assert read_result(tmp_path).status == "not started"


def test_metrics_of_an_old_run_have_their_current_names(old):
    assert [record["tokenized_bleu"] for record in read_metrics(old)] == [4.0, 5.0]
    assert not any("paper_bleu" in record for record in read_metrics(old))
    summary = read_summary(old)
    assert summary["select_by"] == "tokenized_bleu"
    assert [score["name"] for score in summary["test"]] == ["bleu", "tokenized_bleu"]


def test_an_old_run_is_reported(old):
    result = read_result(old.path)
    assert (result.status, result.updates) == ("stopped", 2)
    assert (result.dev, result.ppl) == (5.0, 8.0)  # the best by tokenized BLEU, not by BLEU
    assert (result.bleu, result.tokenized_bleu) == (2.5, 3.5)


@pytest.mark.parametrize(("best", "ppl"), [({}, 8.0), ({"best": "u000001"}, 9.0)])
def test_of_equal_scores_the_later_counts_unless_an_older_version_chose_the_earlier(
    tmp_path, best, ppl
):
    run = trained(tmp_path / "run", 1, 2, recipe=RECIPE)
    records = [{**record, "bleu": 3.0} for record in DEV]
    run.metrics_file.write_text("".join(json.dumps(record) + "\n" for record in records))
    write_summary(run, {"status": "finished", **best})
    result = read_result(run.path)
    assert (result.dev, result.ppl) == (3.0, ppl)


def test_an_old_run_is_resumed_and_its_records_stay_readable(old):
    with TrainingFolder(old.path, BY_TOKENIZED_BLEU, resume=True) as run, MetricsLog(run) as log:
        assert run.resuming
        log.rewind(2)
        save(run, 3)
        log.record({"kind": "dev", "update": 3, "ppl": 7.0, "bleu": 1.0, "tokenized_bleu": 6.0})
    assert [record["tokenized_bleu"] for record in read_metrics(run)] == [4.0, 5.0, 6.0]
    assert read_result(run.path).dev == 6.0


@pytest.mark.parametrize("text", ["", "[1]", "[" * 10**5, '{"test": [1, {"name": [2]}]}', "{]"])
def test_a_damaged_summary_does_not_prevent_a_resume(tmp_path, text):
    run = trained(tmp_path / "run", 1)
    run.summary_file.write_text(text)
    assert TrainingFolder(run.path, RECIPE, resume=True).resuming
