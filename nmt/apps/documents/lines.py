"""Translate lines so that their protected parts survive; repeated lines are translated once.

A line is translated as it is. If a protected part is missing then, even after ``protect.repair``,
the line is translated again, and the search must produce these parts. If that fails or is not
possible, or the parts are long, the text between them is translated separately and joined with the
parts: worse text, but with all parts. A new translation replaces the one before only if it is
better by ``protect.compare`` and repeats nothing. A translation that still lacks a part has a
``problem``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from nmt.data.lines import too_long
from nmt.text.letters import repetitions
from nmt.text.protect import Difference, Span, compare, has_words, repair, spans

MAX_REQUIRED = 40  # maximum characters of required parts; a longer URL derails the search
EMPTY = "the model gives an empty translation"
NOT_TRANSLATED = "not translated"  # begins the problem of a text that stays as it is
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
        flags: as in ``protect.spans``.
        align: whether the links are wanted.
    """

    text: str
    keep: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
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
        for line, result in self._translated(new):
            self._known[line] = result
            self._size += len(line.text) + len(result.text)
        return [self._known[line] for line in lines]

    def _translated(self, lines: Sequence[Line]) -> Results:
        to_search = []
        for line in lines:
            problem = too_long(line.text)
            if problem or not has_words(line.text, line.keep, line.flags):
                yield line, _as_it_is(line.text, problem)
            else:
                to_search.append(line)
        best = {line: _checked(line, result) for line, result in self._searched(to_search)}
        for attempt in (self._required, self._in_parts):
            failed = {line: found for line, found in best.items() if found.difference.problems}
            for line, result in attempt(failed):
                found = _checked(line, result)
                if _is_better(line, found, best[line]):
                    best[line] = found
        for line, (result, difference) in best.items():
            if not result.text.strip():
                yield line, _as_it_is(line.text, EMPTY)
            elif difference.problems:
                lost = f"not as in the source: {', '.join(difference.problems)}"
                problem = "; ".join(filter(None, [result.problem, lost]))
                yield line, result._replace(problem=problem)
            else:
                yield line, result

    def _required(self, failed: Mapping[Line, _Checked]) -> Results:
        required = {line: _texts(_to_keep(line, found)) for line, found in failed.items()}
        chosen = [line for line in failed if 0 < sum(map(len, required[line])) <= MAX_REQUIRED]
        yield from self._searched(chosen, required)

    def _searched(
        self, lines: Sequence[Line], required: Mapping[Line, Sequence[str]] | None = None
    ) -> Results:
        for align in (False, True):
            some = [line for line in lines if line.align == align]
            require = None if required is None else [required[line] for line in some]
            results = self._translate([line.text for line in some], require, align) if some else ()
            if results is None:  # phrases cannot be required
                return
            for line, result in zip(some, results, strict=True):
                text = repair(line.text, result.text, line.keep, line.flags)
                if text != result.text:
                    result = result._replace(text=text, links=None)
                yield line, result

    def _in_parts(self, failed: Mapping[Line, _Checked]) -> Results:
        kept = {line: _to_keep(line, found) for line, found in failed.items()}
        divided = {line: _around(line.text, kept[line]) for line in failed}
        texts = {
            part
            for line in failed
            for part in divided[line][1::4]
            if has_words(part, line.keep, line.flags)
        }
        required = sorted(texts)
        results = self._translate(required, None, False) if required else ()
        translations = dict(zip(required, results or (), strict=True))
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
            note = f"translated in parts, to keep {', '.join(_texts(kept[line]))}"
            yield line, Translated(text, None, problem, note)


class _Checked(NamedTuple):
    """A translation, compared with the protected parts of its line."""

    result: Translated
    difference: Difference


def _checked(line: Line, result: Translated) -> _Checked:
    return _Checked(result, compare(line.text, result.text, line.keep, line.flags))


def _is_better(line: Line, new: _Checked, old: _Checked) -> bool:
    """Return whether a translation lacks less than the one before, and repeats nothing."""
    before, after = old.difference, new.difference
    added = Counter(after.added_numbers)
    # a wrong number in the place of a lost one must be gone, not be next to it
    found = len(before.numbers) - len(after.numbers)
    usual = max(repetitions(line.text), repetitions(old.result.text))
    return (
        after.errors < before.errors
        and not after.added
        and added <= Counter(before.added_numbers)
        and added.total() <= max(0, len(before.added_numbers) - found)
        and bool(new.result.problem) <= bool(old.result.problem)
        and repetitions(new.result.text) <= usual
    )


def _as_it_is(text: str, problem: str = "") -> Translated:
    links = [Link(0, len(text), 0, len(text))]
    return Translated(text, links, f"{NOT_TRANSLATED}: {problem}" if problem else "")


def _to_keep(line: Line, found: _Checked) -> list[Span]:
    """Return the parts to require in the next translation; of the numbers, only lost ones."""
    lost = found.difference.numbers
    parts = spans(line.text, line.keep, line.flags)
    return [part for part in parts if not part.number or part.text in lost]


def _texts(parts: Sequence[Span]) -> list[str]:
    return list(dict.fromkeys(part.text for part in parts))


def _around(text: str, kept: Sequence[Span]) -> list[str]:
    """Divide a text into fours: signs, a text, signs, a part to keep.

    The signs at the ends of a text, such as a comma or a bracket, are not translated with it.
    """
    parts, end = [], 0
    for span in [*kept, None]:
        between = text[end : span.start if span else len(text)]
        words = re.search(r"\w(?:.*[^\s({\[])?", between, re.DOTALL)
        first, last = words.span() if words else (0, 0)
        parts += [between[:first], between[first:last], between[last:], span.text if span else ""]
        end = span.end if span else end
    return parts
