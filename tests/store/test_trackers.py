"""TensorBoard and Weights & Biases get the records of a run, and continue its curves."""

from __future__ import annotations

import sys
import types
from typing import Any, ClassVar

import pytest

from nmt.errors import MachineError, UserError
from nmt.store import metrics_log
from nmt.store.lifecycle import TrainingFolder
from nmt.store.metrics_log import TensorBoard, WeightsAndBiases, require_trackers, trackers_of
from tests.run_cases import RECIPE, recipe


@pytest.fixture
def run(tmp_path):
    with TrainingFolder(tmp_path / "run", RECIPE) as run:
        yield run


def install(monkeypatch, *packages: str) -> None:
    """Pretend that only these packages are installed."""
    found = {name: object() for name in packages}
    monkeypatch.setattr(metrics_log.importlib.util, "find_spec", found.get)


@pytest.mark.parametrize(
    ("overrides", "installed", "expected"),
    [
        ([], ["tensorboard", "wandb"], ["TensorBoard"]),
        ([], [], []),
        (["train.tensorboard=off"], ["tensorboard"], []),
        (["train.tensorboard=on"], ["tensorboard"], ["TensorBoard"]),
        (["train.wandb=gl-en"], ["wandb"], ["Weights & Biases"]),
    ],
)
def test_the_recipe_chooses_the_trackers(run, monkeypatch, overrides, installed, expected):
    install(monkeypatch, *installed)
    chosen = recipe(*overrides)
    require_trackers(chosen.train)
    assert [tracker.name for tracker in trackers_of(chosen, run)] == expected


@pytest.mark.parametrize(
    ("override", "package"), [("train.tensorboard=on", "tensorboard"), ("train.wandb=x", "wandb")]
)
def test_a_missing_package_is_an_error_with_the_command_that_installs_it(
    monkeypatch, override, package
):
    install(monkeypatch)
    with pytest.raises(UserError) as caught:
        require_trackers(recipe(override).train)
    assert f"train.{package}: the package {package} is not installed" in str(caught.value)
    assert f'pip install -c constraints.txt -e ".[{package}]"; or' in str(caught.value)


@pytest.mark.parametrize("name", ["a/b/c", "a?", "x" * 129])
def test_a_project_that_weights_and_biases_would_refuse_is_an_error(name):
    with pytest.raises(UserError, match="PROJECT or ENTITY/PROJECT"):
        recipe(f"train.wandb={name}")


# ---------------------------------------------------------------- TensorBoard


class Board:
    last: ClassVar[Board]

    def __init__(self, folder, purge_step):
        self.folder, self.purge_step, self.drawn = folder, purge_step, []
        Board.last = self

    def add_scalar(self, tag, value, update):
        self.drawn.append((tag, value, update))

    def close(self):
        self.closed = True


def test_tensorboard_hides_what_a_resumed_run_repeats(run, monkeypatch):
    module: Any = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Board
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    board = TensorBoard(run)
    board.begin(9)
    board.log(10, {"train/loss": 0.5, "train/ppl": 2.0})
    board.close()
    assert (Board.last.folder, Board.last.purge_step) == (str(run.path / "tensorboard"), 10)
    assert Board.last.drawn == [("train/loss", 0.5, 10), ("train/ppl", 2.0, 10)]
    assert Board.last.closed


def test_real_tensorboard_writes_events(run):
    pytest.importorskip("tensorboard")
    board = TensorBoard(run)
    board.begin(0)
    board.log(1, {"train/loss": 0.5})
    board.close()
    assert any((run.path / "tensorboard").iterdir())


# ---------------------------------------------------------------- Weights & Biases


class Service:
    """What the module wandb has."""

    Settings = dict

    def __init__(self) -> None:
        self.started: list[dict[str, Any]] = []
        self.logged: list[dict[str, Any]] = []
        self.axes: list[tuple[str, str]] = []
        self.finished = 0

    def init(self, **arguments: Any) -> Service:
        self.started.append(arguments)
        return self

    def define_metric(self, name: str, step_metric: str) -> None:
        self.axes.append((name, step_metric))

    def log(self, values: dict[str, Any]) -> None:
        self.logged.append(values)

    def finish(self) -> None:
        self.finished += 1


@pytest.fixture
def service(monkeypatch) -> Service:
    found = Service()
    monkeypatch.setitem(sys.modules, "wandb", found)
    return found


def test_weights_and_biases_gets_the_recipe_and_the_numbers(run, service):
    tracker = WeightsAndBiases(run, "team/gl-en", recipe("seed=3"))
    tracker.begin(0)
    tracker.log(10, {"dev/bleu": 12.5})
    tracker.close()
    (started,) = service.started
    assert (started["entity"], started["project"], started["name"]) == ("team", "gl-en", "run")
    assert (started["config"]["seed"], started["dir"]) == (3, str(run.path))
    assert service.axes == [("*", "update")]
    assert service.logged == [{"update": 10, "dev/bleu": 12.5}]
    assert service.finished == 1


def test_a_resumed_run_continues_the_same_run_of_weights_and_biases(run, service, tmp_path):
    for _ in range(2):
        tracker = WeightsAndBiases(run, "gl-en", recipe())
        tracker.begin(0)
        tracker.close()
    first, second = service.started
    assert first["id"] == second["id"]
    assert (first["entity"], second["resume"]) == (None, "allow")
    with TrainingFolder(tmp_path / "other", RECIPE) as other:
        WeightsAndBiases(other, "gl-en", recipe()).begin(0)
    assert service.started[2]["id"] != first["id"]


@pytest.mark.parametrize(
    ("message", "shown"),
    [("No API key configured.\nUse `wandb login`", "No API key configured"), ("", "RuntimeError")],
)
def test_a_refused_start_says_how_to_log_in_or_to_work_offline(
    run, service, monkeypatch, message, shown
):
    def refuse(**arguments: Any) -> None:
        raise RuntimeError(message)

    monkeypatch.setattr(service, "init", refuse)
    tracker = WeightsAndBiases(run, "gl-en", recipe())
    with pytest.raises(MachineError, match=f"did not start: {shown}") as caught:
        tracker.begin(0)
    assert "WANDB_MODE=offline" in str(caught.value)
    tracker.close()
