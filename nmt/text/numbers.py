"""Numbers of a text and their values, to check that a translation has the numbers of its source.

A number is a row of numeric characters of any script (Unicode categories Nd, No and Nl), with its
sign. Rows with one separator between them, as in 1 000, 12.5, 12:30 or 3-5, are a chain. A chain
may have several readings. ``1.000`` is one thousand or one; ``1 000`` may also be two numbers. But
12,5 is one value, which is neither 125 nor 12 and 5.

Texts have the same numbers if values of their chains are equal: ½ is 1/2 and 0.5, 1.000,5 is
1,000.5, and 2:30 PM is 14:30. Number words are not recognized: "two" and "million" have no value.
"""
# ruff: noqa: RUF001

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple, TypeAlias

import regex

Value: TypeAlias = Fraction | str  # a character that Python's tables lack is its own value

MAX_ROWS = 8  # that form one value
MAX_DIGITS = 1000  # of a row that has a value; others are compared as text
MAX_EXPONENT = 30

# spaces, dashes, low lines; points, commas, apostrophes, colons, slashes, minuses of all scripts
_SEPARATOR = (
    r"\p{Zs}\p{Pd}\p{Pc}\p{Pi}\p{Pf}.,:/'`~\u00b4\u00b7\u02b9\u02bc\u02bd\u02c8\u02d9\u055d\u060c"
    r"\u066b\u066c\u2022\u2027\u2032\u2044\u204e\u2212\u2215\u2219\u2236\u223c\u22c5\u30fb\ufe50"
    r"\ufe52\uff07\uff0c\uff0e\uff0f\uff1a\uff5e\uff65"
)
_HAN = "零一二三四五六七八九"
# 〇 is a digit of 二〇二四, and no number of its own in 一百〇五
_NUMERIC = rf"(?:[^\P{{N}}〇]++|(?<![十百千万萬億亿])[{_HAN}]{{0,9}}+〇[{_HAN}〇]*+)"
_SIGNS = {**dict.fromkeys("-−‐‑‒–﹣－", "-"), **dict.fromkeys("+＋﬩", "+"), "±": "±", "∓": "±"}
# a sign follows no word, number, closing bracket or percentage; a currency may follow it
_SIGN = (
    r"(?:(?<![\p{L}\p{M}\p{N}\p{Pe}\p{Pf}%°'\u2032\u2033]\p{Cf}{0,3})"
    rf"[{regex.escape(''.join(_SIGNS))}]\p{{Cf}}{{0,3}}+(?:\p{{Sc}}\p{{Cf}}{{0,3}}+)?)"
)
_POINT = r"(?:(?<![\p{L}\p{M}\p{N}\p{Pe}.·,]\p{Cf}{0,3})[.·\u066b])"  # of .5
# a separator may be between invisible marks, such as those of direction
PATTERN = rf"{_SIGN}?+{_POINT}?+{_NUMERIC}(?:\p{{Cf}}*+[{_SEPARATOR}]?+\p{{Cf}}*+{_NUMERIC})*+"
_ROW = regex.compile(
    rf"(?P<han>[{_HAN}]*〇[{_HAN}〇]*)|(?P<digits>\d+)|(?P<raised>[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+)"
    r"|(?P<lowered>[₊₋]?[₀-₉]+)|(?P<roman>[Ⅰ-ↈ]+)|(?P<ethiopic>[፩-፼]+)|(?P<other>\p{N})"
)
# separators that mean the same; the others stay as they are
_SAME = {
    **dict.fromkeys("\u060c\uff0c\ufe50", ","), **dict.fromkeys("\uff0e\ufe52", "."),
    **dict.fromkeys("'`´ʹʼʽˈ՝′’‘＇", "'"), "˙": "·",
    **dict.fromkeys(":∶：", ":"), **dict.fromkeys("/⁄∕／", "/"),
    **dict.fromkeys("−~∼～", "-"),
}  # fmt: skip
_DECIMAL, _GROUPS = frozenset(".,·\u066b"), frozenset(".,·'\u066c _")
_TIGHT = _DECIMAL | _GROUPS - {" "}
_HALF_DAY = regex.compile(r"\p{Cf}*\p{Zs}?([AaPp])(?:[Mm]|\.\p{Zs}?[Mm]\.)(?![\p{L}\p{N}])")
_HOUR = regex.compile(r"\p{Zs}?(?:[hH時时点點시](?!\p{Latin})|Uhr\b)")
_AFTER_HOUR = regex.compile(r"\p{Nd}\p{Zs}?(?:[hH時时點点시]|Uhr)\p{Zs}?$")
_INVISIBLE = regex.compile(r"\p{Cf}+")
_ROMAN = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}
_ROMAN_WORD = regex.compile(r"(?<![\p{L}\p{M}\p{N}])[IVXLCDMivxlcdm]+(?![\p{L}\p{M}\p{N}])")
_HAN_NUMBER = regex.compile(rf"(?<![{_HAN}〇])[{_HAN}]{{3,}}(?![{_HAN}〇])")
_HAN_DIGITS = str.maketrans(f"〇{_HAN}", "00123456789")


class Row(NamedTuple):
    """Numeric characters without a separator, of one kind.

    Attributes:
        values: that it may have, the most likely first.
        kind: the group of _ROW.
        digits: as 0 to 9, or the text.
        before: the separator before it in its chain; "" = none.
    """

    values: tuple[Value, ...]
    kind: str
    digits: str
    before: str


class Part(NamedTuple):
    """Rows of a chain that may be one value.

    Attributes:
        joint: what joins it with its neighbor, if they may be two numbers: - / : . or "".
    """

    values: tuple[Value, ...]
    first: int
    end: int
    joint: str


# joint -> those of the parts that it may be in a translation: 3-1 is 3:1, and not 3/1
_COUNTERPARTS = {
    "": ("", "-", "/", ":"),
    "-": ("-", ":", ""),
    "/": ("/", ":", ""),
    ":": (":", ".", "-", "/", ""),
    ".": (".", ":"),
}


class Chain(NamedTuple):
    """Rows with one separator between them.

    Attributes:
        optional: indices of rows that a translation may leave out: the minutes of 14:00.
    """

    rows: list[Row]
    parts: list[Part]
    optional: frozenset[int]


def digit_rows(text: str) -> list[str]:
    """Return the rows of decimal digits of a text, as digits of ASCII."""
    return [_ascii(row) for row in regex.findall(r"\d+", text)]


def _ascii(digits: str) -> str:
    if digits.isascii():
        return digits
    return "".join(str(unicodedata.decimal(char, char)) for char in digits)


def chain_of(text: str, start: int, end: int) -> Chain:
    """Return the chain at a place of a text; its context decides its readings."""
    rows: list[Row] = []
    position, plain = 0, _INVISIBLE.sub("", text[start:end])
    for row in _ROW.finditer(plain):
        before = plain[position : row.start()]
        before = " " if before.isspace() else _SAME.get(before, before)
        if len(before) == 1 and unicodedata.category(before) == "Pd":
            before = "-"
        rows.append(Row(*_row(str(row.lastgroup), row[0]), before))
        position = row.end()
    sign = rows[0].before
    point = sign[-1:] if sign[-1:] in (".", "·", "\u066b") else ""
    if point:
        rows[0] = rows[0]._replace(before="")
        rows.insert(0, Row((Fraction(0),), "digits", "0", ""))
        rows[1] = rows[1]._replace(before=".")
    rows[0] = rows[0]._replace(before="")
    if half := _HALF_DAY.match(text, end):
        _set_hour(rows, half[1] in "Pp")
    hour = bool(_HOUR.match(text, end) or _AFTER_HOUR.search(text[max(0, start - 8) : start]))
    parts = list(_parts(rows, text[end : end + 1] == ".", hour))
    if sign := _SIGNS.get(sign[:1], ""):
        after_number = sign == "-" and regex.search(
            r"\p{N}\p{Zs}$", text[max(0, start - 2) : start]
        )
        parts = [
            _signed(part, sign, bool(after_number)) if not part.first else part for part in parts
        ]
        if sign == "+" and sum(len(row.digits) for row in rows) >= 7 and len(rows) > 1:
            joined = "".join(row.digits for row in rows)  # a telephone number
            if joined.isdecimal() and len(joined) <= MAX_DIGITS:
                parts.append(Part((Fraction(joined),), 0, len(rows), ""))
    optional = (
        index
        for index in range(1, len(rows))
        if rows[index].before == ":" and rows[index].digits == "00"
    )
    return Chain(rows, parts, frozenset(optional))


def _row(kind: str, text: str) -> tuple[tuple[Value, ...], str, str]:
    """Return the values of a row, its kind, and its digits."""
    value: Value | int | None
    digits = text
    if kind == "han":
        kind, digits = "digits", text.translate(_HAN_DIGITS)
    elif kind == "digits":
        digits = _ascii(text)
    elif kind in ("raised", "lowered"):
        digits = unicodedata.normalize("NFKC", text).replace("−", "-")
    if kind in ("digits", "raised", "lowered"):
        is_number = digits.lstrip("+-").isdecimal() and digits.isascii()
        value = int(digits) if is_number and len(digits) <= MAX_DIGITS else None
    elif kind == "roman":
        value = _roman(unicodedata.normalize("NFKC", text))
    elif kind == "ethiopic":
        value = _ethiopic(text)
    elif (number := unicodedata.numeric(text, None)) is None:
        value = None
    else:
        value = Fraction(number).limit_denominator(1000)
        kind = kind if value.denominator == 1 else "fraction"
    return (text if value is None else Fraction(value),), kind, digits


def _roman(letters: str) -> int | None:
    values = [_ROMAN.get(letter) for letter in letters.upper()]
    if None in values:
        return None  # those of thousands have no letters
    numbers = [value or 0 for value in values]
    return sum(
        -value if value < max(numbers[index:]) else value for index, value in enumerate(numbers)
    )


def _ethiopic(text: str) -> int:
    total = current = 0
    for value in (int(unicodedata.numeric(char)) for char in text):
        if value == 10_000:
            total, current = ((total + current) or 1) * value, 0
        elif value == 100:
            current = (current or 1) * value
        else:
            current += value
    return total + current


def _set_hour(rows: list[Row], afternoon: bool) -> None:
    """Add the 24-hour value to an hour before AM or PM."""
    index = len(rows) - 1
    while index and rows[index].before in (":", "."):
        index -= 1
    [hour] = rows[index].values
    if hour in range(1, 13) and isinstance(hour, Fraction):
        of_day = hour % 12 + 12 * afternoon
        rows[index] = rows[index]._replace(values=tuple(dict.fromkeys((of_day, hour))))


def _signed(part: Part, sign: str, after_number: bool) -> Part:
    if sign == "+":
        return part
    if sign == "±":
        return part._replace(values=tuple(f"±{value}" for value in part.values))
    negative = tuple(
        -value if isinstance(value, Fraction) else f"-{value}" for value in part.values
    )
    return part._replace(values=negative + part.values * after_number)


# ---------------------------------------------------------------- readings of a chain


def _parts(rows: Sequence[Row], stop: bool, hour: bool) -> Iterator[Part]:
    """Yield the parts of a chain.

    Args:
        stop: a full stop follows, as in the date 3.5.
        hour: a word for the hour follows.
    """
    starts = [i for i, row in enumerate(rows) if not i or row.before not in _TIGHT]
    bounds = [*starts, len(rows)]
    joint = rows[starts[1]].before if len(starts) == 2 else ":" if hour else ""
    years = any(len(row.digits) >= 4 for row in rows)
    joint = joint if joint in ("-", "/", ":") and not (years and joint != ":") else ""
    for index, first in enumerate(starts):
        for end in bounds[index + 1 : index + 1 + MAX_ROWS]:
            if end - first > MAX_ROWS:
                break
            values = _values(rows[first:end])
            is_atom = end == bounds[index + 1]
            if values:
                yield Part(values, first, end, joint if is_atom else "")
            if is_atom and end - first > 1:
                apart = _joint_apart(rows[first:end], stop and end == len(rows))
                if not values or apart:
                    yield from (
                        Part(row.values, at, at + 1, apart)
                        for at, row in enumerate(rows[first:end], first)
                    )
        end = bounds[index + 1]
        if end - first > MAX_ROWS:
            yield from (Part(rows[at].values, at, at + 1, "") for at in range(first, end))


def _joint_apart(rows: Sequence[Row], stop: bool) -> str:
    """Return the joint of the rows of a time or date such as 14.30 and 3.5.; "" if it is none."""
    if len(rows) != 2 or rows[1].before != "." or any(row.kind != "digits" for row in rows):
        return ""
    low, high = (len(row.digits) <= 2 and int(row.digits) for row in rows)
    if low is False or high is False:
        return ""
    if low < 25 and len(rows[1].digits) == 2 and high < 60:
        return "."
    return "/" if stop and 1 <= low <= 31 and 1 <= high <= 12 else ""


def _values(rows: Sequence[Row]) -> tuple[Value, ...]:
    """Return the values that rows may have as one number."""
    if len(rows) == 1:
        return rows[0].values
    last, before = rows[-1], rows[-1].before
    if last.kind == "fraction":  # 2½, 2 ½
        after_digits = before in ("", " ") and rows[-2].kind == "digits"
        wholes = _values(rows[:-1]) if after_digits else ()
        return tuple(w + last.values[0] for w in wholes if _is_whole(w))  # type: ignore[operator]
    if last.kind == "raised":
        [exponent] = last.values
        after_digits = before == "" and rows[-2].kind == "digits"
        bases = _values(rows[:-1]) if after_digits and isinstance(exponent, Fraction) else ()
        return tuple(
            base**exponent  # type: ignore[operator, misc]
            for base in bases
            if isinstance(base, Fraction) and base and abs(exponent) <= MAX_EXPONENT  # type: ignore[arg-type]
        )
    if before == "/":  # 1/2, 1 1/2
        top, bottom = rows[-2].values[0], last.values[0]
        if isinstance(top, str) or isinstance(bottom, str) or not bottom:
            return ()
        if len(rows) == 2:
            return (Fraction(top / bottom),)
        wholes = _values(rows[:-2]) if rows[-2].before == " " and top < bottom else ()
        return tuple(w + top / bottom for w in wholes if _is_whole(w))  # type: ignore[operator]
    digits = [row.digits for row in rows]
    if any(row.kind != "digits" or isinstance(row.values[0], str) for row in rows):
        return ()
    signs = [row.before for row in rows[1:]]
    values = []
    if _is_grouped(digits, signs):
        values.append(Fraction("".join(digits)))
    if before in _DECIMAL and before not in signs[:-1]:
        whole = len(digits) == 2 or _is_grouped(digits[:-1], signs[:-1])
        if whole and sum(map(len, digits)) <= MAX_DIGITS:
            values.append(Fraction(f"{''.join(digits[:-1])}.{digits[-1]}"))
    return tuple(dict.fromkeys(values))


def _is_whole(value: Value) -> bool:
    return isinstance(value, Fraction) and value.denominator == 1


def _is_grouped(digits: Sequence[str], signs: Sequence[str]) -> bool:
    """Return whether one sign groups digits by three, or by two before the last three."""
    if len({*signs}) != 1 or signs[0] not in _GROUPS or digits[0].startswith("0"):
        return False
    sizes = [*map(len, digits)]
    by_three = sizes[0] <= 3 and set(sizes[1:]) == {3}
    by_two = sizes[0] <= 2 and sizes[-1] == 3 and set(sizes[1:-1]) == {2}
    return by_three or by_two


# ---------------------------------------------------------------- comparison


def words_as_numbers(text: str, chains: Sequence[Chain]) -> list[Chain]:
    """Return the words of a text that may stand for the numbers of some chains.

    These are Roman numerals in letters, for those in characters of their own, and the digits of
    Chinese and Japanese.
    """
    rows = [row for chain in chains for row in chain.rows]
    found: list[tuple[str, int | None]] = []
    if any(row.kind == "roman" for row in rows):
        found += ((word[0], _roman(word[0])) for word in _ROMAN_WORD.finditer(text))
    if any(len(row.digits) > 2 for row in rows):
        for word in _HAN_NUMBER.finditer(text):
            digits = word[0].translate(_HAN_DIGITS)
            found.append((digits, int(digits) if len(digits) <= MAX_DIGITS else None))
    chains = []
    for digits, value in found:
        if value is not None:
            row = Row((Fraction(value),), "word", digits, "")
            chains.append(Chain([row], [Part(row.values, 0, 1, "")], frozenset()))
    return chains


def missing(source: Sequence[Chain], translation: Sequence[Chain]) -> tuple[list[int], list[str]]:
    """Return the indices of the chains that a translation lacks, and the rows that it adds.

    Values of many rows are matched first. So 1 000 is found in 1000, and 5 and 1 000 in 1000-5.
    """
    places: dict[tuple[Value, str], list[range]] = defaultdict(list)
    for part, place in reversed(_by_size(translation)):
        for value in part.values:
            places[value, part.joint].append(place)
    found: set[int] = set()
    used: set[int] = set()
    for part, place in _by_size(source):
        keys = ((value, joint) for value in part.values for joint in _COUNTERPARTS[part.joint])
        for key in keys:
            candidates = places.get(key, [])
            while candidates and found.isdisjoint(place):
                candidate = candidates.pop()
                if used.isdisjoint(candidate):
                    found.update(place)
                    used.update(candidate)
    lost, at = [], 0
    for index, chain in enumerate(source):
        required = (at + row for row in range(len(chain.rows)) if row not in chain.optional)
        if not found.issuperset(required):
            lost.append(index)
        at += len(chain.rows)
    rows = (row for chain in translation for row in chain.rows)
    added = [row.digits for place, row in enumerate(rows) if place not in used]
    return lost, added


def _by_size(chains: Sequence[Chain]) -> list[tuple[Part, range]]:
    """Return the parts of chains with the places of their rows among all.

    Those with a single value are first; of them, the largest.
    """
    parts, at = [], 0
    for chain in chains:
        parts += [(part, range(at + part.first, at + part.end)) for part in chain.parts]
        at += len(chain.rows)
    return sorted(parts, key=lambda item: (len(item[0].values) > 1, -len(item[1])))
