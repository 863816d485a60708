"""The number of operations of an update must not grow; it is equal on machines with one torch.

tests/data/test_batches.py guards the other such figure, padding.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.training.operations import count_operations
from nmt.config.recipe import OptimConfig
from nmt.data.batches import Batch, collate
from nmt.model.config import ModelConfig
from nmt.model.transformer import Transformer
from nmt.training.loss import token_losses
from nmt.training.optimizer import make_optimizer, take_step

# by layers of each stack, with torch 2.13; views are not counted
OPERATIONS = {"layernorm": {1: 339, 2: 573}, "scalenorm": {1: 430, 2: 729}}


class Lengths:
    """A corpus whose sentences grow by one token from row to row."""

    def src(self, row: int) -> np.ndarray:
        return np.arange(4, 8 + row)

    def tgt(self, row: int) -> np.ndarray:
        return np.arange(4, 9 + row)


@pytest.fixture(scope="module")
def batch() -> Batch:
    return collate(Lengths(), np.arange(3))


def update(norm: str, layers: int, batch: Batch) -> int:
    """Return operations of forward, loss, backward and optimizer, with dropout and clipping."""
    config = ModelConfig(
        dim=16, ffn_dim=32, heads=2, enc_layers=layers, dec_layers=layers, norm=norm
    )
    model = Transformer(config, 20)
    optimizer = make_optimizer(OptimConfig(), model, "fp32")

    def work() -> None:
        sums = token_losses(model(*batch.inputs), batch.tgt_out, model.allowed, OptimConfig())
        sums["smoothed"].backward()
        norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
        take_step(optimizer, 1e-3, norm.clamp(min=1.0), ~norm.isfinite())

    work()  # the optimizer allocates its state
    return count_operations(work)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("norm", OPERATIONS)
def test_operations_of_an_update_do_not_grow(norm: str, layers: int, batch: Batch) -> None:
    assert update(norm, layers, batch) <= OPERATIONS[norm][layers]
