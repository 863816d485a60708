"""What a search finds, by whichever engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


class NonFiniteScores(ArithmeticError):
    """A model gives NaN or infinite scores to a sentence of a batch, or to a line."""

    def __init__(self, number: int) -> None:
        super().__init__(f"the scores of {number} are not finite")
        self.number = number


@dataclass(frozen=True)
class Hypothesis:
    """A hypothesis as ids, EOS left out.

    Attributes:
        log_prob: sum over its tokens, EOS included if it ended.
        score: what the search ranked by.
        finished: it ended with EOS, not at the length limit.
    """

    ids: list[int]
    log_prob: float
    score: float
    finished: bool


def length_penalty(length: Tensor | int, alpha: float) -> Tensor | float:
    """Return ``((5 + n) / 6)^alpha`` (W equation 14)."""
    return ((5 + length) / 6) ** alpha
