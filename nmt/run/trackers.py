"""Experiment trackers that draw the records of a run: TensorBoard, Weights & Biases."""

from __future__ import annotations

import importlib.util
import secrets
from typing import Any, Protocol

from nmt.config.recipe import Recipe, TrainConfig
from nmt.errors import MachineError, UserError, install_fix
from nmt.run.folder import RunFolder
from nmt.runtime.files import disk_errors, read_text, write_atomic


class Tracker(Protocol):
    """What draws the records of a run; any method may raise an exception.

    Attributes:
        name: in messages.
    """

    name: str

    def begin(self, update: int) -> None:
        """Prepare to draw what comes after an update; called once, before the first record."""

    def log(self, update: int, values: dict[str, float]) -> None:
        """Draw numbers by name, such as ``dev/bleu``."""

    def close(self) -> None:
        """Write what is not written yet."""


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
    """Log to a project of Weights & Biases, with the recipe as its config.

    The id of the W&B run is in RUN/wandb-id.txt, so a resumed run continues its curves. Their x
    axis is ``update``: updates that a resumed run makes again have equal points.

    Args:
        project: PROJECT or ENTITY/PROJECT.
    """

    name = "Weights & Biases"

    def __init__(self, run: RunFolder, project: str, recipe: Recipe) -> None:
        entity, _, self._project = project.rpartition("/")
        self._entity, self._recipe = entity or None, recipe
        self._folder, self._id_file = run.path, run.path / "wandb-id.txt"
        self._run: Any = None

    def begin(self, update: int) -> None:
        """Start or continue the W&B run.

        Raises:
            MachineError: W&B refuses, for example without a login.
        """
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
    wanted = {"tensorboard": train.tensorboard == "on", "wandb": train.wandb is not None}
    for package, is_wanted in wanted.items():  # each has its key and its extra by its own name
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
