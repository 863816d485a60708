"""A corpus from gettext catalogs (.po, .mo), what a localization community owns.

``python -m data_prep.from_gettext po/ --src en --tgt gd --out data/en-gd``: msgids are the source,
msgstrs the target; with ``--msgid-lang`` naming the target it is the other way round. Fuzzy,
obsolete and untranslated messages are left out; of plurals the first and the last form are taken.
"""

from __future__ import annotations

import argparse
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_prep.generic import generic_command
from data_prep.pairs import Drops, Pair, one_line
from nmt.errors import UserError


def _catalog(path: Path) -> Any:
    try:
        import polib
    except ImportError as error:
        raise UserError(
            "reading catalogs needs the package polib",
            at=str(path),
            fix="pip install -e '.[gettext]'",
        ) from error
    try:
        return (polib.mofile if path.suffix == ".mo" else polib.pofile)(str(path))
    except (OSError, ValueError, struct.error) as error:
        raise UserError(f"cannot be read: {error}", at=str(path), fix="check the file") from error


def _messages(entry: Any) -> Iterator[tuple[str, str]]:
    """(msgid, msgstr) of an entry; singular and plural ids with the first and last form."""
    if not entry.msgid_plural:
        yield entry.msgid, entry.msgstr
    elif entry.msgstr_plural:
        forms = sorted(entry.msgstr_plural)
        yield entry.msgid, entry.msgstr_plural[forms[0]]
        yield entry.msgid_plural, entry.msgstr_plural[forms[-1]]


def _without_mnemonics(one: str, other: str) -> tuple[str, str]:
    """Without the underscore that marks a keyboard shortcut ("_File", "E_xit") on both sides.

    A name that has an underscore ("file_name") is the same word on both sides and stays.
    """
    marked = [{word for word in side.split() if "_" in word} for side in (one, other)]
    if one.count("_") == other.count("_") == 1 and marked[0] != marked[1]:
        return one.replace("_", ""), other.replace("_", "")
    return one, other


def _catalogs(given: Path) -> list[Path]:
    if not given.is_dir():
        return [given]
    return sorted(path for path in given.rglob("*") if path.suffix in (".po", ".mo"))


def read(args: argparse.Namespace, drops: Drops) -> Iterator[Pair]:
    """Translated messages of all catalogs; a pair's group is its file."""
    paths = [path for given in args.files for path in _catalogs(given)]
    if not paths:
        raise UserError("no .po or .mo file", at=str(args.files[0]), fix="give a catalog")
    if args.msgid_lang not in (None, args.src, args.tgt):
        raise UserError(
            f"{args.msgid_lang} is neither {args.src} nor {args.tgt}",
            at="--msgid-lang",
            fix="name the language of the msgids",
        )
    for path in paths:
        if not path.is_file():
            raise UserError("no such file", at=str(path), fix="check the path")
        for number, entry in enumerate(_catalog(path), 1):
            place = f"{path.name}:message {number}"
            if entry.obsolete or "fuzzy" in entry.flags:
                drops.add("fuzzy or obsolete message", place)
                continue
            for source, translation in _messages(entry):
                pair = _without_mnemonics(one_line(source), one_line(translation))
                one, other = pair if args.msgid_lang in (None, args.src) else pair[::-1]
                yield Pair(one, other, place, str(path))


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", type=Path, metavar="CATALOG", help="or folders")
    parser.add_argument("--msgid-lang", metavar="LANG", help="language of the msgids; default src")


main = generic_command(read, __doc__, _options)

if __name__ == "__main__":
    sys.exit(main())
