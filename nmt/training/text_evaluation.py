"""Evaluate a model on the blocks of a dev or test text: perplexities."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nmt.data.lm import PackedText
from nmt.data.vocab import UNK
from nmt.run.results import format_number
from nmt.training.loss import LossSums, perplexity
from nmt.training.task import Evaluation, Stopped


@dataclass(frozen=True)
class TextEvaluation(Evaluation):
    """The perplexities of a model on one split.

    Attributes:
        smoothed_ppl: exp of the mean label-smoothed loss.
        types: size of the vocabulary, which is the perplexity of uniform probabilities.
    """

    smoothed_ppl: float
    types: int

    def record(self) -> dict[str, Any]:
        """Return all perplexities for metrics.jsonl."""
        return {**{s.name: s.value for s in self.scores}, "smoothed_ppl": self.smoothed_ppl}

    def line(self) -> str:
        """Return all perplexities as a part of a log line."""
        first, *others = (f"{s.name} {format_number(s.value)}" for s in self.scores)
        return "  ".join([f"{first} ({format_number(self.smoothed_ppl)} smoothed)", *others])

    def share(self, name: str) -> float:
        """Return 1 for a perplexity of 1, and 0 for that of uniform probabilities."""
        return 1 - math.log(self.value(name)) / math.log(self.types)

    def write(self, hyp_file: Path) -> None:
        """Write nothing: this task has no output."""


@dataclass(frozen=True)
class TextLosses:
    """Sums over the predictions of a text, in nats.

    Attributes:
        unknown: predictions of UNK, which stands for many words and is easier to predict.
    """

    nll: float
    smoothed: float
    tokens: int
    unknown: int

    @property
    def ppl(self) -> float:
        """Return exp of the mean cross-entropy."""
        return perplexity(self.nll / self.tokens)

    @property
    def smoothed_ppl(self) -> float:
        """Return exp of the mean smoothed loss."""
        return perplexity(self.smoothed / self.tokens)


@torch.no_grad()
def text_losses(
    text: PackedText,
    losses: Callable[[Any], tuple[LossSums, Tensor]],
    batch_tokens: int,
    stop_requested: Callable[[], bool],
) -> TextLosses:
    """Return the sums over all blocks of a text, with the noise of epoch 0.

    Args:
        losses: returns the loss sums and the targets of a batch.
        batch_tokens: maximum size of a batch.
        stop_requested: called between batches.

    Raises:
        Stopped: a stop was requested.
    """
    rows, per_batch = np.flatnonzero(text.targets), text.blocks_of_batch(batch_tokens)
    nll = smoothed = 0.0
    unknown = 0
    for first in range(0, len(rows), per_batch):
        if stop_requested():
            raise Stopped
        sums, targets = losses(text.collate(rows[first : first + per_batch], epoch=0))
        nll += float(sums.nll)
        smoothed += float(sums.smoothed)
        unknown += int((targets == UNK).sum())
    return TextLosses(nll, smoothed, int(text.targets[rows].sum()), unknown)
