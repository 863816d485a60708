"""From the bytes of a text file to its characters and back."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable
from typing import BinaryIO

from nmt.apps.documents.job import Job
from nmt.apps.documents.segments import Item
from nmt.data.text import file_type
from nmt.errors import UserError

_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
START = 4096  # bytes in which a file says its encoding


def convert_text(
    source: BinaryIO,
    target: BinaryIO,
    job: Job,
    items: Callable[[str, Job], Iterable[Item]],
    declared: re.Pattern[bytes] | None = None,
    errors: str = "strict",
) -> None:
    """Translate a format whose files are in memory as a whole.

    Args:
        items: returns the items of a text.
        declared, errors: as of ``read_text`` and ``write_text``.
    """
    text, encoding = read_text(source, job.name, declared)
    write_text(target, job.translated(items(text, job)), encoding, job.name, errors)


def encoding_of(start: bytes, declared: re.Pattern[bytes] | None, name: str) -> str:
    """Return the encoding of a file; UTF-8 if nothing says another one.

    Args:
        start: the first bytes; a byte-order mark stays a character of the text.
        declared: its first group is the encoding.

    Raises:
        UserError: the encoding is not known.
    """
    for mark, encoding in _MARKS.items():
        if start.startswith(mark):
            return encoding
    found = declared.search(start) if declared else None
    encoding = found[1].decode("ascii", "replace").lower() if found else "utf-8"
    try:
        if not codecs.lookup(encoding)._is_text_encoding:
            raise LookupError
    except LookupError as error:
        fix = "write the encoding of the file, such as UTF-8"
        raise UserError(f"the encoding {encoding} is not known", at=name, fix=fix) from error
    return encoding


def read_text(
    file: BinaryIO, name: str, declared: re.Pattern[bytes] | None = None
) -> tuple[str, str]:
    """Return the text of a file, with its line ends, and its encoding.

    Raises:
        UserError: the file is empty, of another type, or not in its encoding.
    """
    data = file.read()
    require_text(data, name)
    encoding = encoding_of(data[:START], declared, name)
    try:
        return data.decode(encoding), encoding
    except UnicodeDecodeError as error:
        raise not_in_encoding(name, encoding, data.count(b"\n", 0, error.start) + 1) from error


def lines_of(text: str) -> list[str]:
    """Return the lines of a text with their ends; only a line feed ends one."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def require_text(start: bytes, name: str) -> None:
    """Raise UserError for an empty file, and for one that begins as another type of file."""
    if not start.strip():
        raise UserError("the file is empty", at=name, fix="check the file, or leave it out")
    fix = file_type(start[:16])
    if fix and not start.startswith(tuple(_MARKS)):
        raise UserError("is not the kind of file that its ending says", at=name, fix=fix)


def not_in_encoding(name: str, encoding: str, line: int) -> UserError:
    """Return the error of a file that is not in its encoding."""
    fix = "convert the file to UTF-8, for example with iconv"
    return UserError(f"not {encoding.upper()}", at=f"{name}:{line}", fix=fix)


def write_text(
    file: BinaryIO, texts: Iterable[str], encoding: str, name: str, errors: str = "strict"
) -> None:
    """Write texts in the encoding of a file.

    Raises:
        UserError: the encoding lacks a character of the translation.
    """
    for text in texts:
        try:
            file.write(text.encode(encoding, errors))
        except UnicodeEncodeError as error:
            raise UserError(
                f"{encoding.upper()}, the encoding of the file, lacks {text[error.start]!r} of the "
                "translation",
                at=name,
                fix="convert the file to UTF-8, and change the encoding that it names",
            ) from error
