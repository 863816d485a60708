"""nmt-average: the model that it makes of checkpoints, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import torch

from nmt.cli.average import main
from nmt.config.load import dump_recipe
from nmt.config.recipe import Recipe
from nmt.data.segmenters import text_hash
from nmt.store.checkpoint import TrainState, save_checkpoint
from nmt.store.folder import RunFolder
from nmt.store.lifecycle import TrainingFolder
from nmt.store.model import WEIGHTS, Model, save_text
from nmt.store.tensors import read_tensors
from tests.run_cases import RECIPE, SEGMENTER, VOCAB, moments, same, weights

DEV = {10: 5.0, 20: 9.0, 30: 7.0, 40: 9.0}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """Return a run with four validated checkpoints, and one at 45 that a stop wrote."""
    with TrainingFolder(tmp_path / "run", RECIPE) as run:
        run.text_dir.mkdir()
        save_text(run.text_dir, VOCAB, SEGMENTER)
        for update in (*DEV, 45):
            history = [item for item in DEV.items() if item[0] <= update]
            now = TrainState(update, history=history, text_hash=text_hash(VOCAB, SEGMENTER))
            save_checkpoint(run, now, weights(update), moments(update), keep=9)
    return run


Average = Callable[..., tuple[int, list[str], str]]


@pytest.fixture
def average(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> Average:
    """Return a function that runs nmt-average: (exit code, lines of output, standard error)."""

    def average(updates: Iterable[int], *argv: str) -> tuple[int, list[str], str]:
        names = [f"u{update:06d}" for update in updates]
        output = str(run.path.with_name("model"))
        code = main([str(run.path), "--checkpoints", *names, "-o", output, *argv])
        out, err = capsys.readouterr()
        return code, out.splitlines(), err

    return average


@pytest.mark.parametrize(
    ("members", "name"),
    [((40, 45), "u000045-avg2"), ((40, 10, 20), "u000040-avg3"), ((30,), "u000030")],
)
def test_the_model_is_the_mean_of_the_checkpoints(run, average, members, name):
    before = [path.name for path in run.path.rglob("*")]
    output = run.path.with_name("model")
    code, (*listed, saved, command), _ = average(members)
    assert code == 0
    assert [line.split()[0] for line in listed] == [f"u{u:06d}" for u in members]
    assert (saved, command) == (f"wrote {output}; translate with it:", f"  nmt-translate {output}")
    mean = {
        key: torch.stack([weights(u)[key].double() for u in members]).mean(0).float()
        for key in weights(0)
    }
    model = Model.open(output)
    assert same(read_tensors(output / WEIGHTS, model.entry(WEIGHTS)), mean)
    assert (model.about.name, model.vocab.hash) == (name, VOCAB.hash)
    assert model.about.scores == ({"dev bleu": DEV[30]} if members == (30,) else {})
    assert [path.name for path in run.path.rglob("*")] == before


def test_the_model_of_a_language_model_is_for_a_translation_model(run, average):
    data = {"train": "train", "dev": "dev"}
    recipe = Recipe.model_validate({"task": "causal_lm", "src": "en", "data": data})
    run.config_file.write_text(dump_recipe(recipe), encoding="utf-8")
    code, (*_, saved, command), _ = average([40, 45])
    assert (code, saved.endswith("; start a translation model from it:")) == (0, True)
    assert command == f"  nmt-train RECIPE init.from={run.path.with_name('model')}"


@pytest.mark.parametrize("other_text", [False, True])
def test_what_cannot_be_averaged_is_refused_by_name(run, average, other_text):
    place = run.path
    if other_text:
        place = run.text_dir
        (place / "vocab.txt").write_text("b\t1\t1\n")
    code, _, error = average([40, 45 if other_text else 99])
    assert (code, f"{place}: " in error) == (2, True), error
    assert not run.path.with_name("model").exists()


def test_an_existing_model_is_replaced_only_with_force(average: Average) -> None:
    assert average([40, 45])[0] == 0
    code, _, error = average([40, 45])
    assert (code, "--force" in error) == (2, True)
    assert average([40, 45], "--force")[0] == 0
