"""Parts of a text that every translation must have: placeholders, URLs, mail addresses, numbers.

``spans`` finds them by their form, and texts that a caller wants to keep, such as code. ``compare``
says what a translation lacks, and ``repair`` puts right what a model often does to placeholders:
spaces inside, or other case.

A number is a row of decimal digits of any script, whatever stands next to it. Rows with one space
or one sign between them, as in 1 000, 12:30 or 600-123-456, are its groups, and may also be several
numbers. So a translation has a number if it has its digits in their order, in other groups too. It
may also have each group at another place, as in dates. All its digits must be there, each in a row
of its own: the 1 in 10 is not a 1. Signs, spaces and scripts are free.
"""

from __future__ import annotations

import functools
import itertools
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from typing import NamedTuple, TypeAlias

import regex

Groups: TypeAlias = tuple[str, ...]  # of digits, as 0 to 9

MAX_GROUPS = 12  # that are joined on the other side, next to further groups

# These patterns read hostile text in linear time: what they repeat is possessive, bounded, or
# cannot begin inside itself.

# what ends a URL; text of scripts without spaces, and particles of Korean, follow it directly
_NOT_URL = (
    r"\s<>\"'\p{Pi}\p{Pf}\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
    r"\u3001-\u303f\uff01-\uff65"
)
_DEPTH = 6  # of the braces in a message of ICU
_NESTED = functools.reduce(
    lambda inside, _: rf"(?:[^{{}}]++|\{{{inside}\}})*+", range(_DEPTH), "[^{}]*+"
)
_LENGTH = "(?:hh?|ll?|[Lqzjt])?"  # of the type of an argument of printf
# in a text whose syntax is not known: 50% of, 50 %of and, in Turkish, %50 and %6si are percentages
_USUAL = (
    r"(?<!\d)%(?:[A-Za-z_][\w.]++%(?![\w%])"
    r"|\d{1,4}(?:\.\d{1,4})?[dfs](?!\w)"
    r"|(?:(?:\(\w+\)|\d{1,2}\$)[-+#0]*\d{0,4}|[-0]\d{1,4}|[+#]|\*)?(?:\.(?:\d{1,4}|\*))?"
    rf"{_LENGTH}[diouxXeEfFgGcs@](?:(?![A-Za-z])|(?<!\d\s%[A-Za-z])))|%%"
)
_PRINTF = (
    r"%(?:\(\w+\)|<\w+>|\d{1,4}[$:])?[-+#0'I]*(?:\d{1,4}|\*(?:\d{1,4}\$)?)?"
    rf"(?:\.(?:\d{{1,4}}|\*(?:\d{{1,4}}\$)?)?)?(?:<\w+>|{_LENGTH}[A-Za-z@])|%%"
)
_QT = r"%L?(?:\d{1,2}|n)"
# gettext's flag, without -format -> what is a placeholder with %; by default, printf's
_PERCENT = {
    **dict.fromkeys(("qt", "qt-plural", "kde", "kde-kuit", "smalltalk", "ycp"), _QT),
    **dict.fromkeys(("csharp", "java", "perl-brace", "python-brace", "rust", "sh"), ""),
    **dict.fromkeys(("librep", "lisp", "scheme"), ""),
    "boost": rf"%\d{{1,4}}%|%\|[^|\s]{{1,40}}\||{_PRINTF}",
}
# spaces, dashes, low lines; points, commas, apostrophes, colons, slashes, minuses of all scripts
_GROUPING = (
    r"\p{Zs}\p{Pd}\p{Pc}\p{Pi}\p{Pf}.,:/'`~\u00b4\u00b7\u02b9\u02bc\u02bd\u02c8\u02d9\u055d\u060c"
    r"\u066b\u066c\u2022\u2027\u2032\u2044\u204e\u2212\u2215\u2219\u2236\u223c\u22c5\u30fb\ufe50"
    r"\ufe52\uff07\uff0c\uff0e\uff0f\uff1a\uff5e\uff65"
)
_PATTERNS = [
    # URLs, mail addresses
    rf"(?<![A-Za-z\d])(?:(?:https?|ftp)://|www\.)[^{_NOT_URL}]*[^{_NOT_URL}.,;:!?)\]}}]",
    r"(?<![A-Za-z\d_])[A-Za-z\d_][A-Za-z\d_.+-]{0,63}+@"
    r"(?:(?:[A-Za-z\d-]++\.)+[A-Za-z]{2,}|(?:[\w-]++\.)+[^\W\d_]{2,})",
    # messages of ICU, which stay as they are; Mustache; Python, .NET
    rf"\{{\s*+\w++\s*+,{_NESTED}\}}|\{{\{{[^{{}}]*+\}}\}}|[$%#]?\{{[^{{}}\s]*+\}}",
    # shell, i18next, extensions of browsers
    r"\$[A-Za-z_][A-Za-z\d_]*+(?:\([^()\s]{1,100}\)|\$(?![A-Za-z_]))?",
    r"&(?:[A-Za-z]\w{1,31}|#\d{1,7}|#[xX][0-9a-fA-F]{1,6});",
]
# a sign may be between invisible marks, such as those of direction
_NUMBER = rf"\d++(?:\p{{Cf}}*+[{_GROUPING}]?+\p{{Cf}}*+\d++)*+"
_DIGITS = regex.compile(r"\d++")


@functools.lru_cache(maxsize=100)
def _pattern(flags: frozenset[str]) -> regex.Pattern[str]:
    names = [flag.removesuffix("-format") for flag in flags if flag.endswith("-format")]
    percent = {_PERCENT.get(name, _PRINTF) for name in names if not name.startswith("no-")}
    forms = [*sorted(percent - {""}), *_PATTERNS] if names else [_USUAL, *_PATTERNS]
    return regex.compile("|".join([*forms, f"(?P<number>{_NUMBER})"]))


class Span(NamedTuple):
    """A protected part of a text.

    Attributes:
        groups: of a number, its groups of digits; empty for other parts.
    """

    start: int
    end: int
    text: str
    groups: Groups


def spans(text: str, keep: Collection[str] = (), flags: Collection[str] = ()) -> list[Span]:
    """Return the protected parts of a text, in order.

    Args:
        keep: further texts to protect.
        flags: of a message of gettext. ``c-format``, ``no-c-format`` and so on say what is a
            placeholder with %; without them, it is one if it cannot be a percentage.
    """
    patterns = [_pattern(frozenset(flags))]
    if keep:
        longest_first = sorted(keep, key=len, reverse=True)
        patterns.insert(0, regex.compile("|".join(map(regex.escape, longest_first))))
    found = []
    matches = [pattern.search(text) for pattern in patterns]
    while any(matches):
        match = min(filter(None, matches), key=lambda match: match.start())
        groups = groups_of(match[0]) if match.lastgroup == "number" else ()
        found.append(Span(match.start(), match.end(), match[0], groups))
        matches = [
            pattern.search(text, match.end()) if after and after.start() < match.end() else after
            for pattern, after in zip(patterns, matches, strict=True)
        ]
    return found


def groups_of(text: str) -> Groups:
    """Return the rows of digits of a text, as digits of ASCII."""
    if not text.isascii():
        text = "".join(str(unicodedata.decimal(c, c)) for c in text)
    return tuple(_DIGITS.findall(text))


def has_words(text: str, keep: Collection[str] = (), flags: Collection[str] = ()) -> bool:
    """Return whether a text has a letter outside its protected parts."""
    end = 0
    for span in spans(text, keep, flags):
        if any(map(str.isalpha, text[end : span.start])):
            return True
        end = span.end
    return any(map(str.isalpha, text[end:]))


class Difference(NamedTuple):
    """What a translation does to the protected parts of its source.

    Attributes:
        numbers: that it lacks.
        lost: other parts that it lacks.
        added: parts other than numbers that it has more often than the source.
        added_numbers: groups of digits that are not from the source.
    """

    numbers: list[str]
    lost: list[str]
    added: list[str]
    added_numbers: list[str]

    @property
    def problems(self) -> list[str]:
        """The parts that are not as in the source, each once.

        A translation may have further numbers, because it may write ``two`` as ``2``.
        """
        return list(dict.fromkeys(self.lost + self.numbers + self.added))

    @property
    def errors(self) -> int:
        """How many parts are lost or added."""
        return len(self.lost) + len(self.numbers) + len(self.added)


def compare(
    source: str, translation: str, keep: Collection[str] = (), flags: Collection[str] = ()
) -> Difference:
    """Compare the protected parts of a translation with those of its source.

    Args:
        keep, flags: as in ``spans``.
    """
    wanted, got = spans(source, keep, flags), spans(translation, keep, flags)
    expected, found = (
        Counter(span.text for span in each if not span.groups) for each in (wanted, got)
    )
    numbers = [span for span in wanted if span.groups]
    missing, added_numbers = compare_numbers(
        [span.groups for span in numbers], [span.groups for span in got if span.groups]
    )
    lost, added = [*(expected - found).elements()], [*(found - expected).elements()]
    return Difference([numbers[index].text for index in missing], lost, added, added_numbers)


def compare_numbers(
    source: Sequence[Groups], translation: Sequence[Groups]
) -> tuple[list[int], list[str]]:
    """Return the indices of the numbers that a translation lacks, and the groups that it adds.

    Whole numbers are looked for first, then groups that are joined on one side, the longest first,
    then groups. So 1 000 is found in 1000, and 5 and 1 000 in 1000-5.
    """
    if Counter(source) == Counter(translation):
        return [], []
    places: dict[tuple[str, str], list[range]] = defaultdict(list)
    for kind, digits, part in reversed(_parts(translation)):
        places[kind, digits].append(part)
    found: set[int] = set()
    taken: set[int] = set()
    for kind, digits, part in _parts(source):
        for other in _COUNTERPARTS[kind]:
            candidates = places[other, digits]
            while candidates and found.isdisjoint(part):
                place = candidates.pop()
                if taken.isdisjoint(place):
                    found.update(part)
                    taken.update(place)
    owners = [index for index, groups in enumerate(source) for _ in groups]
    lost = dict.fromkeys(index for place, index in enumerate(owners) if place not in found)
    groups = itertools.chain(*translation)
    return [*lost], [group for place, group in enumerate(groups) if place not in taken]


# kind of a part of a number -> those that may have its digits in a translation
_COUNTERPARTS = {"whole": ["whole"], "group": ["group", "joined"], "joined": ["group"]}


def _parts(numbers: Sequence[Groups]) -> list[tuple[str, str, range]]:
    """Return the kind, digits and place of parts of numbers, in the order to look for them.

    The place of a group is its index among those of all numbers.
    """
    parts, start = [], 0
    for groups in numbers:
        parts.append(("whole", "".join(groups), range(start, start + len(groups))))
        for size in range(1, min(len(groups), MAX_GROUPS) + 1):
            for first in range(len(groups) - size + 1):
                part = range(start + first, start + first + size)
                kind = "group" if size == 1 else "joined"
                parts.append((kind, "".join(groups[first : first + size]), part))
        start += len(groups)
    return sorted(parts, key=lambda part: (part[0] != "whole", -len(part[1]), len(part[2])))


def repair(
    source: str, translation: str, keep: Collection[str] = (), flags: Collection[str] = ()
) -> str:
    """Return a translation in which protected parts are spelled as in the source, if possible."""
    for part in dict.fromkeys(compare(source, translation, keep, flags).lost):
        if part not in translation:
            inside = r"\s*+".join(map(regex.escape, part))
            before = r"(?<!\w)" if part[0].isalnum() or part[0] in "%$" else ""
            after = r"(?!\w)" if part[-1].isalnum() else ""
            spelled = regex.compile(f"{before}{inside}{after}", regex.IGNORECASE)
            translation = spelled.sub(lambda _, part=part: part, translation)
    return translation
