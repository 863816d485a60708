"""Parts of a text that every translation must have: placeholders, URLs, mail addresses, numbers.

``spans`` finds them by their form, whatever the file, and texts that a format wants to keep, such
as code. ``missing`` compares a translation with its source, and ``repair`` puts right what a model
often does to them: spaces inside, or other case.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

_PATTERNS = {
    "URL": r"(?:\b(?:https?|ftp)://|\bwww\.)[^\s<>\"']*[^\s<>\"'.,;:!?)\]}]",
    "mail address": r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b",
    # messages of ICU, which stay as they are; Mustache; Python, .NET, i18next
    "placeholder": r"\{\s*\w+\s*,(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}"
    r"|\{\{[^{}]*\}\}|[$%#]?\{[^{}\s]*\}"
    # gettext's and printf's, and those of Qt; not the sign of a percentage
    r"|(?<!\d)%(?:\(\w+\)|\d+\$)?[-+#0]*(?:\d+|\*)?(?:\.(?:\d+|\*))?"
    r"(?:hh?|ll?|[Lzjt])?[diouxXeEfFgGcspn@]|(?<!\d)%L?\d+|%%|\$[A-Za-z_]\w*",
    "entity": r"&(?:[A-Za-z]\w*|#\d+|#[xX][0-9a-fA-F]+);",
    "number": r"(?<!\w)\d+(?:[.,:/'\u2019\u00a0\u202f\u066b\u066c]\d+)*(?!\w)",
}
_SPAN = "|".join(f"(?P<{name.replace(' ', '_')}>{form})" for name, form in _PATTERNS.items())


@functools.lru_cache(maxsize=10_000)
def _pattern(keep: tuple[str, ...]) -> re.Pattern[str]:
    texts = (re.escape(text) for text in sorted(keep, key=len, reverse=True))
    return re.compile("|".join([*texts, _SPAN]))


class Span(NamedTuple):
    """A protected part of a text.

    Attributes:
        key: what a translation must have: the text, of a number its digits.
    """

    start: int
    end: int
    text: str
    key: str

    @property
    def is_number(self) -> bool:
        """Whether the translation may write it with other separators or digits."""
        return self.key[:1] == "\0"


def spans(text: str, keep: Collection[str] = ()) -> list[Span]:
    """Return the protected parts of a text, in order.

    Args:
        keep: further texts to protect.
    """
    found = []
    for match in _pattern(tuple(keep)).finditer(text):
        key = match[0]
        if match.lastgroup == "number":
            key = "\0" + "".join(str(unicodedata.decimal(c)) for c in key if c.isdecimal())
        found.append(Span(match.start(), match.end(), match[0], key))
    return found


def has_words(text: str, keep: Collection[str] = ()) -> bool:
    """Return whether a text has a letter outside its protected parts."""
    end = 0
    for span in spans(text, keep):
        if any(map(str.isalpha, text[end : span.start])):
            return True
        end = span.end
    return any(map(str.isalpha, text[end:]))


def missing(source: str, translation: str, keep: Collection[str] = ()) -> list[str]:
    """Return the protected parts that are not in a translation as often as in its source.

    A translation may have further numbers, because it may write ``two`` as ``2``.
    """
    wanted, got = spans(source, keep), spans(translation, keep)
    expected, found = (Counter(span.key for span in each) for each in (wanted, got))
    parts = {span.key: span for span in (*got, *wanted)}
    return [
        span.text
        for key, span in parts.items()
        if found[key] < expected[key] or (found[key] > expected[key] and not span.is_number)
    ]


def repair(source: str, translation: str, keep: Collection[str] = ()) -> str:
    """Return a translation in which protected parts are spelled as in the source, if possible."""
    for part in missing(source, translation, keep):
        if part in source and part not in translation:
            inside = r"\s*".join(map(re.escape, part))
            before = r"(?<!\w)" if part[0].isalnum() or part[0] in "%$" else ""
            after = r"(?!\w)" if part[-1].isalnum() else ""
            spelled = re.compile(f"{before}{inside}{after}", re.IGNORECASE)
            translation = spelled.sub(part.replace("\\", r"\\"), translation)
    return translation
