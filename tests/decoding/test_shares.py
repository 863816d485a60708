"""Batches for all cores."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.decoding.shares import shares

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=80).map(lambda x: sorted(x)[::-1])


@given(LENGTHS, st.integers(1, 200), st.integers(1, 5))
def test_each_sentence_once_in_batches_that_are_not_too_large(
    lengths: list[int], most: int, cores: int
) -> None:
    runs = shares(lengths, most, cores)
    assert list(itertools.chain.from_iterable(runs)) == list(range(len(lengths)))
    for run in runs:
        assert len(run) == 1 or lengths[run.start] * len(run) <= most


@pytest.mark.parametrize("cores", [2, 3, 16])
def test_cores_have_the_same_to_do(cores: int) -> None:
    """Where filling batches one by one would leave one core with a batch more than the others."""
    lengths = [length for length in range(30, 6, -1) for _ in range(40)]
    runs = shares(lengths, sum(lengths) * 2 // 5, cores)
    assert len(runs) in (cores, 2 * cores)
    sums = [sum(lengths[run.start : run.stop]) for run in runs]
    assert max(sums) - min(sums) < 2 * lengths[0]
