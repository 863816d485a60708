"""Tied word embeddings with FixNorm, and sinusoidal positions.

Shapes: N flat tokens, D model dim, V vocabulary size.
Sources: T = Nguyen & Salazar 2019, V = Vaswani et al. 2017.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

FIXNORM_EPS = 1e-5
FIRST_POSITIONS = 512  # of the table of positions, which grows on demand


class TiedEmbedding(nn.Module):
    """A table of word vectors that can be input embedding and output projection at once.

    Under FixNorm (T section 2.3) the rows are normalized to length 1. Call ``table()`` once in a
    forward pass and use the result for both, so that rows are normalized once.
    """

    def __init__(self, vocab_size: int, dim: int, fixnorm: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, dim))
        self.fixnorm = fixnorm

    def table(self) -> Tensor:
        """Return the table [V, D]: rows of length 1 under FixNorm, else the weights."""
        return F.normalize(self.weight, dim=-1, eps=FIXNORM_EPS) if self.fixnorm else self.weight


class SinusoidalPositions(nn.Module):
    """Position vectors (V section 3.5), kept in a buffer that is not saved."""

    table: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.register_buffer("table", sinusoids(FIRST_POSITIONS, dim), persistent=False)

    def forward(self, positions: Tensor, max_length: int) -> Tensor:
        """Return the vectors of positions below ``max_length``: [N] -> [N, D]."""
        if max_length > self.table.shape[0]:
            size = 1 << (max_length - 1).bit_length()
            self.table = sinusoids(size, self.dim).to(self.table)
        return self.table[positions]


def sinusoids(max_length: int, dim: int) -> Tensor:
    """Return ``sin(p / 10000^(2i/D))`` at 2i and the cosine at 2i + 1: [max_length, D] fp32."""
    positions = torch.arange(max_length, dtype=torch.float64)[:, None]
    rates = torch.exp(torch.arange(0, dim, 2, dtype=torch.float64) * (-math.log(10000.0) / dim))
    angles = positions * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1).float()
