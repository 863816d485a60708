"""Translate lines so that their protected parts survive, each line once.

A line is translated as it is. If a protected part is missing then, even after ``protect.repair``,
the line is translated again, and the search must produce these parts. If that fails or is not
possible, or the parts are long, the text between them is translated alone, and the parts are put
between, which is worse text with all parts. What fails this too has a ``problem``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from nmt.apps.documents.protect import has_words, missing, repair, spans
from nmt.data.text import too_long

MAX_REQUIRED = 40  # characters of parts that a search must produce; a longer URL derails it
EMPTY = "the model gives an empty translation"
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
        links: its word alignment; None = not known.
        problem: why a person must look at it; empty = none.
        note: how it was made, if that may have made it worse.
    """

    text: str
    links: Sequence[Link] | None = None
    problem: str = ""
    note: str = ""


Results: TypeAlias = "Iterable[tuple[Line, Translated]]"


# for each line, what its translation must contain; None = anything
Phrases: TypeAlias = Sequence[Sequence[str]] | None
# lines that are not blank, each of one sentence; their phrases; whether the links are wanted -> the
# translations; None = phrases are given and not supported
Translate: TypeAlias = Callable[[Sequence[str], Phrases, bool], Sequence[Translated] | None]


def from_function(function: Callable[[list[str]], Sequence[str]]) -> Translate:
    """Return a ``Translate`` that calls a function of lines, without alignment or constraints."""

    def translate(
        lines: Sequence[str], require: Phrases, align: bool
    ) -> Sequence[Translated] | None:
        return None if require else [Translated(text) for text in function([*lines])]

    return translate


class Line(NamedTuple):
    """A line to translate.

    Attributes:
        keep: further texts that its translation must have.
        align: whether the links are wanted.
    """

    text: str
    keep: tuple[str, ...] = ()
    align: bool = False


class Lines:
    """Translates lines, and remembers them, so that repeated lines are translated once."""

    def __init__(self, translate: Translate) -> None:
        self._translate = translate
        self._known: dict[Line, Translated] = {}
        self._size = 0

    def translate(self, lines: Sequence[Line]) -> list[Translated]:
        """Return the translations of lines.

        A line without letters outside its protected parts stays as it is.
        """
        if self._size > MAX_CACHED:
            self._known.clear()
            self._size = 0
        new = [line for line in dict.fromkeys(lines) if line not in self._known]
        for attempt in (self._copied, self._searched, self._required, self._in_parts):
            for line, result in attempt(new):
                self._known[line] = result
                self._size += len(line.text) + len(result.text)
            new = [line for line in new if line not in self._known]
        return [self._known[line] for line in lines]

    def _copied(self, lines: Sequence[Line]) -> Results:
        for line in lines:
            problem = too_long(line.text)
            if problem or not has_words(line.text, line.keep):
                yield line, _as_it_is(line.text, problem)

    def _required(self, lines: Sequence[Line]) -> Results:
        required = {line: _parts_of(line) for line in lines}
        chosen = [line for line in lines if 0 < sum(map(len, required[line])) <= MAX_REQUIRED]
        yield from self._searched(chosen, required)

    def _searched(
        self, lines: Sequence[Line], required: Mapping[Line, Sequence[str]] | None = None
    ) -> Results:
        """Yield the translations that have all protected parts of their lines."""
        for align in (False, True):
            some = [line for line in lines if line.align == align]
            require = None if required is None else [required[line] for line in some]
            results = self._translate([line.text for line in some], require, align) if some else ()
            if results is None:  # phrases cannot be required
                return
            for line, result in zip(some, results, strict=True):
                text = repair(line.text, result.text, line.keep)
                if missing(line.text, text, line.keep):
                    continue
                if not text.strip():
                    yield line, _as_it_is(line.text, EMPTY)
                elif text == result.text:
                    yield line, result
                else:
                    yield line, result._replace(text=text, links=None)

    def _in_parts(self, lines: Sequence[Line]) -> Results:
        divided = {line: _around_spans(line) for line in lines}
        texts = {part for parts in divided.values() for part in parts if has_words(part)}
        wanted = sorted(texts)
        results = self._translate(wanted, None, False) if wanted else ()
        translations = dict(zip(wanted, results or (), strict=True))
        for line, parts in divided.items():
            text, problem = "", ""
            for index, part in enumerate(parts):
                if index % 4 == 1 and part in translations:
                    result = translations[part]
                    if not result.text.strip():
                        result = _as_it_is(part, EMPTY)
                    text, problem = text + result.text, problem or result.problem
                else:
                    text += part
            if lost := ", ".join(missing(line.text, text, line.keep)):
                problem = f"not as in the source: {lost}"
            note = f"translated in parts, to keep {', '.join(_parts_of(line))}"
            yield line, Translated(text, None, problem, note)


def _as_it_is(text: str, problem: str = "") -> Translated:
    links = [Link(0, len(text), 0, len(text))]
    return Translated(text, links, f"not translated: {problem}" if problem else "")


def _parts_of(line: Line) -> list[str]:
    """Return the protected parts of a line, each once."""
    return list(dict.fromkeys(span.text for span in spans(line.text, line.keep)))


def _around_spans(line: Line) -> list[str]:
    """Divide a line into fours: signs, a text, signs, a protected part.

    The signs at the ends of a text, such as a comma or a bracket, are not translated with it.
    """
    parts, end = [], 0
    for span in [*spans(line.text, line.keep), None]:
        between = line.text[end : span.start if span else len(line.text)]
        words = re.search(r"\w(?:.*[^\s({\[])?", between, re.DOTALL)
        first, last = words.span() if words else (0, 0)
        parts += [between[:first], between[first:last], between[last:], span.text if span else ""]
        end = span.end if span else end
    return parts
