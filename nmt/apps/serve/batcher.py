"""A queue in front of a model: requests share compute time by the cost of their lines.

One thread owns the model. It takes what waits, translates it and looks at the queue again, so a
request that is alone starts at once, and the batches grow with the load. No request waits for
others to arrive. Between two steps of a search (parts of a batch with CTranslate2, positions
with torch), the thread drops a batch that nobody waits for any more, and translates short lines
that came while a long batch computes.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from nmt.apps.serve.limits import Refused
from nmt.runtime.words import quantity

BATCH_COST = 40_000  # about 64 lines of 60 characters with beam 5: a fraction of a second
UNINTERRUPTED = 0.25  # seconds that a batch computes before short lines interrupt it
JOIN_SECONDS = 5.0  # a step of a search and a batch of CTranslate2 take less


@dataclass(eq=False)
class Job:
    """A request in the queue.

    Attributes:
        costs: of each line; only their ratios matter, and how they compare with BATCH_COST.
        how: what ``Translate`` needs besides the lines.
        together: whether its lines may be translated with those of others.
        future: gets the result of each line, or an exception; cancel it to leave the queue.
        results: of the lines translated so far.
    """

    lines: Sequence[str]
    costs: Sequence[float]
    how: Any
    together: bool = True
    future: Future[list[Any]] = field(default_factory=Future)
    results: list[Any] = field(default_factory=list)

    @property
    def remaining(self) -> int:
        """The number of lines that are not translated yet."""
        return len(self.lines) - len(self.results)

    def wanted(self) -> bool:
        """Return whether somebody waits; if so, the job must be answered now."""
        return not self.future.done() and self.future.set_running_or_notify_cancel()


Batch: TypeAlias = list[tuple[Job, int]]  # jobs, and the number of lines of each
# ServedModel.translate: lines, how, number of lines of the job before these, stop -> the result of
# each line; it calls stop often, which may translate other lines and raises an exception if nobody
# waits any more
Translate: TypeAlias = Callable[[list[str], Any, int, Callable[[], None]], list[Any]]


class Unwanted(Exception):
    """No client waits for the results of a batch any more."""


class Batcher:
    """Translates the lines of queued jobs in batches, in a thread of its own.

    A large job does not block small ones: each batch gives the jobs that wait equal shares of its
    cost, and a job that is not finished goes to the end of the queue. Lines that fit into a batch
    interrupt one that takes long, for at most half of the time. Results do not depend on this,
    because a translation does not depend on the other lines of its batch.

    Args:
        observe: called with the number of lines of each batch.
    """

    def __init__(
        self,
        translate: Translate,
        batch: int,
        queue: int,
        observe: Callable[[int], None] = lambda lines: None,
    ) -> None:
        self._translate, self._observe = translate, observe
        self._batch, self._queue = batch, queue
        self._jobs: deque[Job] = deque()
        self._running: list[Job] = []
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="nmt-serve", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """The number of lines in the queue."""
        with self._changed:
            return sum(job.remaining for job in self._jobs if not job.future.done())

    def submit(
        self,
        lines: Sequence[str],
        costs: Sequence[float],
        how: Any,
        together: bool = True,
    ) -> Future[list[Any]]:
        """Queue a job; return the future of its results.

        Raises:
            Refused: the queue is full. A job is always accepted while nothing waits.
        """
        job = Job(lines, costs, how, together)
        if not lines:
            job.future.set_result([])
            return job.future
        with self._changed:
            waiting = self.waiting
            if waiting and waiting + len(lines) > self._queue:
                lines_wait = f"{quantity(waiting, 'line')} in the queue of this model"
                what = f"{lines_wait}, at most {self._queue:,} may wait"
                raise Refused(429, "queue_full", what, "send the request again later", retry=1)
            self._jobs.append(job)
            self._changed.notify()
        return job.future

    def abort(self, error: Exception) -> None:
        """Answer all jobs with an error; a batch that is computed ends at its next step."""
        with self._changed:
            for job in (*self._jobs, *self._running):
                if job.wanted():
                    job.future.set_exception(error)

    def close(self) -> bool:
        """End the thread; jobs that are not finished get an error.

        Returns:
            Whether the thread has ended. Nothing interrupts a batch inside CTranslate2.
        """
        self.abort(Unwanted("the server has ended"))
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(JOIN_SECONDS)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._jobs or self._closed)
                if not self._jobs:
                    return
            self._run_next()

    def _run_next(self, largest: float | None = None) -> bool:
        """Translate the next batch; return whether there was one.

        Args:
            largest: jobs whose next line costs more stay in the queue; None = any. The batch of
                others interrupts another one and is not interrupted itself.
        """
        with self._changed:
            batch = self._next_batch(largest)
            self._running += [job for job, _ in batch]
        if not batch:
            return False
        self._compute(batch, interruptible=largest is None)
        with self._changed:
            for job, _ in batch:
                self._running.remove(job)
                if job.remaining and not job.future.done():
                    self._jobs.append(job)
                elif job.wanted():
                    job.future.set_result(job.results)
        return True

    def _next_batch(self, largest: float | None) -> Batch:
        """Take the first job and those with an equal ``how``, and equal shares of their lines."""
        self._jobs = deque(job for job in self._jobs if not job.future.done())
        limit = float("inf") if largest is None else largest
        jobs = [job for job in self._jobs if job.costs[len(job.results)] <= limit]
        if not jobs:
            return []
        first = jobs[0]
        if first.together:
            jobs = [job for job in jobs if job.together and job.how == first.how]
        else:
            jobs = [first]
        counts = shares([job.costs[len(job.results) :] for job in jobs], BATCH_COST, self._batch)
        batch = [(job, count) for job, count in zip(jobs, counts, strict=True) if count]
        batched = {id(job) for job, _ in batch}
        self._jobs = deque(job for job in self._jobs if id(job) not in batched)
        return batch

    def _compute(self, batch: Batch, interruptible: bool) -> None:
        """Translate a batch; if that fails, translate each job alone, so only some fail."""
        lines = [
            line
            for job, count in batch
            for line in job.lines[len(job.results) : len(job.results) + count]
        ]
        first = batch[0][0]
        stop = self._stop(batch, interruptible)
        try:
            results = iter(self._translate(lines, first.how, len(first.results), stop))
        except Unwanted:
            return
        except Exception as error:
            if len(batch) > 1:
                for part in batch:
                    self._compute([part], interruptible)
            else:
                with self._changed:
                    if first.wanted():
                        first.future.set_exception(error)
            return
        self._observe(len(lines))
        for job, count in batch:
            job.results += [next(results) for _ in range(count)]

    def _stop(self, batch: Batch, interruptible: bool) -> Callable[[], None]:
        """Return what the search of a batch calls between two steps."""
        futures = [job.future for job, _ in batch]
        next_interruption = time.monotonic() + UNINTERRUPTED

        def stop() -> None:
            nonlocal next_interruption
            if all(future.done() for future in futures):
                raise Unwanted
            if not (interruptible and self._jobs) or time.monotonic() < next_interruption:
                return
            started = time.monotonic()
            if self._run_next(largest=BATCH_COST):
                ended = time.monotonic()
                next_interruption = ended + max(UNINTERRUPTED, ended - started)

        return stop


def shares(costs: Sequence[Sequence[float]], most_cost: float, most_lines: int) -> list[int]:
    """Return how many of its first lines each job gets: equal costs, as far as lines allow.

    The job with the lowest cost so far gets the next line. The first job gets at least one line,
    and no other line makes the total exceed the limits.

    Args:
        costs: of the lines of each job.
    """
    counts, total = [0] * len(costs), 0.0
    turns = [(0.0, job) for job in range(len(costs))]
    while turns and sum(counts) < most_lines:
        cost, job = heapq.heappop(turns)
        line = costs[job][counts[job]]
        if total and total + line > most_cost:
            continue  # this job waits for the next batch
        total += line
        counts[job] += 1
        if counts[job] < len(costs[job]):
            heapq.heappush(turns, (cost + line, job))
    return counts
