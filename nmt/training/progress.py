"""What a person reads while training runs: a line per interval, a line per validation."""

from __future__ import annotations

import math
import time
from typing import Any

from torch import Tensor

from nmt.config import Recipe
from nmt.run.state import IntervalState, TrainState
from nmt.training.evaluate import Evaluation


class Interval:
    """Sums since the last log line; tensors are read only when the line is written."""

    def __init__(self, state: TrainState, recipe: Recipe) -> None:
        self.state, self.recipe = state, recipe
        before = state.interval
        self.smoothed: Tensor | float = before.smoothed
        self.nll: Tensor | float = before.nll
        self.tokens, self.updates_before = before.tokens, before.updates_before
        self.lowest_loss, self.loss_ratio = before.lowest_loss, before.loss_ratio
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
            f"update {r['update']:>6}  epoch {r['epoch'] + 1:>3}  loss {r['loss']:.3f}  "
            f"ppl {r['ppl']:.2f} ({r['smoothed_ppl']:.2f} smoothed)  lr {r['lr']:.2e}  "
            f"|g| {r['grad_norm']:.2f}  {r['tokens_per_second']:,.0f} tok/s  "
            f"{clock(r['seconds_left'])} left at most"
        )

    def dev_line(self, validation: int, result: Evaluation, improved: bool) -> str:
        """A validation for people: a point of the learning curve, drawn as a bar."""
        value = result.value(self.recipe.score.select_by)
        bar = _bar(value / 50)
        scores = "  ".join(f"{s.name} {s.value:.2f}" for s in result.scores)
        return (
            f"dev {validation:>3}  update {self.state.update:>6}  {scores}  ppl {result.ppl:.2f} "
            f"({result.smoothed_ppl:.2f} smoothed)  {bar}{'  best' if improved else ''}"
        )

    def last_update(self) -> int:
        """The update that training does not go beyond."""
        train = self.recipe.train
        total = getattr(self.recipe.schedule, "total_updates", None)
        return min(train.max_epochs * train.epoch_updates, total or math.inf)  # type: ignore[return-value]


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
