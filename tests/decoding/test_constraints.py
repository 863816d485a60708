"""Prefixes and required phrases, on stubs and on text."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.config.recipe import SentencePieceConfig
from nmt.data.segmenters.sentencepiece import SentencePiece
from nmt.data.tokenizer import Moses
from nmt.data.vocab import UNK, Vocab
from nmt.decoding.codec import TextCodec
from nmt.decoding.constraints import LineConstraints, Requirement, Symbol
from nmt.decoding.engine import Hypothesis
from nmt.decoding.logits_processors import RequiredPhrases
from nmt.decoding.options import SearchOptions
from nmt.decoding.translator import Translator
from nmt.errors import UserError
from tests.decoding.exhaustive import Prefix as Ids
from tests.decoding.exhaustive import outputs, random_scores, search
from tests.decoding.untrained import LINES, untrained
from tests.toy import one_corpus

WORDS = ["\0", "\0", " ", "<unk> ", "a ", "b "]  # the strings of the six types of the stubs


@pytest.fixture(scope="module")
def translator() -> Translator:
    return untrained()


def has(ids: Ids, phrase: Sequence[int]) -> bool:
    return any(ids[i : i + len(phrase)] == tuple(phrase) for i in range(len(ids)))


# ---------------------------------------------------------------- required phrases, on stubs

Phrase = Ids | list[Ids]  # one form, or several of which one is needed
FORMS = st.lists(st.integers(3, 5), min_size=1, max_size=3).map(tuple)


def forms_of(phrase: Phrase) -> list[Ids]:
    return phrase if isinstance(phrase, list) else [phrase]


def requirement(phrases: Sequence[Phrase]) -> Requirement:
    """Return a requirement in which UNK is the piece ``x``."""
    symbols: list[list[list[Symbol]]] = [
        [["x" if i == UNK else i for i in form] for form in forms_of(phrase)] for phrase in phrases
    ]
    return Requirement([], symbols, lambda s: f"{s} " if isinstance(s, str) else WORDS[s])


def with_required(
    seed: int, phrases: Sequence[Sequence[Phrase]], beam: int, limit: int, n_best: int = 1
) -> list[list[Hypothesis]]:
    limits = [limit] * len(phrases)
    required = RequiredPhrases(list(map(requirement, phrases)), WORDS, torch.tensor(limits))
    others = {"processors": [required], "strategy": required.select}
    scores = random_scores(seed, types=6)
    return search(scores, beam, limits, n_best=n_best, forbidden=[0, 1, 3], **others)[0]


@pytest.mark.parametrize(
    "phrases",
    [
        [(4,)],
        [(4, 5)],
        [(4, 4), (5,)],
        [(5, 4, 5)],
        [(4, 5), (5, 4)],
        [[(4,), (5,)]],
        [[(5, 5), (4, 4)], (4,)],
    ],
)
def test_a_wide_beam_finds_every_output_that_contains_the_phrases(phrases):
    (found,) = with_required(60, [phrases], 200, 5, n_best=200)
    every = outputs(random_scores(60, types=6), 0, 5, 0.6, [0, 1, 3])
    expected = {
        (o[0], o[3]): o[2]
        for o in every
        if all(any(has(o[0], form) for form in forms_of(p)) for p in phrases)
    }
    assert expected
    best = max(expected.values())
    assert found[0].score == pytest.approx(best, rel=1e-5)
    for f in found:
        assert f.score == pytest.approx(expected[tuple(f.ids), f.finished], rel=1e-5)
    sharing: list[list[Phrase]] = [[(4, 5), (5, 4)], [[(5, 5), (4, 4)], (4,)]]
    if phrases not in sharing:  # phrases that share tokens need fewer tokens than are reserved
        assert len(found) == len(expected)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, database=None, derandomize=True)
@given(
    seed=st.integers(0, 1000),
    phrases=st.lists(
        st.lists(
            st.lists(FORMS, min_size=1, max_size=2, unique=True),
            max_size=3,
        ),
        min_size=1,
        max_size=3,
    ),
    beam=st.integers(1, 5),
    spare=st.integers(0, 4),
)
def test_every_phrase_that_fits_is_produced(seed, phrases, beam, spare):
    """In one of its forms, for any beam, also with UNK inside. UNK is only part of a phrase."""
    lengths = [sum(max(map(len, forms)) for forms in of_one) for of_one in phrases]
    limit = max(1, max(lengths) + spare)
    for of_one, found in zip(phrases, with_required(seed, phrases, beam, limit), strict=True):
        (best,) = found
        assert all(any(has(tuple(best.ids), form) for form in forms) for forms in of_one)
        inside = {
            place + i
            for phrase in itertools.chain.from_iterable(of_one)
            for place in range(len(best.ids))
            if tuple(best.ids[place : place + len(phrase)]) == phrase
            for i in range(len(phrase))
        }
        assert all(place in inside for place, token in enumerate(best.ids) if token == UNK)


def test_sentences_without_phrases_get_the_plain_search():
    scores = random_scores(61, types=6)
    (plain,), _ = search(scores, 4, [6], n_best=4, forbidden=[0, 1, 3], sentences=[1])
    assert with_required(61, [[(4, 4)], []], 4, 6, n_best=4)[1] == plain


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


@settings(max_examples=25, deadline=None, database=None, derandomize=True)
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


@settings(max_examples=30, deadline=None, database=None, derandomize=True)
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
        assert any(  # noqa: PT017, both outcomes are right
            message in str(error)
            for message in (
                "cannot be combined",
                "requires",
                "must not exceed",
                "multiple of",
            )
        )
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


def test_pieces_of_sentencepiece_begin_words():
    text = [("a cat sat on a mat", "cats and mats")] * 20
    segmenter = SentencePiece.learn(
        SentencePieceConfig(vocab_size=30), Moses(False), one_corpus(text)
    )
    pieces = segmenter.encode("a cat sat", "en")
    assert "".join(map(segmenter.surface, pieces)) == " a cat sat"


def test_the_space_sign_of_sentencepiece_is_an_error(translator):
    """Byte-pair codes keep U+2581 as it is."""
    text = [("a cat sat on a mat", "cats and mats")] * 20
    segmenter = SentencePiece.learn(
        SentencePieceConfig(vocab_size=30), Moses(False), one_corpus(text)
    )
    vocab = Vocab(["a"], np.ones((1, 2), dtype=np.int64))
    codec = TextCodec(segmenter, vocab, "gl", "en")
    for constraints in (
        LineConstraints(prefix="a▁b"),
        LineConstraints(require=["▁"]),
    ):
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
        ({"require": [[]] * 6, "sample": True}, "sample cannot be combined with require"),
    ],
)
def test_wrong_constraints_are_an_error(translator, options, message):
    with pytest.raises(UserError, match=message):
        list(translator.stream(LINES, **options))


def test_encoded_sentences_have_no_constraints(translator):
    with pytest.raises(UserError, match="unknown option prefix"):
        translator.translate_ids([np.array([4])], prefix=["a"])
