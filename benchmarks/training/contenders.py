"""This toolkit and ``torch.nn.Transformer`` as contenders of the training benchmark.

``update(n)`` does everything that an update with batch n costs: collating, the copy to the device,
forward, loss, backward, clipping and the optimizer step. ``loss(n)`` is the smoothed loss per
target token without dropout, which must be equal for all.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.common import make_trainer, padded, smoothed_loss
from benchmarks.torch_transformer import TorchTransformer
from benchmarks.training.workload import Size, Workload
from nmt.config.model import model_config
from nmt.config.recipe import ModelConfig, OptimConfig, Recipe
from nmt.data.batches import PlannedBatch, UpdateBatches, collate
from nmt.data.prepare import prepare
from nmt.data.vocab import BOS, EOS, PAD
from nmt.model.transformer import Transformer
from nmt.runtime.device import resolve_device

LR = 1e-4


class Contender(Protocol):
    """The interface of a toolkit in this benchmark."""

    model: nn.Module

    def loss(self, number: int) -> float:
        """Return the smoothed loss per target token of a batch in evaluation mode."""

    def update(self, number: int) -> None:
        """Take one optimizer step on a batch."""


def model_section(size: Size, **choices: object) -> ModelConfig:
    """Return the recipe's model that every contender has, with some keys changed by ``choices``."""
    fixed = {"norm": "layernorm", "fixnorm": False, "logit_mask": False, "word_dropout": 0.0}
    return ModelConfig(
        dim=size.dim,
        ffn_dim=size.ffn_dim,
        heads=size.heads,
        enc_layers=size.layers,
        dec_layers=size.layers,
        dropout=size.dropout,
        **{**fixed, **choices},
    )


class Ours:
    """``Trainer.update`` as nmt-train calls it, with Adam."""

    def __init__(self, workload: Workload, recipe: Recipe, precision: str, **choices: object):
        prepared = prepare(recipe, progress=False)
        model = model_section(workload.size, **choices)
        optim = OptimConfig(label_smoothing=workload.size.label_smoothing)
        recipe = recipe.model_copy(update={"model": model, "optim": optim})
        self.trainer = make_trainer(recipe, prepared, resolve_device(recipe.device), precision)
        self.model, self.prepared = self.trainer.model, prepared
        self.rows = [np.array(rows) for rows in workload.rows]

    def loss(self, number: int) -> float:
        return smoothed_loss(self.trainer, self.prepared, self.rows[number])

    def update(self, number: int) -> None:
        batch = collate(self.prepared.train, self.rows[number]).to(self.trainer.device)
        own = [PlannedBatch(0, number, batch, batch.rows)]
        self.trainer.update(UpdateBatches(own, batch.tokens, epoch=0, next_batch=number + 1))


class Torch:
    """``torch.nn.Transformer`` with padded batches, torch's own loss and fused Adam."""

    def __init__(self, workload: Workload, *, random_order: bool, precision: str) -> None:
        size, device = workload.size, resolve_device("auto")
        ours = Transformer(model_config(model_section(size)), workload.types)
        ours.init_weights(torch.Generator().manual_seed(1))
        self.model = TorchTransformer(ours).to(device)
        self.batches = workload.shuffled if random_order else workload.batches
        self.size, self.device, self.precision = size, device, precision
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=LR, fused=True)

    def loss(self, number: int) -> float:
        self.model.eval()
        with torch.no_grad():
            return self._loss(number).item()

    def update(self, number: int) -> None:
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        self._loss(number).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    def _loss(self, number: int) -> Tensor:
        batch = self.batches[number]
        src = padded([[*s, EOS] for s, _ in batch]).to(self.device)
        tgt_in = padded([[BOS, *t] for _, t in batch]).to(self.device)
        tgt_out = padded([[*t, EOS] for _, t in batch]).to(self.device)
        bf16 = self.precision == "bf16"
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=bf16):
            logits = self.model(src, tgt_in)
        return F.cross_entropy(
            logits.flatten(0, 1).float(),
            tgt_out.flatten(),
            ignore_index=PAD,
            label_smoothing=self.size.label_smoothing,
        )
