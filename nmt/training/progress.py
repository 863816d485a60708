"""What a person reads while training runs: a line per interval, a line per validation."""

from __future__ import annotations

import math
import time
from typing import Any

from torch import Tensor

from nmt.config.recipe import Recipe
from nmt.run.checkpoint import IntervalState, TrainState
from nmt.run.results import format_number
from nmt.training.validation import Evaluation

DIVERGED = 100  # times ln(types)


class Interval:
    """Sums since the last log line; tensors are read only when the line is written."""

    def __init__(self, state: TrainState, recipe: Recipe) -> None:
        self.state, self.recipe = state, recipe
        before = state.interval
        self.smoothed: Tensor | float = before.smoothed
        self.nll: Tensor | float = before.nll
        self.tokens, self.updates_before = before.tokens, before.updates_before
        self.lowest_loss, self.loss_ratio = before.lowest_loss, before.loss_ratio
        first = math.isinf(before.lowest_loss)
        self.last_loss = 0.0 if first else before.loss_ratio * before.lowest_loss
        self.lower_of_two = 0.0  # of the losses of the last two lines
        self.start_clock(before.seconds)

    def restart(self) -> None:
        """Begin anew: after a line, and after a validation, whose time is not training's."""
        self.smoothed = self.nll = 0.0
        self.tokens, self.updates_before = 0, self.state.update
        self.start_clock()

    def start_clock(self, before: float = 0.0) -> None:
        """Count time from now, and the seconds before."""
        self.since = time.monotonic() - before

    def store(self) -> None:
        """Put the interval as it stands into the state."""
        self.state.interval = IntervalState(
            smoothed=float(self.smoothed),
            nll=float(self.nll),
            tokens=self.tokens,
            updates_before=self.updates_before,
            seconds=time.monotonic() - self.since,
            lowest_loss=self.lowest_loss,
            loss_ratio=self.loss_ratio,
        )

    def add(self, smoothed: Tensor, nll: Tensor, tokens: int) -> None:
        """Count one update."""
        self.smoothed = self.smoothed + smoothed
        self.nll = self.nll + nll
        self.tokens += tokens

    def close(self, lr: float, norm: Tensor) -> dict[str, Any]:
        """The record of the interval that ends now; begins the next."""
        seconds = time.monotonic() - self.since
        loss, nll = float(self.smoothed) / self.tokens, float(self.nll) / self.tokens
        self.lower_of_two, self.last_loss = min(self.last_loss, loss), loss
        self.lowest_loss = min(self.lowest_loss, loss)
        self.loss_ratio = loss / self.lowest_loss
        updates = self.state.update - self.updates_before
        record = {
            "kind": "train",
            "update": self.state.update,
            "epoch": self.state.epoch,
            "loss": loss,
            "smoothed_ppl": math.exp(min(loss, 700.0)),
            "ppl": math.exp(min(nll, 700.0)),
            "lr": lr,
            "grad_norm": float(norm),
            "tokens_per_second": self.tokens / seconds,
            "seconds_left": (self.last_update() - self.state.update) * seconds / updates,
        }
        self.restart()
        return record

    def line(self, r: dict[str, Any]) -> str:
        """The record for people."""
        return (
            f"update {r['update']:>6}  epoch {r['epoch'] + 1:>3}  loss {format_number(r['loss'], 3)}  "
            f"ppl {format_number(r['ppl'])} ({format_number(r['smoothed_ppl'])} smoothed)  lr {r['lr']:.2e}  "
            f"|g| {format_number(r['grad_norm'])}  {r['tokens_per_second']:,.0f} tok/s  "
            f"{clock(r['seconds_left'])} left at most"
        )

    def dev_line(self, validation: int, result: Evaluation, improved: bool) -> str:
        """A validation for people: a point of the learning curve, drawn as a bar."""
        value = result.value(self.recipe.score.select_by)
        bar = _bar(value / 50)
        scores = "  ".join(f"{s.name} {s.value:.2f}" for s in result.scores)
        return (
            f"dev {validation:>3}  update {self.state.update:>6}  {scores}  "
            f"ppl {format_number(result.ppl)} ({format_number(result.smoothed_ppl)} smoothed)  "
            f"{bar}{'  best' if improved else ''}"
        )

    def diverged(self, types: int) -> bool:
        """Whether two log lines in a row have a loss that no training comes back from.

        A model that knows nothing has a loss of ln(types) a token, an untrained one hardly more,
        and one that has learned something wrong a few times that. One line may be a spike.
        """
        return self.lower_of_two > DIVERGED * math.log(types)

    def last_update(self) -> int:
        """The update that training does not go beyond."""
        train = self.recipe.train
        total = getattr(self.recipe.schedule, "total_updates", None)
        return min(train.max_validations * train.validate_every, total or math.inf)  # type: ignore[return-value]


def _bar(share: float, width: int = 20) -> str:
    """A horizontal bar: full at 1."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    full, rest = divmod(eighths, 8)
    return "█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")


def clock(seconds: float) -> str:
    """``1:02:03`` or ``2:03``."""
    whole = int(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
