"""Read and clean lines of text, by the same rules in training and translation.

Only LF ends a line. A CR before LF and a byte-order mark at the start of a file are removed.
Control characters (Unicode category Cc, including a lone CR, NUL and tab) and surrogates become
spaces. All other characters stay, also U+2028 and U+2029; ``nmt.text.unicode`` removes some of
them when a line is segmented. A line is blank if it only has white space, control and format
characters (Cf: U+200B, U+FEFF, direction marks and others), and others that are not seen.
"""

from __future__ import annotations

import bz2
import codecs
import errno
import glob
import gzip
import itertools
import lzma
import os
import re
import shlex
import unicodedata
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias

from nmt.errors import MachineError, UserError
from nmt.runtime.files import open_file
from nmt.runtime.missing import missing_fix, similar_path, url_of
from nmt.runtime.words import quantity
from nmt.text.unicode import is_shapeless

Texts: TypeAlias = tuple[str, str]  # a source line and a target line
Side: TypeAlias = Literal["src", "tgt"]
SIDES: tuple[Side, Side] = ("src", "tgt")

OPENERS: dict[str, Callable[..., Any]] = {
    "": open,
    ".gz": gzip.open,
    ".xz": lzma.open,
    ".bz2": bz2.open,
}
UNPACK = {".gz": "gzip -dc", ".xz": "xz -dc", ".bz2": "bzip2 -dc"}  # commands
LONGEST_SENTENCE = 100_000  # characters of a line to translate
LONGEST_LINE = 10_000_000  # bytes; longer lines are treated as a damaged file or a compressed bomb
MIN_NULS = 4  # share of NULs in a line of UTF-16 between lines of UTF-8
LENGTH_SLACK = 10  # characters; the lengths of short lines differ more than those of sentences

SAMPLE = 4096  # bytes at the start of a file that tell its type
_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
_CONTROL_BYTES = {*range(32)} - {*b"\t\n\r"}
_UNMARKED_NAMES = ("UTF-32LE", "UTF-32BE", "UTF-16LE", "UTF-16BE")
# names for a file with a byte-order mark -> the same encoding, in which a mark is a character
_UNMARKED = {"utf-8-sig": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}
# encodings of Python that are not those of files
_OTHERS = {"idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape", "utf-7"}

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def clean_line(line: str) -> str:
    """Return the line without control characters and surrogates."""
    return line if line.isascii() and line.isprintable() else _CONTROL.sub(" ", line)


def is_blank(line: str) -> bool:
    """Return whether a line has no visible character."""
    if (
        line[:1].isalnum() and line[:1] < "\u1100"
    ):  # fast path for almost all lines; fillers need more
        return False
    return all(
        char.isspace() or unicodedata.category(char) in ("Cc", "Cf") or is_shapeless(char)
        for char in line
    )


def too_long(line: str) -> str:
    """Return an error message if the line is too long to segment, else an empty string.

    The time to segment a word grows with the square of its length.
    """
    if len(line) <= LONGEST_SENTENCE or is_blank(line):
        return ""
    return f"{len(line):,} characters, at most {LONGEST_SENTENCE:,} are allowed"


def length_ratio(src: str, tgt: str, typical_ratio: float = 1.0) -> float:
    """Return the ratio of the longer side's characters to the other side's.

    Args:
        typical_ratio: characters of a translation for each character of its source; the source is
            counted as if it were a translation. Ten characters of the longer side are free.
    """
    short, long = sorted((len(src) * typical_ratio, len(tgt)))
    return (long - LENGTH_SLACK) / short if short else float(long > LENGTH_SLACK) * long


def _normalizations(line: str, number: int) -> Iterator[str]:
    """Name the changes of ``read_lines`` to a line, and its unusual line ends."""
    if number == 1 and line.startswith("\ufeff"):
        yield "byte-order mark removed"
    if line.endswith("\r"):
        yield "CRLF read as LF"
    if _CONTROL.search(line.removesuffix("\r")):
        yield "control characters read as spaces"
    if "\u2028" in line or "\u2029" in line:
        yield "U+2028 or U+2029 inside"


def count_words(lines: Iterable[str]) -> int:
    """Count the words that a perplexity per word counts, and one line end for each line.

    Published perplexities of WikiText and of the Penn Treebank count them so: WikiText-2 has
    217,646 words in its validation set and 245,569 in its test set.
    """
    return sum(len(line.split()) + 1 for line in lines)


def find_side(prefix: str, lang: str) -> Path:
    """Return the file of one side of a corpus: PREFIX.LANG, plain or compressed.

    Raises:
        UserError: there is no such file, it is not a regular file, or there are several and their
            lines differ.
    """
    files = []
    for suffix in OPENERS:
        path = Path(f"{prefix}.{lang}{suffix}")
        try:
            path.stat()  # Path.exists hides other errors from Python 3.14 on
            files.append(path)
        except ValueError:  # a NUL
            continue
        except OSError as error:  # a name too long, or a folder without permission
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                continue
            raise UserError(str(error.strerror), at=str(path), fix="check the prefix") from error
    for path in files:
        if not path.is_file():
            raise UserError("is not a regular file", at=str(path), fix="use a text file")
    if not files:
        raise _no_side(prefix, lang)
    first, *others = files
    for other in others:
        lines = (read_lines(path, clean=False) for path in (first, other))
        if any(a != b for a, b in itertools.zip_longest(*lines)):
            raise UserError(
                f"differs from {other.name} in the same folder, and only one can be the corpus",
                at=str(first),
                fix="delete or rename the wrong one",
            )
    return first


def _no_side(prefix: str, lang: str) -> UserError:
    """Return the error for a prefix without a file of a language, with suggestions."""
    zst = Path(f"{prefix}.{lang}.zst")
    if zst.exists():
        return UserError(
            "zstd files are not supported", at=str(zst), fix=f"unpack it: zstd -d {zst.name}"
        )
    if url := url_of(prefix):
        return UserError(
            "a URL cannot be a corpus",
            at=url,
            fix="download its files and give their prefix; data.download names a public corpus",
        )
    if fix := type_of(Path(prefix)):
        return UserError("is not a text file", at=prefix, fix=fix)
    endings = [f".{lang}{suffix}" for suffix in OPENERS]

    def prefix_name(path: Path) -> str | None:
        return next((path.name.removesuffix(e) for e in endings if path.name.endswith(e)), None)

    fix = "check the path prefix, and the language codes src and tgt"
    own_prefix = prefix_name(Path(prefix))
    if own_prefix and Path(prefix).is_file():
        fix = f"leave out the ending: {Path(prefix).with_name(own_prefix)}"
    elif Path(prefix).is_dir():
        names = sorted({*filter(None, map(prefix_name, Path(prefix).iterdir()))})[:5]
        fix = f"add the name of the files, such as {Path(prefix) / (names or ['train'])[0]}"
    elif near := similar_path(Path(prefix), prefix_name):
        fix = f"did you mean {near}? Else {fix}"
    similar = sorted(Path(name).name for name in glob.glob(glob.escape(prefix) + "*"))[:5]
    return UserError(
        f"no such file, also tried {', '.join(s for s in OPENERS if s)}"
        + (f"; files with this prefix: {', '.join(similar)}" if similar else ""),
        at=f"{prefix}.{lang}",
        fix=fix,
    )


def read_lines(
    path: Path, clean: bool = True, normalized: Counter[str] | None = None, errors: str = "strict"
) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, plain or compressed (.gz, .xz, .bz2).

    Args:
        clean: apply ``clean_line``; references for scoring are not cleaned.
        normalized: counts the lines with each kind of normalization.
        errors: surrogateescape = bytes that are not UTF-8 become surrogates.

    Raises:
        UserError: the file is missing or cannot be read, begins as another type of file, is not
            UTF-8, is a truncated archive, or has a line of over ten million bytes.
        MachineError: the disk failed.
    """
    opener = OPENERS.get(path.suffix, open)
    number = 0
    try:
        with open_file(path, pipes=True) as raw, raw if opener is open else opener(raw) as file:
            start = file.peek(SAMPLE)[:SAMPLE]  # type: ignore[union-attr]
            if fix := file_type(start, path if opener is open else None, str(path)):
                raise UserError("is not a text file", at=str(path), fix=fix)
            while line := file.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE:
                    raise UserError(
                        f"this line has over {LONGEST_LINE:,} bytes",
                        at=f"{path}:{number}",
                        fix=_cr_fix(str(path))
                        if line.count(b"\r") > 1
                        else "use a text file with one sentence per line",
                    )
                # a stray NUL is a control character
                if line.count(0) > MIN_NULS and unicode_encoding(line.lstrip(b"\0")):
                    raise UserError(
                        "this line is UTF-16 or UTF-32, and the lines before it are UTF-8",
                        at=f"{path}:{number}",
                        fix="convert each part to UTF-8 before you join the parts",
                    )
                text = line.decode("utf-8", errors).removesuffix("\n")
                if text.isascii() and text.isprintable():  # nothing to normalize
                    yield text
                    continue
                if normalized is not None:
                    normalized.update(_normalizations(text, number))
                text = text.removesuffix("\r")
                if number == 1:
                    text = text.removeprefix("\ufeff")
                yield clean_line(text) if clean else text
        if opener is gzip.open and not os.stat(path).st_size:
            raise EOFError("the file is empty")  # gzip reads it as an empty text
    except UnicodeDecodeError as error:
        raise UserError(
            f"not UTF-8: {error.reason} at byte {error.start + 1} of the line",
            at=f"{path}:{number}",
            fix="convert the file to UTF-8, for example with iconv",
        ) from error
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise _damaged(path, number, error) from error
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
        raise UserError(str(error.strerror), at=str(path), fix=missing_fix(path)) from error
    except OSError as error:
        if error.errno is None:  # bz2 raises a plain OSError for a damaged archive
            raise _damaged(path, number, error) from error
        raise MachineError(
            f"cannot be read: {error.strerror}",
            at=f"{path}:{number + 1}",
            fix="check the disk, or copy the file to another disk",
        ) from error


def unicode_encoding(start: bytes) -> str:
    """Return iconv's name if text is in UTF-16 or UTF-32, else "".

    Without a byte-order mark, it must look so, and have characters that text has when decoded.

    Args:
        start: the first bytes of the text.
    """
    if marked := next((name for mark, name in _MARKS.items() if start.startswith(mark)), ""):
        return marked
    if not set(start) & _CONTROL_BYTES or not _may_be_wide(start):
        return ""
    best = (0, "")
    for name in _UNMARKED_NAMES:
        try:
            text = codecs.getincrementaldecoder(name)().decode(start)
        except UnicodeDecodeError:
            continue
        categories = Counter(
            "" if char in "\t\n\r" else unicodedata.category(char) for char in text
        )
        odd = sum(categories[name] for name in ("Cc", "Cn", "Co", "Cs"))
        if text and odd <= len(text) / 20:
            best = max(best, (1 + sum(map(str.isascii, text)), name))
    return best[1]


def _may_be_wide(start: bytes) -> bool:
    """Return whether characters of text may have at least two bytes.

    Every second byte is mostly a control character, a NUL is next to each line end, or there are
    NULs and bytes that are not UTF-8.
    """
    halves = [start[first::2] for first in (0, 1)]
    if any(sum(byte < 32 for byte in half) > 0.7 * len(half) for half in halves):
        return True
    if 0 not in start:
        return False
    ends = [place for place, byte in enumerate(start) if byte == 10]
    little = all(place % 2 == 0 and start[place + 1 : place + 2] == b"\0" for place in ends)
    big = all(place % 2 and not start[place - 1] for place in ends)
    if ends and (little or big):
        return True
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return True
    return False


def text_encoding(encoding: str, at: str) -> str:
    """Return an encoding of text files that Python knows, by its name without a byte-order mark.

    Raises:
        UserError: Python does not know it, or it does not encode text, as base64.
    """
    try:
        info = codecs.lookup(encoding)
        if not info._is_text_encoding or info.name in _OTHERS:
            raise LookupError
    except (LookupError, ValueError) as error:
        what = f"the encoding {encoding} is not known, or is not one of text"
        fix = "name its encoding, such as windows-1250, or convert the file to UTF-8"
        raise UserError(what, at=at, fix=fix) from error
    name = str(info.name)
    return _UNMARKED.get(name, name)


def require_line_feeds(path: Path) -> None:
    """Raise UserError if the only line of a file has carriage returns inside."""
    check_only_line(next(read_lines(path, clean=False)), str(path))


def _convert_fix(file: str, convert: str) -> str:
    quoted, unpack = shlex.quote(file), UNPACK.get(Path(file).suffix)
    command = f"{unpack} {quoted} | {convert}" if unpack else f"{convert} < {quoted}"
    return f"convert it: {command} > NEW, and use the new file"


def _cr_fix(file: str) -> str:
    return _convert_fix(file, "tr '\\r' '\\n'")


def check_only_line(line: str, name: str, file: str | None = None) -> None:
    """Raise UserError if the only line of a text has carriage returns inside.

    ``name`` is that of the text; ``file`` is what to convert, None = ``name``.
    """
    inside = line.count("\r")
    if inside:
        raise UserError(
            f"has one line with {quantity(inside, 'carriage return')} inside: its lines end with "
            "CR, not LF",
            at=f"{name}:1",
            fix=_cr_fix(file or name),
        )


def _damaged(path: Path, lines: int, error: Exception) -> UserError:
    return UserError(
        f"the archive is damaged or truncated after line {lines}: {error}",
        at=str(path),
        fix="copy or download it again",
    )


_AS_TEXT = "save it as plain text in UTF-8, with one sentence per line"
_AS_TABLE = "import its pairs with nmt-import tsv (name: .xlsx), or save a column as text"
_MAGIC = {
    b"\x28\xb5\x2f\xfd": "this is a zstd file, which is not supported: unpack it with zstd -d",
    b"\x1f\x8b": "this is a gzip file: rename it so that its name ends in .gz",
    b"\xfd7zXZ": "this is an xz file: rename it so that its name ends in .xz",
    b"BZh91AY&SY": "this is a bzip2 file: rename it so that its name ends in .bz2",
    b"7z\xbc\xaf\x27\x1c": "this is a 7z archive: unpack it with 7z x",
    b"PK\x03\x04": "this is a zip archive: unpack it, or, if it is an office document, "
    "save it as plain text in UTF-8",
    b"%PDF-": "this is a PDF file: extract its text with pdftotext, and check its lines",
    b"{\\rtf": f"this is a document in Rich Text Format: {_AS_TEXT}",
    b"\xd0\xcf\x11\xe0": "this is an old Microsoft Office file (.doc, .xls, .ppt): open it, and "
    f"{_AS_TEXT}; save a table as .xlsx",
}
# a name in a zip archive, or the start of its file "mimetype" -> what it is
_ZIPPED = {
    "word/document.xml": f"this is a Word document (.docx): {_AS_TEXT}",
    "xl/workbook.xml": f"this is an Excel workbook (.xlsx): {_AS_TABLE}",
    "ppt/presentation.xml": f"this is a PowerPoint file (.pptx): {_AS_TEXT}",
    "application/vnd.oasis.opendocument.text": f"this is an OpenDocument text (.odt): {_AS_TEXT}",
    "application/vnd.oasis.opendocument.spreadsheet": "this is an OpenDocument spreadsheet (.ods): "
    "save it as .xlsx and import its pairs with nmt-import tsv FILE.xlsx",
    "application/epub+zip": f"this is an e-book (.epub): {_AS_TEXT}",
}


def file_type(start: bytes, path: Path | None = None, name: str = "FILE") -> str:
    """Return the type of a file that begins with these bytes, and advice; empty for UTF-8 text.

    Args:
        start: the first bytes of the file, up to SAMPLE.
        path: the file, if its content is not compressed; tells the kinds of zip archives apart.
        name: of the file, in a command that converts it.
    """
    fix = next((fix for magic, fix in _MAGIC.items() if start.startswith(magic)), "")
    if not fix and (encoding := unicode_encoding(start)):
        return f"this is {encoding}: {_convert_fix(name, f'iconv -f {encoding} -t UTF-8')}"
    if path is None or not start.startswith(b"PK") or not path.is_file():
        return fix
    try:
        with zipfile.ZipFile(path) as archive:
            names = set(archive.namelist())
            if "mimetype" in names:
                with archive.open("mimetype") as file:
                    names.add(file.read(100).decode("utf-8", "replace").strip())
    except (OSError, ValueError, RuntimeError, NotImplementedError, zipfile.BadZipFile):
        return fix
    return next((what for name, what in _ZIPPED.items() if name in names), fix)


def type_of(path: Path) -> str:
    """Return the type of a regular file, and advice; empty if it is text or unreadable."""
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            return file_type(file.read(SAMPLE), path, str(path))
    except (OSError, ValueError):
        return ""
