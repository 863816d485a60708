"""Tied word embeddings with FixNorm, and sinusoidal positions.

Legend: N flat tokens, D model dim, V types.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

FIXNORM_EPS = 1e-5


class TiedEmbedding(nn.Module):
    """A word table that serves as input embedding and as output projection.

    With FixNorm (T section 2.3) its rows are normalized to length 1, once per forward: ask for
    ``rows()`` once and hand the result to ``embed`` and to the output layer.
    """

    def __init__(self, vocab_size: int, dim: int, fixnorm: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, dim))
        self.fixnorm = fixnorm

    def table(self) -> Tensor:
        """The table in use, [V, D]: unit rows under FixNorm, else the weights as they are."""
        return F.normalize(self.weight, dim=-1, eps=FIXNORM_EPS) if self.fixnorm else self.weight


class SinusoidalPositions(nn.Module):
    """Sinusoids, sine and cosine interleaved (V section 3.5): a buffer, not saved."""

    table: Tensor

    def __init__(self, dim: int, longest: int = 512) -> None:
        super().__init__()
        self.dim = dim
        self.register_buffer("table", sinusoids(longest, dim), persistent=False)

    def forward(self, positions: Tensor, longest: int) -> Tensor:
        """[N] places below ``longest`` -> [N, D]."""
        if longest > self.table.shape[0]:
            size = 1 << (longest - 1).bit_length()
            self.table = sinusoids(size, self.dim).to(self.table)
        return self.table[positions]


def sinusoids(longest: int, dim: int) -> Tensor:
    """``sin(p / 10000^(2i/D))`` at 2i and ``cos`` of the same at 2i + 1: [longest, D] fp32."""
    places = torch.arange(longest, dtype=torch.float64)[:, None]
    rates = torch.exp(torch.arange(0, dim, 2, dtype=torch.float64) * (-math.log(10000.0) / dim))
    angles = places * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1).float()
