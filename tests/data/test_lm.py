"""Text for language models: streams and blocks, masks, noise."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from nmt.data.lm import (
    CausalText,
    DenoisedText,
    MaskedText,
    TextBatch,
    TokenStream,
    WordEdges,
    count_chosen,
    full_line_blocks,
    infill,
    mask_tokens,
    permute_lines,
    span_lengths,
    stream_blocks,
)
from nmt.data.segmenters.base import Whitespace
from nmt.data.segmenters.bpe import FastBpe, WordSplitter
from nmt.data.segmenters.sentencepiece import SentencePiece
from nmt.data.tokenizer import Moses
from nmt.data.vocab import EOS, UNK, Vocab
from nmt.model.layout import Layout
from tests.toy import one_corpus

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
    assert stream_of(LINES).without_blank_lines().read(0, 5).tolist() == [10, 11, EOS, 12, 13]


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
    text = stream.without_blank_lines()
    assert text.bounds.tolist() == [0, 3, 3, 7, 9]
    assert full_line_blocks(text, 3).lengths.tolist() == [3, 2, 2, 2]


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


class Edges(WordEdges):
    """Each type below 30 begins a word."""

    def __init__(self) -> None:
        self.begins = np.arange(61) < 30
        self.ends = np.arange(61) < 4


def denoised(lines: list[list[int]], length: int = 40, seed: int = 1) -> DenoisedText:
    return DenoisedText(stream_of(lines), length, MASK, Edges(), seed)


def test_spans_cover_30_percent_of_the_words():
    rng = np.random.default_rng(1)
    assert all(span_lengths(100, rng).sum() == 30 for _ in range(50))
    totals = [span_lengths(5, rng).sum() for _ in range(4000)]
    assert set(totals) == {1, 2}
    assert np.mean(totals) == pytest.approx(1.5, abs=0.03)  # 3 standard deviations: 0.024
    assert {span_lengths(1, rng).sum() for _ in range(50)} == {0, 1}


def test_lengths_of_spans_are_poisson():
    lengths = span_lengths(100_000, np.random.default_rng(2))  # about 10,000 spans
    assert lengths.mean() == pytest.approx(3, abs=0.06)
    assert lengths.var() == pytest.approx(3, abs=0.15)
    assert (lengths == 0).mean() == pytest.approx(np.exp(-3), abs=0.007)


def test_infilling_by_hand(monkeypatch):
    ids = np.arange(10, 20)
    monkeypatch.setattr("nmt.data.lm.span_lengths", lambda words, rng: np.array([2, 0]))

    class Chosen:
        def choice(self, slots, count, replace):
            assert slots == 10 - 2 + 2
            return np.array([7, 1])  # unsorted; sizes by slot 1 2 1 1 1 1 1 0 1 1

    noised = infill(ids, np.arange(10), MASK, Chosen())
    assert noised.tolist() == [10, MASK, 13, 14, 15, 16, 17, MASK, 18, 19]


def test_spans_keep_words_whole():
    # words of two tokens
    ids, starts = np.arange(100, 160), np.arange(0, 60, 2)
    for seed in range(20):
        noised = infill(ids, starts, MASK, np.random.default_rng(seed)).tolist()
        stay = [i for i in noised if i != MASK]
        assert len(stay) == 60 - 2 * 9
        assert stay == sorted(stay)
        assert all(i + 1 in stay for i in stay if i % 2 == 0)
        assert MASK in noised


def test_words_of_each_segmenter(tmp_path):
    moses = Moses(tokenized=True)

    def starts(segmenter, pieces: list[str]) -> list[int]:
        vocab = Vocab(sorted(set(pieces)), np.ones((len(set(pieces)), 2), np.int64))
        return WordEdges(segmenter, vocab).word_starts(np.array(vocab.ids(pieces))).tolist()

    assert starts(Whitespace(moses), ["a", "b", "a"]) == [0, 1, 2]
    bpe = FastBpe(moses, WordSplitter([]))
    assert starts(bpe, ["x@@", "y", "z", "x@@", "x@@", "z"]) == [0, 2, 3]

    class Config:
        model, vocab_size, model_type, byte_fallback = "learn", 40, "bpe", False

    pairs = [("some words of a text", "other words here")] * 20
    model = SentencePiece.learn(Config, moses, one_corpus(pairs))
    pieces = model.encode("some text of words", "en")
    expected = [i for i, piece in enumerate(pieces) if piece.startswith("\u2581")]
    assert starts(model, pieces) == expected
    assert len(expected) == 4


def test_specials_are_words():
    edges = Edges()
    assert edges.word_starts(np.array([40, 41, EOS, 42, UNK, 43])).tolist() == [0, 2, 3, 4, 5]
    assert edges.word_starts(np.array([10, 40, 11, 41])).tolist() == [0, 2]


def test_lines_are_permuted():
    ids = np.array([10, 11, EOS, 12, EOS, 13, 14, 15, EOS])
    rng = np.random.default_rng(1)
    orders = {tuple(permute_lines(ids, rng).tolist()) for _ in range(200)}
    lines = [f"10 11 {EOS}", f"12 {EOS}", f"13 14 15 {EOS}"]
    expected = {" ".join(order) for order in itertools.permutations(lines)}
    assert {" ".join(map(str, order)) for order in orders} == expected


def test_noise_is_a_function_of_seed_epoch_and_example():
    lines = random_lines(100)
    text = denoised(lines)
    src = text.pair(3, epoch=1)[0].tolist()
    assert denoised(lines).pair(3, epoch=1)[0].tolist() == src
    assert text.pair(3, epoch=2)[0].tolist() != src
    assert denoised(lines, seed=2).pair(3, epoch=1)[0].tolist() != src
    batch = text.collate(np.array([8, 3]), epoch=1)
    assert batch.src[batch.src_layout.lengths[0] :].tolist() == [*src, EOS]


def test_the_target_is_the_text_without_noise():
    lines = [line for line in random_lines(200, longest=60) if line]
    lines.insert(5, [])
    text = denoised(lines, length=40)
    tokens = []
    for row in range(len(text)):
        batch = text.collate(np.array([row]), epoch=0)
        assert batch.tokens == text.targets[row] <= 40
        assert batch.tgt_out[0] != EOS
        assert MASK not in batch.tgt_out
        assert len(batch.src) > 1
        target = batch.tgt_out.tolist()
        tokens += target[: int(text.blocks.lengths[row])]  # the EOS of a cut line is not text
    assert tokens == [i for line in lines if line for i in (*line, EOS)]


def test_share_of_tokens_that_noise_removes():
    text = denoised(random_lines(2000), length=200)
    kept = masks = 0
    for row in range(len(text)):
        src = text.pair(row, epoch=0)[0]
        masks += int((src == MASK).sum())
        kept += int((src != MASK).sum())
    removed = 1 - kept / (text.targets.sum() - len(text))
    assert removed == pytest.approx(0.3, abs=0.02)  # words have different lengths
    assert masks > 0


def test_batches_with_buckets():
    text = denoised(random_lines(100))
    rows = text.batches(200, seed=1, epoch=0)[0]
    plain, padded = text.collate(rows, 1), text.collate(rows, 1, batch_tokens=200)
    assert padded.bucket is not None
    assert padded.tgt_out[: plain.tokens].tolist() == plain.tgt_out.tolist()
    assert padded.weights.sum() == plain.tokens == text.targets[rows].sum()
