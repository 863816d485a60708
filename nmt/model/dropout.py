"""Dropout whose masks are a function of (seed, epoch, batch), so a resumed run draws the same.

On a CPU the masks come from numpy's SFC64 bits, several times faster than torch's serial Bernoulli
generator; on a GPU torch's own fused dropout is used, seeded alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


class DropoutRng:
    """The one source of randomness of a model's forward passes."""

    def __init__(self) -> None:
        self.seed(0, 0, 0)

    def seed(self, seed: int, epoch: int, batch: int) -> None:
        """Start the masks of one batch: a pure function of the three numbers."""
        sequence = np.random.SeedSequence([seed, epoch, batch])
        self._bits = np.random.SFC64(sequence)
        if torch.cuda.is_available():
            torch.cuda.manual_seed_all(int(sequence.generate_state(1, np.uint64)[0] >> 1))

    def drop(self, shape: torch.Size, p: float, device: torch.device) -> Tensor:
        """Bool tensor, True with probability p (rounded to 1/65536): the elements to drop."""
        if device.type == "cuda":
            return torch.rand(shape, device=device) < p
        words = self._bits.random_raw((shape.numel() + 3) // 4)  # 64 bits hold four 16-bit draws
        draws = torch.from_numpy(words.view(np.int16))[: shape.numel()]
        return (draws < round(p * 65536) - 32768).view(shape)


class Dropout(nn.Module):
    """Zero elements with probability p and scale the rest by 1 / (1 - p), in training only."""

    def __init__(self, p: float, rng: DropoutRng) -> None:
        super().__init__()
        self.p, self.rng = p, rng

    @property
    def active(self) -> bool:
        """Whether forward changes its input."""
        return self.training and self.p > 0

    def forward(self, x: Tensor) -> Tensor:
        """[...] -> [...]."""
        if not self.active:
            return x
        if x.is_cuda:
            return F.dropout(x, self.p, training=True)
        return _Masked.apply(x, self.rng.drop(x.shape, self.p, x.device), 1 / (1 - self.p))


class _Masked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, drop: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(drop)
        ctx.scale = scale
        return x.mul(scale).masked_fill_(drop, 0.0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (drop,) = ctx.saved_tensors
        return grad.mul(ctx.scale).masked_fill_(drop, 0.0), None, None
