"""Measure how fast this machine trains a model, by precision and number of threads.

On a CPU, time is the processor time of the main thread. It works in every update and only waits
for the other threads, so on an idle machine this is the time on the clock. On a busy machine it is
hardly longer. On a very busy machine, it does not determine the size of the model.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

from nmt.config.recipe import Recipe
from nmt.data.batches import UpdateBatches
from nmt.data.prepare import Prepared
from nmt.data.workers import Prefetcher
from nmt.runtime.cpus import available_cpus
from nmt.runtime.device import resolve_precision
from nmt.store.folder import RunFolder
from nmt.store.metrics_log import Logger
from nmt.training.task import Task
from nmt.training.tasks import make_task
from nmt.training.trainer import Trainer

IDLE = 0.8  # share of the time on the clock that the main thread computes on an idle machine
MAX_WAIT = 10  # times the seconds of a setting, on the clock


class Setting(NamedTuple):
    """A measured setting: precision, and threads of the CPU (0 on a GPU)."""

    precision: str
    threads: int

    def __str__(self) -> str:
        many = f", {self.threads} thread{'s' * (self.threads > 1)}"
        return self.precision + (many if self.threads else "")


def measure_speeds(
    recipe: Recipe,
    prepared: Prepared,
    device: torch.device,
    seconds: float,
    clock: Callable[[], float] | None = None,
) -> Iterator[tuple[Setting, float]]:
    """Time some updates of a recipe with each setting; write no files.

    On a CPU, each precision starts with all threads, and then with half as many as long as this is
    faster. The number of threads is restored afterwards.

    Args:
        prepared: only ``train`` and the vocabulary are used.
        seconds: of updates for each setting.
        clock: default: processor time on a CPU, time on the clock on a GPU.

    Yields:
        A setting and its speed in target tokens per second.
    """
    default = torch.get_num_threads()
    clock = clock or (time.thread_time if device.type == "cpu" else time.perf_counter)
    for precision in fast_precisions(device):
        task = make_task(recipe, prepared, device, precision)
        if device.type != "cpu":
            yield Setting(precision, 0), tokens_per_second(task, seconds, clock)
            continue
        threads, before = default, 0.0
        while threads:
            with _num_threads(threads):
                speed = tokens_per_second(task, seconds, clock)
            yield Setting(precision, threads), speed
            threads = threads // 2 if speed > before else 0
            before = speed


def fast_precisions(device: torch.device) -> list[str]:
    """List the formats that the hardware computes without emulation, fp32 first."""
    return list(dict.fromkeys(["fp32", resolve_precision("auto", device)]))


def tokens_per_second(task: Task, seconds: float, clock: Callable[[], float]) -> float:
    """Time updates, and return their target tokens per second.

    The first updates are not counted, because they allocate memory and compile kernels: one on a
    CPU, and those of the first ``seconds`` where batches are padded to a few sizes. On a CPU the
    same updates are then timed again. A training soon has seen all sizes; a measurement has not.
    """
    trainer = Trainer(task, RunFolder(os.devnull), Logger(), lambda: False)

    def train_for(
        limit: float, stream: Iterator[UpdateBatches]
    ) -> tuple[list[UpdateBatches], float]:
        """Train until the time is over, at least one update; return updates and seconds."""
        updates, started, patience = [], clock(), time.perf_counter() + MAX_WAIT * limit
        while True:
            updates.append(next(stream))
            trainer.update(updates[-1])
            if (used := clock() - started) >= limit or time.perf_counter() > patience:
                break
        if task.device.type == "cuda":
            torch.cuda.synchronize(task.device)
            used = clock() - started
        return updates, used

    with Prefetcher(trainer.updates()) as prefetched:
        stream = iter(prefetched)
        few_sizes = task.device.type != "cpu" or trainer.pads_batches
        seen, _ = train_for(seconds if few_sizes else 0.0, stream)
        if few_sizes and task.device.type == "cpu":
            stream = itertools.cycle(seen)
        before = trainer.state.target_tokens
        _, used = train_for(seconds, stream)
        return (trainer.state.target_tokens - before) / used


def busy_note(wall: float, used: float) -> str:
    """Return a sentence if other programs took much of the processor during a measurement, else "".

    Args:
        wall, used: seconds on the clock, and processor time of the main thread.
    """
    if used >= IDLE * wall:
        return ""
    load, cpus = os.getloadavg()[0], available_cpus()
    return (
        f"This machine is busy: the measurement got {used / wall:.0%} of a processor (load "
        f"{load:.1f} on {cpus} processors). Speeds are in processor time, and may still be too "
        "low, so the size of the model does not follow from them. Run the command again when the "
        "machine is idle."
    )


@contextlib.contextmanager
def _num_threads(threads: int) -> Iterator[None]:
    default = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(default)
