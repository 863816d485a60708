"""Prefixes and required phrases, on stubs and on text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.config.entries import Directions
from nmt.config.recipe import SentencePieceConfig
from nmt.data.segmenters.sentencepiece import SentencePiece
from nmt.data.vocab import Vocab
from nmt.decoding.codec import TextCodec
from nmt.decoding.constraints import LineConstraints, PieceStrings
from nmt.decoding.options import SearchOptions
from nmt.decoding.translator import Translator
from nmt.errors import UserError
from nmt.text.tokenizer import Moses
from tests.decoding.untrained import LINES, untrained
from tests.toy import one_corpus


@pytest.fixture(scope="module")
def translator() -> Translator:
    return untrained()


# ---------------------------------------------------------------- words of pieces


class Letters:
    """A segmenter whose pieces are their own strings."""

    def surface(self, piece: str) -> str:
        return piece


@pytest.mark.parametrize(
    ("pieces", "phrase", "has", "places"),
    [
        ("the /cat /sat ", "cat ", True, [0, 1, 2, 3]),  # byte-pair codes
        ("the /cat/s /sat ", "cat ", False, [0, 1, 3, 4]),
        ("the /con/cat /cat ", "cat ", True, [0, 1, 3, 4]),
        (" the/ (/cat/),/ sat", " cat", True, [0, 1, 2, 3, 4, 5]),  # SentencePiece
        (" the/ (/cat/),/ sat", "cat", True, [0, 2]),  # without a space only after the bracket
        (" cat/ the", " the cat", False, [0, 1, 2]),
        (" cat/s", " cat", False, [0, 2]),
        ("\u732b/\u306f/\u732b", "\u732b\u306f", True, [0, 1, 2, 3]),  # between any letters
        ("", " cat", False, [0]),
    ],
)
def test_a_phrase_is_complete_words(pieces, phrase, has, places):
    strings = PieceStrings(Letters(), Vocab(["a"], np.ones((1, 2), dtype=np.int64)))
    found = pieces.split("/") if pieces else []
    assert strings.contains(found, [phrase]) is has
    assert list(strings.places(found, [phrase])) == places


# ---------------------------------------------------------------- on text

TARGETS = ["the dog", "water", "sea, sir", "don't", "it is raining", "zebra №7", "in the old town"]
constraints = st.fixed_dictionaries(
    {
        "prefix": st.sampled_from(["", " ", "the", "fresh water", "Ω the"]),
        "require": st.lists(st.sampled_from(TARGETS), max_size=2, unique=True),
    }
)


def spaced(text: str) -> str:
    return f" {text} "


@settings(max_examples=15, deadline=None, database=None, derandomize=True)
@given(
    items=st.lists(
        st.tuples(st.sampled_from([*LINES, "", "\u3000", "Ω≈ç", "o can " * 9]), constraints),
        max_size=4,
    ),
    beam=st.integers(1, 4),
)
def test_translations_satisfy_their_constraints(translator, items, beam):
    lines = [line for line, _ in items]
    given = {name: [c[name] for _, c in items] for name in ("prefix", "require")}
    found = list(translator.stream(lines, beam=beam, n_best=1, **given))
    assert len(found) == len(lines)
    segmenter = translator.codec.segmenter

    def words(text: str) -> str:
        return "".join(map(segmenter.surface, segmenter.encode(text, "en")))

    for line, prefix, require, ((best,)) in zip(
        lines, given["prefix"], given["require"], found, strict=True
    ):
        if not line.strip():
            assert best.text == ""
            continue
        output = spaced("".join(map(segmenter.surface, best.pieces)))
        start = words(prefix) if prefix.strip() else ""
        assert output.startswith(f" {start}")
        for phrase in require:
            assert spaced(words(phrase).strip()) in output, (line, best)
        assert "<unk>" not in best.text


@settings(max_examples=20, deadline=None, database=None, derandomize=True)
@given(
    items=st.lists(
        st.tuples(st.one_of(st.sampled_from(LINES), st.text(max_size=9)), constraints), max_size=3
    ),
    options=st.fixed_dictionaries(
        {},
        optional={
            "beam": st.integers(1, 3),
            "n_best": st.integers(1, 3),
            "length_alpha": st.sampled_from([0.0, 1.0]),
            "max_len_offset": st.integers(1, 9),
            "allow_unk": st.booleans(),
            "sample": st.booleans(),
            "temperature": st.sampled_from([0.3, 3.0]),
            "top_k": st.integers(1, 5),
            "top_p": st.sampled_from([0.2, 1.0]),
            "seed": st.integers(0, 3),
            "no_repeat_ngram": st.integers(0, 3),
        },
    ),
    names=st.sets(st.sampled_from(["prefix", "require"])),
)
def test_any_options_give_a_translation_of_each_line_or_an_error(translator, items, options, names):
    lines = [line for line, _ in items]
    given = {name: [c[name] for _, c in items] for name in names}
    try:
        found = list(translator.stream(lines, **options, **given))
    except UserError as error:
        assert any(name in error.what for name in {*options, *given})  # noqa: PT017
        return
    assert len(found) == len(lines)
    for line, of_line in zip(lines, found, strict=True):
        assert 1 <= len(of_line) <= options.get("n_best", 1)
        if not line.strip():
            assert [h.text for h in of_line] == [""]


def test_tokens_of_a_prefix_are_scored_like_others(translator):
    free = translator.n_best(LINES, 1)
    forced = list(translator.stream(LINES, prefix=[of_line[0].text for of_line in free]))
    for line, (plain,), (again,) in zip(LINES, free, forced, strict=True):
        if again.pieces == plain.pieces:
            assert again.log_prob == pytest.approx(plain.log_prob, abs=1e-3), line
    assert any(a[0].pieces == f[0].pieces for a, f in zip(forced, free, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("batch_tokens", [1, 50])
def test_constraints_do_not_depend_on_the_batch(translator, batch_tokens):
    given: dict[str, Any] = {
        "prefix": ["", "the", "", "water", "", "a"],
        "require": [["dog"], [], ["old town", "cat"], [], ["sea"], []],
    }
    expected = [of_line[0] for of_line in translator.stream(LINES, **given)]
    found = [h for (h,) in translator.stream(LINES, 4, batch_tokens=batch_tokens, **given)]
    assert [h.text for h in found] == [h.text for h in expected]
    reversed_order = {name: values[::-1] for name, values in given.items()}
    backwards = [h for (h,) in translator.stream(LINES[::-1], **reversed_order)]
    assert [h.text for h in backwards[::-1]] == [h.text for h in expected]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prefix", "phrases"),
    [
        ("", ["Ω", "☃"]),
        ("", ["☃", "Ω dog", "☃ Ω"]),
        ("", ["dog ☃ sea", "Ω"]),
        ("", ["Ω", "dog ☃ sea"]),
        ("", ["☃ dog", "Ω", "☃ sea"]),
        ("Ω", ["☃"]),
        ("Ω the", ["☃ Ω", "№"]),
    ],
)
@pytest.mark.parametrize("beam", [1, 5])
def test_every_unknown_phrase_is_produced(translator, prefix, phrases, beam):
    """To the model they are all UNK, but one UNK stands for only one of them."""
    for allow_unk in (False, True):
        ((best,),) = translator.stream(
            ["pan"], prefix=[prefix], require=[phrases], beam=beam, allow_unk=allow_unk
        )
        output = spaced("".join(map(translator.codec.segmenter.surface, best.pieces)))
        assert output.startswith(f" {prefix}")
        for phrase in phrases:
            assert spaced(phrase) in output, (output, phrases)


def test_the_space_sign_of_sentencepiece_is_an_error(translator):
    """Byte-pair codes keep U+2581 as it is."""
    text = [("a cat sat on a mat", "cats and mats")] * 20
    segmenter = SentencePiece.learn(
        SentencePieceConfig(vocab_size=30), Moses(False), one_corpus(text)
    )
    vocab = Vocab(["a"], np.ones((1, 2), dtype=np.int64))
    codec = TextCodec(segmenter, vocab, Directions("gl", "en"))
    for constraints in (LineConstraints(prefix="a▁b"), LineConstraints(require=["▁"])):
        with pytest.raises(UserError, match=r"line 7: .*▁.*U\+2581"):
            codec.encode_line(7, "a cat", constraints, SearchOptions())
    (found,) = translator.stream(["pan"], prefix=["a ▁"], require=[["c ▁"]], beam=2)
    assert found[0].text.startswith("a ▁ ")
    assert "c ▁" in found[0].text


def test_phrases_of_bytes_are_found_like_others():
    config = SentencePieceConfig(vocab_size=330, byte_fallback=True)
    translator = untrained(segment=config)
    require = [["\u65e5\u672c", "dog"], *([["\u017c"]] * (len(LINES) - 1))]
    found = translator.translate(LINES, require=require, max_len_offset=20)
    assert "\u65e5\u672c" in found[0]
    assert "dog" in found[0]
    assert all("\u017c" in line for line in found[1:])


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prefix": ["a"]}, "prefix ends before line 2"),
        ({"require": [[]] * 9}, "require has more than the 6 lines"),
        ({"require": [[]] * 6, "sample": True}, "require cannot be combined with sample"),
    ],
)
def test_wrong_constraints_are_an_error(translator, options, message):
    with pytest.raises(UserError, match=message):
        list(translator.stream(LINES, **options))


def test_encoded_sentences_have_no_constraints(translator):
    with pytest.raises(UserError, match="unknown option prefix"):
        translator.translate_ids([np.array([4])], prefix=["a"])
