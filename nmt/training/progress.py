"""What training logs: a line per interval of updates, and a line per validation."""

from __future__ import annotations

import math
import time
from typing import Any

from torch import Tensor

from nmt.config.recipe import Recipe
from nmt.run.checkpoint import IntervalState, TrainState
from nmt.run.results import format_number
from nmt.training.stopping import last_update
from nmt.training.task import Evaluation

DIVERGED = 100  # times ln(types)


class LogInterval:
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
        """Begin a new interval, after a log line or a validation."""
        self.smoothed = self.nll = 0.0
        self.tokens, self.updates_before = 0, self.state.update
        self.start_clock()

    def start_clock(self, seconds: float = 0.0) -> None:
        """Count time from now, in addition to ``seconds`` of earlier."""
        self.since = time.monotonic() - seconds

    def store(self) -> None:
        """Copy the interval into the state, for a checkpoint."""
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
        """Add the loss sums and the target tokens of one update."""
        self.smoothed = self.smoothed + smoothed
        self.nll = self.nll + nll
        self.tokens += tokens

    def close(self, lr: float, norm: Tensor) -> dict[str, Any]:
        """Return the record of the interval for metrics.jsonl, and begin the next one."""
        seconds = time.monotonic() - self.since
        loss, nll = float(self.smoothed) / self.tokens, float(self.nll) / self.tokens
        self.lower_of_two, self.last_loss = min(self.last_loss, loss), loss
        self.lowest_loss = min(self.lowest_loss, loss)
        self.loss_ratio = loss / self.lowest_loss
        update, updates = self.state.update, self.state.update - self.updates_before
        record = {
            "kind": "train",
            "update": update,
            "epoch": self.state.epoch,
            "seconds": self.state.seconds,
            "loss": loss,
            "smoothed_ppl": math.exp(min(loss, 700.0)),
            "ppl": math.exp(min(nll, 700.0)),
            "lr": lr,
            "grad_norm": float(norm),
            "tokens_per_second": self.tokens / seconds,
            "seconds_left": (last_update(self.recipe) - update) * seconds / updates,
        }
        self.restart()
        return record

    def diverged(self, types: int) -> bool:
        """Return whether two log lines in a row have a loss that training does not recover from.

        A uniform prediction has a loss of ln(types) per token, and an untrained model slightly
        more. A model that has learned something wrong has a few times that. One line may be a
        spike.
        """
        return self.lower_of_two > DIVERGED * math.log(types)


def update_line(record: dict[str, Any]) -> str:
    """Return a record of ``LogInterval.close`` as a line for people."""
    loss, ppl, smoothed, norm = (
        format_number(record["loss"], 3),
        *(format_number(record[name]) for name in ("ppl", "smoothed_ppl", "grad_norm")),
    )
    return (
        f"update {record['update']:>6}  epoch {record['epoch'] + 1:>3}  loss {loss}  "
        f"ppl {ppl} ({smoothed} smoothed)  lr {record['lr']:.2e}  |g| {norm}  "
        f"{record['tokens_per_second']:,.0f} tok/s  {clock(record['seconds_left'])} left at most"
    )


def dev_line(state: TrainState, select_by: str, result: Evaluation, improved: bool) -> str:
    """Return a validation as a line for people, with a bar that draws the learning curve."""
    return (
        f"dev {len(state.history):>3}  update {state.update:>6}  {result.line()}  "
        f"{_bar(result.share(select_by))}{'  best' if improved else ''}"
    )


def clock(seconds: float) -> str:
    """Format seconds as ``1:02:03`` or ``2:03``."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _bar(share: float, width: int = 20) -> str:
    """Return a horizontal bar that is full at 1."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    full, rest = divmod(eighths, 8)
    return "█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")
