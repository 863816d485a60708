"""nmt-average: which checkpoints it averages, under what name, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from nmt.cli.average import main
from nmt.config.load import dump_recipe
from nmt.config.recipe import Recipe
from nmt.run.checkpoint import TrainState, load_checkpoint, save_checkpoint
from nmt.run.folder import RunFolder
from nmt.run.lifecycle import TrainingFolder
from tests.run_cases import RECIPE, moments, same, weights

DEV = {10: 5.0, 20: 9.0, 30: 7.0, 40: 9.0}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """Return a run with four validated checkpoints, and one at 45 that a stop wrote."""
    with TrainingFolder(tmp_path / "run", RECIPE) as run:
        for update in (*DEV, 45):
            history = [item for item in DEV.items() if item[0] <= update]
            now = TrainState(update, history=history, best_update=None)
            save_checkpoint(run, now, weights(update), moments(update), keep=9)
    return run


Average = Callable[..., tuple[int, list[str], str]]


@pytest.fixture
def average(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> Average:
    """Return a function that runs nmt-average: (exit code, lines of output, standard error)."""

    def average(*argv: str) -> tuple[int, list[str], str]:
        code = main([str(run.path), *argv])
        out, err = capsys.readouterr()
        return code, out.splitlines(), err

    return average


@pytest.mark.parametrize(
    ("option", "count", "name", "members"),
    [
        ("--last", 2, "u000045-avg2", (40, 45)),
        ("--best", 2, "u000040-best2", (20, 40)),
        ("--best", 3, "u000040-best3", (20, 30, 40)),
        ("--best", 4, "u000040-best4", (10, 20, 30, 40)),
    ],
)
def test_the_average_is_the_mean_of_the_chosen_checkpoints(
    run: RunFolder, average: Average, option: str, count: int, name: str, members: tuple[int, ...]
) -> None:
    before = [path.name for path in run.checkpoints()]
    code, (*listed, saved, command), _ = average(option, str(count))
    assert code == 0
    assert [line.split()[0] for line in listed] == [f"u{u:06d}" for u in members]
    assert saved == f"average saved as checkpoint {name}; translate with it:"
    assert command == f"  nmt-translate {run.path} --checkpoint {name}"
    mean = {
        key: torch.stack([weights(u)[key].double() for u in members]).mean(0).float()
        for key in weights(0)
    }
    found = load_checkpoint(run, name)
    assert same(found.model, mean)
    assert found.optimizer == {}
    # nothing else changes: the kept checkpoints, the best one, and the one to resume from
    assert [path.name for path in run.checkpoints()] == before
    assert run.best() is None
    assert load_checkpoint(run).path.name == "u000045"
    assert not run.lock.in_use()


def test_the_average_of_a_language_model_is_for_a_translation_model(
    run: RunFolder, average: Average
) -> None:
    data = {"train": "train", "dev": "dev"}
    recipe = Recipe.model_validate({"task": "causal_lm", "src": "en", "data": data})
    run.config_file.write_text(dump_recipe(recipe), encoding="utf-8")
    code, (*_, saved, command), _ = average("--last", "2")
    assert (code, saved.endswith("; start a translation model from it:")) == (0, True)
    assert command == f"  nmt-train RECIPE init.from={run.path} init.checkpoint=u000045-avg2"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            "--best 5",
            "--best 5 needs 5 checkpoints with a dev score, but the run has 4\n  -> use ",
        ),
        (
            "--last 6",
            "--last 6 needs 6 checkpoints, but the run has 5\n  -> use --last 5, or ",
        ),
        ("--last 1", "averaging needs at least 2 checkpoints, not 1\n  -> use --last 2"),
    ],
)
def test_too_few_checkpoints_are_refused(average: Average, argv: str, message: str) -> None:
    code, _, error = average(*argv.split())
    assert (code, message in error) == (2, True), error


def test_an_existing_average_is_replaced_only_with_force(average: Average) -> None:
    argv = ("--last", "2")
    assert average(*argv)[0] == 0
    code, _, error = average(*argv)
    assert (code, "u000045-avg2: the average exists already" in error) == (2, True)
    assert average(*argv, "--force")[0] == 0


def test_the_folder_of_a_running_training_is_refused(run: RunFolder, average: Average) -> None:
    with run.lock:
        code, _, error = average("--last", "2")
    assert (code, "the run folder is in use" in error) == (4, True)
