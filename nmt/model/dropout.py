"""Dropout whose masks are a function of (seed, epoch, batch), so a resumed run draws the same.

On a CPU the masks come from numpy's SFC64 bits, several times faster than torch's serial Bernoulli
generator; on a GPU torch's own fused dropout is used, seeded alike.
"""

from __future__ import annotations

import functools

import numpy as np
import torch
from torch import Tensor, nn
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

    def mask(self, shape: torch.Size, p: float, dtype: torch.dtype) -> Tensor:
        """0 with probability p (rounded to 1/65536), else 1 / (1 - p), on the CPU."""
        words = self._bits.random_raw((shape.numel() + 3) // 4)  # 64 bits hold four 16-bit draws
        draws = torch.from_numpy(words.view(np.int16))[: shape.numel()].view(shape)
        # 0 or 1 times the bits of 1 / (1 - p): no pass that turns integers into numbers
        integers, bits = _bits(1 / (1 - p), dtype)
        return draws.ge_(min(round(p * 65536), 65535) - 32768).to(integers).mul_(bits).view(dtype)


@functools.cache
def _bits(number: float, dtype: torch.dtype) -> tuple[torch.dtype, int]:
    """The bits of a number as an integer, and the type of integers of its size."""
    integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    return integers, int(torch.tensor(number, dtype=dtype).view(integers))


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
        return x * self.rng.mask(x.shape, self.p, x.dtype)


class WordDropout(nn.Module):
    """Input tokens replaced by UNK with probability p, out of place (T appendix A)."""

    def __init__(self, p: float, unk: int, rng: DropoutRng) -> None:
        super().__init__()
        self.p, self.unk, self.rng = p, unk, rng

    def forward(self, ids: Tensor) -> Tensor:
        """[N] -> [N]."""
        if not self.training or self.p == 0:
            return ids
        if ids.is_cuda:
            return ids.masked_fill(torch.rand(ids.shape, device=ids.device) < self.p, self.unk)
        return ids.masked_fill(self.rng.mask(ids.shape, self.p, torch.float32) == 0, self.unk)
