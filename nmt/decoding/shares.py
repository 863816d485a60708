"""Batches of about the same size, as many for each core, so that none waits for the last one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np


def shares(lengths: Sequence[int], most: int, cores: int) -> list[range]:
    """Places of sentences, in runs of about equal sums of length.

    Args:
        lengths: of sentences, falling.
        most: the longest of a run x their number, at most; a longer sentence is alone.
        cores: the number of runs is a multiple of it, unless there are fewer sentences.
    """
    ends = np.cumsum(lengths)
    count = cores * max(1, -(-int(ends[-1]) // (most * cores)))
    while count < len(lengths):
        cuts = np.searchsorted(ends, ends[-1] * np.arange(1, count) / count) + 1
        runs = [range(*pair) for pair in itertools.pairwise([0, *cuts.tolist(), len(lengths)])]
        if all(len(run) < 2 or lengths[run.start] * len(run) <= most for run in runs):
            return [run for run in runs if run]
        count += cores
    return [range(place, place + 1) for place in range(len(lengths))]
