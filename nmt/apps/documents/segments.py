"""The items of a file: literal text, and units with segments to translate.

A format yields the items of a file in order. A ``str`` is copied. A ``Unit`` becomes the text that
its ``render`` returns once its segments are translated. So most formats never hold a whole file in
memory, and everything outside segments stays byte for byte.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias


@dataclass(frozen=True, eq=False)
class Mark:
    """A piece of inline markup, such as ``<b>``, a footnote, or the style of a run.

    Attributes:
        kind: open and close belong together; single stands alone.
        parts: original characters; a unit is text inside it, such as that of a footnote.
        name: a close mark ends an open one of this name.
        text: of a single mark: what the model sees in its place, and must keep, as code in a
            sentence; empty = nothing.
        left: what kind of text in it stays, of those that a reader may see; empty = none.
    """

    kind: Literal["open", "close", "single"]
    parts: tuple[str | Unit, ...]
    name: str = ""
    text: str = ""
    left: str = ""

    def __str__(self) -> str:
        return "".join(map(str, self.parts))


Token: TypeAlias = str | Mark


@dataclass(eq=False)
class Segment:
    """Text to translate, with its inline markup.

    Attributes:
        tokens: text, as a reader sees it, and marks between. A line end is kept.
        translated: tokens of the translation; None = not translated.
        problem: why a person must look at the translation; empty = it passed the checks.
        note: how it was made, if that may have made it worse.
        flags: as in ``protect.spans``.
        keep: further parts of its text that the translation must have.
        longest: characters that the translation may have; 0 = any number.
        check: returns other problems of a translation in file syntax.
    """

    tokens: Sequence[Token]
    place: str
    translated: list[Token] | None = None
    problem: str = ""
    note: str = ""
    flags: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    longest: int = 0
    check: Callable[[str], str] | None = None

    @property
    def text(self) -> str:
        """The text without markup."""
        return plain(self.tokens)

    @property
    def result(self) -> Sequence[Token]:
        """The translation, or the source if there is none."""
        return self.tokens if self.translated is None else self.translated

    @property
    def changed(self) -> bool:
        """Whether the translation differs from the source."""
        return self.translated is not None and list(self.tokens) != self.translated


@dataclass(eq=False)
class Unit:
    """A part of a file with segments.

    Attributes:
        segments: those of this unit alone.
        render: returns the new text of this part.
    """

    segments: Sequence[Segment]
    render: Callable[[], str] = field(repr=False)

    def __str__(self) -> str:
        return self.render()

    def all_segments(self) -> Iterator[Segment]:
        """Yield the segments, also those of units inside marks."""
        for segment in self.segments:
            yield segment
            for token in segment.tokens:
                for part in token.parts if isinstance(token, Mark) else ():
                    if isinstance(part, Unit):
                        yield from part.all_segments()


Item: TypeAlias = str | Unit


def plain(tokens: Sequence[Token]) -> str:
    """Return the text of tokens, without markup."""
    return "".join(token if isinstance(token, str) else token.text for token in tokens)


def written(tokens: Sequence[Token], encode: Callable[[str], str] = str) -> str:
    """Return tokens in file syntax.

    Args:
        encode: returns text between marks in file syntax.
    """
    return "".join(encode(token) if isinstance(token, str) else str(token) for token in tokens)


def text_unit(
    raw: Sequence[str | Unit] | str,
    tokens: Sequence[Token],
    place: str,
    write: Callable[[Sequence[Token]], str],
) -> Unit:
    """Return a unit of one segment, which stays as it is if its translation equals its source.

    Args:
        raw: original characters of the unit.
        write: returns tokens in file syntax.
    """
    segment = Segment(joined(tokens), place)
    parts = [raw] if isinstance(raw, str) else raw

    def render() -> str:
        return write(segment.result) if segment.changed else "".join(map(str, parts))

    return Unit([segment], render)


_RUBY = re.compile(r"<(/?)(ruby|rb|rtc|rt|rp)\b", re.IGNORECASE)


def with_ruby(tokens: Iterable[Token], encode: Callable[[str], str] = str) -> list[Token]:
    """Return tokens in which each annotation of ruby, with its tags, is a mark that stays.

    An annotation ends with its end tag, where the next part of the ruby begins, or with the ruby.
    The marks are behind the text of the ruby, because a translation has no place inside of words.

    Args:
        encode: returns text between marks in file syntax.
    """
    result: list[Token] = []
    annotations: list[Token] = []
    inside: list[Token] = []  # an annotation that has begun
    depth = 0

    def release() -> None:
        has_text = any(isinstance(t, str) and any(map(str.isalpha, t)) for t in inside)
        parts = ((encode(t),) if isinstance(t, str) else t.parts for t in inside)
        left = "ruby" if has_text else ""
        annotations.append(Mark("single", tuple(itertools.chain(*parts)), left=left))
        inside.clear()

    for token in tokens:
        tag = _RUBY.match(str(token)) if isinstance(token, Mark) else None
        slash, name = (tag[1], tag[2].lower()) if tag else ("", "")
        ends = name == "ruby" or (name and not slash)
        if inside and ends:
            release()
        if name == "ruby":
            depth += -1 if slash else 1
            result += annotations
            annotations.clear()
        if inside or (depth > 0 and name in ("rt", "rp", "rtc") and not slash):
            inside.append(token)
            if slash and name:
                release()
        else:
            result.append(token)
    if inside:
        release()
    return result + annotations


def joined(tokens: Iterable[Token]) -> list[Token]:
    """Join neighboring texts, and drop empty ones."""
    result: list[Token] = []
    for is_text, group in itertools.groupby(tokens, lambda token: isinstance(token, str)):
        if not is_text:
            result += group
        elif text := "".join(map(str, group)):
            result.append(text)
    return result
