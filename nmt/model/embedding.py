"""Tied word embeddings with FixNorm, positions, and the input of a stack: words in, vectors out.

Shapes: N flat tokens, D model dim, V vocabulary size.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.model import UNK
from nmt.model.config import ModelConfig
from nmt.model.dropout import Dropout, DropoutRng, WordDropout
from nmt.model.norms import NORMS

FIXNORM_EPS = 1e-5
FIRST_POSITIONS = 512  # of the table of positions, which grows on demand


class EmbeddingTable(nn.Module):
    """A table of word vectors that can be input embedding and output projection at once.

    Under FixNorm (Nguyen section 2.3) the rows are normalized to length 1. The factor g of FixNorm
    is the gain of the norm before the logits (equation 6, ``ModelBase.make_stack``). Call
    ``table()`` once in a forward pass and use the result for input and output.
    """

    def __init__(self, vocab_size: int, dim: int, fixnorm: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, dim))
        self.fixnorm = fixnorm

    def table(self) -> Tensor:
        """Return the table [V, D]: rows of length 1 under FixNorm, else the weights."""
        return F.normalize(self.weight, dim=-1, eps=FIXNORM_EPS) if self.fixnorm else self.weight


class SinusoidalPositions(nn.Module):
    """Position vectors (``sinusoids``), kept in a buffer that is not saved."""

    table: Tensor

    def __init__(self, dim: int, kind: str = "sinusoidal") -> None:
        super().__init__()
        self.dim, self.kind = dim, kind
        table = torch.empty(FIRST_POSITIONS, dim)
        if not table.is_meta:  # computing without memory would import torch's compiler, for seconds
            table = sinusoids(FIRST_POSITIONS, dim, kind)
        self.register_buffer("table", table, persistent=False)

    def forward(self, positions: Tensor, max_length: int) -> Tensor:
        """Return the vectors of positions below ``max_length``: [N] -> [N, D]."""
        if max_length > self.table.shape[0]:
            size = 1 << (max_length - 1).bit_length()
            self.table = sinusoids(size, self.dim, self.kind).to(self.table)
        return self.table[positions]


def sinusoids(max_length: int, dim: int, kind: str = "sinusoidal") -> Tensor:
    """Return ``sin(p r_i)`` at 2i and ``cos(p r_i)`` at 2i + 1: [max_length, D] fp32.

    | kind | first p | r_i |
    |---|---|---|
    | sinusoidal | 0 | ``10000^(-2i/D)`` (Vaswani section 3.5) |
    | fairseq | 2 | ``10000^(-i/(D/2 - 1))``, as in fairseq, which M2M-100 and NLLB-200 use |
    """
    fairseq = kind == "fairseq"
    positions = torch.arange(max_length, dtype=torch.float64)[:, None] + (2 if fairseq else 0)
    slowest = max(dim // 2 - 1, 1) if fairseq else dim / 2
    rates = torch.exp(torch.arange(dim // 2, dtype=torch.float64) * (-math.log(10000.0) / slowest))
    angles = positions * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1).float()


class LearnedPositions(nn.Module):
    """A learned vector for each position (Gehring et al. 2017), as in BART and mBART-50."""

    def __init__(self, max_positions: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_positions, dim))

    def forward(self, positions: Tensor, max_length: int) -> Tensor:
        """Return the vectors of positions: [N] -> [N, D].

        Raises:
            IndexError: ``max_length`` is above ``model.max_positions``.
        """
        if max_length > len(self.weight):
            raise IndexError(
                f"a sentence of {max_length:,} tokens; model.max_positions is {len(self.weight):,}"
            )
        return self.weight[positions]


class InputEmbedding(nn.Module):
    """Words in, vectors out: ``dropout(norm(sqrt(D) * word + position))`` (Vaswani section 3.4).

    The norm exists only with ``embed_norm`` (as in mBART). Word dropout replaces words by UNK
    before.
    """

    def __init__(self, config: ModelConfig, rng: DropoutRng) -> None:
        super().__init__()
        self.scale = config.dim**0.5
        self.word_dropout = WordDropout(config.word_dropout, UNK, rng)
        self.positions: SinusoidalPositions | LearnedPositions
        if config.positions == "learned":
            self.positions = LearnedPositions(config.max_positions, config.dim)
        else:
            self.positions = SinusoidalPositions(config.dim, config.positions)
        self.norm = (
            NORMS[config.norm](config.dim, eps=config.norm_eps) if config.embed_norm else None
        )
        self.dropout = Dropout(config.dropout, rng)

    def forward(self, ids: Tensor, table: Tensor, positions: Tensor, max_length: int) -> Tensor:
        """Return the input vectors of a stack: [N] -> [N, D].

        Args:
            ids: [N] int64.
            table: [V, D], of the words.
            positions: [N] int64, each below ``max_length``.
        """
        words = F.embedding(self.word_dropout(ids), table)
        x = torch.add(self.positions(positions, max_length), words, alpha=self.scale)
        return self.dropout(x if self.norm is None else self.norm(x))
