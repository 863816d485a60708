"""Placeholders, URLs, numbers and markup survive whatever a translator does, or are reported."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from nmt.apps.documents.lines import (
    Line,
    Lines,
    Link,
    Phrases,
    Translate,
    Translated,
    from_function,
)
from nmt.apps.documents.markup import translate_segments
from nmt.apps.documents.segments import Mark, Segment, Token, joined, plain
from nmt.data.protect import compare, spans
from tests.apps.documents.translators import Reversing, upper
from tests.data.test_protect import PROTECTED


def hostile(seed: int, required: bool) -> Translate:
    """Return a translator that drops, repeats, spells and moves words, and aligns at random."""
    rng = Random(seed)

    def words_of(line: str) -> list[str]:
        words = line.split()
        rng.shuffle(words)
        kept = [w for w in words if rng.random() < 0.8]
        return [rng.choice((w, w, w.upper(), " ".join(w), f"{w} {w}", "%d")) for w in kept]

    def translate(lines: Sequence[str], require: Phrases, align: bool) -> list[Translated] | None:
        if require is not None and not required:
            return None
        results = []
        for index, line in enumerate(lines):
            text = " ".join([*words_of(line), *(require[index] if require else ())])
            sources = [m.span() for m in re.finditer(r"\S+", line)]
            targets = [m.span() for m in re.finditer(r"\S+", text)]
            aligned = [target for target in targets if rng.random() < 0.9]
            links = [Link(*rng.choice(sources), *target) for target in aligned]
            results.append(Translated(text, links if rng.random() < 0.9 else None))
        return results

    return translate


words = st.sampled_from(["one", "two", "three.", "Four", "five,", "(six)", *PROTECTED])
lines = st.lists(words, min_size=1, max_size=8).map(" ".join)


@given(lines, st.integers(0, 1000), st.booleans())
def test_protected_parts_survive_or_the_line_has_a_problem(
    line: str, seed: int, required: bool
) -> None:
    [result] = Lines(hostile(seed, required)).translate([Line(line)])
    assert bool(compare(line, result.text).problems) <= bool(result.problem)
    assert result.text.strip()


@given(lines)
def test_an_honest_translator_needs_no_second_attempt(line: str) -> None:
    [result] = Lines(Reversing()).translate([Line(line)])
    if len(spans(line)) == sum(word in PROTECTED for word in line.split()):
        assert sorted(result.text.split()) == sorted(line.split())


@st.composite
def marked_text(draw: st.DrawFn, depth: int = 3) -> list[Token]:
    """Draw text with nested pairs, single marks, and marks that the model sees as text."""
    tokens: list[Token] = []
    for _ in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(["text", "text", "pair", "single", "code"]))
        if kind == "text" or (kind == "pair" and not depth):
            tokens.append(draw(lines) + draw(st.sampled_from([" ", ". "])))
        elif kind == "pair":
            name = draw(st.sampled_from("ab"))
            inside = draw(marked_text(depth - 1))
            tokens += [Mark("open", (f"<{name}>",), name), *inside]
            tokens += [Mark("close", (f"</{name}>",), name), " "]
        elif kind == "single":
            tokens.append(Mark("single", ("<br>",)))
        else:
            tokens.append(Mark("single", ("<code>x()</code>",), text="x()"))
            tokens.append(" ")
    return joined(tokens)


def nesting(tokens: Sequence[Token]) -> int:
    """Return the number of pairs; fail if they are not properly nested."""
    stack, pairs = [], 0
    for mark in (token for token in tokens if isinstance(token, Mark)):
        if mark.kind == "open":
            stack.append(mark.name)
        elif mark.kind == "close":
            assert stack.pop() == mark.name
            pairs += 1
    assert stack == []
    return pairs


@given(marked_text(), st.integers(0, 1000), st.booleans())
def test_each_mark_is_there_once_and_pairs_are_nested(
    tokens: list[Token], seed: int, required: bool
) -> None:
    segment = Segment(tokens, "line 1")
    translate_segments([segment], Lines(hostile(seed, required)), "en")
    marks = [{id(t) for t in side if isinstance(t, Mark)} for side in (tokens, segment.result)]
    assert marks[0] == marks[1]
    assert len([t for t in segment.result if isinstance(t, Mark)]) == len(marks[0])
    assert nesting(segment.result) == nesting(tokens)
    if not segment.problem:
        assert compare(segment.text, plain(segment.result)).problems == []


@given(marked_text())
def test_a_translator_without_alignment_keeps_what_is_in_each_pair(tokens: list[Token]) -> None:
    segment = Segment(tokens, "line 1")
    translate_segments([segment], Lines(from_function(upper)), "en")
    before = "".join(t.upper() if isinstance(t, str) else str(t).upper() for t in tokens)
    after = "".join(str(t).upper() for t in segment.result)
    assert re.sub(r"\s+", "", after) == re.sub(r"\s+", "", before)  # it may be around a mark
    assert not segment.problem


def test_words_of_two_sentences_and_inside_of_words_keep_their_marks() -> None:
    def run(text: str) -> str:
        tokens: list[Token] = []
        for part in re.split(r"(<[^>]*>)", text):
            kind = "close" if part.startswith("</") else "open"
            is_mark = part.startswith("<")
            tokens.append(Mark(kind, (part,), part.strip("</>")) if is_mark else part)  # type: ignore[arg-type]
        segment = Segment(joined(tokens), "line 1")
        translate_segments([segment], Lines(Reversing()), "en")
        assert not segment.note
        return "".join(map(str, segment.result))

    assert run("One <b>two three</b> four.") == "four. <b>three two</b> One"
    assert run("Drink H<i>2</i>O now") == "now H<i>2</i>O Drink"
    assert run("<b><i>One</i> two</b>") == "<b>two <i>One</i></b>"
