"""The logs of a run: lines for people, JSON records for machines, experiment trackers."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tqdm import tqdm

from nmt.config.recipe import Recipe, TrainConfig
from nmt.errors import MachineError, UserError, install_fix, printable
from nmt.runtime.distributed import World
from nmt.runtime.files import LARGE, append_line, disk_errors, json_object, read_text, write_atomic
from nmt.store.folder import RunFolder


class Logger:
    """A logger that discards everything, for all processes except the main one.

    Args:
        world: the other processes print the last lines of this one if it is killed.
    """

    def __init__(self, world: World = World()) -> None:  # noqa: B008  it cannot change
        self._world = world

    def text(self, line: str, on_console: bool = True) -> None:
        """Log a line for people.

        Args:
            on_console: print it too; False if a live view shows the same.
        """
        self._world.note(line)

    def record(self, values: dict[str, Any]) -> None:
        """Log a record for machines."""

    def rewind(self, update: int, validated: bool = True) -> None:
        """Remove the records of updates that will be repeated; see ``MetricsLog``."""


class Tracker(Protocol):
    """An experiment tracker; any method may raise an exception.

    Attributes:
        name: in messages.
    """

    name: str

    def begin(self, update: int) -> None:
        """Prepare to log what comes after an update; called once, before the first record."""

    def log(self, update: int, values: dict[str, float]) -> None:
        """Log numbers by name, such as ``dev/bleu``."""

    def close(self) -> None:
        """Flush pending records."""


class MetricsLog(Logger):
    """Log to train.log, metrics.jsonl and the trackers of one run.

    Call ``rewind`` before the first record. A tracker that fails is dropped with a warning.

    Args:
        trackers: from ``trackers_of``.
        console: print the lines for people on standard error.
    """

    def __init__(
        self,
        run: RunFolder,
        trackers: Sequence[Tracker] = (),
        console: bool = True,
        world: World = World(),  # noqa: B008  it cannot change
    ) -> None:
        super().__init__(world)
        self._run, self._console = run, console
        self._trackers, self._begun = list(trackers), False
        with disk_errors(run.path):
            run.log_file.touch()
            run.metrics_file.touch()

    def text(self, line: str, on_console: bool = True) -> None:
        """Write a line on standard error, above a progress bar, and with the time to train.log."""
        line = printable(line)
        super().text(line)
        if on_console and self._console:
            with contextlib.suppress(OSError, ValueError):  # a closed terminal ends no training
                tqdm.write(line, file=sys.stderr)
        append_line(self._run.log_file, f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}")

    def record(self, values: dict[str, Any]) -> None:
        """Append a record to metrics.jsonl; NaN and infinity become null.

        Args:
            values: ``update`` is the step and ``kind`` the group of its curves in TensorBoard.
        """
        line = json.dumps(_to_json_values(values), ensure_ascii=False, allow_nan=False)
        append_line(self._run.metrics_file, line)
        kind, update = values.get("kind", "train"), values.get("update", 0)
        numbers = {
            f"{kind}/{name}": value
            for name, value in values.items()
            if name != "update" and isinstance(value, (int, float))
        }
        for tracker in list(self._trackers):
            self._try(tracker, tracker.log, update, numbers)

    def rewind(self, update: int, validated: bool = True) -> None:
        """Remove broken lines and what a resumed run writes again; the first call starts trackers.

        These are records after ``update``, and the average and the test score of an earlier end.

        Args:
            update: of the checkpoint that the run continues from.
            validated: False = the run validates this update again, so its record is removed too.
        """
        with disk_errors(self._run.metrics_file):
            text = read_text(self._run.metrics_file, LARGE, "replace")
        lines = text.split("\n")
        kept = [line for line in lines if _is_kept(line, update, validated)]
        repaired = "".join(line + "\n" for line in kept)
        if repaired != text:
            write_atomic(self._run.metrics_file, repaired)
        for tracker in () if self._begun else self._trackers:
            tracker.begin(update)
        self._begun = True

    def close(self) -> None:
        """Flush and close the trackers."""
        for tracker in list(self._trackers):
            self._try(tracker, tracker.close)
        self._trackers.clear()

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _try(self, tracker: Tracker, action: Callable[..., Any], *arguments: Any) -> None:
        try:
            action(*arguments)
        except Exception as error:
            self._trackers.remove(tracker)
            self.text(f"warning: {tracker.name} is off, it failed: {error}")


def _is_kept(line: str, update: int, validated: bool) -> bool:
    try:
        values = json_object(line)
        if values.get("kind") in ("average", "test"):
            return False
        again = values.get("kind") == "dev" and not validated
        return int(values.get("update", 0)) <= update - again
    except (ValueError, TypeError):
        return False


def _to_json_values(value: Any) -> Any:
    """Convert numbers of NumPy and torch to Python numbers, and non-finite ones to None."""
    if isinstance(value, dict):
        return {str(name): _to_json_values(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_json_values(inner) for inner in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


# --- trackers -------------------------------------------------------------------------------------


class TensorBoard:
    """Write event files to RUN/tensorboard."""

    name = "TensorBoard"

    def __init__(self, run: RunFolder) -> None:
        self._folder = str(run.path / "tensorboard")
        self._board: Any = None
        self._update = 0

    def begin(self, update: int) -> None:
        """Remember the update; the folder is written with the first record."""
        self._update = update

    def log(self, update: int, values: dict[str, float]) -> None:
        """Add a point to each curve."""
        if self._board is None:
            from torch.utils.tensorboard import SummaryWriter

            # purge_step hides the curves of updates that a resumed run makes again
            self._board = SummaryWriter(self._folder, purge_step=self._update + 1)
        for name, value in values.items():
            self._board.add_scalar(name, value, update)

    def close(self) -> None:
        """Flush the event file."""
        if self._board is not None:
            self._board.close()


class WeightsAndBiases:
    """Log to PROJECT or ENTITY/PROJECT of Weights & Biases, with the recipe as its config.

    The id of the W&B run is in RUN/wandb-id.txt, so a resumed run continues its curves. Their x
    axis is ``update``: updates that a resumed run makes again have equal points.
    """

    name = "Weights & Biases"

    def __init__(self, run: RunFolder, project: str, recipe: Recipe) -> None:
        entity, _, self._project = project.rpartition("/")
        self._entity, self._recipe = entity or None, recipe
        self._folder, self._id_file = run.path, run.path / "wandb-id.txt"
        self._run: Any = None

    def begin(self, update: int) -> None:
        """Start or continue the W&B run; MachineError without a login."""
        try:
            import wandb

            self._run = wandb.init(
                project=self._project,
                entity=self._entity,
                id=self._id(),
                name=self._folder.absolute().name,
                dir=str(self._folder),
                resume="allow",
                config=self._recipe.model_dump(by_alias=True, mode="json"),
                settings=wandb.Settings(console="off"),  # lines of a terminal stay as they are
            )
        except Exception as error:
            reason = str(error).strip() or type(error).__name__
            raise MachineError(
                f"Weights & Biases did not start: {reason.splitlines()[0]}",
                at="train.wandb",
                fix="log in with: wandb login; or set the environment variable WANDB_MODE=offline, "
                "which keeps everything in the run folder; or set train.wandb=none",
            ) from error
        self._run.define_metric("*", step_metric="update")

    def log(self, update: int, values: dict[str, float]) -> None:
        """Add a point to each curve."""
        self._run.log({"update": update, **values})

    def close(self) -> None:
        """Upload the rest and end the W&B run."""
        if self._run is not None:
            self._run.finish()

    def _id(self) -> str:
        if not self._id_file.is_file():
            write_atomic(self._id_file, secrets.token_hex(4) + "\n")
        with disk_errors(self._id_file):
            return read_text(self._id_file).strip()


def require_trackers(train: TrainConfig) -> None:
    """Raise UserError if the recipe asks for a tracker whose package is not installed."""
    enabled = {"tensorboard": train.tensorboard == "on", "wandb": train.wandb is not None}
    for package, is_wanted in enabled.items():  # each has its key and its extra by its own name
        if is_wanted and importlib.util.find_spec(package) is None:
            off = "none" if package == "wandb" else "auto"
            raise UserError(
                f"the package {package} is not installed",
                at=f"train.{package}",
                fix=f"{install_fix(package)}; or set train.{package}={off}",
            )


def trackers_of(recipe: Recipe, run: RunFolder) -> list[Tracker]:
    """Return the trackers that a recipe asks for."""
    train = recipe.train
    trackers: list[Tracker] = []
    installed = importlib.util.find_spec("tensorboard") is not None
    if train.tensorboard == "on" or (train.tensorboard == "auto" and installed):
        trackers.append(TensorBoard(run))
    if train.wandb is not None:
        trackers.append(WeightsAndBiases(run, train.wandb, recipe))
    return trackers
