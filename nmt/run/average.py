"""The mean of several checkpoints of a run (V 6.1), kept as one more checkpoint of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from nmt.config.recipe import TrainConfig
from nmt.errors import UserError
from nmt.run.checkpoint import save_checkpoint
from nmt.run.folder import RunFolder, update_of
from nmt.run.stored import read_checkpoint


def average_checkpoints(paths: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of the models of several checkpoints (Vaswani et al. 2017, section 6.1).

    Sums are taken in fp64, so that the result does not depend on the order of ``paths``.

    Raises:
        UserError: a checkpoint is damaged, or their tensors differ in name or shape.
    """
    assert paths
    first = read_checkpoint(paths[0], with_optimizer=False).model
    sums = {name: tensor.double() for name, tensor in first.items()}
    for path in paths[1:]:
        model = read_checkpoint(path, with_optimizer=False).model
        if {n: t.shape for n, t in model.items()} != {n: t.shape for n, t in first.items()}:
            raise UserError(
                f"its tensors differ from those of {paths[0]}",
                at=str(path),
                fix="average checkpoints of one run",
            )
        for name, tensor in model.items():
            sums[name] += tensor.double()
    return {name: (total / len(paths)).to(first[name].dtype) for name, total in sums.items()}


def checkpoints_to_keep(train: TrainConfig) -> int:
    """Newest checkpoints that training keeps: what ``keep`` says and ``average`` needs."""
    return max(train.keep, train.average)


def latest(run: RunFolder, count: int) -> list[Path]:
    """The newest ``count`` checkpoints, oldest first; as many as there are."""
    return run.checkpoints()[-count:]


def best_checkpoints(run: RunFolder, count: int) -> list[Path]:
    """The ``count`` checkpoints of the highest dev score, oldest first; as many as there are.

    Of equal ones the earlier are taken; one that was never validated is none of them.
    """
    checkpoints_to_keep = run.checkpoints()
    scores = dev_scores(checkpoints_to_keep)
    validated = [path for path in checkpoints_to_keep if path.name in scores]
    chosen = sorted(validated, key=lambda path: -scores[path.name])[:count]
    return sorted(chosen, key=lambda path: update_of(path.name))


def dev_scores(paths: Sequence[Path]) -> dict[str, float]:
    """Checkpoint name -> dev score, of those that were validated."""
    if not paths:
        return {}
    history = dict(read_checkpoint(paths[-1], with_optimizer=False).state.history)
    updates = {path.name: update_of(path.name) for path in paths}
    return {name: history[update] for name, update in updates.items() if update in history}


def save_average(run: RunFolder, paths: Sequence[Path], suffix: str) -> Path:
    """Write the average of checkpoints as a checkpoint named after the newest of them.

    Args:
        run: the locked run folder.
        paths: oldest first.
        suffix: ``avg`` for the newest ones, ``best`` for those best on dev; the number of them
            follows it: ``u000123-avg5``.
    """
    newest = read_checkpoint(paths[-1], with_optimizer=False)
    weights = average_checkpoints(paths)
    return save_checkpoint(run, newest.state, weights, {}, average=f"{suffix}{len(paths)}")
