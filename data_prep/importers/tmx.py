"""A corpus from translation memories in TMX (1.1 to 1.4).

Files may be compressed (.gz, .xz, .bz2). A unit that is not well-formed XML is dropped and listed.

Examples:
  nmt-import tmx memory.tmx --src-lang de --tgt-lang hsb -o data/de-hsb
  nmt-import tmx *.tmx.gz --split group --src-lang de --tgt-lang hsb -o data/de-hsb
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from data_prep.languages import check_choice
from data_prep.own_corpus import SPLIT_OPTIONS, file_options, write_files
from data_prep.pairs import require_file
from data_prep.tmx import MAX_DEPTH, read_units
from data_prep.write import Request
from nmt.data.lines import OPENERS, type_of
from nmt.data.pair import Pair
from nmt.data.report import Drops
from nmt.errors import UserError

OPTIONS = (*file_options("FILE"), *SPLIT_OPTIONS)


def read(files: Sequence[Path], request: Request, drops: Drops) -> Iterator[Pair]:
    """Yield the pairs of the units with both languages.

    Raises:
        UserError: a file cannot be read, or has no unit that is well-formed, or lacks a language.
    """
    wanted = [request.src.lower(), request.tgt.lower()]
    for path in files:
        require_file(path)
        fix = "" if path.suffix in OPENERS else type_of(path)
        if fix and "this is UTF-16" not in fix:
            raise UserError("is not a TMX file", at=str(path), fix=fix)
        seen: set[str] = set()
        damaged = ""
        for number, (line, sides) in enumerate(read_units(path), 1):
            place = f"{path.name}:{line} (unit {number})"
            if sides is None:
                drops["unreadable XML"].add(place)
                damaged = damaged or f"{path}:{line}"
                continue
            seen |= sides.keys()
            if all(lang in sides for lang in wanted):
                yield Pair(sides[wanted[0]], sides[wanted[1]], place, str(path))
            else:
                drops["unit lacks a language"].add(place)
        if not seen:
            raise UserError(
                f"no translation unit is well-formed XML with at most {MAX_DEPTH} nested tags"
                if damaged
                else "has no translation unit",
                at=damaged or str(path),
                fix="check that the file is a TMX file, or export it again",
            )
        for lang in wanted:
            check_choice(lang, seen, "language", str(path))


def prepare(request: Request) -> None:
    """Write the corpus of some translation memories."""
    write_files(read, request, "FILE")
