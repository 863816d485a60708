"""Work on pairs of lines on all cores, in order, with bounded memory."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeAlias, TypeVar

from nmt.errors import MachineError

CHUNK = 2000  # pairs that a worker gets at a time
PARALLEL_FROM = 6  # chunks from which worker processes pay for their start
AHEAD = 2  # chunks under way for each worker
# a forked worker need not import anything again (torch, when training prepares its own data), and
# touches nothing but text
START = "fork" if sys.platform == "linux" else "spawn"

Pair: TypeAlias = tuple[str, str]
Result = TypeVar("Result")
Work: TypeAlias = Callable[[int, list[Pair]], Result]


def on_all_cores(work: Work[Result], pairs: Iterable[Pair]) -> Iterator[Result]:
    """``work(number, chunk)`` of consecutive chunks of ``pairs``, in their order.

    What comes out does not depend on the number of cores: ``work`` may draw at random only from
    the chunk's number.

    Args:
        work: picklable; called in worker processes unless ``pairs`` are few.

    Raises:
        MachineError: a worker process died.
    """
    rest = iter(pairs)
    chunks = iter(lambda: list(itertools.islice(rest, CHUNK)), [])
    first = list(itertools.islice(chunks, PARALLEL_FROM))
    numbered = enumerate(itertools.chain(first, chunks))
    cores = _cores()
    if cores == 1 or len(first) < PARALLEL_FROM:
        yield from itertools.starmap(work, numbered)
        return
    pool = ProcessPoolExecutor(cores, multiprocessing.get_context(START), _start_worker, (work,))
    try:
        under_way: deque[Future[Result]] = deque()
        for numbered_chunk in numbered:
            under_way.append(pool.submit(_run, *numbered_chunk))
            if len(under_way) > AHEAD * cores:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    except BrokenProcessPool as error:
        raise MachineError(
            "a worker process that segments text was killed",
            at="data.train",
            fix="often memory ran out: use fewer cores, for example with taskset -c 0,1",
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


_work: Work[Any] | None = None  # set once in each worker process, so that it is not sent per chunk


def _start_worker(work: Work[Any]) -> None:
    global _work
    _work = work
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _run(number: int, chunk: list[Pair]) -> Any:
    assert _work is not None
    return _work(number, chunk)
