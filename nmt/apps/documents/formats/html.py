"""HTML: the text of a block, such as a paragraph or a cell, is a segment; inline tags are marks.

The standard library's parser says where each tag is, and everything else is copied as it stands:
lxml and Beautiful Soup would write other quotes, entities and tags than they read.
"""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from typing import BinaryIO, NamedTuple

from nmt.apps.documents.formats.encoding import convert_text
from nmt.apps.documents.formats.xml import escape
from nmt.apps.documents.job import Job
from nmt.apps.documents.segments import Item, Mark, Token, text_unit, written
from nmt.data.languages import base_language

# elements inside a sentence; all others end one
INLINE = set(
    "a abbr acronym b bdi bdo big cite code del dfn em font i img ins kbd label mark math q rp rt "  # noqa: SIM905
    "ruby s samp small span strike strong sub sup svg time tt u var wbr".split()
)
KEPT = {"code", "kbd", "math", "pre", "samp", "script", "style", "svg", "textarea", "var"}
SEEN = {"code", "kbd", "samp", "var"}  # in a sentence, the model sees their text
VOID = set(
    "area base br col embed hr img input link meta source track wbr".split()  # noqa: SIM905
)
_DECLARED = re.compile(rb"""(?i)<meta[^>]+charset\s*=\s*["']?([\w.-]+)""")
_ATTRIBUTE = re.compile(
    r"""(?is)(\s(?:alt|title|placeholder|aria-label)\s*=\s*)("[^"]*"|'[^']*')"""
)
_CONTENT = re.compile(r"""(?is)(\scontent\s*=\s*)("[^"]*"|'[^']*')""")
_DESCRIBES = re.compile(r"(?i)description|keywords|og:title|twitter:title")


class _Event(NamedTuple):
    kind: str  # start, end, text, other
    name: str
    attributes: dict[str, str]
    raw: str
    line: int


class _Parser(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=False)
        self._text = text
        self._lines = [0, *(m.end() for m in re.finditer("\n", text))]
        self._found: list[tuple[int, str, str, dict[str, str]]] = []
        self.feed(text)
        self.close()

    def _add(self, kind: str, name: str = "", attributes: object = ()) -> None:
        line, column = self.getpos()
        given = {key: value or "" for key, value in attributes}  # type: ignore[attr-defined]
        self._found.append((self._lines[line - 1] + column, kind, name, given))

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._add("start", tag, attrs)

    handle_startendtag = handle_starttag

    def handle_endtag(self, tag: str) -> None:
        self._add("end", tag)

    def _add_text(self, data: str) -> None:
        self._add("text")

    def _add_other(self, data: str) -> None:
        self._add("other")

    handle_data = handle_entityref = handle_charref = _add_text  # type: ignore[assignment]
    handle_comment = handle_decl = unknown_decl = handle_pi = _add_other  # type: ignore[assignment]

    def events(self) -> Iterator[_Event]:
        """Yield the events, each with its raw text up to the next one."""
        found = [(0, "other", "", {}), *self._found, (len(self._text), "", "", {})]
        line = 1
        for (start, kind, name, attributes), (end, *_) in itertools.pairwise(found):
            raw = self._text[start:end]
            yield _Event(kind, name, attributes, raw, line)
            line += raw.count("\n")


def convert(source: BinaryIO, target: BinaryIO, job: Job) -> None:
    """Translate a page: its text, and the attributes that a reader sees or hears."""
    convert_text(source, target, job, items, _DECLARED, "xmlcharrefreplace")


def items(text: str, job: Job, first_line: int = 1) -> Iterator[Item]:
    """Yield the items of HTML.

    Args:
        first_line: number of its first line in the file.
    """
    raws: list[Item] = []  # of a segment, as in the file
    tokens: list[Token] = []
    kept: list[str] = []  # names of open elements that are not translated
    line = 1

    def finished() -> Iterator[Item]:
        if any(isinstance(token, str) and token.strip() for token in tokens):
            yield text_unit(tuple(raws), tuple(tokens), f"line {line}", _as_html)
        else:
            yield from raws
        raws.clear()
        tokens.clear()

    for event in _Parser(text).events():
        if not tokens:
            line = event.line + first_line - 1
        if kept:
            text = html.unescape(event.raw) if event.kind == "text" and kept[0] in SEEN else ""
            _append(event.raw, raws, tokens, text)
            if event.name == kept[-1] and event.name not in VOID:
                change = {"start": 1, "end": -1}.get(event.kind, 0)
                kept = kept + kept[-1:] if change > 0 else kept[:-1]
            continue
        if event.kind == "text":
            raws.append(event.raw)
            tokens.append(re.sub(r"[ \t\r\n\f]+", " ", html.unescape(event.raw)))
            continue
        if event.kind != "other" and event.name not in INLINE:
            yield from finished()
        parts = tuple(_tag_items(event, job, first_line))
        if event.kind == "start" and event.name not in VOID and _is_kept(event):
            kept = [event.name]
            if event.name not in INLINE:
                yield from finished()
        if event.name in INLINE and not kept:
            kind = event.kind if event.name not in VOID else "single"
            tokens.append(Mark(kind, parts, event.name))  # type: ignore[arg-type]
            raws += parts
        elif (event.kind == "other" and tokens) or kept:
            _append("".join(map(str, parts)), raws, tokens)
        else:
            yield from parts
    yield from finished()


def _append(raw: str, raws: list[Item], tokens: list[Token], text: str = "") -> None:
    """Append what is not translated, to the mark before it if that is not translated either.

    Args:
        text: what the model sees of it.
    """
    raws.append(raw)
    last = tokens[-1] if tokens else None
    if isinstance(last, Mark) and last.kind == "single" and not last.name:
        seen = re.sub(r"\s+", " ", last.text + text).lstrip()
        tokens[-1] = Mark("single", (*last.parts, raw), text=seen)
    elif raw:
        tokens.append(Mark("single", (raw,), text=text))


def _is_kept(event: _Event) -> bool:
    classes = event.attributes.get("class", "").split()
    no = event.attributes.get("translate", "").lower() == "no" or "notranslate" in classes
    return no or event.name in KEPT


def _tag_items(event: _Event, job: Job, first_line: int) -> Iterator[Item]:
    """Yield a tag, with the values of attributes that are text as units."""
    pattern = _ATTRIBUTE
    names = event.attributes.get("name", "") + event.attributes.get("property", "")
    if event.name == "meta" and _DESCRIBES.search(names):
        pattern = _CONTENT
    raw, end = event.raw, 0
    lang = event.attributes.get("lang", "")
    if event.name == "html" and lang and base_language(lang) == base_language(job.src):
        raw = re.sub(rf"""(?i)(\slang\s*=\s*["']?){re.escape(lang)}""", rf"\g<1>{job.tgt}", raw)
    for found in pattern.finditer(raw) if event.kind == "start" else ():
        yield raw[end : found.end(1)]
        value = html.unescape(found[2][1:-1])
        place = f"line {event.line + first_line - 1}, attribute {found[1].strip(' =')}"
        yield text_unit(found[2], [value], place, _as_attribute)
        end = found.end()
    yield raw[end:]


def _as_attribute(tokens: Sequence[Token]) -> str:
    value = written(tokens, escape).replace('"', "&quot;")
    return f'"{value}"'


def _as_html(tokens: Sequence[Token]) -> str:
    return written(tokens, lambda text: escape(text).replace("\u00a0", "&nbsp;"))
