"""A tiny training's files, shared by the tests of run folders and their faults."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from nmt.run.checkpoint import TrainState, save_checkpoint
from nmt.run.folder import RunFolder

RECIPE = """\
src: gl
tgt: en
data:
  train: [/corpus/train]
  dev: /corpus/dev
"""


def weights(update: int) -> dict[str, Tensor]:
    return {
        "embed.weight": torch.full((4, 2), float(update)),
        "out_bias": torch.arange(4.0) + update,
    }


def moments(update: int) -> dict[str, Tensor]:
    return {"out_bias.exp_avg": torch.full((4,), update / 7), "out_bias.step": torch.tensor(update)}


def state(update: int, best: int | None = None) -> TrainState:
    return TrainState(update=update, epoch=1, next_batch=update, best_update=best)


def save(run: RunFolder, update: int, best: int | None = None, keep: int = 1) -> Path:
    return save_checkpoint(run, state(update, best), weights(update), moments(update), keep)


def trained(path: Path, *updates: int, keep: int = 9, recipe: str = RECIPE) -> RunFolder:
    """A run folder that was left after checkpoints at these updates."""
    run = RunFolder.for_training(path, recipe)
    with run:
        for update in updates:
            save(run, update, keep=keep)
    return run


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
