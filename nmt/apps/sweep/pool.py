"""Train the runs of a sweep, each in a process of nmt-train, several at a time.

Their logs say how far they are, which lines or a live table show.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from nmt.apps.sweep.plan import Outcome, PlannedRun
from nmt.runtime.files import json_object
from nmt.runtime.signals import PARENT, StopRequest
from nmt.runtime.words import quantity
from nmt.store.folder import RunFolder
from nmt.store.results import as_score, clock, format_number

POLL = 0.2  # seconds between two checks of the processes
REDRAW = 1.0  # seconds between two states of the live table
SAVING = 120.0  # seconds that a run of a killed sweep may take to save its state
TRAIN = (sys.executable, "-m", "nmt.cli.train")
MESSAGE = re.compile(r"^nmt-train: ", re.MULTILINE)  # where the error of a command begins


@dataclass
class RunProgress:
    """A run in training, as its metrics.jsonl describes it."""

    run: PlannedRun
    started: float = field(default_factory=time.monotonic)
    update: int = 0  # the last one that was logged
    dev: dict[int, float] = field(default_factory=dict)  # by update, of the selecting metric
    seconds_left: float | None = None  # of training, at most; None before the first log line
    _offset: int = 0

    def read(self) -> None:
        """Read what was logged since the last call."""
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
            try:
                record = json_object(line)
                kind, self.update = record.get("kind"), int(record.get("update", self.update))
            except (ValueError, TypeError):
                continue
            if kind == "train":
                self.seconds_left = record.get("seconds_left")
            score = record.get(self.run.recipe.score.select_by)
            if kind == "dev" and isinstance(score, (int, float)):
                self.dev[self.update] = float(score)

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def line(self, ended: bool = False) -> str:
        """Describe the state in one line, with the last dev score; of an ended run, the best."""
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
    """Estimate the seconds until a sweep ends; None if nothing is known yet.

    A run takes the mean time of those that finished; before one has, the time that the runs in
    training expect.

    Args:
        finished: seconds of each run.
        running: seconds so far, and those left at most, of each run.
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
    """Prints what happens in a sweep: a table that is redrawn on a terminal, else plain lines."""

    def __init__(self, stream: TextIO, total: int, slots: int) -> None:
        self.stream, self.total, self.slots = stream, total, slots
        self.live = stream.isatty()
        self.counts: Counter[str] = Counter()  # runs that have ended, by status
        self.seconds: list[float] = []  # of the runs that finished
        self._drawn = 0  # lines of the table on the terminal
        self._next = 0.0

    def skipped(self, status: str, seconds: float | None = None) -> None:
        """Count a run that ended before this sweep was started, after these seconds."""
        self.counts[status] += 1
        if seconds:
            self.seconds.append(seconds)

    def started(self, run: PlannedRun) -> None:
        """Report that a run starts."""
        if not self.live:
            self.say(f"{run.name}: started")

    def ended(self, progress: RunProgress, outcome: Outcome, running: list[RunProgress]) -> None:
        """Report how a run ended, and the estimated time of the others."""
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
        """Count the runs that have ended, and estimate the time of the others."""
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
        if self._drawn:
            self.stream.write(f"\x1b[{self._drawn}F\x1b[J")
            self._drawn = 0


@dataclass
class _Child:
    progress: RunProgress
    process: subprocess.Popen[bytes]
    log: Path  # what it prints
    slot: int


@dataclass
class Pool:
    """Trains runs at the same time.

    A process is in a session of its own, so that Ctrl-C reaches only the sweep, which then asks
    each process once to save and end. If the sweep is killed, Linux asks them.
    """

    slots: int  # number of runs at the same time
    devices: Sequence[str]  # for CUDA_VISIBLE_DEVICES, used in turn by the slots; empty = not set
    threads: int  # CPU threads of each run
    logs: Path  # folder for the output of the processes
    display: Display
    stop: StopRequest  # whether the sweep must end
    _children: list[_Child] = field(default_factory=list)
    _waiting: PlannedRun | None = None  # until an earlier process has saved its state
    _deadline: float = 0.0  # of this waiting

    def run(self, runs: Iterable[PlannedRun]) -> dict[str, Outcome]:
        """Train the runs in their order, or until a stop is requested.

        Returns:
            How each run that was started ended, by name.

        Raises:
            KeyboardInterrupt: at a second Ctrl-C; the processes are then killed.
        """
        stop, stopping, unstarted = self.stop, False, iter(runs)
        outcomes: dict[str, Outcome] = {}
        try:
            while True:
                while not stop.requested and len(self._children) < self.slots:
                    if not self._start_next(unstarted):
                        break
                if not self._children and (stop.requested or self._waiting is None):
                    return outcomes
                if stop.requested and not stopping:
                    stopping = True
                    count = quantity(len(self._children), "run")
                    self.display.say(f"{stop.requested}: waiting for {count} to save and end")
                    for child in self._children:
                        child.process.terminate()
                time.sleep(POLL)
                for child in list(self._children):
                    if outcome := self._outcome(child, stopping):
                        outcomes[child.progress.run.name] = outcome
                self.display.draw([child.progress for child in self._children])
        finally:
            for child in self._children:
                child.process.kill()
                child.process.wait()

    def _start_next(self, unstarted: Iterator[PlannedRun]) -> bool:
        """Start the next run; return False if there is none, or it has to wait."""
        run = self._waiting or next(unstarted, None)
        if run is None:
            return False
        if RunFolder(run.folder).lock.in_use():  # by a process that a killed sweep left
            if self._waiting is None:
                self._waiting, self._deadline = run, time.monotonic() + SAVING
                name = run.name
                self.display.say(f"{name}: waiting for its earlier process, which saves its state")
            if time.monotonic() < self._deadline:
                return False
        self._waiting = None
        self._start(run)
        return True

    def _start(self, run: PlannedRun) -> None:
        slot = min(set(range(self.slots)) - {child.slot for child in self._children})
        environment = {**os.environ, "OMP_NUM_THREADS": str(self.threads)}
        environment[PARENT] = str(os.getpid())
        if self.devices:
            environment["CUDA_VISIBLE_DEVICES"] = self.devices[slot % len(self.devices)]
        self.logs.mkdir(parents=True, exist_ok=True)
        log = self.logs / f"{run.name}.log"
        with open(log, "wb") as output:
            process = subprocess.Popen(
                [*TRAIN, *run.arguments, "--resume"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        self._children.append(_Child(RunProgress(run), process, log, slot))
        self.display.started(run)

    def _outcome(self, child: _Child, stopping: bool) -> Outcome | None:
        """Read the log of a process; return how it ended, None if it has not."""
        code = child.process.poll()
        child.progress.read()
        if code is None:
            return None
        self._children.remove(child)
        outcome = _outcome(child, code, stopping)
        others = [other.progress for other in self._children]
        self.display.ended(child.progress, outcome, others)
        return outcome


def _outcome(child: _Child, code: int, stopping: bool) -> Outcome:
    """Read how a run ended; a negative exit code is the signal that killed its process."""
    ended = child.progress.run.outcome()
    if code == 0:  # with a parent, the stored recipe has more keys than ours
        return ended or Outcome("finished")
    if ended is not None and ended.status == "diverged":
        return ended
    if code in (128 + signal.SIGTERM, -signal.SIGTERM) and stopping:
        return Outcome("stopped")
    return Outcome("failed", _reason(code, child.log))


def _reason(code: int, log: Path) -> str:
    text = log.read_text(encoding="utf-8", errors="replace")
    starts = [match.end() for match in MESSAGE.finditer(text)]
    if starts:
        lines = [line.strip() for line in text[starts[-1] :].splitlines()]
        return f"{' '.join(filter(None, lines))} (exit code {code})"
    if code == -signal.SIGKILL:
        return "killed by SIGKILL, perhaps because the memory was full; use fewer --jobs"
    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return f"{how}, see {log}"
