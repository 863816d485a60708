"""Long lines are translated in parts, too long lines are errors, unknown pieces are counted."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.config.recipe import SentencePieceConfig
from nmt.data.segmenters.sentencepiece import SentencePiece
from nmt.decoding import codec as codec_module
from nmt.decoding import token_scores
from nmt.decoding.codec import part_ends
from nmt.decoding.constraints import LineConstraints
from nmt.decoding.options import SearchOptions
from nmt.decoding.translator import Translator
from nmt.errors import UserError
from nmt.text.tokenizer import Moses
from tests.decoding.untrained import LINES, PAIRS, untrained
from tests.toy import one_corpus


def parts(strings: list[str], longest: int) -> list[str]:
    ends = part_ends(strings, longest)
    return ["".join(strings[a:b]) for a, b in itertools.pairwise([0, *ends])]


@pytest.mark.parametrize(
    ("strings", "longest", "expected"),
    [
        # byte-pair codes: a space ends a word
        (["a ", "b ", "c ", "d ", "e "], 3, ["a b ", "c d e "]),
        (["a", "b", "c", "d ", "e", "f "], 5, ["abcd ", "ef "]),
        (["a", "b", "c", "d", "e", "f "], 4, ["abc", "def "]),
        # SentencePiece: a space begins a word
        ([" a", "b", "c", "d", " e", "f"], 5, [" abcd", " ef"]),
        # short enough, and empty
        (["a ", ". ", "b "], 3, ["a . b "]),
        ([], 3, []),
    ],
)
def test_a_sentence_is_cut_between_words_if_possible(strings, longest, expected):
    assert parts(strings, longest) == expected


@settings(deadline=None, database=None, derandomize=True)
@given(st.lists(st.sampled_from(["a ", "b", ". ", " c", "."]), max_size=60), st.integers(2, 12))
def test_parts_cover_the_line_and_have_similar_lengths(strings, longest):
    ends = part_ends(strings, longest)
    sizes = np.diff([0, *ends])
    assert sum(sizes) == len(strings)
    assert all(1 <= size <= longest for size in sizes)
    if len(strings) > longest:
        assert min(sizes) >= longest // 4


@pytest.mark.parametrize("kind", ["fastbpe", "sentencepiece"])
def test_a_long_line_is_split_into_its_sentences(kind, monkeypatch, capsys):
    translator = untrained()
    if kind == "sentencepiece":
        config = SentencePieceConfig(vocab_size=60)
        moses = Moses(False)
        pairs = one_corpus(PAIRS * 5)
        translator.codec.segmenter = SentencePiece.learn(config, moses, pairs)
    codec = translator.codec
    one = "o can branco come pan na cidade fresca!"
    pieces = codec.source_pieces(one)
    monkeypatch.setattr(codec_module, "MAX_SOURCE_PIECES", 2 * len(pieces) - 1)
    options = SearchOptions(split="line")
    inputs = codec.encode_line(7, " ".join([one] * 5), LineConstraints(), options)
    assert [list(part.ids) for part in inputs] == [codec.vocab.ids(pieces)] * 5
    assert [part.pieces for part in inputs] == [pieces] * 5
    assert [(part.line, part.part) for part in inputs] == [(7, n) for n in range(5)]
    assert "note: line 7 has" in capsys.readouterr().err


# ---------------------------------------------------------------- limits


def test_a_line_of_too_many_characters_is_an_error(translator):
    """Segmenting a word of a million characters takes minutes."""
    lines = [*LINES[:2], "x" * 1_000_000]
    with pytest.raises(UserError, match=r"line 3: 1,000,000 characters.*100,000") as caught:
        translator.translate(lines)
    assert caught.value.fix
    assert translator.translate([" " * 1_000_000]) == [""]


@pytest.mark.parametrize("name", ["prefix", "require"])
@pytest.mark.parametrize("words", [600, 200_000])
def test_constraints_that_are_too_long_are_an_error(translator, name, words):
    given_text = "the " * words
    constraints: dict[str, Any] = {name: [given_text if name == "prefix" else [given_text]]}
    with pytest.raises(UserError, match=f"line 1: .*{name}.*512|line 1: .*{name}.*100,000"):
        list(translator.stream(["pan"], **constraints))


@pytest.fixture(scope="module")
def translator() -> Translator:
    return untrained()


# ---------------------------------------------------------------- scoring


def test_a_source_that_is_searched_in_parts_is_not_scored(translator, monkeypatch, capsys):
    """It is not known which part of the target belongs to which part of the source."""
    monkeypatch.setattr(codec_module, "MAX_SOURCE_PIECES", 20)
    monkeypatch.setattr(token_scores, "MAX_SOURCE_PIECES", 20)
    long = " ".join(LINES)
    assert len(translator.codec.source_pieces(long)) > 20
    found = [best for (best,) in translator.n_best([LINES[0], long, LINES[1]], 1)]
    capsys.readouterr()
    scored = translator.score([LINES[0], long, LINES[1]], [h.text for h in found])
    assert scored[1].log_prob == -math.inf
    assert [math.isfinite(h.log_prob) for h in scored] == [True, False, True]
    size = len(translator.codec.source_pieces(long))
    note = f"note: line 2 is not scored: its source has {size} subwords, at most 20 are allowed"
    assert note in capsys.readouterr().err


# ---------------------------------------------------------------- unknown pieces


def test_unknown_pieces_of_the_source_are_counted(translator):
    """UNK, and pieces that only the target side of the training data contains."""
    translator = untrained()
    lines = ["pan", "", "Ω", "☃☃ Ω", "o can ☃", "the"]
    translator.translate(lines)
    unknown = translator.unknown
    pieces = [translator.codec.segmenter.encode(line, "gl") for line in lines if line]
    source = translator.codec.vocab.types_of("src")
    count = sum(
        i == 3 or not source[i] for line in pieces for i in translator.codec.vocab.ids(line)
    )
    assert (unknown.pieces, unknown.unknown) == (sum(map(len, pieces)), count)
    assert (unknown.lines, unknown.lines_with_unknown, unknown.lines_all_unknown) == (5, 4, 3)
    assert unknown.first == [3, 4, 6]
    assert unknown.share == count / unknown.pieces
    assert untrained().unknown.share == 0.0
