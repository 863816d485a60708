"""What is protected, and what a translation does to it: placeholders, URLs, numbers."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.text.protect import compare, has_words, repair, spans

PROTECTED = [
    "%s", "%(name)s", "%1$d", "%.2f", "%05d", "%%", "%name%", "{name}", "{0:.2f}", "{{ user }}",
    "${path}", "%{count}", "{n, plural, one {# file} other {# files}}",
    "{g, select, a {{n, plural, one {# file} other {# files}}} other {x}}", "&amp;", "&#160;",
    "https://x.org/a?b=1&c=2", "www.x.org/a", "me.too@x-y.org", "1,000.5",
    "2026", "\u0663\u0664", "$HOME", "$USER$", "$t(files:save)", r"C:\Users\me\a.txt",
    r"C:\Program Files\nmt\a", r"\\server\share", "/usr/lib/x.so", "~/.config/nmt", "-5", "2½", "½",
]  # fmt: skip


def texts_of(line: str, *flags: str) -> list[str]:
    return [span.text for span in spans(line, flags=flags)]


@pytest.mark.parametrize("part", PROTECTED)
def test_each_kind_is_found_as_a_whole(part: str) -> None:
    line = f"See {part}, then ({part}) or {part}."
    assert texts_of(line) == [part] * 3
    assert compare(line, line.replace(part, "x", 1)).problems == [part]
    assert not has_words(f"{part} - {part}")


@pytest.mark.parametrize("part", ["https://x.org/a", "me@x.org", "{name}", "$HOME", "%s", "12"])
def test_text_without_spaces_may_stand_next_to_it(part: str) -> None:
    assert texts_of(f"これは{part}です。") == [part]
    assert texts_of(f"{part}에서") == [part]


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("100% sure, 50% or 100%, AT&T { a b } and <b>", ["100", "50", "100"]),
        ("50% of the, 50 % of, 50 %of, 50%of", ["50"] * 4),
        ("%50 daha, %50si, %6s\u0131, %20den, %30u, 20 %-ige", ["50", "50", "6", "20", "30", "20"]),
        ("%2d:%2d, %5.2f, %-10s, %+d", ["%2d", "%2d", "%5.2f", "%-10s", "%+d"]),
        ("%ds, %dpx, %d%%, 5 %s", ["%d", "%d", "%d", "%%", "5", "%s"]),
        ("12個 2024年5月 10kg A4 H2O №5", ["12", "2024", "5", "10", "4", "2", "5"]),
        ("5 apples @3.50", ["5", "3.50"]),
        ("and/or, km/h, he/she/it, </b></i> 3/4/5", ["3/4/5"]),
        (r"C:\ or C:\Users\... and a\b", ["C:\\", "C:\\Users\\"]),
        ("-5, (\u22125), x-5, 3-5, -$5, a .5", ["-5", "\u22125", "5", "3-5", "-$5", ".5"]),
        ("from 5 to 10, 15; (20) 25", ["5", "10", "15", "20", "25"]),
    ],
)
def test_numbers_and_percentages(line: str, parts: list[str]) -> None:
    assert texts_of(line) == parts


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        ("", ["%s", "5", "1", "50", "{x}"]),
        ("fuzzy", ["%s", "5", "1", "50", "{x}"]),
        ("c-format", ["%s", "%n", "%5i", "1", "50", "{x}"]),
        ("no-c-format", ["5", "1", "50", "{x}"]),
        ("no-c-format python-format", ["%s", "%n", "%5i", "1", "50", "{x}"]),
        ("qt-format", ["%n", "%5", "%1", "50", "{x}"]),
        ("kde-format", ["%n", "%5", "%1", "50", "{x}"]),
        ("python-brace-format", ["5", "1", "50", "{x}"]),
    ],
)
def test_flags_say_what_a_percent_sign_means(flags: str, parts: list[str]) -> None:
    assert texts_of("%s %n %5i %1, 50% of {x}", *flags.split()) == parts


@pytest.mark.parametrize(
    ("source", "translation", "problems"),
    [
        ("page 2", "Seite 2, Teil 1", []),  # two -> 2 is a translation
        ("one %s", "one %s %s", ["%s"]),
        ("12 apples", "사과 12개", []),
        ("12 apples", "사과 92개", ["12"]),
        ("1 000", "1,000", []),
        ("1 000", "1000", []),
        ("1 000", "1", ["1 000"]),
        ("100,000", "1,00,000", []),  # as in India
        ("1.5 and 1.5", "1,5", ["1.5"]),
        ("10", "1 0 0", ["10"]),
        ("1", "10", ["1"]),
        ("2024-05-03", "03/05/2024", []),
        ("2024-05-03", "03/2024", ["2024-05-03"]),
        ("5 to 10", "5-10", []),
        ("5 to 10", "510", ["5", "10"]),
        ("5 to 10", "5 -10", []),
        ("1 000 to 2 000", "1000-2000", []),
        ("1000-2000", "1 000 bis 2 000", []),
        ("5 1 000", "1000 5", []),
        ("1 2 and 12", "12, 1 and 2", []),
        ("12, 1 and 2", "1 2 and 12", []),
        ("+34 600-123-456", "+34 600 123 456", []),
        ("+34 600-123-456", "+34600123456", []),
        ("\u0663\u0664", "34", []),
    ],
)
def test_what_a_translation_lacks(source: str, translation: str, problems: list[str]) -> None:
    assert compare(source, translation).problems == problems


def test_spaces_and_case_are_repaired() -> None:
    assert repair("Hi {name}, %s at www.x.org", "HALLO { NAME }, % S BEI WWW . X . ORG") == (
        "HALLO {name}, %s BEI www.x.org"
    )
    assert repair("%s sure", "100 % sicher") == "100 % sicher"
    assert repair("12 apples", "1 and 2 apples") == "1 and 2 apples"


pieces = st.sampled_from([*PROTECTED, *"%&.@:{}$#,1 as\u0661\u3042", "% S", "{ NAME }", "%1"])
texts = st.lists(pieces, max_size=12).map("".join) | st.text()


@given(texts, texts, st.sampled_from(["", "c-format", "qt-format", "no-c-format"]))
def test_a_text_that_misses_nothing_stays(source: str, translation: str, flag: str) -> None:
    assert compare(source, source, flags=[flag]).problems == []
    if not compare(source, translation, flags=[flag]).lost:
        assert repair(source, translation, flags=[flag]) == translation


def seconds(text: str, flag: str = "") -> float:
    start = time.process_time()
    spans(text, flags=[flag])
    return time.process_time() - start


# a quadratic pattern takes minutes, ours at most half a second
@pytest.mark.slow
@pytest.mark.parametrize(
    "unit", ["a.", "{a,", "{a,{b}", "@a.", "1\u200f", "%0", "{{", "www..", "&a"]
)
def test_hostile_text_takes_linear_time(unit: str) -> None:
    assert seconds(unit * (100_000 // len(unit))) < 10


@pytest.mark.slow
def test_all_pairs_of_special_characters_take_linear_time() -> None:
    for pair in itertools.combinations_with_replacement("{}%&.@:/$(-1a ", 2):
        assert seconds("".join(pair) * 50_000) < 10, pair
    for flag in ("c-format", "qt-format", "boost-format"):
        for other in "1*.(<|":
            assert seconds(f"%{other}" * 50_000, flag) < 10, (flag, other)
