"""A queue in front of a model: requests that arrive at the same time share a batch.

One thread owns the model. It takes what waits, translates it and looks at the queue again, so a
request that is alone starts at once, and the batches grow with the load. No request waits for
others to arrive.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from nmt.data.text import quantity
from nmt.serve.limits import Refused

Result = TypeVar("Result")


@dataclass(eq=False)
class Job(Generic[Result]):
    """A request in the queue.

    Attributes:
        options: of the search, JSON values.
        together: whether its lines may be translated with those of others, or in several batches.
        future: gets the result of each line, or an exception; cancel it to leave the queue.
        results: of the lines translated so far.
    """

    lines: Sequence[str]
    options: dict[str, Any]
    together: bool = True
    future: Future[list[Result]] = field(default_factory=Future)
    results: list[Result] = field(default_factory=list)

    @property
    def remaining(self) -> int:
        """Return the number of lines that are not translated yet."""
        return len(self.lines) - len(self.results)

    def key(self) -> str:
        """Return what jobs of one batch have in common."""
        return json.dumps(self.options, sort_keys=True)


class Batcher(Generic[Result]):
    """Translates the lines of queued jobs in batches, in a thread of its own.

    A long job does not block short ones: each batch gives the jobs that wait equal shares, and a
    job that is not finished goes to the end of the queue. Results do not depend on this, because a
    translation does not depend on the other lines of its batch.

    Args:
        translate: returns one result for each line, in order.
        batch: the most lines of a batch.
        queue: the most lines that may wait.
        observe: called with the number of lines of each batch.
    """

    def __init__(
        self,
        translate: Callable[[list[str], dict[str, Any]], list[Result]],
        batch: int,
        queue: int,
        observe: Callable[[int], None] = lambda lines: None,
    ) -> None:
        self._translate, self._observe = translate, observe
        self._batch, self._queue = batch, queue
        self._jobs: deque[Job[Result]] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="nmt-serve", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Return the number of lines in the queue."""
        with self._changed:
            return sum(job.remaining for job in self._jobs if not job.future.cancelled())

    def submit(
        self, lines: Sequence[str], options: dict[str, Any], together: bool = True
    ) -> Future[list[Result]]:
        """Queue a job; return the future of its results.

        Raises:
            Refused: the queue is full. A job is always accepted while nothing waits.
        """
        job: Job[Result] = Job(lines, options, together)
        with self._changed:
            waiting = self.waiting
            if waiting and waiting + len(lines) > self._queue:
                raise Refused(
                    429,
                    "queue_full",
                    f"{quantity(waiting, 'line')} in the queue of this model, at most "
                    f"{self._queue:,} may wait",
                    "send the request again later",
                    retry=1,
                )
            self._jobs.append(job)
            self._changed.notify()
        return job.future

    def close(self) -> None:
        """Finish the jobs in the queue, then end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._jobs or self._closed)
                if not self._jobs:
                    return
                batch = self._next_batch()
            if batch:
                self._compute(batch)
                self._finish(batch)

    def _next_batch(self) -> list[tuple[Job[Result], list[str]]]:
        """Take the first job and those with equal options; return the next lines of each."""
        self._jobs = deque(job for job in self._jobs if not job.future.cancelled())
        if not self._jobs:
            return []
        first = self._jobs[0]
        if not first.together:
            jobs, counts = [first], [first.remaining]
        else:
            key = first.key()
            jobs = [job for job in self._jobs if job.together and job.key() == key][: self._batch]
            counts = shares([job.remaining for job in jobs], self._batch)
        taken = {id(job) for job in jobs}
        self._jobs = deque(job for job in self._jobs if id(job) not in taken)
        return [
            (job, list(job.lines[len(job.results) : len(job.results) + count]))
            for job, count in zip(jobs, counts, strict=True)
        ]

    def _compute(self, batch: Sequence[tuple[Job[Result], list[str]]]) -> None:
        """Translate a batch; if that fails, translate each job alone, so only some fail."""
        lines = [line for _, of_job in batch for line in of_job]
        try:
            results = iter(self._translate(lines, batch[0][0].options))
        except Exception as error:
            if len(batch) > 1:
                for one in batch:
                    self._compute([one])
            elif batch[0][0].future.set_running_or_notify_cancel():
                batch[0][0].future.set_exception(error)
            return
        self._observe(len(lines))
        for job, of_job in batch:
            job.results += [next(results) for _ in of_job]

    def _finish(self, batch: Sequence[tuple[Job[Result], list[str]]]) -> None:
        """Answer the finished jobs; the others go to the end of the queue."""
        unfinished = []
        for job, _ in batch:
            if job.future.done():
                continue
            if job.remaining:
                unfinished.append(job)
            elif job.future.set_running_or_notify_cancel():
                job.future.set_result(job.results)
        with self._changed:
            self._jobs.extend(unfinished)


def shares(counts: Sequence[int], total: int) -> list[int]:
    """Divide ``total`` as equally as possible; no share is larger than its count.

    There are at most ``total`` counts, each at least 1, and so is each share.
    """
    result = [0] * len(counts)
    order = sorted(range(len(counts)), key=counts.__getitem__)
    for position, index in enumerate(order):
        result[index] = min(counts[index], total // (len(order) - position))
        total -= result[index]
    return result
