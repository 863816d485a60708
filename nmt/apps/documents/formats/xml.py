"""Read XML with the original characters of every tag and text, so that the rest can be copied.

Libraries that build a tree, such as lxml, write other characters than they read: quotes, entities,
white space in tags. Here expat says where each tag is, and what is not translated is copied. Only
the wanted elements are in memory, one at a time, so a translation memory may have any size.
"""

from __future__ import annotations

import codecs
import functools
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Literal, NamedTuple
from xml.parsers import expat

from nmt.apps.documents.formats.encoding import START, encoding_of, not_in_encoding, require_type
from nmt.apps.documents.segments import Item, Mark, Token, Unit
from nmt.errors import UserError

XML = "http://www.w3.org/XML/1998/namespace"
_DECLARED = re.compile(rb"""^\s*<\?xml[^>]*\sencoding\s*=\s*["']([\w.-]+)""")
_ATTRIBUTE = re.compile(r"""(?<!\s)(\s+)([^\s=]+)(\s*=\s*)("[^"]*"|'[^']*')""")
_INVALID = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")  # in XML 1.0
_BLOCK = 1 << 16  # bytes that are read at once
_TEXTS = 10_000  # texts of expat, which divides them at line ends, in one event
CHECK = "check the file: no document needs so much"
MAX_TOKEN = 20_000_000  # bytes of a tag, or of a line of text
MAX_LEVELS = 1000  # of elements in each other
MAX_DEPTH = 100  # of them in a wanted one
MAX_ELEMENT = 100_000_000  # characters of a wanted element, plus a fixed number per event
_EVENT = 300


class Event(NamedTuple):
    """A tag, a text or something else of XML.

    Attributes:
        kind: cdata is the beginning or end of a CDATA section.
        name: of an element, without its prefix.
        attributes: those in the tag, by name without prefix; those of XML itself have the prefix
            ``xml:``. Of two with the same name, the one without a prefix counts.
        raw: original characters; an empty element has all of them at its start.
        text: of a text, without entities.
    """

    kind: Literal["start", "end", "text", "cdata", "other"]
    name: str
    space: str
    attributes: dict[str, str]
    raw: str
    text: str
    line: int

    def __str__(self) -> str:
        return self.raw


class Reader:
    """The events of an XML file, in order."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        start = file.read(START)
        require_type(start, name)
        self.encoding = encoding_of(start, _DECLARED, name)
        self._file, self._name, self._start, self._levels = file, name, start, 0
        self._found: deque[tuple[int, tuple[Any, ...]]] = deque()  # without the raw text
        self._parser = parser = expat.ParserCreate("utf-8", " ")
        parser.StartElementHandler = self._element
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = lambda text: self._add("text", text=text)
        parser.StartCdataSectionHandler = lambda: self._add("cdata")
        parser.EndCdataSectionHandler = lambda: self._add("cdata")
        parser.DefaultHandler = lambda data: self._add("other")
        parser.EntityDeclHandler = self._entity
        parser.specified_attributes = True  # defaults could make each of many elements very large

    def _add(
        self,
        kind: Literal["start", "end", "text", "cdata", "other"],
        space: str = "",
        name: str = "",
        attributes: dict[str, str] | None = None,
        text: str = "",
    ) -> None:
        parser = self._parser
        if kind == "text" and self._found:
            index, (last_kind, *_, texts, _) = self._found[-1]
            is_short = len(texts) < _TEXTS and parser.CurrentByteIndex - index < MAX_TOKEN // 2
            if last_kind == kind and is_short:
                texts.append(text)
                return
        event = kind, name, space, attributes or {}, [text], parser.CurrentLineNumber
        self._found.append((parser.CurrentByteIndex, event))

    def _element(self, name: str, attributes: dict[str, str]) -> None:
        self._levels += 1
        if self._levels > MAX_LEVELS:
            raise self._refused(f"over {MAX_LEVELS:,} elements in each other", CHECK)
        found: dict[str, str] = {}
        for key, value in attributes.items():
            space, key = _split(key)
            if space:
                found.setdefault(f"xml:{key}" if space == XML else key, value)
            else:
                found[key] = value
        self._add("start", *_split(name), found)

    def _end(self, name: str) -> None:
        self._levels -= 1
        self._add("end", *_split(name))

    def _entity(self, *declaration: object) -> None:
        what = "declares entities, which could make it very large"
        raise self._refused(what, "save the file without a document type declaration")

    def _refused(self, what: str, fix: str) -> UserError:
        return UserError(what, at=f"{self._name}:{self._parser.CurrentLineNumber}", fix=fix)

    def __iter__(self) -> Iterator[Event]:
        """Yield the events.

        Raises:
            UserError: the file is not well-formed, ends too early, is not in its encoding, or would
                need much memory.
        """
        decoder, buffer, base = codecs.getincrementaldecoder(self.encoding)(), bytearray(), 0
        block, position = self._start, 0
        while True:
            try:
                data = decoder.decode(block, final=not block).encode()
                self._parser.Parse(data, not block)
            except UnicodeError as error:
                line = self._parser.CurrentLineNumber
                raise not_in_encoding(self._name, self.encoding, line) from error
            except expat.ExpatError as error:
                raise UserError(
                    f"not well-formed XML: {expat.ErrorString(error.code)}",
                    at=f"{self._name}:{error.lineno}:{error.offset + 1}",
                    fix="correct the file, or export it again",
                ) from error
            buffer += data
            # the last event ends where the next one begins, which is not known yet
            while len(self._found) > (1 if block else 0):
                index, event = self._found.popleft()
                following = self._found[0][0] if self._found else base + len(buffer)
                kind, name, space, attributes, texts, line = event
                if kind == "start" and following == index:  # an empty element
                    if len(self._found) < 2 and block:
                        self._found.appendleft((index, event))
                        break
                    following = self._found[1][0] if len(self._found) > 1 else base + len(buffer)
                if index > position:  # a byte-order mark
                    between = buffer[position - base : index - base].decode()
                    yield Event("other", "", "", {}, between, "", line)
                raw = buffer[max(index, position) - base : following - base].decode()
                position = max(position, following)
                yield Event(kind, name, space, attributes, raw, "".join(texts), line)
            del buffer[: position - base]
            base = position
            if not block:
                return
            if len(buffer) > MAX_TOKEN:
                raise self._refused("a tag, comment or line is too long", CHECK)
            block = self._file.read(_BLOCK)


@functools.lru_cache(maxsize=1000)
def _split(name: str) -> tuple[str, str]:
    """Return the namespace and the name of what expat calls by both."""
    space, _, local = name.rpartition(" ")
    return space, local


@dataclass(eq=False)
class Node:
    """An element with its content.

    Attributes:
        start: its tag.
        end: original characters of its end tag.
    """

    start: Event
    children: list[Node | Event] = field(default_factory=list)
    end: str = ""

    @property
    def name(self) -> str:
        """The name without its prefix."""
        return self.start.name

    @property
    def prefix(self) -> str:
        """The prefix of the name in the file, with its colon; empty = none."""
        return self.start.raw[1 : self.start.raw.index(self.name)]

    def __str__(self) -> str:
        return f"{self.start}{''.join(map(str, self.children))}{self.end}"

    def elements(self, *names: str) -> Iterator[Node]:
        """Yield the elements with these names that are directly in this one."""
        for child in self.children:
            if isinstance(child, Node) and child.name in names:
                yield child

    @property
    def has_text(self) -> bool:
        """Whether the element has visible text."""
        return any(
            child.has_text if isinstance(child, Node) else child.text.strip()
            for child in self.children
        )


def elements(
    events: Iterable[Event],
    name: str,
    wanted: Callable[[Event], bool],
    skipped: Collection[str] = (),
) -> Iterator[Event | Node]:
    """Yield a file as events, except wanted elements as nodes.

    Args:
        events: of the file.
        name: of the file.
        wanted: returns whether an element is wanted, given its tag; those in one are part of it.
        skipped: names of elements in which nothing is wanted.

    Raises:
        UserError: a wanted element is too large, or has too many levels.
    """
    stack: list[Node] = []
    inside = size = 0
    for event in events:
        if not stack and (inside or (event.kind == "start" and event.name in skipped)):
            inside += (event.kind == "start") - (event.kind == "end")
            yield event
            continue
        if not stack and not (event.kind == "start" and wanted(event)):
            yield event
            continue
        size += len(event.raw) + _EVENT
        if len(stack) >= MAX_DEPTH or size > MAX_ELEMENT:
            what = f"over {MAX_DEPTH} elements in each other"
            if size > MAX_ELEMENT:
                what = f"the content of {stack[0].name} is too large"
            raise UserError(what, at=f"{name}:{event.line}", fix=CHECK)
        if event.kind == "start":
            stack.append(Node(event))
        elif event.kind == "end":
            node = stack.pop()
            node.end = event.raw
            if stack:
                stack[-1].children.append(node)
            else:
                size = 0
                yield node
        else:
            stack[-1].children.append(event)


def parts_of(node: Node, make: Callable[[Node], Item | None]) -> tuple[str | Unit, ...]:
    """Return an element unchanged, with units in place of some of the elements in it.

    Args:
        make: returns the unit of an element, or its text; None = it stays, with what is made of
            the elements in it.
    """
    parts: list[str | Unit] = [node.start.raw]
    for child in node.children:
        if isinstance(child, Event):
            parts.append(child.raw)
        elif (item := make(child)) is not None:
            parts.append(item)
        else:
            parts += parts_of(child, make)
    parts.append(node.end)
    return tuple(parts)


def pair(node: Node, inside: Sequence[Token], start: str) -> list[Token]:
    """Return the content of an element between two marks, its tags."""
    name = f"{node.name} {id(node)}"
    return [Mark("open", (start,), name), *inside, Mark("close", (node.end,), name)]


def escape(text: str) -> str:
    """Return text escaped for XML, with a replacement for characters that XML cannot have."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _INVALID.sub("\ufffd", text)


def with_attributes(tag: str, changes: Mapping[str, str | None]) -> str:
    """Return a tag with other attributes.

    Args:
        changes: name with its prefix -> value; None removes the attribute.
    """
    left = {
        name: None if value is None else escape(value).replace('"', "&quot;")
        for name, value in changes.items()
    }

    def changed(found: re.Match[str]) -> str:
        space, name, sign, _ = found.groups()
        if name not in left:
            return found[0]
        value = left.pop(name)
        return "" if value is None else f'{space}{name}{sign}"{value}"'

    tag = _ATTRIBUTE.sub(changed, tag)
    new = "".join(f' {name}="{value}"' for name, value in left.items() if value is not None)
    end = -2 if tag.endswith("/>") else -1
    return f"{tag[:end].rstrip()}{new}{tag[end:]}" if new else tag


def attribute_names(tag: str) -> dict[str, str]:
    """Return the names of the attributes of a tag: without prefix -> original name."""
    return {name.rpartition(":")[2]: name for _, name, *_ in _ATTRIBUTE.findall(tag)}


def opening(tag: str) -> str:
    """Return the tag of an element that may be empty as the tag of one that is not."""
    return f"{tag[:-2].rstrip()}>" if tag.endswith("/>") else tag
