"""Translators whose translations a test can predict."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nmt.apps.documents.lines import Link, Phrases, Translated


def same(lines: list[str]) -> list[str]:
    """Return lines as they are."""
    return lines


def upper(lines: list[str]) -> list[str]:
    """Return lines in upper case, placeholders too."""
    return [line.upper() for line in lines]


class Reversing:
    """Reverses the order of words, and says which word is which.

    Attributes:
        lines: that it has translated.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, lines: Sequence[str], require: Phrases, align: bool) -> list[Translated]:
        self.lines += lines
        return [self._translated(line) for line in lines]

    def _translated(self, line: str) -> Translated:
        words = [*re.finditer(r"\S+", line)]
        text, links = "", []
        for word in reversed(words):
            text += " " if text else ""
            links.append(Link(*word.span(), len(text), len(text) + len(word[0])))
            text += word[0]
        return Translated(text, links)
