"""Learning-rate schedules as pure functions of (update, dev history), without state to save.

``history`` lists (update, dev score) of all validations so far; higher scores are better. Update
numbers start at 1. The schedules that a recipe selects, with their keys, are in
``nmt.config.recipe``; they call these functions.
Sources: T = Nguyen & Salazar 2019, N = Shleifer et al. 2021, A = the code of T.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

History: TypeAlias = Sequence[tuple[int, float]]
DecayRule: TypeAlias = Literal["no_gain", "below_all"]


def inverse_sqrt_lr(update: int, dim: int, scale: float, warmup_updates: int) -> float:
    """Return ``scale / sqrt(d) * min(1 / sqrt(n), n / warmup^1.5)`` for update n (T equation 7)."""
    decayed = 1.0 / math.sqrt(update)
    warming = update / warmup_updates**1.5 if warmup_updates else decayed
    return scale / math.sqrt(dim) * min(decayed, warming)


def linear_lr(
    update: int, peak: float, end_lr: float, warmup_updates: int, total_updates: int
) -> float:
    """Return the rate of a linear warm-up to ``peak``, then a linear decay to ``end_lr`` (N)."""
    if update <= warmup_updates:
        return peak * update / warmup_updates
    left = max(0, total_updates - update) / (total_updates - warmup_updates)
    return end_lr + (peak - end_lr) * left


def count_decays(history: History, patience: int, rule: DecayRule) -> int:
    """Return how many validation-based decays (T section 2.4) ``history`` has triggered.

    ``no_gain`` (T) decays when ``patience`` validations bring no new best score, and counts from 0
    again after each decay. ``below_all`` (A) decays when a score is below each of the ``patience``
    scores before it. NaN is never a new best score and never below another.
    """
    scores = [score for _, score in history]
    if rule == "below_all":
        return sum(
            all(scores[i] < earlier for earlier in scores[i - patience : i])
            for i in range(patience, len(scores))
        )
    best, waited, decays = -math.inf, 0, 0
    for score in scores:
        if score > best:
            best, waited = score, 0
        else:
            waited += 1
        if waited == patience:
            decays, waited = decays + 1, 0
    return decays
