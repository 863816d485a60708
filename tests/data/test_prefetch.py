"""Prefetching: same items, same order, errors, and the end of the thread."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from nmt.data.workers import Prefetcher


def test_items_and_order_are_unchanged():
    with Prefetcher(range(50)) as prefetched:
        assert list(prefetched) == list(range(50))


def test_error_reaches_the_consumer_and_the_thread_ends():
    def failing() -> Iterator[int]:
        yield 1
        raise IndexError("beyond")

    with Prefetcher(failing()) as prefetched:
        stream = iter(prefetched)
        assert next(stream) == 1
        with pytest.raises(IndexError, match="beyond"):
            next(stream)
        with pytest.raises(IndexError):  # a second iteration must not wait forever
            next(iter(prefetched))
    with Prefetcher(itertools.count()) as prefetched:
        next(iter(prefetched))
    assert not prefetched._thread.is_alive()
