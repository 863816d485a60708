"""Several models as one: the mean of their probabilities at every step.

Legend: B sentences, K beams, V types, A of them that logits have columns for, Nt flat target
tokens, M models.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from nmt.decoding.search import State
from nmt.model.layout import Layout
from nmt.model.transformer import Transformer


class Ensemble(nn.Module):
    """Models that share a vocabulary, with the interface of a Transformer for search and scoring.

    Attributes:
        allowed: [V] bool, the types that any of the models can produce.
    """

    allowed: Tensor

    def __init__(self, models: Sequence[Transformer]) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)
        allowed = torch.stack([model.allowed for model in models]).any(0)
        self.register_buffer("allowed", allowed, persistent=False)

    @property
    def longest(self) -> int | None:
        """The number of tokens that each of the models has positions for; None = any."""
        return min((m.longest for m in self.members() if m.longest is not None), default=None)

    def members(self) -> Iterable[Transformer]:
        """Give the models their type, which ModuleList does not keep."""
        return cast(Iterable[Transformer], self.models)

    def forward(self, src: Tensor, src_layout: Layout, tgt: Tensor, tgt_layout: Layout) -> Tensor:
        """Compute log-probabilities [Nt, V], which are logits too."""
        return log_mean([model(src, src_layout, tgt, tgt_layout) for model in self.members()])

    def start_decoding(
        self, src: Tensor, layout: Layout, beam: int, max_len: int, types: Tensor | None = None
    ) -> EnsembleState:
        """Encode B sentences with every model; arguments as in ``Transformer.start_decoding``."""
        return EnsembleState(
            [model.start_decoding(src, layout, beam, max_len, types) for model in self.members()]
        )


class EnsembleState:
    """The states of M models that decode the same tokens."""

    def __init__(self, states: Sequence[State]) -> None:
        self.states = states

    def advance(self, tokens: Tensor) -> Tensor:
        """Take the tokens of this position [B, K]; return log-probabilities of the next."""
        return log_mean([state.advance(tokens) for state in self.states])

    def select(self, parents: Tensor) -> None:
        """Replace each beam by the one that it continues: parents [B, K] int64."""
        for state in self.states:
            state.select(parents)

    def keep(self, sentences: Tensor) -> None:
        """Drop all sentences but these, [B'] int64."""
        for state in self.states:
            state.keep(sentences)


def log_mean(logits: Sequence[Tensor]) -> Tensor:
    """Compute the logarithm of the mean probability: M logits [..., V] -> [..., V], fp32."""
    log_probs = torch.stack([x.float().log_softmax(-1) for x in logits])
    return log_probs.logsumexp(0) - math.log(len(logits))
