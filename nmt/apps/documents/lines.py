"""Translate lines so that their protected parts survive, each line once.

A line is translated as it is. If a protected part is missing then, even after ``protect.repair``,
the line is translated again, and the search must produce these parts. If that fails or is not
possible, the text between the parts is translated alone, and the parts are put between, which is
worse text with all parts. What fails this too has a ``problem``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from nmt.apps.documents.protect import has_words, missing, repair, spans
from nmt.decoding.codec import too_long

MAX_REQUIRED = 400  # characters of parts that a search must produce
MAX_CACHED = 20_000_000  # characters of lines that are remembered, with their translations


class Link(NamedTuple):
    """A word of a line, and an aligned word of its translation, as positions in both texts."""

    start: int
    end: int
    translation_start: int
    translation_end: int


class Translated(NamedTuple):
    """The translation of a line.

    Attributes:
        text: the translation.
        links: its word alignment; None = not known.
        problem: why a person must look at it; empty = none.
        note: how it was made, if that may have made it worse.
    """

    text: str
    links: Sequence[Link] | None = None
    problem: str = ""
    note: str = ""


class Translate(Protocol):
    """Translates lines that are not blank, each of one sentence."""

    def __call__(
        self,
        lines: Sequence[str],
        require: Sequence[Sequence[str]] | None = None,
        align: bool = False,
    ) -> Sequence[Translated] | None:
        """Return the translations; None if ``require`` is given and not supported.

        Args:
            require: for each line, the phrases that its translation must contain.
            align: the links are wanted.
        """


def from_function(function: Callable[[list[str]], Sequence[str]]) -> Translate:
    """Return a ``Translate`` that calls a function of lines, without alignment or constraints."""

    def translate(
        lines: Sequence[str],
        require: Sequence[Sequence[str]] | None = None,
        align: bool = False,
    ) -> Sequence[Translated] | None:
        return None if require else [Translated(text) for text in function([*lines])]

    return translate


class Lines:
    """Translates lines, and remembers them, so that repeated lines are translated once.

    Args:
        translate: translates a list of lines.
    """

    def __init__(self, translate: Translate) -> None:
        self._translate = translate
        self._known: dict[tuple[str, bool], Translated] = {}
        self._size = 0

    def translate(self, lines: Sequence[str], align: bool = False) -> list[Translated]:
        """Return the translations of lines.

        A line without letters outside its protected parts stays as it is.

        Args:
            align: the links are wanted.
        """
        if self._size > MAX_CACHED:
            self._known.clear()
            self._size = 0
        new = [line for line in dict.fromkeys(lines) if (line, align) not in self._known]
        for line, result in zip(new, self._attempts(new, align), strict=True):
            self._known[line, align] = result
            self._size += len(line) + len(result.text)
        return [self._known[line, align] for line in lines]

    def _attempts(self, lines: Sequence[str], align: bool) -> list[Translated]:
        results = {line: _copy(line) for line in lines if not has_words(line)}
        for line in lines:
            if problem := too_long(line):
                results[line] = _copy(line)._replace(problem=f"not translated: {problem}")
        left = [line for line in lines if line not in results]
        results |= {line: kept for line, kept in self._plain(left, align) if kept is not None}
        left = [line for line in left if line not in results]
        results |= {line: kept for line, kept in self._required(left, align) if kept is not None}
        left = [line for line in left if line not in results]
        results |= dict(zip(left, self._in_parts(left), strict=True))
        return [results[line] for line in lines]

    def _plain(self, lines: list[str], align: bool) -> list[tuple[str, Translated | None]]:
        translations = self._translate(lines, align=align) if lines else []
        return list(zip(lines, map(_checked, lines, translations or []), strict=True))

    def _required(self, lines: list[str], align: bool) -> list[tuple[str, Translated | None]]:
        parts = [list(dict.fromkeys(span.text for span in spans(line))) for line in lines]
        asked = [
            (line, texts)
            for line, texts in zip(lines, parts, strict=True)
            if 0 < sum(map(len, texts)) <= MAX_REQUIRED
        ]
        if not asked:
            return []
        again, require = zip(*asked, strict=True)
        translations = self._translate(again, require, align)
        return (
            []
            if translations is None
            else list(zip(again, map(_checked, again, translations), strict=True))
        )

    def _in_parts(self, lines: list[str]) -> list[Translated]:
        divided = [_around_spans(line) for line in lines]
        texts = list(dict.fromkeys(t for parts in divided for t in parts if has_words(t)))
        translations = self._translate(texts) if texts else []
        by_text = {t: x.text for t, x in zip(texts, translations or [], strict=True)}
        results = []
        for line, parts in zip(lines, divided, strict=True):
            text = "".join(by_text.get(part, part) for part in parts)
            lost = ", ".join(missing(line, text))
            problem = f"not as in the source: {lost}" if lost else ""
            kept = ", ".join(dict.fromkeys(span.text for span in spans(line)))
            results.append(Translated(text, None, problem, f"translated in parts, to keep {kept}"))
        return results


def _copy(line: str) -> Translated:
    words = (match.span() for match in re.finditer(r"\S+", line))
    return Translated(line, [Link(*word, *word) for word in words])


def _checked(line: str, translated: Translated) -> Translated | None:
    """Return a translation that has all protected parts of its line, else None."""
    text = repair(line, translated.text)
    if missing(line, text):
        return None
    if not text.strip():
        return translated._replace(problem="the translation is empty")
    return translated if text == translated.text else translated._replace(text=text, links=None)


def _around_spans(line: str) -> list[str]:
    """Divide a line: its protected parts, and the text between them without marks at its ends."""
    parts, end = [], 0
    for span in [*spans(line), None]:
        between = line[end : span.start if span else len(line)]
        if words := re.search(r"\w(?:.*[^\s({\[])?", between, re.DOTALL):
            parts += [between[: words.start()], words[0], between[words.end() :]]
        else:
            parts.append(between)
        if span:
            parts.append(span.text)
            end = span.end
    return parts
