"""Learning-rate schedules as pure functions of (update, dev history): nothing to save or resume.

``history`` is the list of (update, dev score) of all validations so far, higher is better.
Update numbers start at 1. Equation and section numbers are those of "Transformers without Tears"
(T) and NormFormer (N).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, model_validator

from nmt.config.schema import ConfigBase, option

UPDATES = 1_000_000_000  # of a training, at most
History: TypeAlias = Sequence[tuple[int, float]]
Rule: TypeAlias = Literal["no_gain", "below_all"]


def inverse_sqrt_lr(update: int, dim: int, scale: float, warmup_updates: int) -> float:
    """T equation 7: ``scale / sqrt(d) * min(1 / sqrt(n), n / warmup^1.5)``."""
    decayed = 1.0 / math.sqrt(update)
    warming = update / warmup_updates**1.5 if warmup_updates else decayed
    return scale / math.sqrt(dim) * min(decayed, warming)


def count_decays(history: History, patience: int, rule: Rule) -> int:
    """How often validation-based decay (T section 2.4) has struck in ``history``.

    ``no_gain`` (T): the best score so far has not improved for ``patience`` validations, counted
    anew after each decay. ``below_all`` (A's code): the newest score is below each of the
    ``patience`` scores before it. A NaN is never a gain and never the best.
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


class InverseSqrt(ConfigBase):
    """INVSQRTDECAY: linear warm-up, then 1/sqrt(update) (T equation 7; V section 5.3)."""

    kind: Literal["inverse_sqrt"] = "inverse_sqrt"
    scale: float = option(1.0, "lambda of equation 7; 2 gives the paper's 2xLR", "T eq. 7", gt=0)
    warmup_updates: int = option(
        8000, "updates until the peak; 0 = no warm-up", "T 3.3", ge=0, le=UPDATES
    )

    def lr(self, update: int, history: History, dim: int) -> float:
        """Learning rate of this update."""
        return inverse_sqrt_lr(update, dim, self.scale, self.warmup_updates)

    def finished(self, update: int, loss_ratio: float) -> bool:
        """Never ends a run by itself."""
        return False


class ValDecay(ConfigBase):
    """VALDECAY: warm-up as equation 7, then constant, times ``decay`` on a plateau (T 2.4)."""

    kind: Literal["val_decay"] = "val_decay"
    scale: float = option(1.0, "lambda of equation 7", "T 3.3", gt=0)
    warmup_updates: int = option(8000, "updates until the peak", "T 3.3", ge=1, le=UPDATES)
    decay: float = option(0.8, "factor on the learning rate at a plateau", "T 3.3", gt=0, lt=1)
    patience: int = option(3, "validations without a gain before a decay", "T 3.3", ge=1)
    rule: Rule = option("no_gain", "when to decay; below_all = A's code", "T 2.4, A")

    def lr(self, update: int, history: History, dim: int) -> float:
        """Learning rate of this update."""
        rising = inverse_sqrt_lr(
            min(update, self.warmup_updates), dim, self.scale, self.warmup_updates
        )
        after = [(u, s) for u, s in history if u >= self.warmup_updates]
        return rising * self.decay ** count_decays(after, self.patience, self.rule)

    def finished(self, update: int, loss_ratio: float) -> bool:
        """Never ends a run by itself (``train.min_lr`` does)."""
        return False


class NoWarmup(ConfigBase):
    """NOWARMUP: constant from the first update, times ``decay`` on a plateau (T 2.4, 3.3)."""

    kind: Literal["no_warmup"] = "no_warmup"
    lr_start: float = option(3e-4, "learning rate of the first update", "T 3.3", gt=0, alias="lr")
    decay: float = option(0.8, "factor on the learning rate at a plateau", "T 3.3", gt=0, lt=1)
    patience: int = option(3, "validations without a gain before a decay", "T 3.3", ge=1)
    rule: Rule = option("no_gain", "when to decay; below_all = A's code", "T 2.4, A")

    def lr(self, update: int, history: History, dim: int) -> float:
        """Learning rate of this update."""
        return self.lr_start * self.decay ** count_decays(history, self.patience, self.rule)

    def finished(self, update: int, loss_ratio: float) -> bool:
        """Never ends a run by itself (``train.min_lr`` does)."""
        return False


class Linear(ConfigBase):
    """Linear warm-up to ``lr``, linear decay to ``end_lr`` at ``total_updates`` (N table 7)."""

    kind: Literal["linear"] = "linear"
    peak: float = option(
        ..., "learning rate at the end of the warm-up", "N table 1", gt=0, alias="lr"
    )
    warmup_updates: int = option(500, "updates until the peak", "N table 7", ge=0, le=UPDATES)
    total_updates: int = option(
        ..., "update at which end_lr is reached and training ends", "N", ge=1, le=UPDATES
    )
    end_lr: float = option(0.0, "learning rate at the end", "N table 7", ge=0)

    @model_validator(mode="after")
    def _consistent(self) -> Linear:
        if self.warmup_updates >= self.total_updates:
            raise ValueError(
                f"schedule.warmup_updates ({self.warmup_updates}) must be below "
                f"schedule.total_updates ({self.total_updates})"
            )
        if self.end_lr > self.peak:
            raise ValueError(f"schedule.end_lr ({self.end_lr}) is above schedule.lr ({self.peak})")
        return self

    def lr(self, update: int, history: History, dim: int) -> float:
        """Learning rate of this update."""
        if update <= self.warmup_updates:
            return self.peak * update / self.warmup_updates
        left = max(0, self.total_updates - update) / (self.total_updates - self.warmup_updates)
        return self.end_lr + (self.peak - self.end_lr) * left

    def finished(self, update: int, loss_ratio: float) -> bool:
        """True after ``total_updates``."""
        return update >= self.total_updates


class Constant(ConfigBase):
    """The same learning rate at every update."""

    kind: Literal["constant"] = "constant"
    value: float = option(..., "learning rate", "O", gt=0, alias="lr")

    def lr(self, update: int, history: History, dim: int) -> float:
        """Learning rate of this update."""
        return self.value

    def finished(self, update: int, loss_ratio: float) -> bool:
        """Never ends a run by itself."""
        return False


class LrRamp(ConfigBase):
    """NormFormer's stability test (N 4.1, figure 5): the rate rises until the loss explodes."""

    kind: Literal["lr_ramp"] = "lr_ramp"
    start_lr: float = option(0.0, "learning rate before the first update", "N figure 5", ge=0)
    lr_per_update: float = option(5e-5, "added at each update", "N figure 5", gt=0)
    stop_loss_ratio: float = option(
        1.5,
        "ends the run when loss per token exceeds its lowest logged value times this",
        "O",
        gt=1,
    )

    def lr(self, update: int, history: History, dim: int) -> float:
        """Learning rate of this update."""
        return self.start_lr + self.lr_per_update * update

    def finished(self, update: int, loss_ratio: float) -> bool:
        """True once the loss, divided by its lowest value so far, exceeds ``stop_loss_ratio``."""
        return loss_ratio > self.stop_loss_ratio or math.isnan(loss_ratio)


AnySchedule: TypeAlias = InverseSqrt | ValDecay | NoWarmup | Linear | Constant | LrRamp
Schedule = Annotated[AnySchedule, Field(discriminator="kind")]
SCHEDULES: dict[str, Any] = {
    "inverse_sqrt": InverseSqrt,
    "val_decay": ValDecay,
    "no_warmup": NoWarmup,
    "linear": Linear,
    "constant": Constant,
    "lr_ramp": LrRamp,
}
