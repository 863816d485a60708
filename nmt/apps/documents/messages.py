"""Translate messages of ICU: each branch of ``{n, plural, one {# file} other {# files}}`` is text.

A segment with such an argument is several texts: that around the arguments, in which the model sees
``{n}`` in place of each, and that of each branch, which may have arguments itself. A segment is
translated only if all of its texts are, so no message mixes languages.
"""

from __future__ import annotations

import bisect
import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from nmt.apps.documents.lines import NOT_TRANSLATED
from nmt.apps.documents.segments import Mark, Segment, Token, joined
from nmt.text.protect import has_words

MAX_LEVELS = 20  # of arguments in each other

_ARGUMENT = re.compile(r"\{\s*([^\s{},'\ufffc]+)\s*,\s*(plural|selectordinal|select|choice)\s*,")
_OFFSET = re.compile(r"\s*offset\s*:\s*\d+")
_SELECTOR = re.compile(r"\s*(?:=\s*\d+|[^\s{}=#,'\ufffc]+)\s*\{")
_QUOTED = re.compile(r"'(?=[{}#|])(?:[^']|'')*(?:'|\Z)")  # what is in quotes is no syntax
_SIGN = re.compile(r"''|['{}#]")
_MARK = "\ufffc"  # in place of a mark

Skeleton: TypeAlias = "tuple[str | Skeleton, ...]"


class NotReadable(ValueError):
    """A text has an argument with branches, but is not a complete message of ICU."""


@dataclass(eq=False)
class _Argument:
    """An argument with branches: its syntax, with the message of a branch after each piece."""

    name: str
    syntax: list[str]
    branches: list[Message]


@dataclass(eq=False)
class Message:
    """A text with arguments that have branches.

    Attributes:
        segment: the text, with a mark in place of each argument.
        arguments: by the ID of their marks.
    """

    segment: Segment
    arguments: dict[int, _Argument]

    def segments(self) -> Iterator[Segment]:
        """Yield the text around the arguments and those of the branches."""
        yield self.segment
        for argument in self.arguments.values():
            for branch in argument.branches:
                yield from branch.segments()

    def skeleton(self) -> Skeleton:
        """Return the syntax of all arguments, in a canonical order."""
        inner: list[str | Skeleton] = [
            (*argument.syntax, *(branch.skeleton() for branch in argument.branches))
            for argument in self.arguments.values()
        ]
        return tuple(sorted(inner, key=str))

    def tokens(self, doubled: bool) -> Iterator[Token]:
        """Yield the text with its arguments, in file syntax.

        Args:
            doubled: an apostrophe of the text is written as two.
        """
        for token in self.segment.result:
            if isinstance(token, str):
                # one before a brace would begin a quotation
                pattern = "'" if doubled else r"'(?=[{}#|]|\Z)"
                yield re.sub(pattern, "''", token)
            elif argument := self.arguments.get(id(token)):
                for syntax, branch in zip(argument.syntax, argument.branches, strict=False):
                    yield syntax
                    yield from branch.tokens(doubled)
                yield argument.syntax[-1]
            else:
                yield token.text if token.name == _MARK else token


def message_of(segment: Segment) -> Message | None:
    """Read a segment as a message; None if it has no argument with branches.

    Raises:
        NotReadable: the message is not complete, or has a form without names of the branches.
    """
    return _Reader(segment).message() if "{" in segment.text else None


def finish(segment: Segment, message: Message) -> None:
    """Set the translation of a segment from its message, with problem and note."""
    parts = [part for part in message.segments() if part.translated is not None or part.problem]
    problems = dict.fromkeys(part.problem for part in parts if part.problem)
    notes = dict.fromkeys(part.note for part in parts if part.note)
    segment.problem, segment.note = "; ".join(problems), "; ".join(notes)
    if any(part.translated is None or NOT_TRANSLATED in part.problem for part in parts):
        return
    segment.translated = list(segment.tokens)
    if any(part.changed for part in parts):
        segment.translated = joined(message.tokens("''" in segment.text))
        again = dataclasses.replace(segment, tokens=segment.translated)
        try:
            same = (read := message_of(again)) and read.skeleton() == message.skeleton()
        except NotReadable:
            same = False
        if not same:
            segment.translated = None
            segment.problem = f"{NOT_TRANSLATED}: the translation is not a message of ICU"


def texts_of(segment: Segment, message: Message | None) -> list[Segment]:
    """Return the texts to translate of a segment: itself, or those of its message, if it has
    words."""
    parts = [segment] if message is None else message.segments()
    return [part for part in parts if has_words(part.text, part.keep, part.flags)]


def is_text(segment: Segment) -> bool:
    """Return whether a segment has text to translate, or to list in the summary."""
    try:
        return bool(texts_of(segment, message_of(segment)))
    except NotReadable:
        return True


class _Reader:
    """Reads the message of a segment in linear time."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._text = ""
        self._marks: dict[int, Mark] = {}
        for token in segment.tokens:
            if isinstance(token, Mark):
                self._marks[len(self._text)] = token
            self._text += token if isinstance(token, str) else _MARK

    def message(self) -> Message | None:
        """Return the message; None if there is no argument with branches.

        Raises:
            NotReadable: it is not complete.
        """
        arguments = list(_ARGUMENT.finditer(self._text))
        if not arguments:
            return None
        self._quotes: dict[int, int] = {}
        position = 0
        while (position := self._text.find("'", position)) >= 0:
            if self._text.startswith("''", position):
                position += 2
            elif quoted := _QUOTED.match(self._text, position):
                self._quotes[position] = quoted.end()
                position = quoted.end()
            else:
                position += 1
        in_quotes = {place for start, end in self._quotes.items() for place in range(start, end)}
        self._arguments = {m.start(): m for m in arguments if m.start() not in in_quotes}
        if not self._arguments:
            return None
        self._starts = sorted(self._arguments)
        self._ends = self._pairs()
        return self._read(0, len(self._text), False, 0)

    def _tokens(self, start: int, end: int) -> Iterator[Token]:
        for place in range(start, end):
            yield self._marks.get(place, self._text[place])

    def _pairs(self) -> dict[int, int]:
        """Return where the brace that closes each one is."""
        pairs, opened, position = {}, list[int](), 0
        while sign := _SIGN.search(self._text, position):
            position = self._quotes.get(sign.start(), sign.end())
            if sign[0] == "{":
                opened.append(sign.start())
            elif sign[0] == "}" and opened:
                pairs[opened.pop()] = sign.start()
        return pairs

    def _read(self, start: int, end: int, plural: bool, level: int) -> Message:
        if level > MAX_LEVELS:
            raise NotReadable
        tokens: list[Token] = []
        arguments: dict[int, _Argument] = {}
        position = start
        while position < end:
            sign = _SIGN.search(self._text, position, end)
            here = sign.start() if sign else end
            tokens += self._tokens(position, here)
            if sign is None:
                break
            position = sign.end()
            if here in self._quotes:
                position = self._quotes[here]
                tokens.append(Mark("single", (), _MARK, self._text[here:position]))
            elif sign[0] == "''":
                tokens.append("'")
            elif sign[0] == "#" and plural:
                tokens.append(Mark("single", (), _MARK, "#"))
            elif here in self._arguments:
                argument = self._argument(here, plural, level)
                mark = Mark("single", (), _MARK, f"{{{argument.name}}}")
                arguments[id(mark)] = argument
                tokens.append(mark)
                position = self._ends[here] + 1
            elif sign[0] == "{" and not self._has_argument(here):
                position = self._ends.get(here, here) + 1
                tokens += self._tokens(here, position)
            else:
                tokens.append(sign[0])
        parts = dataclasses.replace(self._segment, tokens=joined(tokens), longest=0, check=None)
        return Message(parts, arguments)

    def _has_argument(self, brace: int) -> bool:
        index = bisect.bisect(self._starts, brace)
        close = self._ends.get(brace, brace)
        return index < len(self._starts) and self._starts[index] < close

    def _argument(self, start: int, plural: bool, level: int) -> _Argument:
        head = self._arguments[start]
        end = self._ends.get(start, -1)
        if end < 0 or head[2] == "choice":
            raise NotReadable
        position, begin = head.end(), start
        if offset := _OFFSET.match(self._text, position):
            position = offset.end()
        syntax, branches = [], []
        while selector := _SELECTOR.match(self._text, position, end):
            brace = selector.end() - 1
            if brace not in self._ends:
                raise NotReadable
            syntax.append(self._text[begin : brace + 1])
            begin = self._ends[brace]
            position = begin + 1
            inside = plural or head[2] != "select"
            branches.append(self._read(brace + 1, begin, inside, level + 1))
        syntax.append(self._text[begin : end + 1])
        if not branches or self._text[position:end].strip():
            raise NotReadable
        return _Argument(head[1], syntax, branches)
