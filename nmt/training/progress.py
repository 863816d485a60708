"""What training shows: a log line per interval, one per validation, and the state in between."""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from nmt.config.recipe import Recipe
from nmt.runtime.progress import TerminalBar
from nmt.runtime.words import quantity
from nmt.store.folder import RunFolder
from nmt.store.manifest import TrainState
from nmt.store.results import as_score, clock, format_number, read_metrics
from nmt.training.evaluation import Evaluation, loss_text
from nmt.training.loss import LossSums, add_sums, logged_losses, objective
from nmt.training.stopping import last_update

DIVERGED = 100  # times ln(types)
BAR_WIDTH = 20  # characters
SMALLEST_LOSS = 1e-9  # nats per token, the least that another loss is divided by
MINUTE, HALF_HOUR = 60.0, 1800.0  # seconds of updates that a speed is computed from


class Pace:
    """Measure updates and target tokens per second.

    The first update is not counted: it allocates memory, and a GPU compiles kernels.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now, self._paused = now, 0.0
        self._last = (0.0, 0, 0)  # time, updates, tokens
        self._marks: deque[tuple[float, int, int]] = deque()  # about one a second

    def step(self, tokens: int) -> None:
        """Count one update."""
        now = self._now() - self._paused
        _, updates, all_tokens = self._last
        self._last = now, updates + 1, all_tokens + tokens
        if not self._marks or now - self._marks[-1][0] >= 1:
            self._marks.append(self._last)
            while now - self._marks[0][0] > HALF_HOUR and len(self._marks) > 3:
                self._marks.popleft()

    def synchronized(self) -> None:
        """Count the time until now to the last update: a GPU has done what was queued."""
        self._last = (self._now() - self._paused, *self._last[1:])

    def pause(self, seconds: float) -> None:
        """Leave out seconds that were spent between two updates."""
        self._paused += seconds

    def per_second(self, window: float) -> tuple[float, float] | None:
        """Return updates and tokens per second of the last ``window`` seconds of updates.

        None until two updates and a second are counted.
        """
        until, all_updates, all_tokens = self._last
        speed = None
        for since, updates, tokens in reversed(self._marks):
            seconds = until - since
            if seconds >= 1 and all_updates - updates >= 2:
                speed = (all_updates - updates) / seconds, (all_tokens - tokens) / seconds
                if seconds >= window:
                    break
        return speed


class Progress:
    """The state of a run for people who watch it; it reads nothing from a device.

    Attributes:
        loss: of the last log line; None = none yet.
        validation_seconds: mean of the last three validations; None = there was none.
    """

    def __init__(
        self,
        recipe: Recipe,
        state: TrainState,
        has_test: bool,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.recipe, self.state, self._now = recipe, state, now
        self.pace = Pace(now)
        self.loss: float | None = None
        self.validation_seconds: float | None = None
        self._validations: deque[float] = deque(maxlen=3)
        # an average of checkpoints and the test set are scored after the last update
        self._after_training = has_test + (recipe.train.average > 1)
        self._activity, self._began = "", 0.0
        self._ended = False

    @contextlib.contextmanager
    def validation(self) -> Iterator[None]:
        """Show that a validation is running, and count its duration if it is complete."""
        with self._activity_of("validating"):
            yield
            self._validations.append(self._now() - self._began)
            self.validation_seconds = sum(self._validations) / len(self._validations)

    @contextlib.contextmanager
    def ending(self, activity: str) -> Iterator[None]:
        """Show what is done after the last update, such as ``scoring test``."""
        self._ended = True
        with self._activity_of(activity):
            yield

    @contextlib.contextmanager
    def _activity_of(self, name: str) -> Iterator[None]:
        self._activity, self._began = name, self._now()
        try:
            yield
        finally:
            self._activity = ""
            self.pace.pause(self._now() - self._began)

    def seconds_left(self) -> float:
        """Estimate how long the training takes at most, by the updates of the last half hour.

        Validations, and later the average and the test set, count once a validation was timed.
        """
        recipe, state = self.recipe, self.state
        speed = self.pace.per_second(HALF_HOUR)
        per_update = 1 / speed[0] if speed else state.seconds / max(1, state.update)
        per_validation = self.validation_seconds or 0.0
        last = last_update(recipe)
        validations = math.ceil(last / recipe.train.validate_every) - len(state.validations)
        left = (last - state.update) * per_update + max(0, validations) * per_validation
        if recipe.time_limit is not None:
            left = min(left, recipe.time_limit * 3600 - state.seconds)
        left = max(0.0, left) + self._after_training * per_validation
        if self._activity:  # a part of a validation is done
            left = max(0.0, left - min(per_validation, self._now() - self._began))
        return left

    def status(self) -> str:
        """Return one line: updates, time left, speed, loss and the best dev score."""
        parts = [f"{self.state.update:,}/{last_update(self.recipe):,}"]
        speed = self.pace.per_second(MINUTE)
        if self._activity:
            parts.append(f"{self._activity} {clock(self._now() - self._began)}")
        if speed is not None and not self._ended:
            updates, tokens = speed
            # "+": validations come in addition, and how long they take is not known
            more = "+" if self.validation_seconds is None else ""
            parts.append(f"{clock(self.seconds_left())}{more} left")
            parts += [f"{updates:.3g} updates/s", f"{tokens:,.0f} tok/s"]
        if self.loss is not None:
            parts.append(f"loss {format_number(self.loss)}")
        if (best := self.state.best_score) is not None:
            metric = self.recipe.score.select_by
            parts.append(f"best {metric} {format_number(as_score(metric, best))}")
        return "  ".join(parts)


class LiveLine:
    """Show a run while it trains: one line with a bar on a terminal, nothing elsewhere.

    Args:
        quiet: show nothing on a terminal either.

    Attributes:
        shown: the line says what the lines of updates say, so these are only written to train.log.
    """

    def __init__(self, quiet: bool = False) -> None:
        self._quiet, self.shown = quiet, False
        self._bar: TerminalBar | None = None

    def begin(self, progress: Progress) -> None:
        """Draw the line, if standard error is a terminal."""
        if self._quiet:
            return
        self._bar = TerminalBar(
            status=progress.status,
            total=last_update(progress.recipe),
            initial=progress.state.update,
            bar_format="{percentage:3.0f}%|{bar}| {status}",
            mininterval=0.2,
            miniters=0,
        )
        self.shown = not self._bar.disable

    def update(self) -> None:
        """Count an update; draw the line again if it is older than a fifth of a second."""
        if self._bar is not None:
            self._bar.update()

    def refresh(self) -> None:
        """Draw the line again if it is older than a fifth of a second."""
        if self._bar is not None:
            self._bar.update(0)

    def end(self) -> None:
        """Remove the line."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


@dataclass(frozen=True)
class Validation:
    """One validation of a run, as ``nmt.train`` passes it to ``on_validation``.

    Attributes:
        update: updates so far.
        epoch: passes over the training corpus so far.
        scores: everything measured on dev, by name: scores and perplexities.
        best: whether this is the best checkpoint so far.
    """

    update: int
    epoch: int
    scores: dict[str, float]
    best: bool


class LogInterval:
    """Sums since the last log line, in ``state.interval``; the losses stay on the device.

    Attributes:
        losses: their sums by name, read only when a line or a checkpoint is written.
        logged: perplexities and other terms of the last log line.
        last_loss: of the last log line.
        lower_of_two: the lower loss of the last two lines.
    """

    def __init__(self, state: TrainState) -> None:
        self.state, stored = state, state.interval
        self.losses: dict[str, Any] = {"smoothed": stored.smoothed, "nll": stored.nll}
        self.losses |= stored.terms
        self.logged: dict[str, float] = {}
        first = math.isinf(stored.lowest_loss)
        self.last_loss = 0.0 if first else stored.loss_ratio * stored.lowest_loss
        self.lower_of_two = 0.0
        self.start_clock(stored.seconds)

    def elapsed(self) -> float:
        """Return the training seconds of the interval so far."""
        return time.monotonic() - self.since

    def start_clock(self, seconds: float = 0.0) -> None:
        """Count time from now, in addition to ``seconds`` of earlier."""
        self.since = time.monotonic() - seconds

    def store(self) -> None:
        """Complete ``state.interval`` for a checkpoint."""
        sums = self.state.interval
        sums.terms = {name: float(value) for name, value in self.losses.items()}
        sums.smoothed, sums.nll = sums.terms.pop("smoothed"), sums.terms.pop("nll")
        sums.seconds = self.elapsed()

    def add(self, losses: LossSums, tokens: int) -> None:
        """Add the loss sums and the target tokens of one update."""
        add_sums(self.losses, losses)
        self.state.interval.tokens += tokens

    def close(self, lr: float, norm: Tensor) -> dict[str, Any]:
        """Return the record of the interval for metrics.jsonl, and begin the next one."""
        state, sums, seconds = self.state, self.state.interval, self.elapsed()
        means = {name: float(x) / max(1, sums.tokens) for name, x in self.losses.items()}
        loss, self.logged = objective(means), logged_losses(means)
        self.lower_of_two, self.last_loss = min(self.last_loss, loss), loss
        sums.lowest_loss = max(min(sums.lowest_loss, loss), SMALLEST_LOSS)
        sums.loss_ratio = loss / sums.lowest_loss
        record = {
            "kind": "train",
            "update": state.update,
            "epoch": state.epoch,
            "seconds": state.seconds,
            "loss": loss,
            **self.logged,
            "lr": lr,
            "grad_norm": float(norm),
            "skipped_updates": state.skipped_updates - sums.skipped_before,
            "tokens_per_second": sums.tokens / seconds,
        }
        self.losses = dict.fromkeys(self.losses, 0.0)
        sums.tokens, sums.skipped_before = 0, state.skipped_updates
        self.start_clock()
        return record

    def diverged(self, types: int) -> bool:
        """Return whether two log lines in a row have a loss that training does not recover from.

        A uniform prediction has a loss of ln(types) per token, and an untrained model slightly
        more. A model that has learned something wrong has a few times that. One line may be a
        spike.
        """
        return self.lower_of_two > DIVERGED * math.log(types)


def update_line(
    record: dict[str, Any], logged: Mapping[str, float], validations_known: bool
) -> str:
    """Return a record of ``LogInterval.close`` and its losses as a line for people."""
    more = "" if validations_known else ", plus validations"
    skipped = record["skipped_updates"]
    bad = f"  {quantity(skipped, 'update')} skipped: gradients not finite" if skipped else ""
    return (
        f"update {record['update']:>6}  epoch {record['epoch'] + 1:>3}  "
        f"loss {format_number(record['loss'], 3)}  "
        f"{loss_text(logged)}  "
        f"lr {record['lr']:.2e}  |g| {format_number(record['grad_norm'])}  "
        f"{record['tokens_per_second']:,.0f} tok/s  "
        f"left: at most {clock(record['seconds_left'])}{more}{bad}"
    )


def dev_line(state: TrainState, select_by: str, result: Evaluation, improved: bool) -> str:
    """Return a validation as a line for people, with a bar that draws the learning curve."""
    return (
        f"dev {len(state.validations):>3}  update {state.update:>6}  {result.line}  "
        f"{_bar(result.bars[select_by])}{'  best' if improved else ''}"
    )


def equal_scores_warning(run: RunFolder, state: TrainState, select_by: str) -> str | None:
    """Return a warning if the score that selects the best checkpoint never moves, but chrF does.

    It is returned after three validations, and then after every tenth.
    """
    if len({round(score, 2) for _, score in state.history}) > 1:
        return None
    records = [record for record in read_metrics(run) if record.get("kind") == "dev"]
    count = len(records)
    scores = {format_number(record.get(select_by) or 0.0) for record in records}
    chrf = [record.get("chrf") or 0.0 for record in records]
    if count < 3 or (count > 3 and count % 10) or len(scores) > 1 or max(chrf) - min(chrf) < 1:
        return None
    return (
        f"warning: dev {select_by} is {scores.pop()} in all {count} validations, and chrf between "
        f"{min(chrf):.2f} and {max(chrf):.2f}, so {select_by} does not tell which checkpoint is "
        "the best\n  -> set score.select_by: chrf, and train in another folder with out=PATH"
    )


def _bar(share: float) -> str:
    eighths = round(max(0.0, min(share, 1.0)) * BAR_WIDTH * 8)  # in this order, NaN gives 0
    full, rest = divmod(eighths, 8)
    return "█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")
