"""Lines read ahead in windows that fit in memory, whatever the size of the input and its lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")
CHARACTERS = 1_000_000  # after so many a window ends; 2,048 usual lines have a fourth of them


def read_chunks(
    items: Iterable[Item],
    count: int,
    size: Callable[[Item], int],
    ready: Callable[[], bool] = lambda: True,
) -> Iterator[list[Item]]:
    """Yield items in order, in lists of up to ``count``.

    A list ends sooner once CHARACTERS are reached, and when no item is ready.

    Args:
        size: characters of an item.
        ready: whether the next item, or the end, is there without waiting for it.
    """
    window: list[Item] = []
    characters = 0
    for item in items:
        window.append(item)
        characters += size(item)
        if len(window) >= count or characters >= CHARACTERS or not ready():
            yield window
            window, characters = [], 0
    if window:
        yield window
