"""Positions and probabilities of words."""

from __future__ import annotations

import math
import unicodedata

import pytest

from nmt.apps.documents.model import _group, _place, source_words, target_words
from nmt.config.recipe import FastBpeConfig, SentencePieceConfig
from tests.decoding.untrained import LINES, untrained

SEGMENTERS = [
    FastBpeConfig(merges=50),
    SentencePieceConfig(vocab_size=60),
    SentencePieceConfig(vocab_size=310, byte_fallback=True),
]


def marked(words: list, text: str) -> list[str]:
    return [text[word.start : word.end] for word in words]


def test_words_are_found_in_plain_text() -> None:
    words = ["Don", "&apos;t", "stop", "@-@", "a", "&quot;", "\u263a", ",", "now", "."]
    text = "Don't stop-a \"\u263a, now."
    assert marked(_place(words, text), text) == [
        "Don", "'t", "stop", "-", "a", '"', "\u263a", ",", "now", ".",
    ]  # fmt: skip


@pytest.mark.parametrize("word", ["Überraschungseffekte", "한국어문장입니다"])
def test_words_after_a_long_word_of_another_unicode_form_are_found(word: str) -> None:
    """As in a decomposed source line, which the model reads in NFC."""
    text = f"{unicodedata.normalize('NFD', word)} one two"
    assert marked(_place([word, "one", "two"], text), text) == ["", "one", "two"]


@pytest.mark.parametrize("segment", SEGMENTERS, ids=["bpe", "spm", "bytes"])
def test_words_are_those_of_the_alignment(segment: object) -> None:
    translator = untrained(segment=segment)
    for line, (best,) in zip(LINES, translator.n_best(LINES, 1, align=True), strict=True):
        sources, targets = (
            source_words(translator.codec, line),
            target_words(translator.codec, best),
        )
        assert source_words(translator.codec, " ") == []
        for pieces in (translator.codec.source_pieces(line), best.pieces):
            words, ends = _group(translator.codec, pieces)
            assert len(words) == sum(translator.codec.word_ends(pieces))
            assert ends == [i for i, end in enumerate(translator.codec.word_ends(pieces), 1) if end]
        assert "".join(marked(sources, line)) == line.replace(" ", "")
        assert all(i < len(sources) and j < len(targets) for i, j in best.alignment)


def test_a_space_that_is_a_piece_of_its_own_is_not_a_word() -> None:
    codec = untrained(segment=SEGMENTERS[1]).codec
    assert _group(codec, ["\u2581He", "\u2581", "il", "l", "."]) == (["He", "ill."], [1, 5])
    assert _group(codec, ["\u2581", "a", "\u2581"]) == (["a"], [3])
    assert codec.word_ends(["\u2581"]) == [True]
    assert codec.word_ends([]) == []


def test_probabilities_of_the_words_and_of_the_end_are_that_of_the_sentence() -> None:
    translator = untrained()
    for (best,) in translator.n_best(LINES, 1, token_scores=True):
        words = target_words(translator.codec, best)
        total = math.prod(word.probability for word in words if word.probability is not None)
        end = best.token_log_probs[-1] if best.finished else 0.0
        assert total * math.exp(end) == pytest.approx(math.exp(best.log_prob), rel=1e-4)
    (best,) = translator.n_best(LINES[:1], 1)[0]
    assert {word.probability for word in target_words(translator.codec, best)} <= {None}
