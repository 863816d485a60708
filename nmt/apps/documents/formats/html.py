"""HTML: the text of a block, such as a paragraph or a cell, is a segment; inline tags are marks.

Everything else is copied unchanged: libraries such as lxml and Beautiful Soup would write other
quotes, entities and tags than they read. The page is divided into tags and text by the rules of the
HTML standard, section 13.2.5, in one pass, in linear time.
"""

from __future__ import annotations

import html
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal, NamedTuple

from nmt.apps.documents.formats.encoding import convert_text
from nmt.apps.documents.formats.xml import escape
from nmt.apps.documents.job import Job
from nmt.apps.documents.segments import Item, Mark, Token, text_unit, with_ruby, written
from nmt.text.languages import base_language


def _names(names: str) -> frozenset[str]:
    return frozenset(names.split())


# elements inside a sentence; all others end one
INLINE = _names(
    "a abbr acronym b bdi bdo big cite code data del dfn em font i img ins kbd label mark math q "
    "rb rp rt rtc ruby s samp small span strike strong sub sup svg time tt u var wbr"
)
UNSEEN = _names("script style")  # elements without text for a reader
KEPT = UNSEEN | _names(
    "code iframe kbd math noembed noframes plaintext pre samp svg textarea var xmp"
)
SEEN = _names("code kbd samp var")  # in a sentence, the model sees their text
VOID = _names("area base br col embed hr img input link meta source track wbr")
_FOREIGN = _names("math svg")  # a slash at the end of their tag leaves them empty
# elements whose content has no tags, or no tags and entities
_RAW = _names("iframe noembed noframes plaintext script style textarea title xmp")
# boundaries that an end tag does not cross
_SCOPE = _names("caption html table td template th")
_TABLE = _names("html table template")
_CELLS = _names("body caption html table tbody td template tfoot th thead tr")
_BLOCKS = _names(
    "address article aside blockquote center details dialog dir div dl fieldset figcaption figure "
    "footer form h1 h2 h3 h4 h5 h6 header hgroup hr listing main menu nav ol p plaintext pre "
    "search section summary table ul xmp"
)
_ROWS = _names("tbody tfoot thead")
# element -> the open elements that its start tag ends, and where the search for them ends
_ENDS: dict[str, tuple[Collection[str], Collection[str]]] = {
    **dict.fromkeys(_BLOCKS, ({"p"}, _SCOPE | {"button"})),
    "li": ({"li", "p"}, _SCOPE | {"button", "dir", "menu", "ol", "ul"}),
    **dict.fromkeys(("dd", "dt"), ({"dd", "dt", "p"}, _SCOPE | {"button", "dl"})),
    **dict.fromkeys(("option", "hr"), ({"option"}, {"select", "datalist"})),
    "optgroup": ({"option", "optgroup"}, {"select"}),
    **dict.fromkeys(("rp", "rt"), ({"rp", "rt"}, {"ruby", "rtc"})),
    **dict.fromkeys(("td", "th"), ({"caption", "colgroup", "td", "th"}, _TABLE | {"tr"})),
    "tr": ({"caption", "colgroup", "tr"}, _TABLE | _ROWS),
    **dict.fromkeys(_ROWS, ({"caption", "colgroup", *_ROWS}, _TABLE)),
    "body": ({"head"}, {"html"}),
    "a": ({"a"}, _SCOPE),
    "button": ({"button"}, _SCOPE),
}
_BLANK = " \t\r\n\f"
_TAG = re.compile(rf"</?([A-Za-z][^{_BLANK}/>]*)")
_ATTRIBUTE = re.compile(
    rf"""[{_BLANK}/]*(=?[^{_BLANK}/>=]+|=)(?:[{_BLANK}]*=[{_BLANK}]*"""
    rf"""("[^"]*(?:"|\Z)|'[^']*(?:'|\Z)|[^{_BLANK}>"'][^{_BLANK}>]*|(?=>)))?"""
)
_TAG_END = re.compile(rf"[{_BLANK}/]*>")
_COMMENT_END = re.compile(r"--!?>")
_SCRIPT = re.compile(rf"(?i)<!--(?:-?>)?|-->|</?script(?=[{_BLANK}/>])")
_DECLARED = re.compile(rb"""(?i)<meta[^>]{1,500}?charset\s{0,9}=\s{0,9}["']?([\w.-]+)""")
_DESCRIBES = re.compile(r"(?i)description|keywords|og:title|twitter:title")
# attribute that is text -> the elements that have it; empty = all
_TEXTS = {
    **dict.fromkeys(_names("aria-description aria-label aria-placeholder aria-roledescription")),
    **dict.fromkeys(_names("aria-valuetext placeholder title")),
    "abbr": _names("th"),
    "alt": _names("area img input"),
    "label": _names("optgroup option track"),
}
_BUTTONS = _names("button reset submit")  # types of an input whose value is its text


class _Event(NamedTuple):
    """A tag, a text or something else.

    Attributes:
        kind: an element that cannot have content is single.
        name: of an element, in small letters.
        values: attribute in small letters -> where its value is in ``raw``, with its quotes.
    """

    kind: Literal["open", "close", "single", "text", "other"]
    name: str
    values: Mapping[str, tuple[int, int]]
    raw: str

    def value(self, attribute: str) -> str:
        """Return the value of an attribute; empty if it has none."""
        start, end = self.values.get(attribute, (0, 0))
        value = self.raw[start:end]
        return unescape(value[1:-1] if value[:1] in ("'", '"') else value)


def unescape(text: str) -> str:
    """Return text without entities."""
    try:
        return html.unescape(text)
    except ValueError:  # the number of a character has thousands of digits
        return text


def _events(text: str, job: Job, first_line: int) -> Iterator[_Event]:
    """Yield a page as events, of which the raw texts are the page."""
    is_xml = text.startswith("<?xml")  # there, any element may be empty
    position = begin = 0  # where a text begins
    while (position := text.find("<", position)) >= 0:
        tag = _TAG.match(text, position)
        if not tag and text[position + 1 : position + 2] not in ("!", "?", "/"):
            position += 1  # a sign in a text
            continue
        if begin < position:
            yield _Event("text", "", {}, text[begin:position])
        event = _tag(text, tag, is_xml) if tag else _comment(text, position)
        if event is None:
            event = _Event("other", "", {}, text[position:])
            if any(map(str.isalpha, event.raw)):
                place = f"line {first_line + text.count(chr(10), 0, position)}"
                job.report.leave("in a tag or comment without an end", place)
        yield event
        position = begin = position + len(event.raw)
        if event.kind == "open" and event.name in _RAW:
            begin = _end_of_raw(text, position, event.name)
            raw, position = text[position:begin], begin
            yield _Event("other" if event.name in UNSEEN else "text", "", {}, raw)
    yield _Event("text", "", {}, text[begin:])


def _tag(text: str, tag: re.Match[str], is_xml: bool) -> _Event | None:
    """Return a tag; None if it does not end."""
    values: dict[str, tuple[int, int]] = {}
    start, position = tag.span()
    while not (end := _TAG_END.match(text, position)):
        match = _ATTRIBUTE.match(text, position)
        if not match:
            return None
        position = match.end()
        if match[2]:
            values.setdefault(match[1].lower(), (match.start(2) - start, position - start))
    name, raw = tag[1].lower(), text[start : end.end()]
    kind: Any = "close" if raw[1] == "/" else "open"
    if kind == "open" and (name in VOID or (raw[-2] == "/" and (is_xml or name in _FOREIGN))):
        kind = "single"
    return _Event(kind, name, values, raw)


def _comment(text: str, start: int) -> _Event | None:
    """Return a comment, or what browsers read as one; None if it does not end."""
    end = text.find(">", start) + 1
    if text.startswith("<!--", start) and not text.startswith((">", "->"), start + 4):
        match = _COMMENT_END.search(text, start + 4)
        end = match.end() if match else 0
    return _Event("other", "", {}, text[start:end]) if end else None


def _end_of_raw(text: str, start: int, name: str) -> int:
    """Return where the content of an element without tags inside ends."""
    if name == "plaintext":
        return len(text)
    if name != "script":
        match = re.compile(rf"(?i)</{name}(?=[{_BLANK}/>])").search(text, start)
        return match.start() if match else len(text)
    in_comment = in_script = False  # a comment in a script may have scripts
    for match in _SCRIPT.finditer(text, start):
        sign = match[0].lower()
        if sign == "-->":
            in_comment = in_script = False
        elif sign == "<!--":
            in_comment = True
        elif sign == "<script":
            in_script = in_comment
        elif sign == "</script":
            if not in_script:
                return match.start()
            in_script = False
    return len(text)


@dataclass(eq=False)
class _Kept:
    """An element that is not translated.

    Attributes:
        reason: why.
        counted: whether the report says that it stays.
    """

    name: str
    reason: str
    counted: bool = False


class _Elements:
    """The open elements. Those whose end tag is left out end where browsers end them."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._kept: list[_Kept | None] = [None]
        self._places: dict[str, list[int]] = defaultdict(list)  # of each name

    def kept(self, event: _Event) -> _Kept | None:
        """Return the outermost element that keeps an event as it is."""
        if event.kind in ("open", "single"):
            self._end(*_ENDS.get(event.name, ((), ())))
            kept = _keeps(event, self._kept[-1])
            if event.kind == "open":
                self._places[event.name].append(len(self._names))
                self._names.append(event.name)
                self._kept.append(kept)
            return kept
        if event.kind == "close":
            within = _TABLE if event.name in _CELLS else _SCOPE
            return self._end({event.name}, within - {event.name})
        return self._kept[-1]

    def _last(self, names: Collection[str]) -> int:
        return max((self._places[n][-1] for n in names if self._places[n]), default=-1)

    def _end(self, names: Collection[str], within: Collection[str]) -> _Kept | None:
        """End the last open element with one of these names; return what keeps its end tag."""
        place = self._last(names)
        if place < 0 or place < self._last(within):
            return self._kept[-1]
        kept = self._kept[place + 1]
        for name in self._names[place:]:
            self._places[name].pop()
        del self._names[place:], self._kept[place + 1 :]
        return kept


def _keeps(event: _Event, kept: _Kept | None) -> _Kept | None:
    """Return what keeps an element, given what keeps its parent."""
    translate = event.value("translate").lower() if "translate" in event.values else None
    if translate in ("yes", "") and event.name not in UNSEEN:
        return None
    if kept:
        return kept
    if translate == "no":
        return _Kept(event.name, "translate=no")
    if "notranslate" in event.value("class").split():
        return _Kept(event.name, "class=notranslate")
    return _Kept(event.name, event.name) if event.name in KEPT else None


def convert(source: BinaryIO, target: BinaryIO, job: Job) -> None:
    """Translate a page: its text, and the attributes that a reader sees or hears."""
    convert_text(source, target, job, items, _DECLARED, "xmlcharrefreplace")


class _Passage:
    """The content between two block tags."""

    def __init__(self) -> None:
        self._raws: list[Item] = []  # as in the file
        self._tokens: list[Token] = []
        self._held: list[tuple[str, str]] = []  # what is not translated, and what the model sees
        self._line = 0  # of the first text

    def add(self, token: Token, *parts: Item) -> None:
        """Add text or a tag, which is ``parts`` in the file."""
        self._release()
        self._tokens.append(token)
        self._raws += parts

    def add_text(self, raw: str, line: int) -> None:
        """Add text, which begins in this line."""
        if not self._line and raw.strip():
            self._line = line
        self.add(re.sub(r"[ \t\r\n\f]+", " ", unescape(raw)), raw)

    def hold(self, raw: str, text: str = "") -> None:
        """Add what is not translated; the model sees a text of it."""
        self._held.append((raw, text))

    def _release(self) -> None:
        if self._held:
            raw, text = ("".join(parts) for parts in zip(*self._held, strict=True))
            self._held.clear()
            self.add(Mark("single", (raw,), text=" ".join(text.split())), raw)

    def items(self) -> Iterator[Item]:
        """Yield the items of the passage."""
        self._release()
        if self._line:
            tokens = with_ruby(self._tokens, _as_text)
            yield text_unit(self._raws, tokens, f"line {self._line}", _as_html)
        else:
            yield from self._raws


def items(text: str, job: Job, first_line: int = 1) -> Iterator[Item]:
    """Yield the items of HTML.

    Args:
        first_line: number of its first line in the file.
    """
    elements, passage, line = _Elements(), _Passage(), first_line
    for event in _events(text, job, first_line):
        kept = elements.kept(event)
        if event.name and (kept or event).name not in INLINE:
            yield from passage.items()
            passage = _Passage()
            yield from [event.raw] if kept else _tag_items(event, job, line)
        elif kept:
            seen = unescape(event.raw) if event.kind == "text" else ""
            is_code = kept.reason in SEEN
            passage.hold(event.raw, seen if is_code else "")
            if not is_code and not kept.counted and any(map(str.isalpha, seen)):
                job.report.leave(kept.reason, f"line {line}")
                kept.counted = True
        elif event.kind == "text":
            passage.add_text(event.raw, line)
        elif event.kind == "other":
            passage.hold(event.raw)
        else:
            parts = tuple(_tag_items(event, job, line))
            passage.add(Mark(event.kind, parts, event.name), *parts)
        line += event.raw.count("\n")
    yield from passage.items()


def _tag_items(event: _Event, job: Job, line: int) -> Iterator[Item]:
    """Yield a tag, with the values of attributes that are text as units."""
    end = 0
    for attribute, (start, stop) in event.values.items():
        raw = event.raw[start:stop]
        if attribute in ("lang", "xml:lang"):
            if event.name == "html" and base_language(event.value(attribute)) == base_language(
                job.src
            ):
                yield event.raw[end:start] + f'"{job.tgt}"'
                end = stop
        elif _is_text(event, attribute):
            yield event.raw[end:start]
            place = f"line {line}, attribute {attribute}"
            yield text_unit(raw, [event.value(attribute)], place, _as_attribute)
            end = stop
    yield event.raw[end:]


def _is_text(event: _Event, attribute: str) -> bool:
    """Return whether a reader sees or hears the value of an attribute."""
    if attribute == "value":
        return event.name == "input" and event.value("type").lower() in _BUTTONS
    if attribute == "content" and event.name == "meta":
        return bool(_DESCRIBES.search(event.value("name") + event.value("property")))
    return attribute in _TEXTS and event.name in (_TEXTS[attribute] or (event.name,))


def _as_attribute(tokens: Sequence[Token]) -> str:
    value = written(tokens, escape).replace('"', "&quot;")
    return f'"{value}"'


def _as_html(tokens: Sequence[Token]) -> str:
    return written(tokens, _as_text)


def _as_text(text: str) -> str:
    return escape(text).replace("\u00a0", "&nbsp;")
