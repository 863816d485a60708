"""A corpus from gettext catalogs (.po, .mo).

Msgids are the source and msgstrs the target, unless ``--msgid-lang`` names the target language.
Fuzzy, obsolete and untranslated messages are dropped; plural messages give their first and last
form. A folder stands for all catalogs in it.

Examples:
  nmt-import gettext po/ --src-lang en --tgt-lang gd -o data/en-gd
  nmt-import gettext gd.po --src-lang gd --tgt-lang en --msgid-lang en -o data/gd-en
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from data_prep.formats import Option
from data_prep.own_corpus import SPLIT_OPTIONS, file_options, write_files
from data_prep.pairs import one_line, require_file
from data_prep.write import Request
from nmt.data.lines import text_encoding
from nmt.data.pair import Pair
from nmt.data.report import Drops
from nmt.errors import UserError, install_fix

_STRING = re.compile(r'\ufeff?(?:#~)?\s*(?:msg\w+(?:\[\d+\])?\s*)?"')
_COMPLETE = re.compile(r'[^"]*(?:"(?:[^"\\]|\\.)*"\s*)+$')

OPTIONS = (
    *file_options("CATALOG"),
    Option(
        "--msgid-lang", metavar="LANG", help="language of the msgids; default: that of --src-lang"
    ),
    *SPLIT_OPTIONS,
)


def _catalog(path: Path) -> Any:
    try:
        import polib
    except ImportError as error:
        raise UserError(
            "gettext catalogs need the package polib",
            at=str(path),
            fix=install_fix("gettext"),
        ) from error
    try:
        if path.suffix == ".mo":
            return polib.mofile(str(path))
        encoding = text_encoding(polib.detect_encoding(str(path)), str(path))
        with path.open(encoding=encoding) as file:
            _check_strings(file, path)
        return polib.pofile(str(path), encoding=encoding)
    except (OSError, ValueError, LookupError, struct.error) as error:
        raise UserError(f"cannot be read: {error}", at=str(path), fix="check the file") from error


def _check_strings(lines: Iterable[str], path: Path) -> None:
    """Raise UserError for a string without its closing quote, from which polib takes a letter."""
    for number, line in enumerate(lines, 1):
        if _STRING.match(line) and not _COMPLETE.match(line):
            raise UserError(
                "this string has no closing quote",
                at=f"{path}:{number}",
                fix="add the quote, or check all of the file with msgfmt -c",
            )


def _messages(entry: Any) -> Iterator[tuple[str, str]]:
    """Yield the (msgid, msgstr) of an entry.

    A plural entry gives its singular with the first form, and its plural with the last.
    """
    if not entry.msgid_plural:
        yield entry.msgid, entry.msgstr
    elif entry.msgstr_plural:
        forms = sorted(entry.msgstr_plural)
        yield entry.msgid, entry.msgstr_plural[forms[0]]
        yield entry.msgid_plural, entry.msgstr_plural[forms[-1]]


def _without_mnemonics(one: str, other: str) -> tuple[str, str]:
    """Remove the underscore that marks a keyboard shortcut ("_File", "E_xit") from both sides.

    A name with an underscore ("file_name") is the same word on both sides and stays.
    """
    words = [{word for word in side.split() if "_" in word} for side in (one, other)]
    if one.count("_") == other.count("_") == 1 and words[0] != words[1]:
        return one.replace("_", ""), other.replace("_", "")
    return one, other


def _catalogs(given: Path) -> list[Path]:
    """Return the catalogs of a folder; of a catalog and its compiled form, the catalog."""
    if not given.is_dir():
        return [given]
    catalogs = set(given.rglob("*.po"))
    compiled = {path for path in given.rglob("*.mo") if path.with_suffix(".po") not in catalogs}
    return sorted(catalogs | compiled)


def read(files: Sequence[Path], request: Request, drops: Drops) -> Iterator[Pair]:
    """Yield the translated messages of all catalogs; a pair's group is its file."""
    paths = [path for given in files for path in _catalogs(given)]
    if not paths:
        raise UserError("no .po or .mo file", at=str(files[0]), fix="give a catalog or its folder")
    msgid_lang = request.options.msgid_lang
    if msgid_lang not in (None, request.src, request.tgt):
        raise UserError(
            f"{msgid_lang} is neither {request.src} nor {request.tgt}",
            at="--msgid-lang",
            fix="give the language of the msgids: the code of --src-lang or of --tgt-lang",
        )
    for path in paths:
        require_file(path)
        for number, entry in enumerate(_catalog(path), 1):
            line = getattr(entry, "linenum", 0)  # of a .po file
            place = f"{path.name}:{line}" if line else f"{path.name}:message {number}"
            if entry.obsolete or "fuzzy" in entry.flags:
                drops["fuzzy or obsolete message"].add(place)
                continue
            for source, translation in _messages(entry):
                pair = _without_mnemonics(one_line(source), one_line(translation))
                one, other = pair if msgid_lang in (None, request.src) else pair[::-1]
                yield Pair(one, other, place, str(path))


def prepare(request: Request) -> None:
    """Write the corpus of some catalogs."""
    write_files(read, request, "CATALOG")
