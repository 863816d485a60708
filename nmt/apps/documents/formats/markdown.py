"""Markdown: a paragraph, heading, item or cell is a segment; emphasis, links and code are marks.

markdown-it-py parses it as CommonMark with tables. It does not report where inline markup is, so
its rules are observed while they parse: each match has a start and an end position. Blocks of
dialects, such as ``:::`` and ``!!! note``, are read as headings and lists.
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
from nmt.apps.documents.segments import (
    Item,
    Mark,
    Token,
    Unit,
    joined,
    plain,
    text_unit,
    with_ruby,
    written,
)
from nmt.errors import UserError, install_fix

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline

_FRONT = re.compile(
    r"""(?:---[^\S\n]*\n(?=[\w"'-][^\n:]*:\s|\#|---).*?\n(?:---|\.\.\.)"""
    r"""|\+\+\+[^\S\n]*\n.*?\n?\+\+\+)[^\S\n]*(?:\n|\Z)""",
    re.DOTALL,
)
_KEPT = {"backticks", "autolink", "html_inline"}
_SEEN = {"backticks", "autolink"}  # the model sees what is in them
_READ = {"entity", "escape"}  # characters
_TEMPLATE = r"\{%[^\n]{0,500}?%\}|\{\{[^\n]{0,500}?\}\}|\{\#[^\n]{0,500}?\#\}"
# inline markup of dialects that is kept: tasks, footnotes, citations, templates, formulas,
# attributes of headings and links, roles, short names of pictures; and what is around text
_INLINE = re.compile(
    rf"\A\[[ xX]\](?=\s)|\[\^[^\[\]\s]+\]:?|\[-?@[^\[\]\n]+\]|{_TEMPLATE}"
    r"|\$\$[^$]+\$\$|(?<![\\$\w])\$(?=[^\s$])[^$]{0,300}(?<![\s\\])\$(?![\d$\w])"
    r"|\\\([^\n]{1,200}?\\\)|\{:?\s?[#.][^{}\n]*\}|\{:[^{}\n]*\}|\{[\w-]{1,50}=[^{}\n]*\}"
    r"|\{[\w:+.-]{1,50}\}`[^`]+`|(?<![\w:]):[a-z][a-z\d_+-]{0,50}:(?![\w:])"
    r"|(?P<begin>!?\[\[(?:[^\[\]|\n]*\|)?|\^\[)(?P<text>[^\[\]\n]*)(?P<finish>\]\]?)"
)
_SPECIAL = re.compile(r"[\\`*_\[\]<>|~]|^[#+:-](?=\s)|(?<=\d)[.)](?=\s)")
_ENTITY = re.compile(r"&(?=#?\w+;)")
# what begins another block
_BLOCK = re.compile(r"(?:[#+:-]|\d+[.)])(?:\s|$)|>|:::|!!!|\?\?\?|\$\$|\+\+\+")
_PIPE = re.compile(r"(?<!\\)\|")
_LINE_END = re.compile(r"\r\n?|\n")
_PREFIX = r"(\s*(?:>\s*)*)"
# a line of a dialect -> what it is read as, with the title or text that it has, its last group
_LINES = [
    (re.compile(rf"{_PREFIX}\[![\w-]+\][-+]?[^\S\n]*(.*)"), "# "),  # > [!NOTE]
    (re.compile(r"""(\s*)(?:!!!|\?\?\?\+?|===[!+]*(?=\s+"))\s[\w\s-]*(?:"(.*)"\s*)?$"""), "- # "),
    (re.compile(rf"{_PREFIX}\{{:?\s?[:#.][^{{}}]*\}}\s*()$"), "# "),  # {{: .class}}
    (re.compile(rf"{_PREFIX}\[\[?_?(?i:toc)_?\]?\]\s*()$"), "# "),
    (re.compile(r"( {0,3})\[\^[^\[\]\s]+\]:\s*(.*)"), "- "),  # a footnote
    (re.compile(r"( {0,3})\*\[[^\[\]]+\]:\s*(.*)"), "- "),  # an abbreviation
    (re.compile(r"( {0,3}):\s+(.*)"), "- "),  # a definition
]
_FENCE = re.compile(rf"{_PREFIX}(`{{3,}}|~{{3,}}|:{{3,}})(.*)")
_DIRECTIVE = re.compile(r"\{([\w:-]+)\}\s*(.*)")  # of MyST
_CONTAINER = re.compile(r"(?:\{[^{}]*\}|[\w-]+)?\s*(?:\[(.*)\]|(.*))")
_PROSE = set(
    "admonition attention card caution danger dropdown epigraph error exercise figure grid "  # noqa: SIM905
    "grid-item grid-item-card hint important margin note pull-quote seealso sidebar tab-item "
    "tab-set tip topic versionadded versionchanged deprecated warning".split()
)
_OPTION = re.compile(r"\s*:[\w-]+:")
_FORMULAS = ("$$", r"\[", r"\begin{")


def convert(source: BinaryIO, target: BinaryIO, job: Job) -> None:
    """Translate the text of a Markdown file."""
    convert_text(source, target, job, _items)


def _items(text: str, job: Job) -> Iterator[Item]:
    front = _FRONT.match(text)
    skipped = front.end() if front else 0
    if skipped:
        job.report.leave("front matter", "line 1")
    yield text[:skipped]
    body, first = text[skipped:], text.count("\n", 0, skipped) + 1
    starts = [0, *(match.end() for match in _LINE_END.finditer(body)), len(body)]
    rows, columns = _plain_rows(_LINE_END.split(body))
    position, env = 0, dict[str, Any]()
    parser = _parser()
    for token in parser.parse("\n".join(rows), env):
        if token.map is None:
            continue
        begin, end = (starts[min(line, len(starts) - 1)] for line in token.map)
        place = f"line {first + token.map[0]}"
        if token.type == "html_block" and ">" in rows[token.map[0]].partition("<")[0]:
            job.report.leave("HTML in a quotation", place)
        elif token.type == "html_block":
            yield body[position:begin]
            yield from html_items(body[begin:end], job, first + token.map[0])
            position = end
        elif token.type in ("fence", "code_block"):
            job.report.leave("code", place)
        elif token.type == "inline" and token.content.strip():
            begin = max(begin + columns.get(token.map[0], 0), position)
            found = _find(body, token.content, begin, starts, token.map)
            if found is None:
                job.report.leave("its place is not clear", place)
                continue
            yield body[position : found[0]]
            inline = _Inline(parser, env.get("references", {}), token.content, place)
            raw = body[found[0] : found[1]]
            inline.is_cell = "|" in token.content and token.content not in raw
            yield text_unit(inline.with_units(raw), inline.tokens, place, inline.as_markdown)
            position = found[1]
    yield body[position:]


def _find(
    text: str, content: str, start: int, starts: Sequence[int], rows: Sequence[int]
) -> tuple[int, int] | None:
    """Return where the lines of a passage are in the file; None if they are not there as such.

    Args:
        start: position before which it is not.
        starts: position of each row.
        rows: the first row of the passage, and the one after it.
    """
    lines = [line.strip() for line in content.split("\n")]
    first, last = rows[0], min(rows[1], len(starts) - 1)
    if first + len(lines) > last:
        return None
    begin = end = -1
    for line, low, high in zip(lines, starts[first:last], starts[first + 1 :], strict=False):
        place = text.find(line, max(start, low), high)
        if place < 0:
            line = _PIPE.sub(r"\|", line)
            place = text.find(line, max(start, low), high)
        if place < 0:
            return None
        begin, end = place if begin < 0 else begin, place + len(line)
    return begin, end


def _plain_rows(rows: Sequence[str]) -> tuple[list[str], dict[int, int]]:
    """Return rows in which blocks of dialects are headings and items of CommonMark.

    Returns:
        As many rows, and where the text begins in those that are not as before.
    """
    plain_rows, columns = list(rows), dict[int, int]()
    fences: list[str] = []  # that are open
    unclosed = False  # whether a formula does not end in this paragraph

    def read_as(row: int, start: str, text: str = "") -> None:
        plain_rows[row] = start + text
        columns[row] = rows[row].rfind(text)

    row = 0
    while row < len(rows):
        line, end = rows[row], row  # of the block
        stripped = line.strip(" >\t")
        if fence := _FENCE.match(line):
            prefix, sign, info = fence[1], fence[2], fence[3].rstrip(": \t").strip()
            title = _title(sign, info)
            if not info and fences and sign.startswith(fences[-1]):
                fences.pop()
                read_as(row, f"{prefix}# ")
            elif title is None:
                end = _end_of_code(rows, row, sign)
                for inside in range(row, end + 1 if sign[0] == ":" else row):
                    read_as(inside, "# ")
            else:
                fences.append(sign)
                read_as(row, f"{prefix}# ", title)
                while end + 1 < len(rows) and _OPTION.match(rows[end + 1]):
                    end += 1
                    read_as(end, "# ")
        elif not unclosed and stripped.startswith(_FORMULAS):
            last = _end_of_formula(rows, row, stripped)
            unclosed = last is None
            for inside in range(row, row if last is None else last + 1):
                end = inside
                read_as(end, "# ")
        elif stripped.startswith("{") and not re.sub(_TEMPLATE, "", stripped).strip():
            read_as(row, "# ")
        elif stripped[:1] in ("[", "!", "?", "=", "{", "*", ":"):
            for pattern, start in _LINES:
                if found := pattern.match(line):
                    read_as(row, found[1] + start, (found[2] or "").rstrip())
                    break
        elif not stripped:
            unclosed = False
        row = end + 1
    return plain_rows, columns


def _title(sign: str, info: str) -> str | None:
    """Return the title of a block between fences; None if it is not text but code."""
    if directive := _DIRECTIVE.match(info):
        return directive[2] if directive[1] in _PROSE else None
    container = _CONTAINER.fullmatch(info) if sign[0] == ":" else None
    return container and (container[1] or container[2] or "")


def _end_of_code(rows: Sequence[str], row: int, sign: str) -> int:
    """Return the last row of a block of code."""
    for end in range(row + 1, len(rows)):
        stripped = rows[end].strip(" >\t")
        if stripped.startswith(sign) and not stripped.strip(sign[0]):
            return end
    return len(rows) - 1


def _end_of_formula(rows: Sequence[str], row: int, stripped: str) -> int | None:
    """Return the last row of a formula; the row before it if it is in a line of text."""
    sign = next(sign for sign in _FORMULAS if stripped.startswith(sign))
    rest = stripped[len(sign) :]
    if sign == "$$" and "$$" in rest:
        return row if rest.index("$$") == len(rest) - 2 else row - 1
    if sign == r"\[" and rest:
        return row - 1
    finish = {"$$": "$$", r"\[": r"\]", r"\begin{": r"\end{"}[sign]
    if finish in rest:
        return row
    for end in range(row + 1, len(rows)):
        if finish in rows[end]:
            return end
        if not rows[end].strip():
            break
    return None


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
    """A match of a rule of the parser.

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
        matched = rule(state, silent)
        if matched and not silent and notes is not None:
            if name == "image":  # it has parsed the text of the image
                del notes[before:]
            label = {"link": start, "image": start + 1}.get(name)
            middle = 0
            if label is not None:
                middle = state.md.helpers.parseLinkLabel(state, label, name == "link")
            made = [(token, len(token.content)) for token in state.tokens[count:]]
            while sum(size for _, size in made) > state.pos - start:  # text that was pending
                made.pop(0)
            notes.append(_Found(name, start, state.pos, middle, made))
        return matched

    return noting


class _Inline:
    """The inline content of a passage.

    Attributes:
        tokens: its text and marks; text has no line end, except for a hard line break.
        is_cell: whether a backslash stands before each vertical bar.
    """

    is_cell = False

    def __init__(self, parser: MarkdownIt, references: Any, content: str, place: str) -> None:
        self._parser, self._references, self._place = parser, references, place
        self.tokens = self._tokens(content)

    def _tokens(self, content: str) -> list[Token]:
        return joined(with_ruby(self._parse(content), _as_text))

    def _parse(self, content: str) -> Iterator[Token]:
        found: list[_Found] = []
        env = {"references": self._references, "found": found}
        self._parser.inline.parse(content, self._parser, env, [])
        marks = [mark for each in found for mark in _marks(each, content, self._place)]
        for each in _INLINE.finditer(content):
            marks += _dialect_marks(each)
        position = 0
        for start, end, mark in sorted(marks, key=lambda item: item[:2]):
            if start >= position:
                yield from (_unbroken(content[position:start]), mark)
                position = end
        yield _unbroken(content[position:])

    def with_units(self, raw: str) -> list[str | Unit]:
        """Return the original text of the passage, with the units of its marks."""
        parts: list[str | Unit] = []
        position = 0
        for token in self.tokens:
            if isinstance(token, Mark) and any(isinstance(part, Unit) for part in token.parts):
                place = raw.find(str(token), position)
                if place < 0:  # it has other characters in a table
                    break
                parts += [raw[position:place], *token.parts]
                position = place + len(str(token))
        return [*parts, raw[position:]]

    def as_markdown(self, tokens: Sequence[Token]) -> str:
        """Return tokens as Markdown; characters that would become markup get a backslash."""
        text = written(tokens, _as_text)
        same = _structure(self._tokens(text)) == _structure(self.tokens)
        new_cells = "|" in plain(tokens) and "|" not in plain(self.tokens)
        if self.is_cell:
            return _PIPE.sub(r"\|", text)
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


def _marks(found: _Found, content: str, place: str) -> Iterator[tuple[int, int, Token]]:
    """Yield where what a rule has found begins and ends, as marks, or as a character."""
    rule, start, end, middle, tokens = found
    raw = content[start:end]
    if rule in _KEPT:
        text = raw.strip("`<> ") if rule in _SEEN and "\n" not in raw else ""
        yield start, end, Mark("single", (raw,), text=text)
    elif rule in _READ and raw[-1] != "\n":
        yield start, end, html.unescape(raw) if rule == "entity" else raw[1:]
    elif rule == "image":
        alt = () if "\n" in raw else ("![", _alt(raw[2:], middle - start - 2, place))
        yield start, end, Mark("single", alt or (raw,))
    elif rule == "link":
        label = content[start + 1 : middle]
        yield start, start + 1, Mark("open", ("[",), "link")
        yield middle, end, Mark("close", (_with_label(content[middle:end], label),), "link")
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


def _with_label(end: str, label: str) -> str:
    """Return the end of a link or image, whose text is no longer its label."""
    return f"][{label}]" if end in ("]", "][]") else end


def _alt(raw: str, length: int, place: str) -> Unit:
    """Return the text of an image and what follows it as a unit."""
    label, end = raw[:length], raw[length:]

    def write(tokens: Sequence[Token]) -> str:
        text = written(tokens, lambda part: re.sub(r"[\\\[\]]", r"\\\g<0>", part))
        return text + _with_label(end, label)

    return text_unit(raw, [re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", label)], place, write)


def _dialect_marks(found: re.Match[str]) -> Iterator[tuple[int, int, Token]]:
    """Yield where inline markup of a dialect begins and ends, as marks."""
    begin, text = found["begin"], found["text"]
    if begin is None:
        yield *found.span(), Mark("single", (found[0],))
    elif (begin == "^[") != (found["finish"] == "]"):
        return  # not a note, nor a link
    elif begin.endswith("[["):  # a page, which has the name that a reader sees
        yield *found.span(), Mark("single", (found[0],), text="" if begin[0] == "!" else text)
    else:
        yield *found.span("begin"), Mark("open", (begin,), "dialect")
        yield *found.span("finish"), Mark("close", (found["finish"],), "dialect")
