"""Read XML as it stands: every tag and text with its own characters, so that the rest can stay.

Libraries that build a tree, such as lxml, write other characters than they read: quotes, entities,
white space in tags. Here expat says where each tag is, and what is not translated is copied. Only
the wanted elements are in memory, one at a time, so a translation memory may have any size.
"""

from __future__ import annotations

import codecs
import functools
import re
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Literal, NamedTuple
from xml.parsers import expat

from nmt.apps.documents.formats.encoding import START, encoding_of, not_in_encoding, require_text
from nmt.apps.documents.segments import Mark, Token
from nmt.errors import UserError

XML = "http://www.w3.org/XML/1998/namespace"
_DECLARED = re.compile(rb"""^\s*<\?xml[^>]*\sencoding\s*=\s*["']([\w.-]+)""")
_BLOCK = 1 << 16  # bytes that are read at once
MAX_DEPTH = 200  # of elements in a wanted one


class Event(NamedTuple):
    """A tag, a text or something else of XML.

    Attributes:
        kind: cdata is the beginning or end of a CDATA section.
        name: of an element, without its prefix.
        attributes: by name without prefix; those of XML itself have the prefix ``xml:``.
        raw: as it stands in the file; an empty element has all of it at its start.
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
        require_text(start, name)
        self.encoding = encoding_of(start, _DECLARED, name)
        self._file, self._name, self._start = file, name, start
        self._found: deque[tuple[int, tuple[Any, ...]]] = deque()  # without the raw text
        self._parser = parser = expat.ParserCreate("utf-8", " ")
        parser.StartElementHandler = self._element
        parser.EndElementHandler = lambda name: self._add("end", *_split(name))
        parser.CharacterDataHandler = lambda text: self._add("text", text=text)
        parser.StartCdataSectionHandler = lambda: self._add("cdata")
        parser.EndCdataSectionHandler = lambda: self._add("cdata")
        parser.DefaultHandler = lambda data: self._add("other")
        parser.EntityDeclHandler = self._entity

    def _add(
        self,
        kind: Literal["start", "end", "text", "cdata", "other"],
        space: str = "",
        name: str = "",
        attributes: dict[str, str] | None = None,
        text: str = "",
    ) -> None:
        parser = self._parser
        event = kind, name, space, attributes or {}, text, parser.CurrentLineNumber
        self._found.append((parser.CurrentByteIndex, event))

    def _element(self, name: str, attributes: dict[str, str]) -> None:
        found = {}
        for key, value in attributes.items():
            space, key = _split(key)
            found[f"xml:{key}" if space == XML else key] = value
        self._add("start", *_split(name), found)

    def _entity(self, *declaration: object) -> None:
        what = "declares entities, which could make it very large"
        fix = "save the file without a document type declaration"
        raise UserError(what, at=f"{self._name}:{self._parser.CurrentLineNumber}", fix=fix)

    def __iter__(self) -> Iterator[Event]:
        """Yield the events.

        Raises:
            UserError: the file is not well-formed, ends too early or is not in its encoding.
        """
        decoder, buffer, base = codecs.getincrementaldecoder(self.encoding)(), bytearray(), 0
        block, position = self._start, 0
        while True:
            try:
                data = decoder.decode(block, final=not block).encode()
                self._parser.Parse(data, not block)
            except UnicodeDecodeError as error:
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
                kind, name, space, attributes, text, line = event
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
                yield Event(kind, name, space, attributes, raw, text, line)
            del buffer[: position - base]
            base = position
            if not block:
                return
            block = self._file.read(_BLOCK)


@functools.lru_cache(maxsize=1000)
def _split(name: str) -> tuple[str, str]:
    """Return the namespace and the name of what expat calls by both."""
    space, _, local = name.rpartition(" ")
    return space, local


@dataclass(eq=False)
class Node:
    """An element with all that is in it.

    Attributes:
        start: its tag.
        end: its end tag as it stands in the file.
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
        """Whether a visible text is in the element."""
        return any(
            child.has_text if isinstance(child, Node) else child.text.strip()
            for child in self.children
        )


def elements(
    reader: Reader, name: str, wanted: Callable[[Event], bool], skipped: Collection[str] = ()
) -> Iterator[Event | Node]:
    """Yield a file as events, except wanted elements as nodes.

    Args:
        wanted: returns whether an element is wanted, given its tag; those in one are part of it.
        skipped: names of elements in which nothing is wanted.
    """
    stack: list[Node] = []
    inside = 0
    for event in reader:
        if not stack and (inside or (event.kind == "start" and event.name in skipped)):
            inside += (event.kind == "start") - (event.kind == "end")
            yield event
        elif event.kind == "start" and (stack or wanted(event)):
            if len(stack) >= MAX_DEPTH:
                what = f"over {MAX_DEPTH} elements in each other"
                fix = "check the file: no document needs so many"
                raise UserError(what, at=f"{name}:{event.line}", fix=fix)
            stack.append(Node(event))
        elif event.kind == "end" and stack:
            node = stack.pop()
            node.end = event.raw
            if not stack:
                yield node
            else:
                stack[-1].children.append(node)
        elif stack:
            _append(stack[-1].children, event)
        else:
            yield event


def _append(children: list[Node | Event], event: Event) -> None:
    """Append an event; a text joins the text before it, which expat divides at line ends."""
    last = children[-1] if children else None
    if event.kind == "text" and isinstance(last, Event) and last.kind == "text":
        children[-1] = last._replace(raw=last.raw + event.raw, text=last.text + event.text)
    else:
        children.append(event)


def pair(node: Node, inside: Sequence[Token], start: str) -> list[Token]:
    """Return the content of an element between two marks, its tags."""
    name = f"{node.name} {id(node)}"
    return [Mark("open", (start,), name), *inside, Mark("close", (node.end,), name)]


def escape(text: str) -> str:
    """Return text as it stands between tags."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def with_attribute(tag: str, name: str, value: str) -> str:
    """Return a tag with an attribute, which replaces one of the same name."""
    text = escape(value).replace('"', "&quot;")
    tag = re.sub(rf"""\s+{re.escape(name)}\s*=\s*("[^"]*"|'[^']*')""", "", tag)
    end = -2 if tag.endswith("/>") else -1
    return f'{tag[:end].rstrip()} {name}="{text}"{tag[end:]}'


def opening(tag: str) -> str:
    """Return the tag of an element that may be empty as the tag of one that is not."""
    return f"{tag[:-2].rstrip()}>" if tag.endswith("/>") else tag
