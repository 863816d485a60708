"""Markdown: a paragraph, heading, item or cell is a segment; emphasis, links and code are marks.

markdown-it-py parses it as CommonMark with tables. It does not say where inline markup is, so its
rules are asked while they read: each rule that finds something has begun at one position and ended
at another.
"""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from nmt.apps.documents.formats.encoding import convert_text
from nmt.apps.documents.formats.html import items as html_items
from nmt.apps.documents.job import Job
from nmt.apps.documents.segments import Item, Mark, Token, joined, plain, text_unit, written
from nmt.errors import UserError, install_fix

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline

_FRONT = re.compile(r"\ufeff?---[^\S\n]*\n.*?\n(?:---|\.\.\.)[^\S\n]*(?:\n|\Z)", re.DOTALL)
_KEPT = {"backticks", "autolink", "html_inline", "image"}
_SEEN = {"backticks", "autolink"}  # the model sees what is in them
_READ = {"entity", "escape"}  # characters
_FOOTNOTE = re.compile(r"\[\^[^\]\s]+\]:?")
_SPECIAL = re.compile(r"[\\`*_\[\]<>|~]|^[#+-](?=\s)|(?<=\d)[.)](?=\s)")
_ENTITY = re.compile(r"&(?=#?\w+;)")
_BLOCK = re.compile(r"(?:[#+-]|\d+[.)])(?:\s|$)|>")  # what begins another block


def convert(source: BinaryIO, target: BinaryIO, job: Job) -> None:
    """Translate the text of a Markdown file."""
    convert_text(source, target, job, _items)


def _items(text: str, job: Job) -> Iterator[Item]:
    front = _FRONT.match(text)
    skipped = front.end() if front else 0
    yield text[:skipped]
    body, first = text[skipped:], text.count("\n", 0, skipped) + 1
    starts = [0, *(match.end() for match in re.finditer("\n", body)), len(body)]
    position, env = 0, dict[str, Any]()
    parser = _parser()
    for token in parser.parse(body.replace("\r\n", "\n"), env):
        if token.map is None:
            continue
        begin, end = (starts[min(line, len(starts) - 1)] for line in token.map)
        if token.type == "html_block":
            yield body[position:begin]
            yield from html_items(body[begin:end], job, first + token.map[0])
            position = end
        elif token.type == "inline" and token.content.strip():
            found = _find(body, token.content, max(begin, position), end)
            if found is None:
                job.report.count("passages whose place is not clear, so that they stay")
                continue
            yield body[position : found[0]]
            inline = _Inline(parser, env.get("references", {}), token.content)
            raw, place = body[found[0] : found[1]], f"line {first + token.map[0]}"
            yield text_unit(raw, inline.tokens, place, inline.as_markdown)
            position = found[1]
    yield body[position:]


def _find(text: str, content: str, start: int, end: int) -> tuple[int, int] | None:
    """Return where the lines of a passage are in the file; None if they are not there as such."""
    lines = content.split("\n")
    pattern = r"[^\S\n]*\n[^\n]*?".join(re.escape(line.strip()) for line in lines)
    found = re.compile(pattern).search(text, start, end)
    return found.span() if found else None


@functools.cache
def _parser() -> MarkdownIt:
    """Return a parser of blocks, and of inline content where it is called for that.

    Raises:
        UserError: markdown-it-py is not installed.
    """
    try:
        from markdown_it import MarkdownIt
    except ImportError as error:
        raise UserError(
            "Markdown (.md) needs the package markdown-it-py", fix=install_fix("documents")
        ) from error

    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"]).disable("inline")
    for rule in parser.inline.ruler.__rules__:
        parser.inline.ruler.at(rule.name, _noted(rule.name, rule.fn))
    return parser


class _Found(NamedTuple):
    """What a rule of the parser has found.

    Attributes:
        start, end: position in the passage.
        middle: end of the text of a link.
        tokens: of a row of delimiters, which may become emphasis, with their lengths.
    """

    rule: str
    start: int
    end: int
    middle: int
    tokens: list[tuple[Any, int]]


def _noted(name: str, rule: Callable[[StateInline, bool], bool]) -> Any:
    """Return a rule that notes in the environment what it finds."""

    def noting(state: StateInline, silent: bool) -> bool:
        start, count, notes = state.pos, len(state.tokens), state.env.get("found")
        before = 0 if notes is None else len(notes)
        found = rule(state, silent)
        if found and not silent and notes is not None:
            if name == "image":  # it has parsed the text of the image
                del notes[before:]
            middle = state.md.helpers.parseLinkLabel(state, start, True) if name == "link" else 0
            made = [(token, len(token.content)) for token in state.tokens[count:]]
            while sum(size for _, size in made) > state.pos - start:  # text that was pending
                made.pop(0)
            notes.append(_Found(name, start, state.pos, middle, made))
        return found

    return noting


class _Inline:
    """The inline content of a passage.

    Attributes:
        tokens: its text and marks; text has no line end, except for a hard line break.
    """

    def __init__(self, parser: MarkdownIt, references: Any, content: str) -> None:
        self._parser, self._references = parser, references
        self.tokens = joined(self._parse(content))

    def _parse(self, content: str) -> Iterator[Token]:
        found: list[_Found] = []
        env = {"references": self._references, "found": found}
        self._parser.inline.parse(content, self._parser, env, [])
        marks: list[tuple[int, int, Token]] = []
        for each in found:
            marks += _marks(each, content)
        for note in _FOOTNOTE.finditer(content):
            marks.append((*note.span(), Mark("single", (note[0],))))
        position = 0
        for start, end, mark in sorted(marks, key=lambda item: item[:2]):
            if start >= position:
                yield from (_unbroken(content[position:start]), mark)
                position = end
        yield _unbroken(content[position:])

    def as_markdown(self, tokens: Sequence[Token]) -> str:
        """Return tokens as Markdown; characters that would become markup get a backslash."""
        text = written(tokens, _as_text)
        same = _structure(joined(self._parse(text))) == _structure(self.tokens)
        new_cells = "|" in plain(tokens) and "|" not in plain(self.tokens)
        if same and not new_cells and not _BLOCK.match(text):
            return text
        return written(tokens, lambda part: _SPECIAL.sub(r"\\\g<0>", _as_text(part)))


def _as_text(part: str) -> str:
    return _ENTITY.sub("&amp;", part).replace("\n", "  \n")


def _structure(tokens: Sequence[Token]) -> list[tuple[str, str]]:
    return sorted((token.kind, str(token)) for token in tokens if isinstance(token, Mark))


def _unbroken(text: str) -> str:
    """Return text with spaces for line ends, except for hard line breaks."""
    text = re.sub(r"(?: {2,}|\\)\n[^\S\n]*", "\0", text)
    return re.sub(r"[^\S\n]*\n[^\S\n]*", " ", text).replace("\0", "\n")


def _marks(found: _Found, content: str) -> Iterator[tuple[int, int, Token]]:
    """Yield where what a rule has found begins and ends, as marks, or as a character."""
    rule, start, end, middle, tokens = found
    raw = content[start:end]
    if rule in _KEPT:
        text = raw.strip("`<> ") if rule in _SEEN and "\n" not in raw else ""
        yield start, end, Mark("single", (raw,), text=text)
    elif rule in _READ and raw[-1] != "\n":
        yield start, end, html.unescape(raw) if rule == "entity" else raw[1:]
    elif rule == "link":
        yield start, start + 1, Mark("open", ("[",), "link")
        yield middle, end, Mark("close", (content[middle:end],), "link")
    elif rule in ("emphasis", "strikethrough"):
        position = start
        for token, size in tokens:
            kind, _, side = token.type.rpartition("_")
            # a pair of delimiters is one token, the inner one
            first = position - (token.type == "strong_open")
            last = position + size + (token.type == "strong_close")
            if side in ("open", "close"):
                yield first, last, Mark(side, (content[first:last],), kind)
            position += size
