"""nmt-average: which checkpoints, under what name, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from nmt.cli.average import main
from nmt.run.checkpoint import load_checkpoint, save_checkpoint
from nmt.run.folder import RunFolder
from nmt.run.state import TrainState
from tests.run_cases import RECIPE, moments, same, weights

DEV = {10: 5.0, 20: 9.0, 30: 7.0, 40: 9.0}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """Four validated checkpoints, and one that a stop wrote at 45."""
    with RunFolder.for_training(tmp_path / "run", RECIPE) as run:
        for update in (*DEV, 45):
            history = [item for item in DEV.items() if item[0] <= update]
            now = TrainState(update, history=history, best_update=None)
            save_checkpoint(run, now, weights(update), moments(update), keep=9)
    return run


@pytest.mark.parametrize(
    ("option", "count", "name", "members"),
    [
        ("--last", 2, "u000045-avg2", (40, 45)),
        ("--best", 2, "u000040-best2", (20, 40)),
        ("--best", 3, "u000040-best3", (20, 30, 40)),
        ("--best", 4, "u000040-best4", (10, 20, 30, 40)),
    ],
)
def test_the_mean_of_those_asked_for(
    run: RunFolder,
    capsys: pytest.CaptureFixture[str],
    option: str,
    count: int,
    name: str,
    members: tuple[int, ...],
) -> None:
    before = [path.name for path in run.checkpoints()]
    assert main([str(run.path), option, str(count)]) == 0
    *listed, last = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == [f"u{u:06d}" for u in members]
    assert last == f"their average: nmt-translate {run.path} --checkpoint {name}"
    mean = {
        key: torch.stack([weights(u)[key].double() for u in members]).mean(0).float()
        for key in weights(0)
    }
    found = load_checkpoint(run, name)
    assert same(found.model, mean)
    assert found.optimizer == {}
    # nothing else changed: what is kept, what is best, where training goes on
    assert [path.name for path in run.checkpoints()] == before
    assert run.best() is None
    assert load_checkpoint(run).path.name == "u000045"
    assert not run.in_use()


def test_fewer_are_kept_than_asked_for(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(run.path), "--best", "5"]) == 2
    error = capsys.readouterr().err
    assert "4 checkpoints with a dev score are kept, not 5" in error
    assert "train.keep=5" in error
    assert main([str(run.path), "--last", "6"]) == 2
    assert "5 checkpoints are kept, not 6" in capsys.readouterr().err
    assert main([str(run.path), "--last", "1"]) == 2
    assert "--last: an average is of at least 2 checkpoints, not of 1" in capsys.readouterr().err


def test_an_average_is_replaced_only_when_that_is_asked_for(
    run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(run.path), "--last", "2"]) == 0
    assert main([str(run.path), "--last", "2"]) == 2
    assert "u000045-avg2: exists already" in capsys.readouterr().err
    assert main([str(run.path), "--last", "2", "--force"]) == 0


def test_a_folder_in_which_a_training_runs_is_left_alone(
    run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    with run.locked():
        assert main([str(run.path), "--last", "2"]) == 4
    assert "the run folder is in use" in capsys.readouterr().err
