"""Dropout whose masks are a function of (seed, epoch, batch), so that resuming is exact.

On a CPU, masks come from NumPy's SFC64 generator, which is several times faster than torch's serial
Bernoulli generator. On a GPU, torch's fused dropout is used, seeded by the same three numbers.

Shapes: N flat tokens; [...] is any shape.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F


class DropoutRng:
    """The random generator that all dropout layers of a model share."""

    def __init__(self) -> None:
        self._bits = np.random.SFC64(np.random.SeedSequence([0, 0, 0]))

    def seed(self, seed: int, epoch: int, batch: int) -> None:
        """Seed the masks of one batch by the run's seed, the epoch and the batch's number."""
        sequence = np.random.SeedSequence([seed, epoch, batch])
        self._bits = np.random.SFC64(sequence)
        if torch.cuda.is_initialized():  # as it is where a model computes on a GPU
            torch.cuda.manual_seed_all(int(sequence.generate_state(1, np.uint64)[0] >> 1))

    @property
    def state(self) -> Any:
        """The state of the generator on the CPU."""
        return self._bits.state

    @state.setter
    def state(self, state: Any) -> None:
        self._bits.state = state

    def mask(self, shape: torch.Size, p: float, dtype: torch.dtype) -> Tensor:
        """Return a CPU tensor that is 0 with probability p, and else 1 / (1 - p).

        p is rounded to a multiple of 1/65536, because a draw has 16 bits.
        """
        words = self._bits.random_raw((shape.numel() + 3) // 4)  # 64 bits hold four 16-bit draws
        draws = torch.from_numpy(words.view(np.int16))[: shape.numel()].view(shape)
        # draws are uniform from -32768 to 32767
        kept = draws.ge_(min(round(p * 65536), 65535) - 32768)
        # multiply 0 or 1 by the bits of 1 / (1 - p): this saves a pass from integers to floats
        int_dtype, bits = _float_bits(1 / (1 - p), dtype)
        return kept.to(int_dtype).mul_(bits).view(dtype)


@functools.cache
def _float_bits(number: float, dtype: torch.dtype) -> tuple[torch.dtype, int]:
    """Return the integer dtype of the same size as ``dtype``, and the number's bits in it."""
    int_dtype = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    return int_dtype, int(torch.tensor(number, dtype=dtype).view(int_dtype))


class Dropout(nn.Module):
    """Zero elements with probability p and scale the others by 1 / (1 - p), in training only."""

    def __init__(self, p: float, rng: DropoutRng) -> None:
        super().__init__()
        self.p, self.rng = p, rng

    @property
    def active(self) -> bool:
        """Return whether ``forward`` changes its input."""
        return self.training and self.p > 0

    def fuses_with_attention(self, q: Tensor) -> bool:
        """Return whether torch's fused attention applies this dropout to queries q, and fast.

        On a CPU it supports no dropout, and its gradient in bf16 takes up to 50 times as long as
        that of two matrix products.
        """
        slow_gradient = q.dtype == torch.bfloat16 and q.requires_grad
        return q.device.type != "cpu" or not (self.active or slow_gradient)

    def forward(self, x: Tensor) -> Tensor:
        """Return x with dropout: [...] -> [...]."""
        if not self.active:
            return x
        if x.is_cuda:
            return F.dropout(x, self.p, training=True)
        return x * self.rng.mask(x.shape, self.p, x.dtype)


class WordDropout(nn.Module):
    """Replace input tokens by UNK with probability p, in training only (Nguyen appendix A).

    Any token may be replaced, also BOS, EOS and tags.
    """

    def __init__(self, p: float, unk: int, rng: DropoutRng) -> None:
        super().__init__()
        self.p, self.unk, self.rng = p, unk, rng

    def forward(self, ids: Tensor) -> Tensor:
        """Return a copy of the token ids with UNK in some places: [N] -> [N]."""
        if not self.training or self.p == 0:
            return ids
        if ids.is_cuda:
            return ids.masked_fill(torch.rand(ids.shape, device=ids.device) < self.p, self.unk)
        return ids.masked_fill(self.rng.mask(ids.shape, self.p, torch.float32) == 0, self.unk)
