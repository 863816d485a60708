"""A corpus from translation memories in TMX (1.1 to 1.4), as translation tools export them.

``python -m data_prep.from_tmx memory.tmx --src-lang de --tgt-lang hsb -o data/de-hsb``
"""

from __future__ import annotations

import argparse
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

from data_prep.command import own_corpus_command
from data_prep.languages import check_choice
from data_prep.pairs import Drops, Pair, one_line
from nmt.errors import UserError

_XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
# Elements whose content is formatting code of the document, not text (TMX 1.4b, section 3).
_CODES = {"bpt", "ept", "it", "ph", "ut"}


def _text(element: ET.Element) -> str:
    """Return the text of a <seg> without the native codes in it."""
    parts = [element.text or ""]
    for child in element:
        if child.tag not in _CODES:
            parts.append(_text(child))
        parts.append(child.tail or "")
    return "".join(parts)


def _sides(unit: ET.Element) -> dict[str, str]:
    """Return lowercased language -> text of a translation unit; en-US also counts as en."""
    sides: dict[str, str] = {}
    for variant in unit.iter("tuv"):
        lang = (variant.get(_XML_LANG) or variant.get("lang") or "").lower().replace("_", "-")
        segment = variant.find("seg")
        if segment is not None:
            text = one_line(_text(segment))
            sides[lang] = text
            sides.setdefault(lang.split("-")[0], text)
    return sides


def read(args: argparse.Namespace, drops: Drops) -> Iterator[Pair]:
    """Yield the pairs of the units with both languages; a unit's place is its number in the file.

    Raises:
        UserError: the XML is malformed (names line and column) or in an encoding that cannot be
            read, or the file lacks a language.
    """
    wanted = [args.src.lower(), args.tgt.lower()]
    for path in args.files:
        if not path.is_file():
            raise UserError("no such file", at=str(path), fix="check the path")
        seen: set[str] = set()
        number = 0
        try:
            for _, element in ET.iterparse(path):
                if element.tag != "tu":
                    continue
                number += 1
                sides = _sides(element)
                element.clear()
                seen |= sides.keys()
                if all(lang in sides for lang in wanted):
                    place = f"{path.name}:unit {number}"
                    yield Pair(sides[wanted[0]], sides[wanted[1]], place, str(path))
                else:
                    drops.add("unit lacks a language", f"{path.name}:unit {number}")
        except ET.ParseError as error:
            line, column = error.position
            raise UserError(
                f"not well-formed XML: {error}",
                at=f"{path}:{line}:{column + 1}",
                fix="export the translation memory again; this file may be truncated",
            ) from error
        except (LookupError, ValueError) as error:
            raise UserError(
                f"the encoding that its first line names cannot be read: {error}",
                at=str(path),
                fix='convert the file to UTF-8 with iconv, and write encoding="UTF-8" in that line',
            ) from error
        if not seen:
            raise UserError(
                "has no translation unit", at=str(path), fix="check that the file is a TMX file"
            )
        for lang in wanted:
            check_choice(lang, seen, "language", str(path))


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="file in TMX format")


main = own_corpus_command(read, __doc__, _add_options)

if __name__ == "__main__":
    sys.exit(main())
