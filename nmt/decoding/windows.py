"""Lines read ahead in windows that fit in memory, whatever the size of the input and its lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")
CHARACTERS = 1_000_000  # after so many a window ends; 2,048 usual lines have a fourth of them


def windows(items: Iterable[Item], count: int, size: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Items in order, in lists of up to ``count``; a list ends sooner once CHARACTERS are reached.

    Args:
        size: characters of an item.
    """
    window: list[Item] = []
    characters = 0
    for item in items:
        window.append(item)
        characters += size(item)
        if len(window) >= count or characters >= CHARACTERS:
            yield window
            window, characters = [], 0
    if window:
        yield window
