"""What lines wish for: prefixes, required and forbidden phrases; on stubs and through text."""

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
from nmt.data.moses import Moses
from nmt.data.segment import SentencePiece, Whitespace
from nmt.data.vocab import UNK, Vocab
from nmt.decoding.codec import TextCodec
from nmt.decoding.constraints import RequiredPhrases, Requirement, Symbol
from nmt.decoding.phrases import BannedPhrases, Phrases
from nmt.decoding.search import Hypothesis, beam_search
from nmt.decoding.surfaces import PieceStrings
from nmt.decoding.translator import Translator
from nmt.decoding.wishes import LineConstraints
from nmt.errors import UserError
from tests.decoding.exhaustive import Prefix as Ids
from tests.decoding.exhaustive import StubState, outputs, random_scores
from tests.decoding.untrained import LINES, untrained

WORDS = ["\0", "\0", " ", "<unk> ", "a ", "b "]  # what the six types of the stubs spell


@pytest.fixture(scope="module")
def translator() -> Translator:
    return untrained()


def has(ids: Ids, phrase: Sequence[int]) -> bool:
    return any(ids[i : i + len(phrase)] == tuple(phrase) for i in range(len(ids)))


# ---------------------------------------------------------------- required, on stubs


def requirement(phrases: Sequence[Ids]) -> Requirement:
    """An UNK is the piece ``x``."""
    symbols: list[list[Symbol]] = [["x" if i == UNK else i for i in phrase] for phrase in phrases]
    return Requirement([], symbols, lambda s: f"{s} " if isinstance(s, str) else WORDS[s])


def with_required(
    seed: int, phrases: Sequence[Sequence[Ids]], beam: int, limit: int, n_best: int = 1
) -> list[list[Hypothesis]]:
    limits = torch.full((len(phrases),), limit)
    rule = RequiredPhrases(list(map(requirement, phrases)), WORDS, limits)
    state = StubState(random_scores(seed, types=6), range(len(phrases)), beam)
    return beam_search(
        state, beam, limits, 0.6, torch.tensor([0, 1, 3]), n_best, [rule], rule.choose
    )


@pytest.mark.parametrize(
    "phrases", [[(4,)], [(4, 5)], [(4, 4), (5,)], [(5, 4, 5)], [(4, 5), (5, 4)]]
)
def test_a_wide_beam_finds_every_output_that_says_the_phrases(phrases: list[Ids]) -> None:
    (found,) = with_required(60, [phrases], 200, 5, n_best=200)
    every = outputs(random_scores(60, types=6), 0, 5, 0.6, [0, 1, 3])
    expected = {(o[0], o[3]): o[2] for o in every if all(has(o[0], p) for p in phrases)}
    assert expected
    best = max(expected.values())
    assert found[0].score == pytest.approx(best, rel=1e-5)
    for f in found:
        assert f.score == pytest.approx(expected[tuple(f.ids), f.finished], rel=1e-5)
    if phrases != [(4, 5), (5, 4)]:  # phrases that share tokens need less room than is kept
        assert len(found) == len(expected)


@settings(max_examples=60, deadline=None, database=None, derandomize=True)
@given(
    seed=st.integers(0, 1000),
    phrases=st.lists(
        st.lists(st.lists(st.integers(3, 5), min_size=1, max_size=3).map(tuple), max_size=3),
        min_size=1,
        max_size=3,
    ),
    beam=st.integers(1, 5),
    spare=st.integers(0, 4),
)
def test_every_phrase_is_said_if_it_fits(
    seed: int, phrases: list[list[Ids]], beam: int, spare: int
) -> None:
    """Whatever the beam, UNK inside a phrase too; and no UNK is said but as part of one."""
    limit = max(1, max(sum(map(len, of_one)) for of_one in phrases) + spare)
    for of_one, found in zip(phrases, with_required(seed, phrases, beam, limit), strict=True):
        (best,) = found
        assert all(has(tuple(best.ids), phrase) for phrase in of_one)
        inside = {
            place + i
            for phrase in of_one
            for place in range(len(best.ids))
            if tuple(best.ids[place : place + len(phrase)]) == phrase
            for i in range(len(phrase))
        }
        assert all(place in inside for place, token in enumerate(best.ids) if token == UNK)


def test_sentences_without_phrases_are_searched_plainly() -> None:
    plain = beam_search(
        StubState(random_scores(61, types=6), [1], 4),
        4,
        torch.tensor([6]),
        0.6,
        torch.tensor([0, 1, 3]),
        4,
    )
    assert with_required(61, [[(4, 4)], []], 4, 6, n_best=4)[1] == plain[0]


# ---------------------------------------------------------------- forbidden, on stubs


class Letters:
    """A segmenter of which every piece is what it spells."""

    def surface(self, piece: str) -> str:
        return piece


def forbidding(pieces: Sequence[str], patterns: Sequence[str], limit: int) -> list[str]:
    """Text of all outputs, by a beam that is wide enough, over pieces that spell themselves."""
    vocab = Vocab(pieces, np.ones((len(pieces), 2), dtype=np.int64))
    surfaces = PieceStrings(Letters(), vocab, "en")  # type: ignore[arg-type]
    limits = torch.tensor([limit])
    rule = BannedPhrases(surfaces, [[Phrases(surfaces, patterns)]], limits)
    types = len(pieces) + 4
    state = StubState(random_scores(70, types=types), [0], 3000)
    found = beam_search(state, 3000, limits, 0.6, torch.tensor([0, 1, 3]), 3000, [rule])
    return sorted(("".join(vocab.pieces(f.ids)), f.finished) for f in found[0])  # type: ignore[misc]


@pytest.mark.parametrize(
    "pieces", [["a", "b", "a ", "b ", "ab "], [" a", " b", "a", "b", " ab"], ["a", "b", "ba", " "]]
)
@pytest.mark.parametrize("patterns", [[" ab "], ["ab"], [" a b "], [" ba ", " b "], ["aba", " a "]])
def test_what_is_forbidden_is_never_said_and_all_else_is(
    pieces: list[str], patterns: list[str]
) -> None:
    limit = 4
    expected = []
    for size in range(1, limit + 1):
        for said in itertools.product(pieces, repeat=size):
            # an output that the limit cuts ends its last word too
            if not any(p in f" {''.join(said)} " for p in patterns):
                expected += [("".join(said), True)] if size < limit else [("".join(said), False)]
    assert forbidding(pieces, patterns, limit) == sorted(expected)


# ---------------------------------------------------------------- through text

TARGETS = ["the dog", "water", "sea, sir", "don't", "it is raining", "zebra №7", "in the old town"]
wish = st.fixed_dictionaries(
    {
        "prefix": st.sampled_from(["", " ", "the", "fresh water", "Ω the"]),
        "require": st.lists(st.sampled_from(TARGETS), max_size=2, unique=True),
        "forbid": st.lists(st.sampled_from(["dog", "the", "cat drinks", "."]), max_size=2),
    }
)


def spaced(text: str) -> str:
    return f" {text} "


@settings(max_examples=25, deadline=None, database=None, derandomize=True)
@given(
    items=st.lists(
        st.tuples(st.sampled_from([*LINES, "", "\u3000", "Ω≈ç", "o can " * 9]), wish), max_size=4
    ),
    beam=st.integers(1, 4),
)
def test_wishes_come_true_in_the_text(
    translator: Translator, items: list[tuple[str, dict[str, Any]]], beam: int
) -> None:
    lines = [line for line, _ in items]
    wishes = {name: [w[name] for _, w in items] for name in ("prefix", "require", "forbid")}
    # a phrase that is required is not forbidden as well
    wishes["forbid"] = [
        [f for f in forbid if not any(f in r for r in require)]
        for forbid, require in zip(wishes["forbid"], wishes["require"], strict=True)
    ]
    found = list(translator.stream(lines, beam=beam, n_best=1, **wishes))
    assert len(found) == len(lines)
    segmenter = translator.segmenter

    def words(text: str) -> str:
        return "".join(map(segmenter.surface, segmenter.encode(text, "en")))

    for line, prefix, require, forbid, ((best,)) in zip(
        lines, *(wishes[n] for n in ("prefix", "require", "forbid")), found, strict=True
    ):
        if not line.strip():
            assert best.text == ""
            continue
        said = spaced("".join(map(segmenter.surface, best.pieces)))
        start = words(prefix) if prefix.strip() else ""
        assert said.startswith(f" {start}")
        for phrase in require:
            assert spaced(words(phrase).strip()) in said, (line, best)
        rest = spaced(said[len(start) :].strip())
        room = len(segmenter.encode(line, "gl")) + 4
        for phrase in forbid:
            if sum(len(segmenter.encode(r, "en")) for r in require) + len(start) < room:
                assert spaced(words(phrase).strip()) not in rest, (line, best)
        assert "<unk>" not in best.text


@settings(max_examples=30, deadline=None, database=None, derandomize=True)
@given(
    items=st.lists(
        st.tuples(st.one_of(st.sampled_from(LINES), st.text(max_size=9)), wish), max_size=3
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
            "groups": st.integers(1, 3),
            "diversity": st.sampled_from([0.0, 2.0]),
            "no_repeat_ngram": st.integers(0, 3),
            "forbid_all": st.sampled_from([("the",), ("dog", "a b c")]),
        },
    ),
    wished=st.sets(st.sampled_from(["prefix", "require", "forbid"])),
)
def test_whatever_the_options_as_many_lines_out_as_in_or_an_error(
    translator: Translator,
    items: list[tuple[str, dict[str, Any]]],
    options: dict[str, Any],
    wished: set[str],
) -> None:
    lines = [line for line, _ in items]
    wishes = {name: [w[name] for _, w in items] for name in wished}
    try:
        found = list(translator.stream(lines, **options, **wishes))
    except UserError as error:
        assert any(  # noqa: PT017, either way is right
            said in str(error)
            for said in (
                "contradict",
                "nothing without",
                "forbidden",
                "of at least",
                "equal groups",
            )
        )
        return
    assert len(found) == len(lines)
    for line, of_line in zip(lines, found, strict=True):
        assert 1 <= len(of_line) <= options.get("n_best", 1)
        if not line.strip():
            assert [h.text for h in of_line] == [""]


def test_a_prefix_is_scored_as_its_tokens(translator: Translator) -> None:
    free = translator.n_best(LINES, 1)
    forced = list(translator.stream(LINES, prefix=[of_line[0].text for of_line in free]))
    for line, (plain,), (again,) in zip(LINES, free, forced, strict=True):
        if again.pieces == plain.pieces:
            assert again.log_prob == pytest.approx(plain.log_prob, abs=1e-3), line
    assert any(a[0].pieces == f[0].pieces for a, f in zip(forced, free, strict=True))


def test_forbid_all_is_for_every_line(translator: Translator) -> None:
    plain = translator.translate(LINES)
    words = sorted({w for text in plain for w in text.split() if w.isalpha()})[:3]
    for text in translator.translate(LINES, forbid_all=words):
        assert not set(text.split()) & set(words)


@pytest.mark.parametrize("batch_tokens", [1, 50])
def test_wishes_do_not_depend_on_the_batch(translator: Translator, batch_tokens: int) -> None:
    wishes: dict[str, Any] = {
        "prefix": ["", "the", "", "water", "", "a"],
        "require": [["dog"], [], ["old town", "cat"], [], ["sea"], []],
        "forbid": [[], ["dog"], [], ["the", "a"], [], ["the"]],
    }
    expected = [of_line[0] for of_line in translator.stream(LINES, **wishes)]
    found = [h for (h,) in translator.stream(LINES, 4, batch_tokens=batch_tokens, **wishes)]
    assert [h.text for h in found] == [h.text for h in expected]
    turned = {name: values[::-1] for name, values in wishes.items()}
    backwards = [h for (h,) in translator.stream(LINES[::-1], **turned)]
    assert [h.text for h in backwards[::-1]] == [h.text for h in expected]


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
def test_unknown_phrases_are_all_said(
    translator: Translator, prefix: str, phrases: list[str], beam: int
) -> None:
    """To the model they are all UNK; one UNK says one of them only."""
    for allow_unk in (False, True):
        ((best,),) = translator.stream(
            ["pan"], prefix=[prefix], require=[phrases], beam=beam, allow_unk=allow_unk
        )
        said = spaced("".join(map(translator.segmenter.surface, best.pieces)))
        assert said.startswith(f" {prefix}")
        for phrase in phrases:
            assert spaced(phrase) in said, (said, phrases)


# ---------------------------------------------------------------- patterns


def test_a_phrase_is_words_and_in_scripts_without_spaces_a_sequence() -> None:
    vocab = Vocab(["a"], np.ones((1, 2), dtype=np.int64))
    surfaces = PieceStrings(Whitespace(Moses(True, nfc=False)), vocab, "ja")
    assert surfaces.patterns("the cat ") == [" the cat "]
    assert surfaces.patterns("東京") == ["東京"]
    assert surfaces.patterns("東京 Tower") == ["東京 Tower "]


def test_pieces_of_sentencepiece_begin_words() -> None:
    text = [("a cat sat on a mat", "cats and mats")] * 20
    segmenter = SentencePiece.learn(
        SentencePieceConfig(vocab_size=30), Moses(False, nfc=False), "gl", "en", lambda: iter(text)
    )
    pieces = segmenter.encode("a cat sat", "en")
    assert "".join(map(segmenter.surface, pieces)) == " a cat sat"


def test_a_sign_that_the_segmenter_replaces_is_refused(translator: Translator) -> None:
    """U+2581 is SentencePiece's own sign for a space; byte-pair codes keep it as it is."""
    text = [("a cat sat on a mat", "cats and mats")] * 20
    segmenter = SentencePiece.learn(
        SentencePieceConfig(vocab_size=30), Moses(False, nfc=False), "gl", "en", lambda: iter(text)
    )
    vocab = Vocab(["a"], np.ones((1, 2), dtype=np.int64))
    sentences = TextCodec(segmenter, vocab, "gl", "en")
    for wish in (
        LineConstraints(prefix="a▁b"),
        LineConstraints(require=["▁"]),
        LineConstraints(forbid=["a ▁"]),
    ):
        with pytest.raises(UserError, match=r"line 7: .*U\+2581.*'.*▁.*'"):
            sentences.of_line(7, "a cat", wish)
    with pytest.raises(UserError, match=r"forbid_all: .*U\+2581"):
        sentences.patterns(["a▁"], at="forbid_all")
    (found,) = translator.stream(["pan"], prefix=["a ▁"], require=[["c ▁"]], beam=2)
    assert found[0].text.startswith("a ▁ ")
    assert "c ▁" in found[0].text


def test_phrases_of_bytes_are_found_as_others_are() -> None:
    config = SentencePieceConfig(vocab_size=330, byte_fallback=True)
    translator = untrained(segment=config)
    segmenter, surfaces = translator.segmenter, translator.sentences.surfaces

    def said(phrase: str, text: str) -> bool:
        spelled = f" {surfaces.spelled(segmenter.encode(text, 'en')).strip(' ')} "
        return any(pattern in spelled for pattern in surfaces.patterns(phrase))

    assert said("the \u65e5 dog", "it is the \u65e5 dog")
    assert not said("the \u65e5 dog", "it is the \u672c dog")
    assert said("\u65e5", "it is \u672c\u65e5\u672c")  # written without spaces
    assert said("\u017c", "the \u017c dog")
    assert not said("\u017c", "the \u017ca dog")  # part of a word
    require = [["\u65e5\u672c", "dog"], *([["\u017c"]] * (len(LINES) - 1))]
    found = translator.translate(LINES, require=require, max_len_offset=20)
    assert "\u65e5\u672c" in found[0]
    assert "dog" in found[0]
    assert all("\u017c" in line for line in found[1:])
    assert translator.translate(["\u65e5\u672c \u65e5"], forbid_all=["\u65e5", "dog"])


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"prefix": ["a"]}, "prefix ends before line 2"),
        ({"require": [[]] * 9}, "require has more than the 6 lines"),
        (
            {"require": [["the dog"]] + [[]] * 5, "forbid": [["dog"]] * 6},
            "'the dog' is required and",
        ),
        ({"require": [["the dog"]] + [[]] * 5, "forbid_all": ["dog"]}, "'dog' is forbidden"),
        ({"require": [[]] * 6, "sample": True}, "sample and require contradict each other"),
        ({"require": [[]] * 6, "groups": 2}, "groups and require contradict each other"),
        ({"forbid_all": [" "]}, "forbid_all: a phrase is blank"),
    ],
)
def test_wishes_that_cannot_be(translator: Translator, options: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        list(translator.stream(LINES, **options))


def test_ids_have_no_wishes(translator: Translator) -> None:
    with pytest.raises(UserError, match="no option prefix"):
        translator.translate_ids([np.array([4])], prefix=["a"])
