"""A run with a parent validates it at update 0: a child that is worse does not replace it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.apps.report.page import render
from nmt.apps.report.runs import read_runs
from nmt.cli.train import main
from nmt.config.load import load_recipe
from nmt.decoding.translator import Translator
from nmt.session import Training, TrainingResult, open_run
from nmt.store.folder import RunFolder
from nmt.store.manifest import TrainState
from nmt.store.model import Model
from nmt.store.results import read_result, read_summary
from nmt.store.tensors import read_weights
from nmt.training.stopping import learning_rate, reason_to_finish, validation_due
from nmt.training.task import Task
from nmt.training.trainer import Trainer
from tests.test_resume import difference, result, terminate_after
from tests.toy import toy_corpus, toy_recipe
from tests.training.helpers import equal, records

SAME_WEIGHTS = ["init.vocab=parent"]
STARTS = {
    "parent": SAME_WEIGHTS,
    "lora": [*SAME_WEIGHTS, "lora.rank=2"],
    "new": ["init.vocab=new"],
    "extended": ["init.vocab=extend", "init.new_pieces=3"],
    "trimmed": [*SAME_WEIGHTS, "init.trim=true", "init.keep_pieces=0"],
}
SHORT = {"train.validate_every": 2, "train.max_validations": 2}
RUIN = ["schedule.lr=30"]  # every update makes the model worse


@pytest.fixture(scope="module")
def parent(tmp_path_factory) -> Path:
    """Return a folder with a corpus, a recipe, and a run that has learned something."""
    folder = tmp_path_factory.mktemp("digits")
    toy_corpus(folder, {"train": 150, "dev": 12, "test": 4})
    changes: dict[str, Any] = {
        "segment": {"kind": "fastbpe", "merges": 5},
        "schedule": {"kind": "constant", "lr": 3e-2},
        "train": {"validate_every": 60, "max_validations": 1, "log_every": 10},
        "score": {"metrics": ["chrf"], "select_by": "ppl"},
        "decode": {"beam": 1},
    }
    assert main([str(toy_recipe(folder, changes))]) == 0
    return folder


def command(parent: Path, run: Path, *overrides: str) -> list[str]:
    """Return the words of nmt-train for a short child of the parent."""
    keys = {"init.from": parent / "run", "out": run, **SHORT}
    keys |= dict(text.split("=", 1) for text in overrides)
    return [str(parent / "toy.yaml"), *(f"{key}={value}" for key, value in keys.items())]


def translations(model: Path) -> list[str]:
    return Translator.load(model).translate(["1 2 3", "7 4 1 1"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", STARTS)
def test_a_child_that_is_worse_keeps_the_model_of_update_0(parent, tmp_path, capsys, kind):
    run = tmp_path / "run"
    words = command(parent, run, *STARTS[kind], *RUIN)
    assert main(words) == 0
    shown = capsys.readouterr().out
    start, *later = records(run, "dev")
    assert [record["update"] for record in (start, *later)] == [0, 2, 4]
    assert min(record["ppl"] for record in later) > start["ppl"]
    summary = read_summary(RunFolder(run))
    assert (summary["best"], summary["dev"]) == ("u000000", start["ppl"])
    assert read_result(run).dev == start["ppl"]
    (note,) = summary["notes"]
    for text in (shown, (run / "train.log").read_text(), render(read_runs([run]))):
        assert note in text
    assert "u000000" in TrainingResult.read(run).best
    assert Model.open(run).about.name == "u000000"
    if kind != "new":  # extended and trimmed here have the subwords of the parent
        theirs = records(parent / "run", "dev")[-1]
        assert start["ppl"] == theirs["ppl"]
        assert equal(read_weights(Model.open(run)), read_weights(Model.open(parent / "run")))
        assert translations(run) == translations(parent / "run")


@pytest.mark.slow
def test_a_child_that_is_better_replaces_its_parent(parent, tmp_path):
    run = tmp_path / "run"
    better = ["train.validate_every=30", "schedule.lr=1e-2"]
    assert main(command(parent, run, *SAME_WEIGHTS, *better)) == 0
    summary = read_summary(RunFolder(run))
    assert summary["best"] != "u000000"
    assert not summary["notes"]


@pytest.mark.slow
def test_the_training_is_the_same_as_without_the_validation(parent, tmp_path, monkeypatch):
    """Weights after the last update, decays and ends do not depend on the score of the parent."""
    decaying = [
        "schedule.kind=no_warmup",
        "schedule.lr=30",
        "schedule.patience=1",
        "train.log_every=1",
    ]
    words = [*SAME_WEIGHTS, *decaying, "train.max_validations=5"]
    weights, rates = [], []
    for number, due in enumerate((validation_due, without_parent)):
        run = tmp_path / f"run{number}"
        monkeypatch.setattr("nmt.training.trainer.validation_due", due)
        assert main(command(parent, run, *words)) == 0
        last = RunFolder(run).checkpoints()[-1]
        weights.append((last / "model.safetensors").read_bytes())
        rates.append([record["lr"] for record in records(run, "train")])
        assert read_summary(RunFolder(run))["reason"] == "train.max_validations = 5"
    assert weights[0] == weights[1]
    assert rates[0] == rates[1]
    assert len(set(rates[0])) > 1


def without_parent(recipe: Any, state: TrainState) -> bool:
    """Return when a run without a parent validates."""
    return bool(state.update) and validation_due(recipe, state)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "name", "call"),
    [(Trainer, "__init__", 1), (Task, "held_out_loss", 1), (Trainer, "validate", 1),
     (Trainer, "update", 1)],
    ids=["before", "during", "after", "first update"],
)  # fmt: skip
def test_stopped_around_the_validation_at_update_0(
    parent, tmp_path, monkeypatch, owner, name, call
):
    expected = tmp_path / "expected"
    run = tmp_path / "run"
    assert main(command(parent, expected, *SAME_WEIGHTS, *RUIN)) == 0
    with monkeypatch.context() as patch:
        terminate_after(patch, owner, name, call)
        assert main(command(parent, run, *SAME_WEIGHTS, *RUIN)) == 143
    assert main([*command(parent, run, *SAME_WEIGHTS, *RUIN), "--resume"]) == 0
    assert not difference(result(expected), result(run))


@pytest.mark.slow
def test_killed_after_the_validation_at_update_0(parent, tmp_path, monkeypatch):
    """Each call of a method that ends the process without a save."""
    words = [*SAME_WEIGHTS, *RUIN]
    assert main(command(parent, tmp_path / "expected", *words)) == 0
    for call, (owner, name) in enumerate([(Trainer, "publish"), (Trainer, "save")]):
        run = tmp_path / f"run{call}"
        with monkeypatch.context() as patch:
            real = getattr(owner, name)

            def die(*arguments: Any, real: Any = real) -> None:
                real(*arguments)
                raise SystemError("killed")

            patch.setattr(owner, name, die)
            assert main(command(parent, run, *words)) == 3
        assert main([*command(parent, run, *words), "--resume"]) == 0
        assert not difference(result(tmp_path / "expected"), result(run))


def test_what_the_entry_at_0_decides(parent, tmp_path):
    """Limits, patience and the schedule do not count it."""
    recipe = load_recipe(
        parent / "toy.yaml", [f"init.from={parent / 'run'}", "train.stop_patience=2"]
    )
    assert validation_due(recipe, TrainState())
    assert not validation_due(load_recipe(parent / "toy.yaml"), TrainState())
    start = (0, 50.0)
    for history, waited in (
        ([], False), ([(60, 1.0)], True), ([(60, math.nan)], True),
    ):  # fmt: skip
        state = TrainState(60 if history else 0, history=[start, *history])
        assert (reason_to_finish(recipe, state) is not None) == waited
        assert learning_rate(recipe, state) == 3e-2
    patient = load_recipe(parent / "toy.yaml", ["train.stop_patience=2", "train.max_validations=9"])
    rising = TrainState(180, history=[start, (60, 1.0), (120, 2.0), (180, 3.0)])
    assert reason_to_finish(patient, rising) is None


@pytest.mark.parametrize(("later", "best"), [(49.0, 0), (50.0, 0), (50.1, 4), (math.nan, 0)])
def test_only_a_better_score_replaces_update_0(start, tmp_path, later, best):
    trainer = start(f"init.from={tmp_path}")
    scores = iter([50.0, later])
    real = trainer.evaluate
    trainer.evaluate = lambda *a, **k: scripted(real(*a, **k), next(scores))
    trainer.validate()
    trainer.state.update = 4
    trainer.validate()
    assert trainer.state.best_update == best


def scripted(evaluation: Any, bleu: float) -> Any:
    evaluation.values["bleu"] = bleu
    return evaluation


@pytest.mark.slow
def test_a_time_limit_before_the_first_update(parent, tmp_path):
    run = tmp_path / "run"
    assert main(command(parent, run, *SAME_WEIGHTS, "time_limit=1e-9")) == 0
    summary = read_summary(RunFolder(run))
    assert (summary["updates"], summary["best"]) == (0, "u000000")
    assert len(summary["notes"]) == 1
    assert json.loads((run / "metrics.jsonl").read_text().splitlines()[0])["update"] == 0


def test_an_average_has_no_parent(parent, tmp_path):
    """The mean of parent and child is not what train.average promises."""
    run = tmp_path / "run"
    words = command(parent, run, *SAME_WEIGHTS, "train.average=5", "train.max_validations=1", *RUIN)
    training = Training(open_run(load_recipe(words[0], words[1:])), quiet=True)
    training.run(lambda run, log: None)
    assert "at least two" in (run / "train.log").read_text()
    assert torch.is_tensor(read_weights(Model.open(run))["embed.weight"])
