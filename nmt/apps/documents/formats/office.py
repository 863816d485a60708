"""Word documents (.docx) and OpenDocument texts (.odt): a paragraph is a segment.

Both are zip archives of XML. Only the XML with text is read, and only its paragraphs and languages
are rewritten; every other file of the archive is copied. python-docx and odfpy read and write
everything, but do not reach the paragraphs of footnotes, text boxes and tracked insertions.

The marks of a paragraph are its links, fields and notes, and the runs of text whose style is not
that of most of its text. Word divides text into many runs of the same style; they are one run here.
"""

from __future__ import annotations

import copy
import posixpath
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, NamedTuple, TypeAlias
from urllib.parse import unquote

from nmt.apps.documents.formats.archive import Archive
from nmt.apps.documents.formats.xml import (
    Event,
    Node,
    attribute_names,
    elements,
    escape,
    pair,
    parts_of,
    with_attributes,
)
from nmt.apps.documents.job import Job
from nmt.apps.documents.segments import Item, Mark, Token, Unit, text_unit, written
from nmt.errors import UserError
from nmt.text.languages import base_language, script_of, standard_code
from nmt.text.protect import has_words

_WORD = (
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
    "http://purl.oclc.org/ooxml/wordprocessingml/main",
)
_DRAWING = (
    "http://schemas.openxmlformats.org/drawingml/2006/main",
    "http://purl.oclc.org/ooxml/drawingml/main",
)
_CHART = (
    "http://schemas.openxmlformats.org/drawingml/2006/chart",
    "http://purl.oclc.org/ooxml/drawingml/chart",
    "http://schemas.microsoft.com/office/drawing/2014/chartex",
)
_ODF = "urn:oasis:names:tc:opendocument:xmlns:"
_ODF_STYLE, _ODF_TEXT = f"{_ODF}style:1.0", f"{_ODF}text:1.0"

# the relationships of Word that lead to text or to languages
_RELATED = set(
    "officeDocument header footer footnotes endnotes comments diagramData diagramDrawing chart "  # noqa: SIM905
    "chartEx chartUserShapes numbering settings styles stylesWithEffects".split()
)
_DROPPED = {"proofErr", "lastRenderedPageBreak", "softHyphen"}  # about the old text
_AROUND_RUNS = set(
    "bdo customXml dir fldSimple hyperlink ins moveTo sdt sdtContent smartTag".split()  # noqa: SIM905
)
_AROUND_TEXT = set(  # of OpenDocument
    "a bookmark-ref meta meta-field note-ref placeholder reference-ref sequence-ref span "  # noqa: SIM905
    "text-input".split()
)
_STYLE = "style"  # name of the marks of runs
_MAX_SPACES = 100  # in one element of OpenDocument, which are text
_WORDS = re.compile(r"[^\W\d_]{2}")  # one letter is a bullet
_SPACE = re.compile(r"[ \t\r\n]+")

# element with text that stays -> how the summary names it
_LEFT = {
    "del": "tracked deletion",
    "fld": "field",
    "moveFrom": "tracked deletion",
    "oMath": "formula",
    "rt": "ruby",
    "ruby-text": "ruby",
    "t": "in an element that is not known",
}
_UNREAD = {"note-citation", "number"}  # text of OpenDocument that is no word
# element that stays -> how the summary names it
_LEFT_ELEMENTS = {
    "altChunk": "document inside",
    "dataBinding": "content that Word takes from the properties or data of the document",
    "deletion": "tracked deletion",
}
# element with text in attributes, which stays -> the attributes, and how the summary names them
_LEFT_ATTRIBUTES = {
    **dict.fromkeys(("cNvPr", "docPr"), (("descr", "title"), "description of a picture")),
    **dict.fromkeys(("button", "checkbox", "fixed-text", "radio"), (("label",), "form")),
    **dict.fromkeys(("label", "listItem"), (("displayText", "value"), "choice of a list")),
    "alphabetical-index-mark": (("string-value",), "index entry"),
    "lvlText": (("val",), "words of a numbering"),
    "textpath": (("string",), "WordArt"),
    "toc-mark": (("string-value",), "index entry"),
}
# element -> its attributes with the language of Latin and similar, East Asian, and complex scripts
_LANGUAGES = {
    **dict.fromkeys(("lang", "themeFontLang"), ("val", "eastAsia", "bidi")),
    **dict.fromkeys(("defRPr", "endParaRPr", "rPr"), ("lang",)),
    "text-properties": ("language", "language-asian", "language-complex"),
}
_SLOTS = {
    **dict.fromkeys(("CJK", "HANGUL", "HIRAGANA KATAKANA CJK"), 1),
    **dict.fromkeys(
        "ARABIC BENGALI DEVANAGARI GUJARATI HEBREW KANNADA KHMER LAO MALAYALAM MYANMAR SINHALA "  # noqa: SIM905
        "TAMIL TELUGU THAI TIBETAN".split(),
        2,
    ),
}

Parts: TypeAlias = tuple[str | Unit, ...]
Write: TypeAlias = Callable[[Sequence[Token]], str]


class _Kind(NamedTuple):
    """A kind of archive.

    Attributes:
        root: name of the element with the text of a document, and its namespaces.
        parts: an archive -> the names of its files with text; the first is the main one.
    """

    name: str
    root: tuple[str, Sequence[str]]
    parts: Callable[[Archive, Job], Sequence[str]]


def convert_docx(source: BinaryIO, target: BinaryIO, job: Job) -> None:
    """Translate a Word document."""
    _convert(source, target, job, _Kind("Word document", ("document", _WORD), _docx_parts))


def convert_odt(source: BinaryIO, target: BinaryIO, job: Job) -> None:
    """Translate an OpenDocument text."""
    root = "document-content", (f"{_ODF}office:1.0",)
    _convert(source, target, job, _Kind("OpenDocument text", root, _odt_parts))


def _convert(source: BinaryIO, target: BinaryIO, job: Job, kind: _Kind) -> None:
    archive = Archive(source, job.name, kind.name)
    parts = kind.parts(archive, job)
    with archive.zip, zipfile.ZipFile(target, "w") as new:
        for info in archive.zip.infolist():
            with new.open(copy.copy(info), "w") as file:
                part = info.filename
                if part in parts:
                    root = kind.root if part == parts[0] else None
                    file.writelines(_translated(archive, part, root, job))
                else:
                    file.writelines(archive.blocks(part))


def _docx_parts(archive: Archive, job: Job) -> list[str]:
    """Return the files that the relationships lead to, whatever their names."""
    found: dict[str, str] = {}  # name -> kind of relationship
    queue = [""]
    while queue:
        folder, base = posixpath.split(queue.pop())
        related = archive.names.get(posixpath.join(folder, "_rels", f"{base}.rels").lower())
        for event in archive.reader(related) if related else ():
            attributes = event.attributes
            kind = attributes.get("Type", "").rpartition("/")[2]
            if kind == "glossaryDocument":
                job.report.leave("building blocks", related or "")
            if event.kind != "start" or kind not in _RELATED:
                continue
            path = posixpath.join("/", folder, unquote(attributes.get("Target", "")))
            part = archive.names.get(posixpath.normpath(path).lstrip("/").lower())
            if part and part not in found and attributes.get("TargetMode") != "External":
                found[part] = kind
                queue.append(part)
    if "officeDocument" not in found.values():
        raise archive.damaged
    return sorted(found, key=lambda part: found[part] != "officeDocument")


def _odt_parts(archive: Archive, job: Job) -> list[str]:
    names = archive.names
    manifest = names.get("meta-inf/manifest.xml")
    if manifest and any(event.name == "encryption-data" for event in archive.reader(manifest)):
        raise archive.encrypted
    if "content.xml" not in names:
        raise archive.damaged
    for name in names:
        if name.endswith("/content.xml"):
            job.report.leave("document inside, such as a chart", name)
    return [part for part in ("content.xml", "styles.xml") if part in names]


def _translated(
    archive: Archive, part: str, root: tuple[str, Sequence[str]] | None, job: Job
) -> Iterator[bytes]:
    """Yield a translated file; ``root``: element that it begins with, and its namespaces."""
    reader = archive.reader(part)
    name, label = f"{job.name}:{part}", "" if root else f"{part}, "

    def events() -> Iterator[Event]:
        expected = root
        for event in reader:
            if event.kind == "start":
                if expected and (event.name != expected[0] or event.space not in expected[1]):
                    raise archive.damaged
                expected = None
                names, kind = _LEFT_ATTRIBUTES.get(event.name, ((), ""))
                place = f"{part}, line {event.line}"
                if event.name in _LEFT_ELEMENTS:
                    job.report.leave(_LEFT_ELEMENTS[event.name], place)
                if any(_WORDS.search(event.attributes.get(name, "")) for name in names):
                    job.report.leave(kind, place)
                yield _with_language(event, job)
            else:
                yield event

    def items() -> Iterator[Item]:
        number = 0
        for item in elements(events(), name, _is_paragraph, {"tracked-changes"}):
            if isinstance(item, Event):
                yield item.raw
            else:
                number += 1
                yield _unit(item, f"{label}paragraph {number}", job, name)

    for text in job.translated(items()):
        yield text.encode(reader.encoding, "xmlcharrefreplace")


def _with_language(event: Event, job: Job) -> Event:
    """Return a tag in which the target language replaces the source language."""
    slots, source = _LANGUAGES.get(event.name, ()), base_language(job.src)
    old = [slot for slot in slots if base_language(event.attributes.get(slot, "")) == source]
    if not old:
        return event
    names = attribute_names(event.raw)
    prefix = event.raw[1 : event.raw.index(event.name)]
    script_slot = _SLOTS.get(script_of(job.tgt) or "", 0)
    if event.space in (*_WORD, _ODF_STYLE) and script_slot < len(slots):
        old.append(slots[script_slot])
    tag = standard_code(job.tgt)
    language, *others = tag.split("-")
    changes: dict[str, str | None] = {}
    for slot in old:
        name = names.get(slot, f"{prefix}{slot}")
        if event.space != _ODF_STYLE:
            changes[name] = tag
        elif slot in names or script_slot:  # the first has another prefix
            changes[name] = language
            region = next((each for each in others if len(each) == 2), "none")
            changes[name.replace("language", "country")] = region
            changes[name.replace("language", "script")] = None
            changes[f"{prefix}{slot.replace('language', 'rfc-language-tag')}"] = None
    return event._replace(raw=with_attributes(event.raw, changes))


def _is_paragraph(event: Event) -> bool:
    return (event.space, event.name) in _READERS


class _Inside:
    """Nested content of a paragraph: copied, with units for the paragraphs in it."""

    def __init__(self, place: str, job: Job, file: str) -> None:
        self.units: dict[Node, Unit] = {}
        self.place, self._job, self._file = place, job, file

    def made(self, node: Node) -> Item | None:
        """Return the unit of a paragraph, or text that stays; others -> None."""
        if _is_paragraph(node.start):
            place = f"{self.place}.{len(self.units) + 1}"
            self.units[node] = _unit(node, place, self._job, self._file)
            return self.units[node]
        is_field = node.start.space == _ODF_TEXT and node.name not in (*_LEFT, *_UNREAD)
        text = _direct_text(node) if is_field else _all_text(node) if node.name in _LEFT else ""
        if not has_words(text):
            return None
        self._job.report.leave("field" if is_field else _LEFT[node.name], self.place)
        return str(node)

    def copied(self, *children: Node | Event) -> Parts:
        """Return elements unchanged, with units for the paragraphs in them."""
        parts: list[str | Unit] = []
        for child in children:
            if isinstance(child, Event):
                parts.append(child.raw)
            else:
                item = self.made(child)
                parts += parts_of(child, self.made) if item is None else [item]
        return tuple(parts)

    def around(self, outer: Node, inner: Node, tokens: Sequence[Token], *run: str) -> list[Token]:
        """Return the tokens of an element between marks, which are the rest of the outer one.

        Args:
            run: what is before and after the outer one.
        """
        before, after = run or ("", "")
        place, name = outer.children.index(inner), f"{outer.name} {id(outer)}"
        first, last = outer.children[:place], outer.children[place + 1 :]
        start = (before, outer.start.raw, *self.copied(*first), inner.start.raw)
        end = (inner.end, *self.copied(*last), outer.end, after)
        return [Mark("open", start, name), *tokens, Mark("close", end, name)]

    def error(self, node: Node, what: str) -> UserError:
        """Return the error of an element."""
        fix = "open the file in your word processor and save it again"
        return UserError(what, at=f"{self._file}:{node.start.line}", fix=fix)


def _unit(node: Node, place: str, job: Job, file: str) -> Unit:
    """Return the unit of a paragraph, with those of the paragraphs in it, such as of a footnote."""
    inside = _Inside(place, job, file)
    tokens, write = _READERS[node.start.space, node.name](node, inside)
    raw = parts_of(node, inside.units.get) if inside.units else str(node)
    return text_unit(raw, tokens, place, write)


def _direct_text(node: Node) -> str:
    return "".join(child.text for child in node.children if isinstance(child, Event))


def _all_text(node: Node) -> str:
    return "".join(c.text if isinstance(c, Event) else _all_text(c) for c in node.children)


def _plain(node: Node, inside: _Inside) -> tuple[list[Token], Write]:
    """Read an element that has text only."""

    def write(translation: Sequence[Token]) -> str:
        return f"{node.start}{written(translation, escape)}{node.end}"

    tokens: list[Token] = []
    for child in node.children:
        if isinstance(child, Event) and child.kind == "text":
            tokens.append(_SPACE.sub(" ", child.text))
        else:
            tokens.append(Mark("single", inside.copied(child)))
    return tokens, write


# ---------------------------------------------------------------- Word


def _word(node: Node, inside: _Inside) -> tuple[list[Token], Write]:
    """Read a paragraph of text, or of a drawing."""
    properties = [*node.elements("pPr")]
    ends = [*node.elements("endParaRPr")]
    content = [child for child in node.children if child not in (*properties, *ends)]
    styles: Counter[str] = Counter()
    tokens = _word_tokens(content, inside, styles)
    usual = max(styles, key=styles.__getitem__, default="")
    start = "".join(map(str, (node.start, *properties)))
    end = "".join(map(str, (*ends, node.end)))
    as_run = _drawing_run if node.start.space in _DRAWING else _word_run

    def write(translation: Sequence[Token]) -> str:
        parts, style = [start], usual
        for token in translation:
            if isinstance(token, str):
                parts.append(as_run(token, style, node.prefix))
            elif token.name == _STYLE:
                style = str(token) if token.kind == "open" else usual
            else:
                parts.append(str(token))
        return "".join([*parts, end])

    return _without_usual(tokens, usual), write


def _word_tokens(
    children: Sequence[Node | Event], inside: _Inside, styles: Counter[str]
) -> list[Token]:
    """Return the content of a paragraph as tokens; count the characters of each style of runs."""
    tokens: list[Token] = []
    fields = depth = 0  # that have begun: with text, and in the code of another
    code: list[str | Unit] = []  # of a field, up to its text
    for child in _with_field_runs(children):
        if isinstance(child, Event):
            if child.kind == "other":
                tokens.append(Mark("single", (child.raw,)))
            continue
        mark = next(child.elements("fldChar"), None) if child.name == "r" else None
        field = mark.start.attributes.get("fldCharType", "") if mark else ""
        if field == "begin" or code:
            code += inside.copied(child)
            depth += (field == "begin") - (field == "end")
            if field == "separate" and depth == 1:
                tokens.append(Mark("open", tuple(code), "field"))
                code, fields, depth = [], fields + 1, 0
            elif not depth:  # without text
                tokens.append(Mark("single", tuple(code)))
                code = []
        elif field == "end" and fields:
            fields -= 1
            tokens.append(Mark("close", inside.copied(child), "field"))
        elif child.name == "r":
            tokens += _run_tokens(child, inside, styles)
        elif child.name == "br":  # of a drawing
            tokens.append("\n")
        elif child.name in _AROUND_RUNS and child.end:
            properties = [c for c in child.children if _is_properties(c)]
            others = [c for c in child.children if not _is_properties(c)]
            start = "".join(map(str, [child.start, *properties]))
            tokens += pair(child, _word_tokens(others, inside, styles), start)
        elif child.name not in _DROPPED:
            tokens.append(Mark("single", inside.copied(child)))
    if code:
        tokens.append(Mark("single", tuple(code)))
    return tokens


def _is_properties(child: Node | Event) -> bool:
    return isinstance(child, Node) and child.name.endswith("Pr")


def _with_field_runs(children: Sequence[Node | Event]) -> Iterator[Node | Event]:
    """Yield the content of a paragraph, with the begin and end of a field in runs of their own."""
    for child in children:
        if isinstance(child, Node) and child.name == "r" and any(child.elements("fldChar")):
            properties = [*child.elements("rPr")]
            for each in child.children:
                if isinstance(each, Node) and each not in properties:
                    yield Node(child.start, [*properties, each], child.end)
        else:
            yield child


def _run_tokens(run: Node, inside: _Inside, styles: Counter[str]) -> list[Token]:
    style = "".join(map(str, run.elements("rPr")))
    # without its attributes, which are revision numbers
    start, end = f"<{run.prefix}r>{style}", f"</{run.prefix}r>"
    tokens: list[Token] = [Mark("open", (style,), _STYLE)]
    for child in run.children:
        if isinstance(child, Event) or child.name in ("rPr", *_DROPPED):
            continue
        attributes = child.start.attributes
        base = next(child.elements("rubyBase"), None)
        if child.name == "t":
            tokens.append(_direct_text(child))
        elif child.name == "tab":
            tokens.append("\t")
        elif child.name == "cr" or (child.name == "br" and "type" not in attributes):
            tokens.append("\n")
        elif child.name == "noBreakHyphen":
            tokens.append("\u2011")
        elif base is not None:
            text = _word_tokens(base.children, inside, styles)
            tokens += inside.around(child, base, text, start, end)
        else:
            tokens.append(Mark("single", (start, *inside.copied(child), end)))
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


def _word_run(text: str, style: str, prefix: str) -> str:
    parts = []
    for part in re.split(r"([\t\n])", text):
        if part in ("\t", "\n"):
            parts.append(f"<{prefix}{'tab' if part == chr(9) else 'br'}/>")
        elif part:
            parts.append(f'<{prefix}t xml:space="preserve">{escape(part)}</{prefix}t>')
    return f"<{prefix}r>{style}{''.join(parts)}</{prefix}r>"


def _drawing_run(text: str, style: str, prefix: str) -> str:
    runs = (
        f"<{prefix}r>{style}<{prefix}t>{escape(line)}</{prefix}t></{prefix}r>" if line else ""
        for line in text.split("\n")
    )
    return f"<{prefix}br>{style}</{prefix}br>".join(runs)


def _chart_values(node: Node, inside: _Inside) -> tuple[list[Token], Write]:
    """Read the texts of the cells that a chart shows, each of which is a unit."""

    def cell(child: Node) -> Item | None:
        if child.name not in ("v", "pt") or not has_words(_direct_text(child)):
            return inside.made(child)
        tokens, write = _plain(child, inside)
        inside.units[child] = text_unit(str(child), tokens, inside.place, write)
        return inside.units[child]

    return [Mark("single", parts_of(node, cell))], written


# ---------------------------------------------------------------- OpenDocument


def _odf(node: Node, inside: _Inside) -> tuple[list[Token], Write]:
    """Read a paragraph or a heading."""

    def write(translation: Sequence[Token]) -> str:
        content = written(translation, lambda text: _odf_text(text, node.prefix))
        return f"{node.start}{content}{node.end}"

    return _odf_tokens(node, inside), write


def _odf_tokens(node: Node, inside: _Inside) -> list[Token]:
    tokens: list[Token] = []
    for child in node.children:
        if isinstance(child, Event):
            if child.kind == "text":
                tokens.append(_SPACE.sub(" ", child.text))
            elif child.kind == "other":
                tokens.append(Mark("single", (child.raw,)))
            continue
        base = next(child.elements("ruby-base"), None)
        if child.name == "s":
            tokens += _spaces(child, inside)
        elif child.name == "tab":
            tokens.append("\t")
        elif child.name == "line-break":
            tokens.append("\n")
        elif base is not None:
            tokens += inside.around(child, base, _odf_tokens(base, inside))
        elif child.name in _AROUND_TEXT and child.end:
            tokens += pair(child, _odf_tokens(child, inside), child.start.raw)
        elif child.name != "soft-page-break":
            tokens.append(Mark("single", inside.copied(child)))
    return tokens


def _spaces(node: Node, inside: _Inside) -> Iterator[Token]:
    given = node.start.attributes.get("c", "1").strip()
    if not given.isdecimal() or len(given) > 9:
        what = f"the number of spaces is {given[:20]}"
        raise inside.error(node, what)
    count = int(given)
    if count <= _MAX_SPACES:
        yield " " * count
    else:
        yield " "
        yield Mark("single", (f'<{node.prefix}s {node.prefix}c="{count - 1}"/>',))


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


# element that is a segment -> the function that returns its tokens, and the one that writes them
_READERS: dict[tuple[str, str], Callable[[Node, _Inside], tuple[list[Token], Write]]] = {
    **{(space, "p"): _word for space in (*_WORD, *_DRAWING)},
    **{
        (space, name): _chart_values
        for space in _CHART
        for name in ("multiLvlStrCache", "strCache", "strDim", "strLit", "tx")
    },
    (_ODF_TEXT, "h"): _odf,
    (_ODF_TEXT, "p"): _odf,
    (_ODF_TEXT, "index-entry-span"): _plain,
    (_ODF_TEXT, "index-title-template"): _plain,
    (_ODF_TEXT, "note-continuation-notice-backward"): _plain,
    (_ODF_TEXT, "note-continuation-notice-forward"): _plain,
    (f"{_ODF}svg-compatible:1.0", "desc"): _plain,
    (f"{_ODF}svg-compatible:1.0", "title"): _plain,
    (f"{_ODF}table:1.0", "desc"): _plain,
    (f"{_ODF}table:1.0", "title"): _plain,
}
