"""Text for language models: streams and blocks, masks, noise."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nmt.data.lm import (
    CausalText,
    MaskedText,
    TextBatch,
    TokenStream,
    count_chosen,
    full_line_blocks,
    mask_tokens,
    stream_blocks,
)
from nmt.data.vocab import EOS, UNK
from nmt.model.layout import Layout

LINES = [[10, 11], [], [12, 13, 14], [15]]
STREAM = [10, 11, EOS, EOS, 12, 13, 14, EOS, 15, EOS]


def stream_of(lines: list[list[int]], sizes: list[int] | None = None) -> TokenStream:
    ids = np.array([i for line in lines for i in line], np.uint16)
    lengths = np.array([len(line) for line in lines], np.int32)
    return TokenStream(ids, lengths, sizes or [len(lines)])


def random_lines(count: int, seed: int = 1, longest: int = 20) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(3, 50, rng.integers(longest)).tolist() for _ in range(count)]


def test_eos_ends_each_line_of_a_stream():
    stream = stream_of(LINES)
    assert len(stream) == len(STREAM)
    for first in range(len(STREAM)):
        for last in range(first, len(STREAM) + 1):
            assert stream.read(first, last).tolist() == STREAM[first:last]
    assert len(stream_of([])) == 0


def test_blocks_of_a_stream_ignore_lines():
    blocks = stream_blocks(stream_of(LINES), 4)
    assert blocks.first.tolist() == [0, 4, 8]
    assert blocks.last.tolist() == [4, 8, 10]
    assert len(stream_blocks(stream_of([]), 4).first) == 0
    assert stream_blocks(stream_of([[10, 11]]), 512).lengths.tolist() == [
        3
    ]  # a text shorter than a block


@pytest.mark.parametrize(
    ("lengths", "length", "expected"),
    [
        ([3, 1, 4, 2], 4, [4, 4, 2]),  # lines that fit exactly
        ([3, 3, 3], 8, [6, 3]),
        ([10, 2, 3], 4, [4, 4, 4, 3]),  # the rest of a long line shares a block
        ([5, 3], 4, [3, 2, 3]),  # no block begins with the EOS of a cut line
        ([9], 4, [4, 3, 2]),
        ([1, 1, 1], 2, [2, 1]),
        ([], 4, []),
    ],
)
def test_blocks_of_full_lines(lengths, length, expected):
    blocks = full_line_blocks(stream_of([[10] * (n - 1) for n in lengths]), length)
    assert blocks.lengths.tolist() == expected
    assert blocks.first.tolist() == np.cumsum([0, *expected])[:-1].tolist()


def test_full_lines_fill_blocks_greedily():
    stream = stream_of(random_lines(500))
    blocks, ends = full_line_blocks(stream, 32), stream.line_ends
    assert blocks.lengths.max() <= 32
    assert blocks.first[1:].tolist() == blocks.last[:-1].tolist()
    assert set(blocks.last) <= set(ends)  # all lines are shorter than a block
    for first, last in zip(blocks.first[:-1], blocks.last[:-1], strict=True):
        following = ends[np.searchsorted(ends, last, side="right")]
        assert following - first > 32


def test_blocks_stay_in_an_entry_of_the_corpus():
    stream = stream_of(LINES, sizes=[1, 0, 2, 1])  # 3, 0, 5 and 2 tokens
    assert stream.bounds.tolist() == [0, 3, 3, 8, 10]
    assert stream_blocks(stream, 4).lengths.tolist() == [3, 4, 1, 2]
    assert full_line_blocks(stream, 6).lengths.tolist() == [3, 5, 2]


def test_ordinary_tokens_of_blocks():
    stream = stream_of([[10, UNK, 11], [], [UNK], [12, 13]])
    blocks = stream_blocks(stream, 4)
    # 10 UNK 11 EOS | EOS UNK EOS 12 | 13 EOS
    assert stream.count_ordinary(blocks).tolist() == [2, 1, 1]


def test_batches_of_blocks_are_a_function_of_seed_and_epoch():
    def plan(seed, epoch):
        return [rows.tolist() for rows in text.batches(64, seed, epoch)]

    text = CausalText(stream_of([[10] * 399]), 8)  # 50 blocks, 8 a batch

    assert [len(rows) for rows in plan(1, 0)] == [8] * 6 + [2]
    assert sorted(row for rows in plan(1, 0) for row in rows) == list(range(50))
    assert plan(1, 0) == plan(1, 0)
    assert plan(1, 0) != plan(1, 1)
    assert plan(1, 0) != plan(2, 0)


def test_each_token_is_predicted_once_from_the_token_before_it():
    lines = random_lines(300)
    text = CausalText(stream_of(lines), 16)
    tokens = [i for line in lines for i in (*line, EOS)]
    assert text.targets.sum() == len(tokens)
    seen = []
    for rows in text.batches(64, seed=3, epoch=2):
        batch = text.collate(rows, epoch=2)
        assert batch.tokens <= 64
        assert batch.layout.lengths.tolist() == text.targets[rows].tolist()
        starts = np.cumsum(text.targets[rows]) - text.targets[rows]
        for row, start in zip(rows, starts, strict=True):
            first, size = 16 * int(row), int(text.targets[row])
            targets = batch.targets[start : start + size].tolist()
            assert targets == tokens[first : first + size]
            before = [EOS] if first == 0 else [tokens[first - 1]]
            assert batch.ids[start : start + size].tolist() == before + targets[:-1]
            seen += range(first, first + size)
    assert sorted(seen) == list(range(len(tokens)))


def test_complete_batches_have_one_shape():
    text = CausalText(stream_of([[10] * 50]), 8)  # 51 tokens: 6 complete blocks and 3 tokens
    one, other = text.collate(np.array([0, 1]), 0), text.collate(np.array([5, 3]), 0)
    assert one.bucket == other.bucket is not None
    assert not one.layout.padded
    assert one.ids.shape == other.ids.shape == (16,)
    assert text.collate(np.array([0, 6]), 0).bucket is None
    assert text.collate(np.array([1]), 0).bucket != one.bucket


def test_a_batch_of_at_least_one_block():
    text = CausalText(stream_of([[10] * 50]), 32)
    assert [len(rows) for rows in text.batches(8, 1, 0)] == [1, 1]


def test_map_and_pack_keep_the_values():
    batch = TextBatch(
        torch.tensor([10, 11, 12]),
        Layout.of([1, 2]),
        torch.tensor([11]),
        torch.tensor([1]),
        np.array([4, 2]),
        weights=torch.tensor([1.0]),
    )
    packed = batch.pack(torch.device("cpu"))
    assert packed.buffer is not None
    for name in ("ids", "targets", "places", "weights"):
        assert torch.equal(getattr(packed, name), getattr(batch, name))
    assert torch.equal(packed.layout.to_flat, batch.layout.to_flat)
    assert packed.rows is batch.rows
    doubled = batch.map(lambda t: t * 2)
    assert doubled.ids.tolist() == [20, 22, 24]
    assert batch.to(torch.device("cpu")) is batch


MASK = 60
TYPES = np.arange(4, 60)


def masked_text(lines: list[list[int]], length: int = 32, seed: int = 1) -> MaskedText:
    return MaskedText(stream_of(lines), length, MASK, TYPES, seed)


def test_number_of_chosen_tokens():
    tokens = np.array([0, 1, 2, 9, 10, 20, 100, 512])
    assert count_chosen(tokens).tolist() == [0, 1, 1, 1, 2, 3, 15, 77]


def test_shares_of_mask_random_type_and_unchanged():
    rng = np.random.default_rng(5)
    ids = rng.integers(4, 60, 20_000)
    masked, places = mask_tokens(ids, MASK, TYPES, rng)
    assert len(places) == len(set(places)) == 3000
    chosen, shown = ids[places], masked[places]
    # shares of 3,000 draws: three standard deviations are at most 0.022
    assert (shown == MASK).mean() == pytest.approx(0.8, abs=0.022)
    assert (shown == chosen).mean() == pytest.approx(0.1 + 0.1 / 56, abs=0.017)
    others = np.setdiff1d(np.arange(len(ids)), places)
    assert np.array_equal(masked[others], ids[others])
    assert np.histogram(places, 10, (0, 20_000))[0].min() > 240  # everywhere in the block
    random = shown[(shown != MASK) & (shown != chosen)]
    assert random.min() >= 4
    assert len(set(random)) > 50


def test_specials_are_never_chosen():
    ids = np.array([EOS, UNK, 10, EOS, UNK])
    for seed in range(30):
        masked, places = mask_tokens(ids, MASK, TYPES, np.random.default_rng(seed))
        assert places.tolist() == [2]
        assert masked[[0, 1, 3, 4]].tolist() == [EOS, UNK, EOS, UNK]


def test_masks_are_a_function_of_seed_epoch_and_example():
    lines = random_lines(100)
    text = masked_text(lines)
    alone = text.collate(np.array([3]), epoch=1)
    together = text.collate(np.array([7, 3]), epoch=1)
    start = int(text.blocks.lengths[7])
    assert together.ids[start:].tolist() == alone.ids.tolist()
    count = int(text.targets[7])
    assert (together.places[count:] - start).tolist() == alone.places.tolist()
    assert masked_text(lines).collate(np.array([3]), 1).ids.tolist() == alone.ids.tolist()
    different = [
        text.collate(np.array([3]), epoch=2),
        masked_text(lines, seed=2).collate(np.array([3]), epoch=1),
    ]
    assert all(batch.places.tolist() != alone.places.tolist() for batch in different)


def test_targets_are_the_tokens_that_were_hidden():
    text = masked_text(random_lines(100))
    for rows in text.batches(128, seed=1, epoch=0):
        batch = text.collate(rows, epoch=0)
        ids = np.concatenate([text.block(row) for row in rows])
        assert batch.targets.tolist() == ids[batch.places.numpy()].tolist()
        assert batch.tokens == text.targets[rows].sum() > 0
        kept = np.delete(np.arange(len(ids)), batch.places.numpy())
        assert np.array_equal(batch.ids.numpy()[kept], ids[kept])


def test_blocks_without_an_ordinary_token_are_left_out():
    text = masked_text([[UNK, UNK], [10, 11, 12], [], []], length=4)
    assert len(text) == 3
    assert text.targets.tolist() == [0, 1, 0]
    assert [rows.tolist() for rows in text.batches(8, 1, 0)] == [[1]]
    assert masked_text([[UNK]]).batches(8, 1, 0) == []


def test_padding_has_weight_0():
    text = masked_text(random_lines(100))
    rows = np.array([5, 2])
    plain, padded = text.collate(rows, 3), text.collate(rows, 3, batch_tokens=130)
    count = plain.tokens
    assert padded.layout.shape == (4, 32)
    assert padded.ids[: len(plain.ids)].tolist() == plain.ids.tolist()
    assert padded.targets[:count].tolist() == plain.targets.tolist()
    assert padded.places[:count].tolist() == plain.places.tolist()
    assert padded.weights.tolist() == [1.0] * count + [0.0] * (padded.tokens - count)
    other = text.collate(np.array([1, 3, 4, 6]), 3, batch_tokens=130)
    assert other.bucket == padded.bucket
    shapes: list[list[torch.Size]] = [[], []]
    for batch, found in zip((other, padded), shapes, strict=True):
        batch.map(lambda t, found=found: found.append(t.shape) or t)
    assert shapes[0] == shapes[1]
