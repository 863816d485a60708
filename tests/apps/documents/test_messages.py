"""Messages of ICU: each branch has a translation, or the message stays and is listed."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.apps.documents.lines import from_function
from nmt.apps.documents.messages import NotReadable, message_of
from nmt.apps.documents.segments import Segment
from tests.apps.documents.test_formats import run, translated
from tests.apps.documents.test_protected import hostile
from tests.apps.documents.translators import same, upper

ICU = "left untranslated (message of ICU)"
WORDS = ["one", "two files", "three.", "Four", "{name}", "l'eau", "{n, number, integer}"]
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)


@st.composite
def messages(draw: st.DrawFn, depth: int = 2, plural: bool = False) -> str:
    """Draw a message in which all words can be translated."""
    parts = [draw(texts)]
    if depth:
        kind = draw(st.sampled_from(["plural", "selectordinal", "select"]))
        offset = draw(st.sampled_from(["", " offset:1"])) if kind == "plural" else ""
        names = ["male", "other"] if kind == "select" else ["=0", "one", "other"]
        inside = plural or kind != "select"
        branches = " ".join(f"{name} {{{draw(messages(depth - 1, inside))}}}" for name in names)
        parts.append(f"{{arg{depth}, {kind},{offset} {branches}}}")
        parts.append(draw(st.sampled_from(["", draw(texts)])))
    if plural:
        parts.insert(0, "#")
    return " ".join(parts)


def skeleton(text: str) -> object:
    message = message_of(Segment([text], ""))
    return message and message.skeleton()


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(messages())
def test_each_branch_is_translated_and_the_syntax_stays(text: str) -> None:
    seen: list[str] = []

    def record(lines: list[str]) -> list[str]:
        seen.extend(lines)
        return [re.sub(r"\{[^{}]*\}", lambda m: m[0].lower(), line.upper()) for line in lines]

    result = json.loads(translated("a.json", json.dumps([text]).encode(), from_function(record)))
    assert skeleton(result[0]) == skeleton(text)
    assert result[0].lower() == text.lower()
    words = re.findall(r"two files|three|l'eau", text)
    assert all(word.upper() in result[0] and word not in result[0] for word in words)
    assert not any("plural" in line or "select" in line for line in seen)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(messages(), st.integers(0, 1000))
def test_no_translator_makes_a_message_that_cannot_be_read(text: str, seed: int) -> None:
    data = json.dumps([text]).encode()
    result, report = run("a.json", data, hostile(seed, True))
    [value] = json.loads(result)
    assert skeleton(value) == skeleton(text)
    if any("not translated" in remark.problem for remark in report.problems):
        assert value == text  # not in two languages


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(messages())
def test_an_identical_translation_is_the_same_file(text: str) -> None:
    for name, data in (("a.json", json.dumps({"a": text})), ("a.html", f"<p>{text}</p>\n")):
        assert run(name, data.encode(), from_function(same))[0] == data.encode()


NESTED = "{n, plural, =0 {none} one {# file} other {{g, select, male {his #} other {their #}}}}"


@pytest.mark.parametrize(
    ("name", "source", "result"),
    [
        ("a.json", f'["{NESTED}"]', f'["{NESTED}"]'),
        ("a.po", f'msgid "{NESTED}"\nmsgstr ""\n', f'msgstr "{NESTED}"'),
        ("a.txt", f"You have {NESTED} now.\n", f"You have {NESTED} now."),
        ("a.html", f"<p>You have {NESTED} <b>now</b>.", f"<p>You have {NESTED} <b>now</b>."),
        ("a.html", "<p>{n, plural, other {<b>#</b> A &amp; b}}", "other {<b>#</b> A &amp; b}}"),
        ("a.xlf", "<xliff><file><trans-unit id='1'><source>{n, plural, other {# file}}</source>"
         "</trans-unit></file></xliff>", ">{n, plural, other {# file}}</target>"),
        ("a.json", '["it\'\'s {n, plural, other {l\'\'eau \'{\'9\'}\' \'#\' #}}"]',
         '["it\'\'s {n, plural, other {l\'\'eau \'{\'9\'}\' \'#\' #}}"]'),
    ],
)  # fmt: skip
def test_each_format_has_messages(name: str, source: str, result: str) -> None:
    words = r"\b(?:none|files?|his|their|You|have|now|it|eau|[Ab])\b"
    shouted = re.sub(words, lambda found: found[0].upper(), result)
    shouted = shouted.replace("<B>", "<b>").replace("</B>", "</b>").replace("''s", "''S")
    assert shouted.replace("l''", "L''") in translated(name, source.encode())


@pytest.mark.parametrize(
    "text",
    [
        "{n, plural, one {# file}",
        "{n, plural, one {# file} other}",
        "{n, plural, }",
        "{n, plural, one # other {x}}",
        "{0, choice, 0#no files|1#one file}",
        "{n, select, a {b} <i>c</i> {d} other {e}}",
        "{a, select, x {" * 30 + "b" + "}}" * 30,
    ],
)
def test_what_is_not_complete_stays_and_is_listed(text: str) -> None:
    for name, data in (("a.json", json.dumps(["word", f"word {text}"])), ("a.txt", f"word {text}")):
        result, report = run(name, data.encode(), from_function(upper))
        assert text in result.decode()
        assert report.others == {ICU: 1}
        assert report.places == {ICU: ["line 1"]}


def test_a_tag_between_branches_and_too_many_levels_are_not_readable() -> None:
    for text in ("{n, plural, one {a} b other {c}}", "{n, select, x {" * 30 + "b" + "}}" * 30):
        with pytest.raises(NotReadable):
            skeleton(text)


@pytest.mark.parametrize("text", ["{n}", "{n, number}", "{ a, b }", "'{n, plural, x'", "{", "it's"])
def test_other_braces_are_ordinary_text(text: str) -> None:
    assert skeleton(text) is None


def test_an_apostrophe_of_a_translation_does_not_quote_a_brace() -> None:
    french = from_function(lambda lines: [line.replace("file", "l'") for line in lines])
    source = '["{n, plural, one {file} other {file {x} file}}"]'
    assert json.loads(translated("a.json", source.encode(), french)) == [
        "{n, plural, one {l''} other {l' {x} l''}}"
    ]


def test_a_message_with_a_lost_part_stays_as_a_whole() -> None:
    translate = from_function(lambda lines: ["" if "file" in line else "ja" for line in lines])
    source = b'["{n, plural, one {file} other {two}}"]'
    result, report = run("a.json", source, translate)
    assert result == source
    assert [remark.place for remark in report.problems] == ["line 1"]
