"""Work ahead, in order and with bounded memory: in worker processes, or in one thread."""

from __future__ import annotations

import contextlib
import gc
import itertools
import multiprocessing
import os
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Generic, TypeAlias, TypeVar

from nmt.errors import MachineError
from nmt.runtime.cpus import available_cpus, within_limit
from nmt.runtime.signals import end_with, leave_signals_to_parent

CHUNK = 2000  # items per chunk of a worker
MIN_PARALLEL_CHUNKS = 6  # with fewer chunks, starting workers takes longer than it saves
READ_AHEAD = 2  # chunks submitted per worker before their results are needed
# a forked worker does not import anything again, such as torch when training prepares the data;
# Python 3.12 warns that threads of the parent do not run in a fork, but workers need none
START_METHOD = "fork" if sys.platform == "linux" else "spawn"

Item = TypeVar("Item")
Job = TypeVar("Job")
Result = TypeVar("Result")
Work: TypeAlias = Callable[[Job], Result]


def in_chunks(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield consecutive chunks of at most CHUNK items."""
    rest = iter(items)
    return iter(lambda: list(itertools.islice(rest, CHUNK)), [])


def map_chunks(work: Work[Job, Result], chunks: Iterable[Job]) -> Iterator[Result]:
    """Yield ``work(chunk)`` for each chunk; worker processes do the work of many chunks.

    Raises:
        MachineError: a worker process was killed.
    """
    rest = iter(chunks)
    first = list(itertools.islice(rest, MIN_PARALLEL_CHUNKS))
    every_chunk = itertools.chain(first, rest)
    workers = within_limit(available_cpus())
    if workers == 1 or len(first) < MIN_PARALLEL_CHUNKS:
        yield from map(work, every_chunk)
        return
    context = multiprocessing.get_context(START_METHOD)
    pool = ProcessPoolExecutor(workers, context, _start_worker, (work, os.getpid()))
    try:
        futures: deque[Future[Result]] = deque()
        for chunk in every_chunk:
            futures.append(pool.submit(_run, chunk))
            if len(futures) > READ_AHEAD * workers:
                yield futures.popleft().result()
        while futures:
            yield futures.popleft().result()
    except BrokenProcessPool as error:
        raise MachineError(
            "a worker process that segments text was killed, most likely because memory ran out",
            at="data.train",
            fix="use fewer processes, for example: taskset -c 0,1 nmt-prepare ...",
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


_work: Work[Any, Any] | None = None  # set once in each worker, so that it is not sent per chunk


def _start_worker(work: Work[Any, Any], parent: int) -> None:
    global _work
    _work = work
    leave_signals_to_parent()
    # The garbage of the parent stays: a model of CTranslate2 would wait forever for its threads,
    # which a fork does not have.
    gc.freeze()
    # workers of a killed parent would wait forever: each holds both ends of the pipe of their work
    end_with(parent)


def _run(chunk: Any) -> Any:
    assert _work is not None
    return _work(chunk)


AHEAD = 8  # items that are computed ahead

T = TypeVar("T")


class Prefetcher(Generic[T]):
    """Run an iterator ahead in one thread: same items, same order.

    Use as a context manager, which ends the thread. The consumer gets an error of the iterator.
    """

    def __init__(self, items: Iterable[T]) -> None:
        self._items = items
        self._ready: queue.Queue[tuple[tuple[T, ...], BaseException | None]] = queue.Queue(AHEAD)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Prefetcher[T]:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        while self._thread.is_alive():
            with contextlib.suppress(queue.Empty):
                self._ready.get(timeout=0.05)

    def __iter__(self) -> Iterator[T]:
        while True:
            items, error = self._ready.get()
            yield from items
            if error is not None:
                self._ready.put(((), error))  # a second iteration must not wait forever
                if isinstance(error, StopIteration):
                    return
                raise error

    def _work(self) -> None:
        end: BaseException = StopIteration()
        try:
            for item in self._items:
                if self._stopped.is_set():
                    return
                self._ready.put(((item,), None))
        except BaseException as error:
            end = error
        self._ready.put(((), end))
