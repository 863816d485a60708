"""Chunks of lines, and batches for all workers."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.decoding.batching import MAX_CHUNK_CHARACTERS, greedy_batches, read_chunks

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=80).map(lambda x: sorted(x)[::-1])


@pytest.mark.parametrize(
    ("sizes", "lengths"),
    [
        ([], []),
        ([1] * 7, [3, 3, 1]),
        ([0] * 3, [3]),
        ([MAX_CHUNK_CHARACTERS] * 2, [1, 1]),
        ([MAX_CHUNK_CHARACTERS - 1, 1, 5, 5], [2, 2]),
    ],
)
def test_a_chunk_ends_after_enough_lines_or_characters(sizes, lengths):
    chunks = [chunk for chunk, _ in read_chunks(sizes, 3, lambda size: size)]
    assert [len(chunk) for chunk in chunks] == lengths
    assert list(itertools.chain.from_iterable(chunks)) == sizes


@given(LENGTHS, st.integers(1, 200))
def test_each_sentence_is_in_one_batch_of_limited_size(lengths, max_size):
    batches = greedy_batches(lengths, max_size)
    assert list(itertools.chain.from_iterable(batches)) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or lengths[batch.start] * len(batch) <= max_size
