"""Batches for all cores."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.decoding.shares import balanced_batches

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=80).map(lambda x: sorted(x)[::-1])
MANY = [length for length in range(30, 6, -1) for _ in range(40)]


@given(LENGTHS, st.integers(1, 200), st.integers(1, 5))
def test_each_sentence_once_in_batches_that_are_not_too_large(
    lengths: list[int], most: int, cores: int
) -> None:
    runs = balanced_batches(lengths, most, cores)
    assert list(itertools.chain.from_iterable(runs)) == list(range(len(lengths)))
    for run in runs:
        assert len(run) == 1 or lengths[run.start] * len(run) <= most


@pytest.mark.parametrize("cores", [2, 3, 16])
def test_cores_have_the_same_to_do(cores: int) -> None:
    """Where filling batches one by one would leave one core with a batch more than the others."""
    runs = balanced_batches(MANY, sum(MANY) * 2 // 5, cores)
    assert len(runs) % cores == 0
    sizes = [MANY[run.start] * len(run) for run in runs]
    assert min(sizes) > 0.8 * max(sizes)


def test_one_long_sentence_makes_no_small_batches_of_the_others() -> None:
    most = sum(MANY) // 5
    plain, with_long = (
        balanced_batches(MANY, most, 2),
        balanced_batches([most // 2, *MANY], most, 2),
    )
    assert len(with_long) <= len(plain) + 2
