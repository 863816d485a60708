"""What several benchmarks share: a trainer, its loss, padded ids, the name of the machine."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from nmt.config.recipe import Recipe
from nmt.data.batches import collate
from nmt.data.prepare import Prepared
from nmt.data.vocab import PAD
from nmt.store.folder import RunFolder
from nmt.store.metrics_log import Logger
from nmt.training.loss import token_losses
from nmt.training.tasks import make_task
from nmt.training.trainer import Trainer


def make_trainer(
    recipe: Recipe, prepared: Prepared, device: torch.device, precision: str
) -> Trainer:
    """Return the trainer of nmt-train; it logs nothing."""
    task = make_task(recipe, prepared, device, precision)
    return Trainer(task, RunFolder(tempfile.mkdtemp()), Logger(), lambda: False)


@torch.no_grad()
def smoothed_loss(trainer: Trainer, prepared: Prepared, rows: np.ndarray) -> float:
    """Return the smoothed fp32 loss per target token of a batch, without dropout."""
    model = trainer.model.eval()
    batch = collate(prepared.train, rows).to(trainer.device)
    optim = trainer.recipe.optim
    sums = token_losses(model(*batch.inputs), batch.tgt_out, model.allowed, optim)
    return float(sums["smoothed"]) / batch.tokens


def padded(rows: Sequence[Sequence[int] | np.ndarray]) -> Tensor:
    """Return ids of sentences of different lengths as [B, L] int64, padded on the right."""
    out = np.full((len(rows), max(map(len, rows))), PAD)
    for i, ids in enumerate(rows):
        out[i, : len(ids)] = ids
    return torch.from_numpy(out)


def machine() -> str:
    """Return the name of the GPU, or the threads of the CPU, and torch's version."""
    cuda = torch.cuda.is_available()
    name = torch.cuda.get_device_name() if cuda else f"CPU, {torch.get_num_threads()} threads"
    return f"{name}, torch {torch.__version__}"
