"""Translation memories in TMX 1.1 to 1.4, read unit by unit; a damaged unit costs no other one."""

from __future__ import annotations

import codecs
import io
import re
import unicodedata
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TextIO

from data_prep.pairs import archive_errors, one_line
from nmt.data.lines import OPENERS, text_encoding
from nmt.errors import UserError
from nmt.text.languages import UNSPACED_CHARACTER

_XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
_BLOCK = 1 << 20  # characters that are read at once
_MAX_UNIT = 1 << 24  # characters
MAX_DEPTH = 100  # of tags in a unit
_MAX_NAMESPACES = 100  # each unit is read with them
_START = re.compile(r"<!--.*?(?:-->|\Z)|<(?:[\w.-]+:)?tu(?=[\s/>])", re.DOTALL)
_END = re.compile(r"<!--.*?(?:-->|\Z)|</(?:[\w.-]+:)?tu\s*>", re.DOTALL)
_LAST = re.compile(r"</(?:[\w.-]+:)?(?:body|tmx)\s*>")
_NAMESPACE = re.compile(r"""\sxmlns:[\w.-]+\s*=\s*(?:"[^"]*"|'[^']*')""")
# Elements whose content is formatting code of the document, not text (TMX 1.4b, section 3). Those
# of a pair usually format words or letters; others often stand for a line break or an image.
_CODES = {"bpt", "ept", "it", "ph", "ut"}
_PAIRED = {"bpt", "ept", "it"}
# their types in TMX, and the HTML tags in them, that do not separate words
_FORMATTING = {
    *("bold", "color", "dulined", "font", "italic", "link", "scap", "ulined"),
    *("a", "b", "em", "i", "small", "span", "strong", "sub", "sup", "u"),
}
_CODE = "\0"  # stands for a code that separates words; XML cannot have it
_JOINS = set("\"'/-\u2010\u2011")  # beside these characters, a code is not a space


def _code_name(code: ET.Element) -> str:
    match = re.search(r"[a-z]+", (code.get("type") or code.text or "").lower())
    return match[0] if match else ""


def _text(element: ET.Element, depth: int = 0) -> str:
    """Return the text of a <seg>, with ``_CODE`` for codes that separate words.

    Raises:
        ValueError: tags are nested too deeply.
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"over {MAX_DEPTH} nested tags")
    parts = [element.text or ""]
    for child in element:
        tag = _local(child.tag)
        if tag not in _CODES:
            parts.append(_text(child, depth + 1))
        elif (name := _code_name(child)) not in _FORMATTING and (name or tag not in _PAIRED):
            parts.append(_CODE)
        parts.append(child.tail or "")
    return "".join(parts)


def _spaced(text: str) -> str:
    """Replace codes by spaces where they separate words, and not where punctuation follows."""
    if _CODE not in text:
        return one_line(text)
    first, *others = re.split(f"{_CODE}+", text)
    for part in others:
        before, after = first[-1:], part[:1]
        joined = (
            not before
            or not after
            or {before, after} & _JOINS
            or unicodedata.category(before) in ("Ps", "Pi")
            or unicodedata.category(after) in ("Pe", "Pf", "Po")
            or (UNSPACED_CHARACTER.match(before) and UNSPACED_CHARACTER.match(after))
        )
        first += part if joined and after not in ("¿", "¡") else f" {part}"
    return one_line(first)


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]


def _sides(unit: ET.Element) -> dict[str, str]:
    """Return lowercased language -> text of a translation unit; en-US also counts as en."""
    sides: dict[str, str] = {}
    for variant in unit:
        if _local(variant.tag) != "tuv":
            continue
        lang = (variant.get(_XML_LANG) or variant.get("lang") or "").lower().replace("_", "-")
        segment = next((child for child in variant if _local(child.tag) == "seg"), None)
        if segment is not None:
            text = _spaced(_text(segment))
            sides[lang] = text
            sides.setdefault(lang.split("-")[0], text)
    return sides


def _decoded(file: BinaryIO, path: Path) -> TextIO:
    """Return the text of a file, whose encoding its first bytes or its XML declaration say."""
    start = file.read(200)
    file.seek(0)
    named = re.search(rb"""^<\?xml[^>]*encoding\s*=\s*["']([\w.-]+)""", start)
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    elif start.startswith((b"<\0", b"\0<")):
        encoding = "utf-16-le" if start[0] else "utf-16-be"
    else:
        encoding = text_encoding(named[1].decode(), str(path)) if named else "utf-8"
        if encoding.startswith(("utf-8", "utf-16", "utf-32")):  # also one that was converted
            encoding = "utf-8-sig"
    return io.TextIOWrapper(file, encoding, errors="surrogateescape")


def _pieces(file: TextIO, path: Path) -> Iterator[str]:
    """Yield the text up to the end of the first unit, of the second one, and so on, and the rest.

    Raises:
        UserError: no unit ends for a long time.
    """
    text, begin, line = "", 0, 1
    while block := _block(file, path):
        text, begin = text[begin:] + block, 0
        for found in _END.finditer(text):
            if not found[0].startswith("<!--"):
                yield text[begin : found.end()]
                line += text.count("\n", begin, found.end())
                begin = found.end()
        if len(text) - begin > _MAX_UNIT:
            raise UserError(
                f"no translation unit ends in {_MAX_UNIT:,} characters",
                at=f"{path}:{line}",
                fix="check that the file is a TMX file",
            )
    yield text[begin:]


def _block(file: TextIO, path: Path) -> str:
    try:
        return file.read(_BLOCK)
    except UnicodeError as error:
        raise UserError(f"not {file.encoding}", at=str(path), fix="export it again") from error


def read_units(path: Path) -> Iterator[tuple[int, dict[str, str] | None]]:
    """Yield the line of each unit and its text in each language; None if the XML is unreadable.

    Raises:
        UserError: the file cannot be read, or ends before the memory does.
    """
    line, namespaces = 1, ""
    with archive_errors(path), OPENERS.get(path.suffix, open)(path, "rb") as file:
        for number, piece in enumerate(_pieces(_decoded(file, path), path)):
            tags = [tag for tag in _START.finditer(piece) if not tag[0].startswith("<!--")]
            starts = [tag.start() for tag in tags] or [0]
            if number == 0:
                declared = _NAMESPACE.findall(piece[: starts[0] or None])
                namespaces = "".join(declared[:_MAX_NAMESPACES])
            ended = piece.endswith(">") and _END.match(piece, piece.rfind("</")) is not None
            place = 0
            for start in starts if tags or ended else ():
                line += piece.count("\n", place, start)
                place = start
                # a unit in which another one begins is not complete
                complete = ended and start == starts[-1]
                yield line, _unit(piece[start:], namespaces) if complete else None
            line += piece.count("\n", place)
    if not _LAST.search(piece):
        raise UserError(
            "ends before </tmx>",
            at=f"{path}:{line}",
            fix="copy or export the translation memory again; this file is truncated, or not TMX",
        )


def _unit(xml: str, namespaces: str) -> dict[str, str] | None:
    try:
        return _sides(ET.fromstring(f"<x{namespaces}>{xml}</x>")[0])
    except (ET.ParseError, ValueError):  # ValueError: bytes of another encoding, or deep nesting
        return None
