"""Equal values in any notation are equal, and changed ones are reported."""
# ruff: noqa: RUF001

from __future__ import annotations

import sys
import time
import unicodedata

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nmt.text.numbers import digit_rows
from nmt.text.protect import compare, spans

CHARACTERS = [*map(chr, range(sys.maxunicode + 1))]
ZEROS = [c for c in CHARACTERS if unicodedata.decimal(c, None) == 0]
NUMERIC = [c for c in CHARACTERS if unicodedata.category(c)[0] == "N"]
# separators of thousands, of decimals, and whether the upper groups have two digits
LOCALES = [
    ("", ".", False), (",", ".", False), (".", ",", False), (" ", ",", False),
    ("\u202f", ",", False), ("’", ".", False), ("'", ",", False), ("٬", "٫", False),
    (",", ".", True), ("，", "．", False), ("\u200f,\u200f", ".", False), ("", "·", False),
]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "translation"),
    [
        ("½", "1/2"), ("½", "0,5"), ("2½", "2 1⁄2"), ("1 1/2", "1.5"), ("2:30 PM", "14:30"),
        ("2.30 p.m.", "14:30"), ("2:30 PM", "午後2時30分"), ("12:30 a.m.", "0:30"),
        ("14:00", "2 PM"), ("12:00", "12 Uhr"), ("14.30 Uhr", "14h30"), ("2.5", "2,50"),
        ("1.000,5", "1,000.5"), ("12,34,567", "1 234 567"), (".5", "0.5"), ("007", "7"),
        ("2024-05-03", "3.5.2024"), ("3/5", "am 3.5."), ("3:1", "3–1"), ("16:9", "16/9"),
        ("2023/24", "2023–24"), ("−$5", "-5 $"), ("+5", "5"), ("Ⅷ", "VIII"), ("ⅩⅣ", "14"),
        ("፳፻፲፯", "2017"), ("二〇二四年", "2024"), ("in 1945", "一九四五年"), ("①②", "1, 2"),
        ("m²", "m2"), ("H₂O", "H2O"), ("10²", "100"), ("5°C - 10°C", "5–10"), ("2 PM", "um 2"),
    ],
)  # fmt: skip
def test_equal_values_are_equal(source: str, translation: str) -> None:
    assert compare(source, translation).problems == []


@pytest.mark.parametrize(
    ("source", "translation"),
    [
        ("3–5 dní", "35 days"), ("3–5", "3,5"), ("3–5", "3/5"), ("12,5 mg", "125 mg"),
        ("12,5", "12 5"), ("1.5", "15"), ("0.500", "500"), (".5", "5"), ("-5 °C", "5 °C"),
        ("5", "-5"), ("±5", "5"), ("\u200f-5", "5"), ("5½", "5"), ("1/2", "12"), ("1/2", "1/3"),
        ("10²", "10³"), ("10²", "102"), ("25 m²", "25"), ("H₂O", "H"), ("Krok ①", "Step"),
        ("Ⅷ", "VII"), ("14:30", "2:30"), ("2:30 AM", "14:30"), ("10:30", "1030"),
        ("1.2.3", "123"), ("2024-05-03", "20240503"), ("1990-1995", "19901995"),
        ("二〇二四", "2023"), ("10", "1 0 0"), ("1,5–2,5", "15–25"),
    ],
)  # fmt: skip
def test_changed_values_are_reported(source: str, translation: str) -> None:
    assert compare(source, translation).problems


def test_every_numeric_character_counts() -> None:
    # Han digits have other categories
    assert [c for c in NUMERIC if not compare(f"a {c} b", "a b").problems] == []
    assert [c for c in NUMERIC if compare(f"a {c} b", f"b {c}").problems] == []
    digits = [c for c in NUMERIC if unicodedata.decimal(c, None) is not None]
    assert digit_rows("".join(digits))[0] == "0123456789" * (len(digits) // 10)


def written(number: tuple[int, str], zero: str, locale: tuple[str, str, bool]) -> str:
    """Return a number, of its whole and decimal digits, in a script and locale."""
    group, point, by_two = locale
    whole, decimals = str(abs(number[0])), number[1]
    head, groups = whole[:-3], [whole[-3:]]
    size = 2 if by_two else 3
    while head:
        groups.insert(0, head[-size:])
        head = head[:-size]
    text = group.join(groups) + (point + decimals) * bool(decimals)
    text = "".join(chr(ord(zero) + int(c)) if c in "0123456789" else c for c in text)
    return "-" * (number[0] < 0) + text


values = st.tuples(
    st.integers(-(10**10), 10**10) | st.integers(-99, 99), st.text("0123456789", max_size=4)
)
notations = st.tuples(st.sampled_from(ZEROS), st.sampled_from(LOCALES))
words = st.text(st.characters(categories=["Lu", "Ll"]), min_size=1, max_size=4)


@st.composite
def line_with(draw: st.DrawFn, numbers: list[tuple[int, str]]) -> str:
    """Draw a line with numbers, in any order and notation."""
    texts = [written(number, *draw(notations)) for number in draw(st.permutations(numbers))]
    return draw(words) + "".join(f" {text} {draw(words)}" for text in texts)


@pytest.mark.slow
@given(st.data(), st.lists(values, min_size=1, max_size=4))
def test_script_locale_and_order_do_not_matter(data, numbers):
    source, translation = data.draw(line_with(numbers)), data.draw(line_with(numbers))
    assert compare(source, translation).problems == []
    assert len(spans(source)) == len(numbers)


def is_ambiguous(number: tuple[int, str]) -> bool:
    """Return whether a notation of a number may be that of a thousand times as much."""
    return len(number[1]) == 3 or (not number[1] and 1000 <= abs(number[0]) < 10**6)


@pytest.mark.slow
@given(st.lists(values, max_size=3), values, values, notations, notations)
def test_a_changed_value_is_reported(others, old, new, first, second):
    assume(not is_ambiguous(old) and not is_ambiguous(new))
    assume((old[0], old[1].rstrip("0")) != (new[0], new[1].rstrip("0")))
    rest = " and ".join(written(number, "0", LOCALES[0]) for number in others)
    source, translation = (
        f"{rest} or {written(number, *notation)}"
        for number, notation in ((old, first), (new, second))
    )
    assert compare(source, translation).problems


@given(
    st.text("123456789", min_size=1, max_size=5),
    st.text("123456789", min_size=1, max_size=5),
    st.sampled_from(".,:/-–—−·٫٬'’_⁄~ "),
    st.sampled_from(ZEROS),
)
def test_digits_without_their_separator_are_reported(low, high, sign, zero):
    assume(len(high) != 3)  # it may group thousands
    for old, new in ((f"{low}{sign}{high}", low + high), (f"-{low}", low), (low, f"-{low}")):
        script = str.maketrans("0123456789", "".join(chr(ord(zero) + i) for i in range(10)))
        assert compare(f"at {old} x", f"x {new.translate(script)}").problems, (old, new)


@given(st.integers(0, 23), st.integers(0, 59))
def test_hours_to_12_and_to_24_are_the_same(hour: int, minute: int) -> None:
    texts = [f"{hour}:{minute:02}", f"{hour:02}.{minute:02}"]
    for half in (" AM", " a.m.", "am") if hour < 12 else (" PM", " p.m.", "pm"):
        texts.append(f"{(hour + 11) % 12 + 1}:{minute:02}{half}")
    for source in texts:
        for translation in texts:
            assert compare(f"at {source} x", f"x {translation} y").problems == []


@given(
    st.sampled_from([c for c in NUMERIC if 0 < unicodedata.numeric(c, 0) < 1]), st.integers(0, 99)
)
def test_a_vulgar_fraction_is_a_quotient(char: str, whole: int) -> None:
    top, bottom = unicodedata.numeric(char).as_integer_ratio()
    assume(bottom < 1000)  # a power of two, so exact
    number = f"{whole} {top}/{bottom}" if whole else f"{top}/{bottom}"
    mixed = f"{whole or ''}{char}"
    assert compare(f"x {mixed} y", f"x {number} y").problems == []
    assert compare(f"x {number} y", f"x {mixed} y").problems == []


@given(st.text() | st.text("0١½²Ⅷ፲〇一.,:/-–+ \u200fPM", max_size=40))
def test_any_text_has_its_own_numbers(text: str) -> None:
    assert compare(text, text).problems == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit", ["1 ", "1.", "1/", "-1", "½", "1²", "一", "〇", "1\u200f", "-\u200f"]
)
def test_a_hostile_row_takes_linear_time(unit: str) -> None:
    start = time.process_time()
    line = unit * (10_000 // len(unit))
    compare(line, line)
    assert time.process_time() - start < 10
