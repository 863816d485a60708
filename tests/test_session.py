"""``nmt.train``: a training from Python, with a result, exceptions and callbacks."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

import nmt
from nmt.config.load import dump_recipe
from nmt.errors import Diverged, RunError, UserError
from nmt.store.results import read_summary
from nmt.training.progress import Validation
from tests.toy import toy_corpus, toy_recipe


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("session")
    toy_corpus(folder, {"train": 100, "dev": 6, "test": 6})
    return toy_recipe(folder)


@pytest.fixture(scope="module")
def trained(recipe) -> tuple[nmt.TrainingResult, list[Validation]]:
    """Return a result, and what ``on_validation`` saw."""
    seen: list[Validation] = []
    return nmt.train(recipe, on_validation=seen.append, quiet=True), seen


def handlers() -> list[Any]:
    return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]


def scores(result: nmt.TrainingResult) -> list[dict[str, Any]]:
    """Return what each validation measured, without times."""
    return [{k: v for k, v in record.items() if k != "seconds"} for record in result.history]


def values_of(recipe: Path, **changes: Any) -> dict[str, Any]:
    """Return a recipe as a dictionary with absolute paths."""
    values = yaml.safe_load(recipe.read_text())
    for split in ("train", "dev", "test"):
        values["data"][split] = str(recipe.parent / split)
    return {**values, **changes}


# ---------------------------------------------------------------- the result


def test_the_result_has_scores_history_and_a_translator(trained, recipe):
    result, seen = trained
    assert (result.run, result.updates) == (recipe.parent / "run", 12)
    assert result.reason == "train.max_validations = 3"
    assert result.test.keys() == {"bleu", "tokenized_bleu"}
    assert result.dev == max(record["bleu"] for record in result.history)
    assert [v.update for v in seen] == [r["update"] for r in result.history] == [4, 8, 12]
    assert [v.scores["ppl"] for v in seen] == [r["ppl"] for r in result.history]
    assert "test scores" in result.text
    assert "nmt-translate" in result.text
    assert f"browser:    nmt-serve {result.run}" in result.text
    assert len(result.translator.translate(["1 2 3"])) == 1
    assert result.translator is result.translator


def test_it_trains_what_the_command_trains(trained, recipe, tmp_path):
    """The same lines, except for times, and the same weights."""
    from nmt.cli.train import main

    assert main([str(recipe), f"out={tmp_path / 'run'}"]) == 0
    result, _ = trained
    weights = Path("checkpoints/u000012/model.safetensors")
    assert (tmp_path / "run" / weights).read_bytes() == (result.run / weights).read_bytes()


def test_a_quiet_training_prints_nothing_and_restores_signals(recipe, tmp_path, capfd):
    before = handlers()
    nmt.train(recipe, [f"out={tmp_path / 'run'}", "train.max_validations=1"], quiet=True)
    assert handlers() == before
    assert capfd.readouterr() == ("", "")


def test_a_finished_run_that_is_resumed_returns_its_result(trained, recipe):
    result, _ = trained
    again = nmt.train(recipe, resume=True, quiet=True)
    assert (again.test, again.history, again.text) == (result.test, result.history, "")


def test_a_result_is_read_from_a_run_that_has_ended(trained, tmp_path):
    result, _ = trained
    assert nmt.TrainingResult.read(result.run).best == result.best
    with pytest.raises(RunError, match="has not ended"):
        nmt.TrainingResult.read(tmp_path)


# ---------------------------------------------------------------- the recipe


@pytest.mark.slow
def test_a_recipe_may_be_a_dictionary_or_a_loaded_recipe(recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(recipe.parent)
    values = yaml.safe_load(recipe.read_text())  # its paths are relative
    values = {**values, "out": tmp_path / "dict", "time_limit": None, "model": {"bias": False}}
    one = nmt.train(values, ["train.max_validations=1", "model.dim=16"], quiet=True)
    loaded = nmt.load_recipe(one.run / "config.yaml", [f"out={tmp_path / 'loaded'}"])
    two = nmt.train(loaded, quiet=True)
    assert scores(two) == scores(one)
    stored = [yaml.safe_load((r.run / "config.yaml").read_text()) for r in (one, two)]
    assert [s["model"]["bias"] for s in stored] == [False, False]
    assert [s.pop("out") for s in stored] == [str(tmp_path / "dict"), str(tmp_path / "loaded")]
    assert stored[0] == stored[1]
    assert dump_recipe(loaded) == (two.run / "config.yaml").read_text()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"out": ""}, 'out: a recipe without a file needs .*\n  -> set it, such as "out"'),
        ({"modle": {}}, 'recipe: unknown key "modle"; did you mean "model"'),
        ({"seed": "x"}, "seed"),
        ({"data": {"train": "none/train", "dev": "none/dev"}}, "no such file"),
    ],
)
def test_wrong_recipes_raise_user_errors(recipe, tmp_path, changes, message):
    values = values_of(recipe, **{"out": str(tmp_path / "run"), **changes})
    with pytest.raises(UserError, match=message):
        nmt.train(values, quiet=True)
    assert not (tmp_path / "run").exists()


def test_a_missing_tracker_is_reported_before_the_data_is_read(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr("nmt.store.metrics_log.importlib.util.find_spec", lambda name: None)
    values = values_of(recipe, out=str(tmp_path / "run"), data={"train": "none", "dev": "none"})
    with pytest.raises(UserError, match=r"train\.wandb: the package wandb is not installed"):
        nmt.train(values, ["train.wandb=toy"], quiet=True)


# ---------------------------------------------------------------- how it ends


def test_an_exception_of_the_callback_ends_the_training_which_can_continue(
    trained, recipe, tmp_path
):
    class Prune(Exception):
        pass

    def prune(validation: Validation) -> None:
        raise Prune

    before, out = handlers(), f"out={tmp_path / 'run'}"
    with pytest.raises(Prune):
        nmt.train(recipe, [out], on_validation=prune, quiet=True)
    assert handlers() == before
    result, _ = trained
    again = nmt.train(recipe, [out], resume=True, quiet=True)
    assert scores(again) == scores(result)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "expected"),
    [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, nmt.errors.Terminated)],
)
def test_a_signal_saves_the_state_and_is_raised(recipe, tmp_path, capsys, number, expected):
    def interrupt(validation: Validation) -> None:
        os.kill(os.getpid(), number)

    before, out = handlers(), f"out={tmp_path / 'run'}"
    with pytest.raises(expected):
        nmt.train(recipe, [out], on_validation=interrupt)
    assert handlers() == before
    err = capsys.readouterr().err
    assert "saved update 4; to continue, run\n  nmt.train(recipe, resume=True)" in err
    assert nmt.train(recipe, [out], resume=True, quiet=True).updates == 12


def test_a_diverged_training_raises(recipe, tmp_path):
    run = tmp_path / "run"
    rate = ["schedule.kind=constant", "schedule.lr=1e5", "optim.clip_norm=0"]
    more = ["train.log_every=2", "train.validate_every=50", "model.norm=layernorm"]
    message = r"update 4, two log lines in a row .*\n  -> train in another folder \(out=PATH\)"
    with pytest.raises(Diverged, match=message) as diverged:
        nmt.train(recipe, [f"out={run}", *rate, *more, "model.fixnorm=false"], quiet=True)
    assert max(map(len, str(diverged.value).splitlines())) < 250  # numbers are readable
    summary = read_summary(nmt.store.folder.RunFolder(run))
    assert (summary["status"], summary["updates"]) == ("diverged", 4)
    with pytest.raises(RunError, match="diverged"):
        nmt.TrainingResult.read(run)


def test_nothing_is_forked_unless_asked(recipe, tmp_path, monkeypatch):
    from nmt.data import workers

    def refuse() -> int:
        raise AssertionError("a process was forked")

    monkeypatch.setattr(workers, "MIN_PARALLEL_CHUNKS", 1)
    monkeypatch.setattr(workers, "CHUNK", 10)
    monkeypatch.setattr(workers, "available_cpus", lambda: 2)
    monkeypatch.setattr(os, "fork", refuse)
    values = values_of(recipe, out=str(tmp_path / "one" / "run"))
    nmt.train(values, ["train.max_validations=1"], quiet=True)
    values["out"] = str(tmp_path / "two" / "run")
    with pytest.raises(AssertionError, match="forked"):
        nmt.train(values, ["train.max_validations=1"], workers=2, quiet=True)
