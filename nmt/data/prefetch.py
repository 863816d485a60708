"""Make the next batches in a thread while the current one trains."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Generic, TypeVar

AHEAD = 8  # items made before the consumer asks for them

T = TypeVar("T")


class Prefetcher(Generic[T]):
    """Run an iterator ahead in one thread: same items, same order.

    Use as a context manager, which ends the thread. The consumer gets an error of the iterator.

    Args:
        items: iterated over in the thread.
    """

    def __init__(self, items: Iterable[T]) -> None:
        self._items = items
        self._ready: queue.Queue[tuple[tuple[T, ...], BaseException | None]] = queue.Queue(AHEAD)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Prefetcher[T]:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
