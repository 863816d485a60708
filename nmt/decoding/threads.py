"""Independent pieces of work on all cores of a CPU.

Small matrix products gain little from a second core: the cores wait for each other at each of
them. One batch a core does not wait. torch lets other Python threads run while it computes, so
threads suffice: weights are shared, errors and interruptions arrive as they do without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


def on_threads(work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """``map(work, items)`` on as many threads as torch has, each of which computes with one.

    When it ends early, by an error or an interruption, work that has not begun never begins.
    """
    threads = torch.get_num_threads()
    pool = ThreadPoolExecutor(
        min(threads, len(items)), initializer=torch.set_num_threads, initargs=(1,)
    )
    try:
        yield from pool.map(work, items)
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)  # threads that are made from now on inherit this
