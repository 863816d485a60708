"""Train the runs of a sweep, each in a process of nmt-train, several at a time."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from nmt.apps.sweep.plan import Outcome, PlannedRun
from nmt.apps.sweep.progress import Display, RunProgress
from nmt.data.text import quantity
from nmt.run.folder import RunFolder
from nmt.runtime.signals import PARENT, StopRequest

POLL = 0.2  # seconds between two checks of the processes
SAVING = 120.0  # seconds that a run of a killed sweep may take to save its state
TRAIN = (sys.executable, "-m", "nmt.cli.train")
MESSAGE = re.compile(r"^nmt-train: ", re.MULTILINE)  # where the error of a command begins


class Source(Protocol):
    """Decides which runs are trained."""

    def next_run(self) -> PlannedRun | None:
        """Return the run to start now; None if there is none at present."""

    def should_prune(self, progress: RunProgress) -> bool:
        """Return whether a run in training must end early."""

    def ended(self, run: PlannedRun, progress: RunProgress, outcome: Outcome) -> None:
        """Take note of how a run ended."""


class ListedRuns:
    """Trains a list of runs in its order.

    Args:
        runs: those that have not ended yet.

    Attributes:
        outcomes: how each run ended, by name.
    """

    def __init__(self, runs: Iterable[PlannedRun]) -> None:
        self._waiting = list(runs)
        self.outcomes: dict[str, Outcome] = {}

    def next_run(self) -> PlannedRun | None:
        """Return the next run of the list."""
        return self._waiting.pop(0) if self._waiting else None

    def should_prune(self, progress: RunProgress) -> bool:
        """Return False: each run of a list trains to its end."""
        return False

    def ended(self, run: PlannedRun, progress: RunProgress, outcome: Outcome) -> None:
        """Remember how a run ended."""
        self.outcomes[run.name] = outcome


@dataclass
class _Child:
    progress: RunProgress
    process: subprocess.Popen[bytes]
    log: Path
    slot: int
    pruned: bool = False


class Pool:
    """Trains runs at the same time.

    A process is in a session of its own, so that Ctrl-C reaches only the sweep, which then asks
    each process once to save and end. If the sweep is killed, Linux asks them.

    Args:
        slots: number of runs at the same time.
        devices: values of CUDA_VISIBLE_DEVICES, used in turn by the slots; empty = not set.
        threads: CPU threads of each run.
        logs: folder for the output of the processes.
        display: says what happens.
        stop: whether the sweep must end.
    """

    def __init__(
        self,
        slots: int,
        devices: Sequence[str],
        threads: int,
        logs: Path,
        display: Display,
        stop: StopRequest,
    ) -> None:
        self.slots, self.devices, self.threads = slots, devices, threads
        self.logs, self.display, self.stop = logs, display, stop
        self._children: list[_Child] = []
        self._waiting: PlannedRun | None = None  # until an earlier process has saved its state
        self._deadline = 0.0  # of this waiting

    def run(self, source: Source) -> None:
        """Train the runs of a source until it has no more, or until a stop is requested.

        Raises:
            KeyboardInterrupt: at a second Ctrl-C; the processes are then killed.
        """
        stop, stopping = self.stop, False
        try:
            while True:
                while not stop.requested and len(self._children) < self.slots:
                    if not self._start_next(source):
                        break
                if not self._children and (stop.requested or self._waiting is None):
                    return
                if stop.requested and not stopping:
                    stopping = True
                    count = quantity(len(self._children), "run")
                    self.display.say(f"{stop.requested}: waiting for {count} to save and end")
                    self._ask_to_end(self._children)
                time.sleep(POLL)
                for child in list(self._children):
                    self._check_child(child, source, stopping)
                self.display.draw([child.progress for child in self._children])
        finally:
            for child in self._children:
                child.process.kill()
                child.process.wait()

    def _start_next(self, source: Source) -> bool:
        """Start the next run; return False if there is none, or it has to wait.

        It waits for a process that a killed sweep left, which still saves the state of the run.
        """
        run = self._waiting or source.next_run()
        if run is None:
            return False
        if RunFolder(run.folder).lock.in_use():
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

    def _check_child(self, child: _Child, source: Source, stopping: bool) -> None:
        """Read how far a run is, and prune it if its source says so; note if it has ended."""
        code = child.process.poll()
        child.progress.read()
        if code is None:
            if not child.pruned and not stopping and source.should_prune(child.progress):
                child.pruned = True
                self._ask_to_end([child])
            return
        self._children.remove(child)
        run = child.progress.run
        outcome = _outcome(run, code, child.log, child.pruned, stopping)
        source.ended(run, child.progress, outcome)
        others = [other.progress for other in self._children]
        self.display.ended(child.progress, outcome, others)

    def _ask_to_end(self, children: Iterable[_Child]) -> None:
        for child in children:
            child.process.terminate()


def _outcome(run: PlannedRun, code: int, log: Path, pruned: bool, stopping: bool) -> Outcome:
    """Return how a run ended.

    Args:
        code: exit code of its process; negative = the number of the signal that killed it.
        log: what the process printed.
        pruned: it was asked to end, because its dev score is low.
        stopping: it was asked to end, because the sweep ends.
    """
    ended = run.outcome()
    if code == 0:  # under init.vocab: parent the stored recipe has more keys than ours
        return ended or Outcome("finished")
    if ended is not None and ended.status == "diverged":
        return ended
    if code in (128 + signal.SIGTERM, -signal.SIGTERM) and (pruned or stopping):
        return Outcome("pruned" if pruned else "stopped")
    return Outcome("failed", _reason(code, log))


def _reason(code: int, log: Path) -> str:
    """Return the error that a command printed last, and its exit code."""
    text = log.read_text(encoding="utf-8", errors="replace")
    starts = [match.end() for match in MESSAGE.finditer(text)]
    if starts:
        lines = [line.strip() for line in text[starts[-1] :].splitlines()]
        return f"{' '.join(filter(None, lines))} (exit code {code})"
    if code == -signal.SIGKILL:
        return "killed by SIGKILL, perhaps because the memory was full; use fewer --jobs"
    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return f"{how}, see {log}"
