"""The result of a search. This module does not import torch: exported folders work without it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

Number = TypeVar("Number", "Tensor", float)


class NonFiniteScores(ArithmeticError):
    """Raised when a model gives NaN or infinite scores to a sentence.

    Attributes:
        number: from ``beam_search``, the index of the sentence; from an engine, its line number.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@dataclass(frozen=True)
class Hypothesis:
    """A hypothesis as ids.

    Attributes:
        ids: of its tokens, without EOS.
        log_prob: sum over its tokens, including EOS if it is finished.
        score: log_prob / length penalty; the search ranks by it.
        finished: whether it ended with EOS, not at the length limit.
    """

    ids: list[int]
    log_prob: float
    score: float
    finished: bool


def length_penalty(length: Number, alpha: float) -> Number:
    """Return ``((5 + n) / 6)^alpha`` (W equation 14)."""
    return ((5 + length) / 6) ** alpha
