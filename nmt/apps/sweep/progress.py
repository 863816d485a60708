"""How far the runs of a sweep are: read from their logs, shown as lines or as a live table."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TextIO

from nmt.apps.sweep.plan import Outcome, PlannedRun
from nmt.data.text import quantity
from nmt.run.folder import RunFolder
from nmt.run.results import as_score, clock, format_number

REDRAW = 1.0  # seconds between two states of the live table


@dataclass
class RunProgress:
    """A run in training, as its metrics.jsonl describes it.

    Attributes:
        run: what trains.
        started: time.monotonic() of its start.
        update: last update that was logged.
        dev: dev scores by update, of the metric that selects the best checkpoint.
        seconds_left: of training, at most; None before the first log line.
    """

    run: PlannedRun
    started: float = field(default_factory=time.monotonic)
    update: int = 0
    dev: dict[int, float] = field(default_factory=dict)
    seconds_left: float | None = None
    _offset: int = 0

    def read(self) -> None:
        """Read the lines that were written since the last call."""
        file = RunFolder(self.run.folder).metrics_file
        try:
            if file.stat().st_size < self._offset:  # a resumed run repeats updates
                self._offset = 0
            with open(file, "rb") as stream:
                stream.seek(self._offset)
                new = stream.read()
        except OSError:  # not written yet
            return
        complete = new.rpartition(b"\n")[0]
        self._offset += len(complete) + 1 if complete else 0
        for line in complete.splitlines():
            self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            record = json.loads(line)
            kind, self.update = record.get("kind"), int(record.get("update", self.update))
        except (ValueError, TypeError, AttributeError):
            return
        if kind == "train":
            self.seconds_left = record.get("seconds_left")
        score = record.get(self.run.recipe.score.select_by)
        if kind == "dev" and isinstance(score, (int, float)):
            self.dev[self.update] = float(score)

    @property
    def seconds(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self.started

    def line(self, ended: bool = False) -> str:
        """Return the state in one line, with the last dev score; of an ended run, the best."""
        parts = [f"update {self.update:,}"]
        if self.dev:
            name = self.run.recipe.score.select_by
            best = max(self.dev.values(), key=lambda value: as_score(name, value))
            shown = best if ended else self.dev[max(self.dev)]
            parts.append(f"{'best ' if ended else ''}dev {name} {format_number(shown)}")
        parts.append(clock(self.seconds))
        return "  ".join(parts)


def estimate_left(
    finished: Sequence[float],
    running: Sequence[tuple[float, float | None]],
    waiting: int,
    slots: int,
) -> float | None:
    """Return the seconds until a sweep ends, or None if nothing is known yet.

    A run takes the mean time of those that finished; before one has, the time that the runs in
    training expect.

    Args:
        finished: seconds that each finished run took.
        running: seconds so far, and those left at most, of each run in training.
        waiting: number of runs that have not started.
        slots: number of runs that train at the same time.
    """
    expected = [so_far + left for so_far, left in running if left is not None]
    known = list(finished) or expected
    if not known:
        return None
    typical = sum(known) / len(known)
    rest = [
        max(0.0, typical - so_far) if finished or left is None else left for so_far, left in running
    ]
    return max([*rest, (sum(rest) + waiting * typical) / slots, 0.0])


class Display:
    """Prints what happens in a sweep: a table that is redrawn on a terminal, else plain lines.

    Args:
        stream: standard error.
        total: number of runs of the sweep.
        slots: number of runs that train at the same time.
    """

    def __init__(self, stream: TextIO, total: int, slots: int) -> None:
        self.stream, self.total, self.slots = stream, total, slots
        self.live = stream.isatty()
        self.counts: Counter[str] = Counter()  # runs that have ended, by status
        self.seconds: list[float] = []  # of the runs that finished
        self._drawn = 0  # lines of the table on the terminal
        self._next = 0.0

    def skipped(self, status: str, seconds: float | None = None) -> None:
        """Count a run that ended before this sweep was started.

        Args:
            status: how it ended.
            seconds: that it trained, if it finished.
        """
        self.counts[status] += 1
        if seconds:
            self.seconds.append(seconds)

    def started(self, run: PlannedRun) -> None:
        """Say that a run begins to train."""
        if not self.live:
            self.say(f"{run.name}: started")

    def ended(self, progress: RunProgress, outcome: Outcome, running: list[RunProgress]) -> None:
        """Say how a run ended, and about how long the others take."""
        if outcome.status == "finished":
            self.seconds.append(progress.seconds)
        what = outcome.status + (f": {outcome.reason}" if outcome.reason else "")
        self.say(f"{progress.run.name}: {what}  {progress.line(ended=True)}")
        if outcome.status == "stopped":
            return
        self.counts[outcome.status] += 1
        if not self.live:
            self.say(self.summary(running))

    def summary(self, running: list[RunProgress]) -> str:
        """Return how many runs have ended, and about how long the others take."""
        parts = [f"{n} {status}" for status, n in self.counts.items()] or ["0 finished"]
        waiting = max(0, self.total - self.counts.total() - len(running))
        states = [(progress.seconds, progress.seconds_left) for progress in running]
        left = estimate_left(self.seconds, states, waiting, self.slots)
        text = f"{' + '.join(parts)} of {quantity(self.total, 'run')}"
        if left is None or not (running or waiting):
            return text
        return f"{text}; about {clock(left)} left"

    def say(self, line: str) -> None:
        """Print a line that stays."""
        self._clear()
        print(line, file=self.stream, flush=True)

    def draw(self, running: list[RunProgress]) -> None:
        """Redraw the live table; without a terminal do nothing."""
        if not self.live or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + REDRAW
        columns = shutil.get_terminal_size().columns - 1
        width = max((len(progress.run.name) for progress in running), default=0)
        lines = [f"  {progress.run.name:<{width}}  {progress.line()}" for progress in running]
        lines.append(self.summary(running))
        self._clear()
        self.stream.write("".join(f"{line[:columns]}\n" for line in lines))
        self.stream.flush()
        self._drawn = len(lines)

    def _clear(self) -> None:
        """Remove the table from the terminal."""
        if self._drawn:
            self.stream.write(f"\x1b[{self._drawn}F\x1b[J")
            self._drawn = 0
