"""Learning-rate schedules: the keys of each, and its rate as a pure function.

``history`` lists (update, dev score) of all validations so far; higher scores are better. Update
numbers start at 1. The validation of a parent, at update 0, is not in it: a decay asks whether the
training still improves, also where it begins below its parent.

Sources: T = Nguyen & Salazar 2019, N = Shleifer et al. 2021, V = Vaswani et al. 2017, A = the code
of T, O = our choice.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from nmt.config.schema import ConfigBase, key

MAX_UPDATES = 1_000_000_000
History: TypeAlias = Sequence[tuple[int, float]]
DecayRule: TypeAlias = Literal["no_gain", "below_all"]


class ScheduleBase(ConfigBase):
    """A learning-rate schedule: a subclass has ``kind``, its keys and a method ``lr``."""

    @abstractmethod
    def lr(self, update: int, history: History, dim: int) -> float:
        """Return the learning rate of an update, given the validations before it."""

    def highest_lr(self, dim: int) -> float:
        """Return the highest learning rate, that of the end of the warm-up."""
        return self.lr(max(1, getattr(self, "warmup_updates", 1)), (), dim)

    def finished(self, update: int, loss_ratio: float) -> bool:
        """Return whether the schedule ends the run now; by default it never does."""
        return False


class InverseSqrt(ScheduleBase):
    """Warm up linearly, then decay with 1 / sqrt(update) (INVSQRTDECAY: T equation 7; V 5.3)."""

    kind: Literal["inverse_sqrt"] = "inverse_sqrt"
    scale: float = key(1.0, "T equation 7", gt=0)
    """factor on the learning rate, lambda of equation 7; 2 is the paper's 2xLR"""
    warmup_updates: int = key(8000, "T 3.3", ge=0, le=MAX_UPDATES)
    """number of warm-up updates; 0 = no warm-up"""

    def lr(self, update: int, history: History, dim: int) -> float:
        """Return the learning rate of this update."""
        return inverse_sqrt_lr(update, dim, self.scale, self.warmup_updates)


class ValDecay(ScheduleBase):
    """Warm up as equation 7, then multiply by ``decay`` on plateaus of dev (VALDECAY: T 2.4)."""

    kind: Literal["val_decay"] = "val_decay"
    scale: float = key(1.0, "T 3.3", gt=0)
    """factor on the learning rate, lambda of equation 7"""
    warmup_updates: int = key(8000, "T 3.3", ge=1, le=MAX_UPDATES)
    """number of warm-up updates"""
    decay: float = key(0.8, "T 3.3", gt=0, lt=1)
    """factor on the learning rate at each decay"""
    patience: int = key(3, "T 3.3", ge=1)
    """number of validations that the rule compares"""
    rule: DecayRule = key("no_gain", "T 2.4, A")
    """when to decay: no_gain = after patience validations without a new best score; below_all =
    when a score is below each of the previous patience scores, as in A"""

    def lr(self, update: int, history: History, dim: int) -> float:
        """Return the learning rate; only validations after the warm-up count."""
        until = min(update, self.warmup_updates)
        rising = inverse_sqrt_lr(until, dim, self.scale, self.warmup_updates)
        after = [(u, s) for u, s in history if u >= self.warmup_updates]
        return rising * self.decay ** count_decays(after, self.patience, self.rule)


class NoWarmup(ScheduleBase):
    """Start at ``lr`` and multiply by ``decay`` on plateaus of dev (NOWARMUP: T 2.4, 3.3)."""

    kind: Literal["no_warmup"] = "no_warmup"
    lr_start: float = key(3e-4, "T 3.3", gt=0, alias="lr")
    """learning rate of the first update"""
    decay: float = key(0.8, "T 3.3", gt=0, lt=1)
    """factor on the learning rate at each decay"""
    patience: int = key(3, "T 3.3", ge=1)
    """number of validations that the rule compares"""
    rule: DecayRule = key("no_gain", "T 2.4, A")
    """when to decay: no_gain = after patience validations without a new best score; below_all =
    when a score is below each of the previous patience scores, as in A"""

    def lr(self, update: int, history: History, dim: int) -> float:
        """Return the learning rate of this update."""
        return self.lr_start * self.decay ** count_decays(history, self.patience, self.rule)


class Linear(ScheduleBase):
    """Warm up linearly to ``lr``, then fall to ``end_lr`` at ``total_updates`` (N table 7)."""

    kind: Literal["linear"] = "linear"
    peak: float = key(..., "N table 1", gt=0, alias="lr")
    """highest learning rate, at the end of the warm-up"""
    warmup_updates: int = key(500, "N table 7", ge=0, le=MAX_UPDATES)
    """number of warm-up updates; 0 = no warm-up"""
    total_updates: int = key(..., "N", ge=1, le=MAX_UPDATES)
    """updates until the learning rate reaches end_lr; then training ends"""
    end_lr: float = key(0.0, "N table 7", ge=0)
    """learning rate of the last update"""

    def _broken_rules(self) -> Iterator[str]:
        warmup, total = self.warmup_updates, self.total_updates
        if warmup >= total:
            yield (
                f"schedule.warmup_updates ({warmup}) must be less than schedule.total_updates "
                f"({total})"
            )
        if self.end_lr > self.peak:
            yield f"schedule.end_lr ({self.end_lr}) must not exceed schedule.lr ({self.peak})"

    def lr(self, update: int, history: History, dim: int) -> float:
        """Return the learning rate of this update."""
        if update <= self.warmup_updates:
            return self.peak * update / self.warmup_updates
        left = max(0, self.total_updates - update) / (self.total_updates - self.warmup_updates)
        return self.end_lr + (self.peak - self.end_lr) * left

    def highest_lr(self, dim: int) -> float:
        """Return ``peak``, which no update may have: the last one has ``end_lr``."""
        return self.peak

    def finished(self, update: int, loss_ratio: float) -> bool:
        """Return whether ``total_updates`` are done."""
        return update >= self.total_updates


class Constant(ScheduleBase):
    """Use the same learning rate for every update."""

    kind: Literal["constant"] = "constant"
    value: float = key(..., "O", gt=0, alias="lr")
    """learning rate of every update"""

    def lr(self, update: int, history: History, dim: int) -> float:
        """Return the learning rate of this update."""
        return self.value


class LrRamp(ScheduleBase):
    """Raise the rate until the loss explodes: NormFormer's stability test (N 4.1, figure 5)."""

    kind: Literal["lr_ramp"] = "lr_ramp"
    start_lr: float = key(0.0, "N figure 5", ge=0)
    """learning rate that the ramp starts from"""
    lr_per_update: float = key(5e-5, "N figure 5", gt=0)
    """added to the learning rate at each update"""
    stop_loss_ratio: float = key(1.5, "O", gt=1)
    """training ends when the loss per token exceeds its lowest logged value times this"""

    def lr(self, update: int, history: History, dim: int) -> float:
        """Return the learning rate of this update."""
        return self.start_lr + self.lr_per_update * update

    def finished(self, update: int, loss_ratio: float) -> bool:
        """Return whether the loss, divided by its lowest value, exceeds ``stop_loss_ratio``."""
        return loss_ratio > self.stop_loss_ratio or math.isnan(loss_ratio)


Schedule = Annotated[
    InverseSqrt | ValDecay | NoWarmup | Linear | Constant | LrRamp, Field(discriminator="kind")
]


def inverse_sqrt_lr(update: int, dim: int, scale: float, warmup_updates: int) -> float:
    """Return ``scale / sqrt(d) * min(1 / sqrt(n), n / warmup^1.5)`` for update n (T equation 7)."""
    decayed = 1.0 / math.sqrt(update)
    warming = update / warmup_updates**1.5 if warmup_updates else decayed
    return scale / math.sqrt(dim) * min(decayed, warming)


def count_decays(history: History, patience: int, rule: DecayRule) -> int:
    """Count the validation-based decays (T section 2.4) that ``history`` has triggered.

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
