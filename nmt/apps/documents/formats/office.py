"""Word documents (.docx) and OpenDocument texts (.odt): a paragraph is a segment.

Both are zip archives of XML. Only the XML of the text is read, and of it only the paragraphs are
written again; every other file of the archive is copied. python-docx and odfpy read and write all
of it, and do not reach the paragraphs of footnotes, text boxes and tracked insertions.

The marks of a paragraph are its links, fields and notes, and the runs of text whose style is not
that of most of its text. Word divides text into many runs of the same style; they are one run here.
"""

from __future__ import annotations

import io
import itertools
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import BinaryIO, NamedTuple, TypeAlias

from nmt.apps.documents.formats.xml import Event, Node, Reader, elements, escape, pair
from nmt.apps.documents.job import Job
from nmt.apps.documents.segments import Item, Mark, Token, Unit, text_unit, written
from nmt.errors import UserError
from nmt.runtime.files import human_bytes

MAX_SIZE = 1 << 28  # bytes of an unpacked file: a small archive may hold a very large one
_DOCX_PARTS = re.compile(r"word/(?:document|header\d*|footer\d*|footnotes|endnotes|comments)\.xml")
_ODT_PARTS = re.compile(r"content\.xml|styles\.xml")
_WORD = (
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
    "http://purl.oclc.org/ooxml/wordprocessingml/main",
)
_ODF_TEXT = "urn:oasis:names:tc:opendocument:xmlns:text:1.0"
_DROPPED = {"proofErr", "lastRenderedPageBreak"}  # about the old text
_AROUND_RUNS = {"hyperlink", "ins", "smartTag", "fldSimple", "customXml", "sdt", "sdtContent"}
_STYLE = "style"  # name of the marks of runs

Make: TypeAlias = Callable[[Node], Item | None]  # a paragraph -> its unit, others -> None
Write: TypeAlias = Callable[[Sequence[Token]], str]


class _Archive(NamedTuple):
    """A kind of archive.

    Attributes:
        parts: names of the files with text.
        namespaces, paragraphs: of the elements that are segments.
        skipped: elements with paragraphs that nobody reads.
        read: a paragraph -> its tokens, and the function that writes them as a paragraph.
    """

    kind: str
    parts: re.Pattern[str]
    namespaces: Collection[str]
    paragraphs: Collection[str]
    skipped: Collection[str]
    read: Callable[[Node, Make], tuple[list[Token], Write]]

    def has(self, event: Event) -> bool:
        """Return whether an element is a paragraph."""
        return event.name in self.paragraphs and event.space in self.namespaces


def convert_docx(source: BinaryIO, target: BinaryIO, job: Job) -> None:
    """Translate a Word document."""
    _convert(source, target, job, _DOCX)


def convert_odt(source: BinaryIO, target: BinaryIO, job: Job) -> None:
    """Translate an OpenDocument text."""
    _convert(source, target, job, _ODT)


def _convert(source: BinaryIO, target: BinaryIO, job: Job, archive: _Archive) -> None:
    damaged = UserError(
        f"is not a {archive.kind}, or it is damaged",
        at=job.name,
        fix="open it in your word processor and save it again in this format",
    )
    try:
        with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
            names = [info.filename for info in old.infolist()]
            if not any(archive.parts.fullmatch(name) for name in names):
                raise damaged
            for info in old.infolist():
                data = _read(old, info, job.name)
                if archive.parts.fullmatch(info.filename):
                    data = _translated(data, info.filename, job, archive)
                new.writestr(info, data)
    except (zipfile.BadZipFile, EOFError, zlib.error, NotImplementedError, RuntimeError) as error:
        raise damaged from error


def _read(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> bytes:
    with archive.open(info) as file:
        data = file.read(MAX_SIZE + 1)
    if len(data) > MAX_SIZE:
        fix = "divide the document"
        raise UserError(f"{info.filename} in it has over {human_bytes(MAX_SIZE)}", at=name, fix=fix)
    return data


def _translated(data: bytes, part: str, job: Job, archive: _Archive) -> bytes:
    name = f"{job.name}:{part}"
    label = "" if part in ("word/document.xml", "content.xml") else f"{part}, "
    reader = Reader(io.BytesIO(data), name)

    def items() -> Iterator[Item]:
        number = 0
        for item in elements(reader, name, archive.has, archive.skipped):
            if isinstance(item, Event):
                yield item.raw
            else:
                number += 1
                yield _unit(item, f"{label}paragraph {number}", archive)

    texts = job.translated(items())
    return b"".join(text.encode(reader.encoding, "xmlcharrefreplace") for text in texts)


def _unit(node: Node, place: str, archive: _Archive) -> Item:
    """Return the unit of a paragraph, with those of the paragraphs in it, such as of a footnote."""
    inner = itertools.count(1)

    def make(child: Node) -> Item | None:
        return _unit(child, f"{place}.{next(inner)}", archive) if archive.has(child.start) else None

    tokens, write = archive.read(node, make)
    units = [p for t in tokens if isinstance(t, Mark) for p in t.parts if isinstance(p, Unit)]
    remaining = iter(units)

    def same(child: Node) -> Item | None:
        return next(remaining) if archive.has(child.start) else None

    raw = _parts(node, same) if units else str(node)
    return text_unit(raw, tokens, place, write)


def _parts(node: Node, make: Make) -> tuple[str | Unit, ...]:
    """Return an element as it stands, with units for the paragraphs in it."""
    parts: list[str | Unit] = [node.start.raw]
    for child in node.children:
        if isinstance(child, Event):
            parts.append(child.raw)
        elif (unit := make(child)) is not None:
            parts.append(unit)
        else:
            parts += _parts(child, make)
    parts.append(node.end)
    return tuple(parts)


# ---------------------------------------------------------------- Word


def _read_word(node: Node, make: Make) -> tuple[list[Token], Write]:
    properties = [*node.elements("pPr")]
    styles: Counter[str] = Counter()
    tokens = _word_tokens([c for c in node.children if c not in properties], make, styles)
    usual = max(styles, key=styles.__getitem__, default="")
    start = f"{node.start}{''.join(map(str, properties))}"

    def write(translation: Sequence[Token]) -> str:
        return f"{start}{_as_runs(translation, usual, node.prefix)}{node.end}"

    return _without_usual(tokens, usual), write


def _word_tokens(children: Sequence[Node | Event], make: Make, styles: Counter[str]) -> list[Token]:
    """Return the content of a paragraph as tokens; count the characters of each style of runs."""
    tokens: list[Token] = []
    fields = 0  # that have begun
    code: list[str | Unit] = []  # of a field, up to its text
    for child in children:
        if isinstance(child, Event):
            if child.kind == "other":
                tokens.append(Mark("single", (child.raw,)))
            continue
        field = _field_part(child) if child.name == "r" else ""
        if field == "begin" or code:
            code += _parts(child, make)
            if field == "separate":
                tokens.append(Mark("open", tuple(code), "field"))
                code, fields = [], fields + 1
            elif field == "end":  # without text
                tokens.append(Mark("single", tuple(code)))
                code = []
        elif field == "end" and fields:
            fields -= 1
            tokens.append(Mark("close", _parts(child, make), "field"))
        elif child.name == "r":
            tokens += _run_tokens(child, make, styles)
        elif child.name in _AROUND_RUNS and child.end:
            properties = [c for c in child.children if _is_properties(c)]
            others = [c for c in child.children if not _is_properties(c)]
            start = "".join(map(str, [child.start, *properties]))
            tokens += pair(child, _word_tokens(others, make, styles), start)
        elif child.name not in _DROPPED:
            tokens.append(Mark("single", _parts(child, make)))
    if code:
        tokens.append(Mark("single", tuple(code)))
    return tokens


def _is_properties(child: Node | Event) -> bool:
    return isinstance(child, Node) and child.name.endswith("Pr")


def _field_part(run: Node) -> str:
    """Return which part of a field a run is: begin, separate, end, or none."""
    for child in run.elements("fldChar"):
        return child.start.attributes.get("fldCharType", "")
    return ""


def _run_tokens(run: Node, make: Make, styles: Counter[str]) -> list[Token]:
    style = "".join(map(str, run.elements("rPr")))
    tokens: list[Token] = [Mark("open", (style,), _STYLE)]
    for child in run.children:
        if isinstance(child, Event) or child.name in ("rPr", *_DROPPED):
            continue
        attributes = child.start.attributes
        if child.name == "t":
            tokens.append("".join(c.text for c in child.children if isinstance(c, Event)))
        elif child.name == "tab":
            tokens.append("\t")
        elif child.name == "cr" or (child.name == "br" and "type" not in attributes):
            tokens.append("\n")
        elif child.name == "noBreakHyphen":
            tokens.append("\u2011")
        else:
            # without its attributes, which are revision numbers
            start, end = f"<{run.prefix}r>{style}", f"</{run.prefix}r>"
            tokens.append(Mark("single", (start, *_parts(child, make), end)))
    styles[style] += sum(len(token) for token in tokens if isinstance(token, str))
    return [*tokens, Mark("close", (), _STYLE)]


def _without_usual(tokens: Sequence[Token], usual: str) -> list[Token]:
    """Return tokens without the marks of runs in the usual style, and with equal neighbors joined.

    A mark with no text inside its run stays alone: its parts have its style.
    """
    result: list[Token] = []
    wanted = usual
    style: str | None = None  # of the open run in the result
    for token in [*tokens, None]:
        if isinstance(token, Mark) and token.name == _STYLE:
            if token.kind == "open":
                wanted = str(token)
            continue
        now = wanted if isinstance(token, str) and wanted != usual else None
        if now != style:
            if style is not None:
                result.append(Mark("close", (), _STYLE))
            if now is not None:
                result.append(Mark("open", (now,), _STYLE))
            style = now
        if token is not None:
            result.append(token)
    return result


def _as_runs(tokens: Sequence[Token], usual: str, prefix: str) -> str:
    parts, style = [], usual
    for token in tokens:
        if isinstance(token, str):
            parts.append(f"<{prefix}r>{style}{_run_text(token, prefix)}</{prefix}r>")
        elif token.name == _STYLE:
            style = str(token) if token.kind == "open" else usual
        else:
            parts.append(str(token))
    return "".join(parts)


def _run_text(text: str, prefix: str) -> str:
    parts = []
    for part in re.split(r"([\t\n])", text):
        if part in ("\t", "\n"):
            parts.append(f"<{prefix}{'tab' if part == chr(9) else 'br'}/>")
        elif part:
            parts.append(f'<{prefix}t xml:space="preserve">{escape(part)}</{prefix}t>')
    return "".join(parts)


_DOCX = _Archive("Word document", _DOCX_PARTS, _WORD, {"p"}, (), _read_word)


# ---------------------------------------------------------------- OpenDocument


def _read_odf(node: Node, make: Make) -> tuple[list[Token], Write]:
    def write(translation: Sequence[Token]) -> str:
        content = written(translation, lambda text: _odf_text(text, node.prefix))
        return f"{node.start}{content}{node.end}"

    return _odf_tokens(node, make), write


def _odf_tokens(node: Node, make: Make) -> list[Token]:
    tokens: list[Token] = []
    for child in node.children:
        if isinstance(child, Event):
            if child.kind == "text":
                tokens.append(re.sub(r"\s+", " ", child.text))
            elif child.kind == "other":
                tokens.append(Mark("single", (child.raw,)))
        elif child.name == "s":
            tokens.append(" " * min(1000, int(child.start.attributes.get("c", "1"))))
        elif child.name == "tab":
            tokens.append("\t")
        elif child.name == "line-break":
            tokens.append("\n")
        elif child.name in ("span", "a") and child.end:
            tokens += pair(child, _odf_tokens(child, make), child.start.raw)
        elif child.name != "soft-page-break":
            tokens.append(Mark("single", _parts(child, make)))
    return tokens


def _odf_text(text: str, prefix: str) -> str:
    parts = []
    for part in re.split(r"([\t\n]| {2,})", text):
        if part[:1] in ("\t", "\n"):
            parts.append(f"<{prefix}{'tab' if part == chr(9) else 'line-break'}/>")
        elif part[:2] == "  ":
            parts.append(f' <{prefix}s {prefix}c="{len(part) - 1}"/>')
        else:
            parts.append(escape(part))
    return "".join(parts)


_ODT = _Archive(
    "OpenDocument text", _ODT_PARTS, (_ODF_TEXT,), {"p", "h"}, {"tracked-changes"}, _read_odf
)
