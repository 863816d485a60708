"""Denoising: spans, permutation, and pairs of noised and original blocks."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from nmt.data.lm import DenoisedText, WordEdges, infill, permute_lines, span_lengths
from nmt.data.segmenters.base import Whitespace
from nmt.data.segmenters.bpe import FastBpe, WordSplitter
from nmt.data.segmenters.sentencepiece import SentencePiece
from nmt.data.tokenizer import Moses
from nmt.data.vocab import EOS, UNK, Vocab
from tests.data.lm.test_packing import random_lines, stream_of
from tests.toy import one_corpus

MASK = 60


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
