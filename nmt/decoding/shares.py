"""Batches of about the same size, as many for each core, so that none waits for the last one."""

from __future__ import annotations

import bisect
from collections.abc import Sequence


def balanced_batches(lengths: Sequence[int], most: int, cores: int) -> list[range]:
    """Places of sentences, in the smallest runs that are as many for each core.

    Args:
        lengths: of sentences, falling.
        most: the longest of a run x their number, at most; a longer sentence is alone.
        cores: the number of runs is a multiple of it, if sentences allow that.
    """
    fewest = len(_runs(lengths, most))
    count = -(-fewest // cores) * cores
    sizes = range(1, most + 1)  # the larger, the fewer runs
    size = bisect.bisect_left(sizes, -count, key=lambda size: -len(_runs(lengths, size)))
    return _runs(lengths, sizes[size])


def _runs(lengths: Sequence[int], size: int) -> list[range]:
    """As many sentences in each as fit."""
    runs, first = [], 0
    while first < len(lengths):
        runs.append(next_batch(first, lengths, size))
        first = runs[-1].stop
    return runs


def next_batch(first: int, lengths: Sequence[int], most: int) -> range:
    """The places from ``first`` on that fit together."""
    return range(first, min(first + max(1, most // lengths[first]), len(lengths)))
