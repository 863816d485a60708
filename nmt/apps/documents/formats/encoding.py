"""Decode and encode text files."""

from __future__ import annotations

import codecs
import locale
import re
from collections.abc import Callable, Iterable
from typing import BinaryIO

from nmt.apps.documents.job import Job
from nmt.apps.documents.segments import Item
from nmt.data.lines import file_type, text_encoding, unicode_encoding
from nmt.errors import UserError

_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",  # begins as the mark of UTF-16
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
# possible encodings of a file that is not UTF-8
_GUESSES = [*(f"cp{number}" for number in range(1250, 1259)), "cp874", "koi8_r", "cp932", "euc_jp",
            "gb18030", "big5", "cp949"]  # fmt: skip
# encoding of a language in ISO 8859, by which Python knows it -> the one that files have
_USUAL = {"1": "cp1252", "15": "cp1252", "2": "cp1250", "5": "cp1251", "6": "cp1256", "7": "cp1253",
          "8": "cp1255", "9": "cp1254", "13": "cp1257"}  # fmt: skip
START = 4096  # bytes in which a file says its encoding
CONVERT = "convert the file to UTF-8, for example with iconv"
NAME_IT = f"name its encoding, such as --encoding windows-1250, or {CONVERT}"


def convert_text(
    source: BinaryIO,
    target: BinaryIO,
    job: Job,
    items: Callable[[str, Job], Iterable[Item]],
    declared: re.Pattern[bytes] | None = None,
    errors: str = "strict",
    guess: bool = False,
) -> None:
    """Translate a format whose files are in memory as a whole.

    A byte-order mark stays, and is not part of the text. If the encoding lacks a character of the
    translation, the file becomes UTF-8.

    Args:
        items: returns the items of a text.
        declared: finds the encoding that a file names; its first group is the name.
        errors: what to do with a character that the encoding lacks, as of ``str.encode``.
        guess: whether a file that is not UTF-8 may be in another encoding without saying so.

    Raises:
        UserError: the file is empty, of another type, or not in its encoding.
    """
    data = source.read()
    require_type(data, job.name)
    encoding = encoding_of(data[:START], declared, job.name, job.reading.encoding)
    mark = next(filter(data.startswith, _MARKS), b"")
    data = data.removeprefix(mark)
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        may_guess = guess and not mark and job.reading.encoding is None
        guessed = _guessed(data, job.src) if may_guess else None
        if guessed is None:
            line = data.count(b"\n", 0, error.start) + 1
            raise not_in_encoding(job.name, encoding, line, NAME_IT) from error
        text, encoding = guessed
        problem = f"not UTF-8: read as {encoding.upper()}, a guess; --encoding names another one"
        job.report.check("encoding", problem)
    if (nul := text.find("\0")) >= 0:
        what = "has a NUL character, as text in UTF-16 has when it is read as another encoding"
        wide = "utf-16-be" if data[:1] == b"\0" else "utf-16-le"
        fix = f"name the encoding of the file, perhaps --encoding {wide}, or remove the character"
        raise UserError(what, at=f"{job.name}:{text.count(chr(10), 0, nul) + 1}", fix=fix)
    content = text.lstrip("\ufeff")  # some programs write a second mark
    result = text[: len(text) - len(content)] + "".join(job.translated(items(content, job)))
    try:
        target.write(mark + result.encode(encoding, errors))
    except UnicodeEncodeError as error:
        lacks = f"{encoding.upper()} lacks {result[error.start]!r}"
        job.report.check("encoding", f"the translation is in UTF-8, because {lacks}")
        data = result.encode()
        if declared and (name := declared.search(data[:START])):
            data = data[: name.start(1)] + b"UTF-8" + data[name.end(1) :]
        target.write(data)  # there is no mark, because an encoding with one has all characters


def encoding_of(
    start: bytes, declared: re.Pattern[bytes] | None, name: str, chosen: str | None = None
) -> str:
    """Return the encoding of a file; UTF-8 by default.

    Args:
        start: the first bytes, with the byte-order mark if there is one.
        declared: its first group is the encoding.
        chosen: by the user, which counts more.

    Raises:
        UserError: the encoding is not known.
    """
    for mark, encoding in _MARKS.items():
        if start.startswith(mark):
            return encoding
    match = declared.search(start) if declared else None
    named = match[1].decode("ascii", "replace").lower() if match else "utf-8"
    encoding = text_encoding(chosen or named, name)
    # a name that can be read byte by byte is not in UTF-16 or EBCDIC
    contradicts = not chosen and named.encode().decode(encoding, "replace") != named
    return "utf-8" if contradicts else encoding


def _guessed(data: bytes, lang: str) -> tuple[str, str] | None:
    """Return the text and the most likely encoding of a file that does not name its encoding.

    Args:
        lang: its language, which decides if several encodings are as likely.
    """
    from charset_normalizer import from_bytes

    iso = locale.normalize(lang).rpartition("ISO8859-")[2]
    usual = _USUAL.get(iso, "cp1252")
    matches = from_bytes(data, cp_isolation=_GUESSES)
    for match in sorted(matches, key=lambda match: (match.chaos, match.encoding != usual)):
        try:
            return data.decode(match.encoding), match.encoding
        except UnicodeDecodeError:  # only parts of a long text were read
            continue
    return None


def lines_of(text: str) -> list[str]:
    """Return the lines of a text with their ends; only a line feed ends one."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def require_type(start: bytes, name: str) -> None:
    """Raise UserError for an empty file, and for one that begins as another type of file."""
    if not start.removeprefix(next(filter(start.startswith, _MARKS), b"")).strip():
        raise UserError("the file is empty", at=name, fix="check the file, or leave it out")
    fix = file_type(start[:16])
    if fix and not unicode_encoding(start[:16]):  # the command may name an encoding
        raise UserError("is not the kind of file that its suffix says", at=name, fix=fix)


def not_in_encoding(name: str, encoding: str, line: int, fix: str = CONVERT) -> UserError:
    """Return the error of a file that is not in its encoding."""
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
