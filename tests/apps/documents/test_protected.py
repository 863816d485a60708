"""Placeholders, URLs, numbers and markup survive whatever a translator does, or are reported."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.apps.documents.document import translate_bytes
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
from nmt.text.protect import compare, spans
from tests.apps.documents.translators import Reversing, upper
from tests.text.test_protect import PROTECTED

LANGS = ("en", "it")


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


@given(lines, lines, lines, lines)
def test_a_second_translation_never_lacks_more(source, first, searched, part):
    [best] = attempts(first, searched, part).translate([Line(source)])
    before, after = compare(source, first), compare(source, best.text)
    assert best.text in (first, source) or after.errors < before.errors
    assert bool(after.problems) == bool(best.problem)


@given(lines, st.integers(0, 1000), st.booleans())
def test_protected_parts_survive_or_the_line_has_a_problem(line, seed, required):
    [result] = Lines(hostile(seed, required)).translate([Line(line)])
    assert bool(compare(line, result.text).problems) <= bool(result.problem)
    assert result.text.strip()


def attempts(first: str, searched: str | None, parts: str = "") -> Lines:
    """Return lines of a translator of one line: as it is, with required parts, and of each part."""
    calls = iter([first] if searched is None else [first, searched])

    def translate(lines: Sequence[str], require: Phrases, align: bool) -> list[Translated] | None:
        if require is not None and searched is None:
            return None
        text = next(calls, parts)
        return [Translated(text) for _ in lines]

    return Lines(translate)


@pytest.mark.parametrize(
    ("source", "first", "searched", "result"),
    [
        # the first one has it in other words
        ("12 apples.", "사과 12개.", "사과 12 92개.", "사과 12개."),
        ("1 000 people", "1,000 persone", "1 000 1 000", "1,000 persone"),
        ("Suyun %50 geldi.", "50% of the water came.", "x", "50% of the water came."),
        # better
        ("12 apples.", "사과 92개.", "사과 12개.", "사과 12개."),
        ("two of {a}, 12", "2 di, 12", "2 di {a}, 12", "2 di {a}, 12"),
        ("now {a}", "{a} {b}", "ora {a}", "ora {a}"),
    ],
)
def test_the_better_translation_stays(source: str, first: str, searched: str, result: str) -> None:
    [best] = attempts(first, searched).translate([Line(source)])
    assert best == (result, None, "", "")


@pytest.mark.parametrize(
    ("source", "first", "searched", "lost"),
    [
        ("12 apples.", "사과 92개.", "사과 12 92개.", "12"),  # the wrong number is still there
        ("12 apples.", "사과.", "사과 12 12개.", "12"),
        ("12 apples.", "le mele.", "le mele le mele 12.", "12"),
        ("12 apples.", "le mele.", "le altre.", "12"),
        ("{a} and {b}", "e {a}", "{a} e {b} {b}", "{b}"),
        ("Call +34 600-123", "tel 600", "tel 34600600600600600600600123", "34 600-123"),
        ("{a} and {b}", "e {a}", "", "{b}"),
    ],
)
def test_a_worse_translation_never_replaces_the_first(source, first, searched, lost):
    [best] = attempts(first, searched, "7").translate([Line(source)])
    assert best.text == first
    assert lost in best.problem
    assert not best.note


def test_text_between_the_parts_is_the_last_attempt() -> None:
    [best] = attempts("la casa", None, "casa").translate([Line("The house {a}.")])
    assert best.text == "casa {a}."
    assert (best.problem, bool(best.note)) == ("", True)
    [best] = attempts("la casa", None, "casa casa").translate([Line("The house {a}.")])
    assert best.text == "la casa"
    assert "{a}" in best.problem


@given(lines)
def test_an_honest_translator_needs_no_second_attempt(line: str) -> None:
    [result] = Lines(Reversing()).translate([Line(line)])
    if [span.text for span in spans(line)] == [w for w in line.split() if w in PROTECTED]:
        assert sorted(result.text.split()) == sorted(line.split())


def test_flags_of_a_catalog_say_what_is_protected() -> None:
    flags = ["", "c-format", "no-c-format", "fuzzy, qt-format"]
    units = (f'#, {flag}\nmsgid "The {i} %s %n"\nmsgstr ""\n\n' for i, flag in enumerate(flags))
    data, langs = "".join(units), ("en", "it")
    translate = from_function(lambda lines: ["x" if "%s" in line else "" for line in lines])
    _, report = translate_bytes(data.encode(), "a.po", langs, translate)
    lost = [remark.problem.partition(": ")[2] for remark in report.problems]
    assert lost == ["%s, 0", "%s, %n, 1", "2", "%n, 3"]


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
def test_each_mark_is_there_once_and_pairs_are_nested(tokens, seed, required):
    segment = Segment(tokens, "line 1")
    translate_segments([segment], Lines(hostile(seed, required)), LANGS)
    marks = [{id(t) for t in side if isinstance(t, Mark)} for side in (tokens, segment.result)]
    assert marks[0] == marks[1]
    assert len([t for t in segment.result if isinstance(t, Mark)]) == len(marks[0])
    assert nesting(segment.result) == nesting(tokens)
    if not segment.problem:
        assert compare(segment.text, plain(segment.result)).problems == []


@given(marked_text())
def test_a_translator_without_alignment_keeps_what_is_in_each_pair(tokens: list[Token]) -> None:
    segment = Segment(tokens, "line 1")
    translate_segments([segment], Lines(from_function(upper)), LANGS)
    before = "".join(t.upper() if isinstance(t, str) else str(t).upper() for t in tokens)
    after = "".join(str(t).upper() for t in segment.result)
    assert re.sub(r"\s+", "", after) == re.sub(r"\s+", "", before)  # it may be around a mark
    assert not segment.problem


def test_thousands_of_marks_in_a_paragraph_take_little_time() -> None:
    tokens: list[Token] = []
    for number in range(4000):
        name = f"b{number}"
        tokens += ["one ", Mark("open", (), name), "two", Mark("close", (), name), " "]
    segment = Segment(joined(tokens), "line 1")
    start = time.process_time()
    translate_segments([segment], Lines(Reversing()), LANGS)
    assert not segment.note
    assert time.process_time() - start < 10  # usually 0.3; in quadratic time 70


def test_learned_abbreviations_end_no_sentence() -> None:
    segment = Segment(["Kyk bv. Pretoria. Dit is ver."], "line 1")
    lines: list[str] = []

    def record(some: list[str]) -> list[str]:
        lines.extend(some)
        return some

    translate_segments([segment], Lines(from_function(record)), ("af", "en"), ["bv"])
    assert lines == ["Kyk bv. Pretoria.", "Dit is ver."]


def test_words_of_two_sentences_and_inside_of_words_keep_their_marks() -> None:
    def run(text: str) -> str:
        tokens: list[Token] = []
        for part in re.split(r"(<[^>]*>)", text):
            kind = "close" if part.startswith("</") else "open"
            is_mark = part.startswith("<")
            tokens.append(Mark(kind, (part,), part.strip("</>")) if is_mark else part)  # type: ignore[arg-type]
        segment = Segment(joined(tokens), "line 1")
        translate_segments([segment], Lines(Reversing()), LANGS)
        assert not segment.note
        return "".join(map(str, segment.result))

    assert run("One <b>two three</b> four.") == "four. <b>three two</b> One"
    assert run("Drink H<i>2</i>O now") == "now H<i>2</i>O Drink"
    assert run("<b><i>One</i> two</b>") == "<b>two <i>One</i></b>"
