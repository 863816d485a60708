"""Parts of a text that every translation must have: placeholders, addresses, paths, numbers.

``spans`` finds them by their form, and texts that a caller wants to keep, such as code. ``compare``
reports what a translation lacks. ``repair`` fixes common damage to placeholders: spaces inside, or
a changed case. ``nmt.text.numbers`` decides which numbers are equal.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

import regex

from nmt.text import numbers

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
# if the syntax is unknown: 50% of, 50 %of and, in Turkish, %50 and %6si are percentages
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
_NOT_PATH = rf"{_NOT_URL}|*?:"
_PATH = rf"(?:(?:[^{_NOT_PATH}]| (?=[^{_NOT_PATH}\\]{{1,60}}+\\))*[^{_NOT_PATH}.,;!)\]}}])?"
_PATTERNS = [
    # URLs, mail addresses
    rf"(?<![A-Za-z\d])(?:(?:https?|ftp)://|www\.)[^{_NOT_URL}]*[^{_NOT_URL}.,;:!?)\]}}]",
    r"(?<![A-Za-z\d_])[A-Za-z\d_][A-Za-z\d_.+-]{0,63}+@"
    r"(?:(?:[A-Za-z\d-]++\.)+[A-Za-z]{2,}|(?:[\w-]++\.)+[^\W\d_]{2,})",
    # paths of Windows, with spaces before a further backslash; of Unix
    rf"(?<![A-Za-z\d])[A-Za-z]:\\{_PATH}",
    rf"(?<![A-Za-z\d\\])\\\\(?=[\w.$-]++\\){_PATH}",
    r"(?<![\w./<>~:)\]}])~?(?:/(?:[\w-]|\.(?=\w))++){2,}/?+",
    # messages of ICU, which stay as they are; Mustache; Python, .NET
    rf"\{{\s*+\w++\s*+,{_NESTED}\}}|\{{\{{[^{{}}]*+\}}\}}|[$%#]?\{{[^{{}}\s]*+\}}",
    # shell, i18next, extensions of browsers
    r"\$[A-Za-z_][A-Za-z\d_]*+(?:\([^()\s]{1,100}\)|\$(?![A-Za-z_]))?",
    r"&(?:[A-Za-z]\w{1,31}|#\d{1,7}|#[xX][0-9a-fA-F]{1,6});",
]


@functools.lru_cache(maxsize=100)
def _patterns(flags: frozenset[str]) -> list[regex.Pattern[str]]:
    """Return the patterns of all parts: together in one pattern, they take ten times as long."""
    names = [flag.removesuffix("-format") for flag in flags if flag.endswith("-format")]
    percent = {_PERCENT.get(name, _PRINTF) for name in names if not name.startswith("no-")}
    forms = [*sorted(percent - {""}), *_PATTERNS] if names else [_USUAL, *_PATTERNS]
    return [*map(regex.compile, forms), regex.compile(f"(?P<number>{numbers.PATTERN})")]


class Span(NamedTuple):
    """A protected part of a text.

    Attributes:
        number: whether it is a number, which may have another form in a translation.
    """

    start: int
    end: int
    text: str
    number: bool


def spans(text: str, keep: Collection[str] = (), flags: Collection[str] = ()) -> list[Span]:
    """Return the protected parts of a text, in order.

    Args:
        keep: other texts to protect. flags: of a message of gettext. ``c-format``, ``no-c-format``
            and so on say what is a placeholder with %; without them, it is one if it cannot be a
            percentage.
    """
    patterns = [*_patterns(frozenset(flags))]
    if keep:
        longest_first = sorted(keep, key=len, reverse=True)
        patterns.insert(0, regex.compile("|".join(map(regex.escape, longest_first))))
    found = []
    matches = [pattern.search(text) for pattern in patterns]
    while any(matches):
        match = min(filter(None, matches), key=lambda match: match.start())
        is_number = match.lastgroup == "number"
        found.append(Span(match.start(), match.end(), match[0], is_number))
        matches = [
            pattern.search(text, match.end()) if after and after.start() < match.end() else after
            for pattern, after in zip(patterns, matches, strict=True)
        ]
    return found


def has_words(text: str, keep: Collection[str] = (), flags: Collection[str] = ()) -> bool:
    """Return whether a text has a letter outside its protected parts."""
    end = 0
    for span in spans(text, keep, flags):
        if any(map(str.isalpha, text[end : span.start])):
            return True
        end = span.end
    return any(map(str.isalpha, text[end:]))


class Difference(NamedTuple):
    """The difference in protected parts between a translation and its source.

    Attributes:
        numbers: that it lacks.
        lost: other parts that it lacks.
        added: parts other than numbers that it has more often than the source.
        added_numbers: rows of digits that are not from the source.
    """

    numbers: list[str]
    lost: list[str]
    added: list[str]
    added_numbers: list[str]

    @property
    def problems(self) -> list[str]:
        """The parts that are not as in the source, each once.

        Additional numbers are allowed, because a translation may write ``two`` as ``2``.
        """
        return list(dict.fromkeys(self.lost + self.numbers + self.added))

    @property
    def errors(self) -> int:
        """Number of parts that are lost or added."""
        return len(self.lost) + len(self.numbers) + len(self.added)


def compare(
    source: str, translation: str, keep: Collection[str] = (), flags: Collection[str] = ()
) -> Difference:
    """Compare the protected parts of a translation with those of its source.

    Args:
        keep, flags: as in ``spans``.
    """
    before, after = spans(source, keep, flags), spans(translation, keep, flags)
    expected, present = (
        Counter(span.text for span in each if not span.number) for each in (before, after)
    )
    lost, added = [*(expected - present).elements()], [*(present - expected).elements()]
    in_source, in_translation = ([span for span in each if span.number] for each in (before, after))
    if Counter(span.text for span in in_source) == Counter(span.text for span in in_translation):
        return Difference([], lost, added, [])
    chains = [numbers.chain_of(source, span.start, span.end) for span in in_source]
    others = [numbers.chain_of(translation, span.start, span.end) for span in in_translation]
    missing, added_numbers = numbers.missing(
        chains, others + numbers.words_as_numbers(translation, chains)
    )
    return Difference([in_source[index].text for index in missing], lost, added, added_numbers)


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
