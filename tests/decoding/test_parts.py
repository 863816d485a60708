"""Long lines: cut where a reader would cut them, n lines in are n lines out, limits by name."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.config.recipe import SentencePieceConfig
from nmt.data.moses import Moses
from nmt.data.segment import SentencePiece
from nmt.decoding import codec as sentences_module
from nmt.decoding.parts import part_ends
from nmt.decoding.translator import Translator
from nmt.errors import UserError
from tests.decoding.untrained import LINES, PAIRS, untrained


def parts(surfaces: list[str], longest: int) -> list[str]:
    ends = part_ends(surfaces, longest)
    return ["".join(surfaces[a:b]) for a, b in itertools.pairwise([0, *ends])]


@pytest.mark.parametrize(
    ("surfaces", "longest", "expected"),
    [
        # byte-pair codes: a space ends a word
        (["a ", "b ", "c ", ". ", "d ", "e "], 5, ["a b c . ", "d e "]),
        (["a ", ". ", '" ', "b ", "c ", "d "], 4, ['a . " ', "b c d "]),
        (["a ", ". ", "&quot; ", "b ", "c ", "d "], 4, ["a . &quot; ", "b c d "]),
        (["a", "b", "c", "d ", "e", "f "], 5, ["abcd ", "ef "]),
        (["a", "b", "c", "d", "e", "f "], 4, ["abc", "def "]),
        (["a ", "3", ".", "4 ", "b ", "c ", "d "], 5, ["a 3.4 ", "b c d "]),
        # SentencePiece: a space begins a word
        ([" a", " b", " c", ".", " d", " e"], 5, [" a b c.", " d e"]),
        ([" a", "b", "c", "d", " e", "f"], 5, [" abcd", " ef"]),
        # scripts without spaces
        (["東", "京", "。", "大", "阪 "], 4, ["東京。", "大阪 "]),
        (["「", "東", "。", "」", "大", "阪 "], 4, ["「東。」", "大阪 "]),
        (["नमस्ते ", "। ", "क ", "ख ", "ग "], 4, ["नमस्ते । ", "क ख ग "]),
        # short enough, and nothing at all
        (["a ", ". ", "b "], 3, ["a . b "]),
        ([], 3, []),
    ],
)
def test_a_cut_is_at_the_end_of_a_sentence_or_else_of_a_word(
    surfaces: list[str], longest: int, expected: list[str]
) -> None:
    assert parts(surfaces, longest) == expected


@settings(deadline=None, database=None, derandomize=True)
@given(st.lists(st.sampled_from(["a ", "b", ". ", " c", "."]), max_size=60), st.integers(2, 12))
def test_parts_are_the_line_and_none_is_too_long_or_tiny(surfaces: list[str], longest: int) -> None:
    ends = part_ends(surfaces, longest)
    sizes = np.diff([0, *ends])
    assert sum(sizes) == len(surfaces)
    assert all(1 <= size <= longest for size in sizes)
    if len(surfaces) > longest:
        assert min(sizes) >= longest // 4


@pytest.mark.parametrize("kind", ["fastbpe", "sentencepiece"])
def test_a_long_line_is_searched_in_sentences(
    kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    translator = untrained()
    if kind == "sentencepiece":
        config = SentencePieceConfig(vocab_size=60)
        moses = Moses(False, nfc=False)
        pairs = lambda: iter(PAIRS * 5)  # noqa: E731
        translator.sentences.segmenter = SentencePiece.learn(config, moses, "gl", "en", pairs)
    sentences = translator.sentences
    one = "o can branco come pan na cidade fresca!"
    monkeypatch.setattr(sentences_module, "LONGEST", 2 * len(sentences.source_pieces(one)) - 1)
    of_line = sentences.of_line(7, " ".join([one] * 5))
    alone = sentences.vocab.ids(sentences.source_pieces(one))
    assert [list(sentence.ids) for sentence in of_line] == [alone] * 5
    assert [sentence.place for sentence in of_line] == [(7, n) for n in range(5)]
    assert "note: line 7 has" in capsys.readouterr().err


# ---------------------------------------------------------------- limits


def test_a_line_that_is_no_sentence_is_refused_by_name(translator: Translator) -> None:
    """A word of a million characters alone took minutes to be segmented."""
    lines = [*LINES[:2], "x" * 1_000_000]
    with pytest.raises(UserError, match=r"line 3: 1,000,000 characters.*100,000") as caught:
        translator.translate(lines)
    assert caught.value.fix
    assert translator.translate([" " * 1_000_000]) == [""]


@pytest.mark.parametrize("name", ["prefix", "require"])
@pytest.mark.parametrize("words", [600, 200_000])
def test_given_text_that_is_too_long_is_refused_by_name(
    translator: Translator, name: str, words: int
) -> None:
    given_text = "the " * words
    wish: dict[str, Any] = {name: [given_text if name == "prefix" else [given_text]]}
    with pytest.raises(UserError, match=f"line 1: .*{name}.*512|line 1: .*{name}.*100,000"):
        list(translator.stream(["pan"], **wish))


@pytest.fixture(scope="module")
def translator() -> Translator:
    return untrained()


# ---------------------------------------------------------------- scoring


def test_a_line_that_is_searched_in_parts_is_not_scored_whole(
    translator: Translator, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its parts are not known from outside, so its score would not be the search's."""
    monkeypatch.setattr(sentences_module, "LONGEST", 20)
    long = " ".join(LINES)
    assert len(translator.sentences.source_pieces(long)) > 20
    found = [best for (best,) in translator.n_best([LINES[0], long, LINES[1]], 1)]
    capsys.readouterr()
    scored = translator.score([LINES[0], long, LINES[1]], [h.text for h in found])
    assert scored[1].log_prob == -math.inf
    assert [math.isfinite(h.log_prob) for h in scored] == [True, False, True]
    size = len(translator.sentences.source_pieces(long))
    said = f"note: line 2 is not scored: its source has {size} pieces, at most 20 are allowed"
    assert said in capsys.readouterr().err


# ---------------------------------------------------------------- what is unknown


def test_unknown_pieces_of_the_source_are_counted(translator: Translator) -> None:
    """UNK, and what only the target side of the training had."""
    translator = untrained()
    lines = ["pan", "", "Ω", "☃☃ Ω", "o can ☃", "the"]
    translator.translate(lines)
    unknown = translator.unknown
    pieces = [translator.segmenter.encode(line, "gl") for line in lines if line]
    source = translator.vocab.types_of("src")
    count = sum(i == 3 or not source[i] for line in pieces for i in translator.vocab.ids(line))
    assert (unknown.pieces, unknown.unknown) == (sum(map(len, pieces)), count)
    assert (unknown.lines, unknown.lines_with, unknown.lines_only) == (5, 4, 3)
    assert unknown.first == [3, 4, 6]
    assert unknown.share == count / unknown.pieces
    assert untrained().unknown.share == 0.0
