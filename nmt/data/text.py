"""Lines of text, cleaned by one rule for training and for translation.

Only LF ends a line. CR before LF goes; a byte-order mark at the start goes; control characters
(Unicode category Cc, among them a lone CR, NUL and tab) become spaces, and so do the halves of
surrogate pairs that a Python string can hold. A line of nothing but white space, control and format
characters (Cf: U+200B, U+FEFF, direction marks, ...) is blank. Nothing else is altered; U+2028 and
U+2029 stay.
"""

from __future__ import annotations

import bz2
import glob
import gzip
import itertools
import lzma
import os
import re
import stat
import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nmt.errors import MachineError, UserError

OPENERS: dict[str, Callable[..., Any]] = {
    "": open,
    ".gz": gzip.open,
    ".xz": lzma.open,
    ".bz2": bz2.open,
}
LONGEST_SENTENCE = 100_000  # characters of a line to translate
LONGEST_LINE = 10_000_000  # bytes; more is no sentence but a damaged file or a compressed bomb

CR_FIX = "convert its line ends, with tr '\\r' '\\n' < {} > NEW, and give the new file"

# First bytes of what is no text, and what to do about it.
_MAGIC = {
    b"\x28\xb5\x2f\xfd": "it is compressed by zstd, which is not read: unpack it (zstd -d)",
    b"\x1f\x8b": "it is compressed by gzip: let its name end in .gz",
    b"\xfd7zXZ": "it is compressed by xz: let its name end in .xz",
    b"BZh": "it is compressed by bzip2: let its name end in .bz2",
    b"PK\x03\x04": "it is a zip archive: unpack it",
    b"\xff\xfe": "it is UTF-16: convert it (iconv -f UTF-16 -t UTF-8)",
    b"\xfe\xff": "it is UTF-16: convert it (iconv -f UTF-16 -t UTF-8)",
}

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def clean_line(line: str) -> str:
    """A line without control characters, ready for UTF-8."""
    return line if line.isascii() and line.isprintable() else _CONTROL.sub(" ", line)


def is_blank(line: str) -> bool:
    """Nothing but white space (U+00A0 and U+3000 too), control and format characters (U+200B)."""
    if line[:1].isalnum():  # almost any line
        return False
    return all(char.isspace() or unicodedata.category(char) in ("Cc", "Cf") for char in line)


def _normalized(line: str, number: int) -> Iterator[str]:
    """What ``read_lines`` makes uniform in a line, its CR included, and odd ends it keeps."""
    if number == 1 and line.startswith("\ufeff"):
        yield "byte-order mark removed"
    if line.endswith("\r"):
        yield "CRLF read as LF"
    if _CONTROL.search(line.removesuffix("\r")):
        yield "control characters read as spaces"
    if "\u2028" in line or "\u2029" in line:
        yield "U+2028 or U+2029 inside"


def find_side(prefix: str, lang: str) -> Path:
    """Return the file of one side of a corpus: PREFIX.LANG, plain or compressed.

    Raises:
        UserError: there is none, or it is not a regular file, or there are several that differ.
    """
    looked = [Path(f"{prefix}.{lang}{suffix}") for suffix in OPENERS]
    found = []
    for path in looked:
        try:
            if path.exists():
                found.append(path)
        except OSError as error:  # a name too long, a folder that may not be entered
            raise UserError(str(error.strerror), at=str(path), fix="check the prefix") from error
    for path in found:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise UserError("not a regular file", at=str(path), fix="give a text file")
    for other in found[1:]:
        if not _same_lines(found[0], other):
            raise UserError(
                f"differs from {other.name} next to it: which of the two is the corpus?",
                at=str(found[0]),
                fix="delete or rename one of them",
            )
    if found:
        return found[0]
    zst = Path(f"{prefix}.{lang}.zst")
    if zst.exists():
        raise UserError("zstd is not read", at=str(zst), fix=f"unpack it: zstd -d {zst.name}")
    beside = sorted(Path(name).name for name in glob.glob(glob.escape(prefix) + "*"))[:5]
    raise UserError(
        f"no such file, nor with {' or '.join(s for s in OPENERS if s)}"
        + (f"; there is {', '.join(beside)}" if beside else ""),
        at=str(looked[0]),
        fix="check the path prefix, and the language codes src and tgt",
    )


def _same_lines(one: Path, other: Path) -> bool:
    lines = (read_lines(path, clean=False) for path in (one, other))
    return all(a == b for a, b in itertools.zip_longest(*lines))


def read_lines(path: Path, clean: bool = True, found: Counter[str] | None = None) -> Iterator[str]:
    """The lines of a UTF-8 file, plain, .gz, .xz or .bz2.

    Args:
        clean: apply ``clean_line``; references for scoring are read as they are.
        found: lines in which something was normalized are counted here.

    Raises:
        UserError: missing or unreadable, not UTF-8 (with line and byte), a truncated archive, or a
            line of over ten million bytes.
    """
    opener = OPENERS.get(path.suffix, open)
    number, line = 0, b""
    try:
        with opener(path, "rb") as file:
            while line := file.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE:
                    raise UserError(
                        f"a line of over {LONGEST_LINE:,} bytes",
                        at=f"{path}:{number}",
                        fix=CR_FIX.format(path)
                        if line.count(b"\r") > 1
                        else "give text with one sentence a line",
                    )
                text = line.decode("utf-8").removesuffix("\n")
                if text.isascii() and text.isprintable():  # nothing to normalize
                    yield text
                    continue
                if found is not None:
                    found.update(_normalized(text, number))
                text = text.removesuffix("\r")
                if number == 1:
                    text = text.removeprefix("\ufeff")
                yield clean_line(text) if clean else text
        if opener is gzip.open and not os.stat(path).st_size:
            raise EOFError("no bytes at all, which gzip takes for an empty text")
    except UnicodeDecodeError as error:
        raise UserError(
            f"not UTF-8: {error.reason} at byte {error.start + 1} of the line",
            at=f"{path}:{number}",
            fix=_what_it_is(line) or "convert the file to UTF-8, for example with iconv",
        ) from error
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise _damaged(path, number, error) from error
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
        raise UserError(str(error.strerror), at=str(path), fix="check the path") from error
    except OSError as error:
        if error.errno is None:  # bz2 has no error of its own
            raise _damaged(path, number, error) from error
        raise MachineError(
            f"cannot be read: {error.strerror}",
            at=f"{path}:{number + 1}",
            fix="check the disk, or read the file from another one",
        ) from error


def _damaged(path: Path, lines: int, error: Exception) -> UserError:
    return UserError(
        f"the archive is damaged or truncated after line {lines}: {error}",
        at=str(path),
        fix="fetch it again",
    )


def _what_it_is(line: bytes) -> str:
    """What a file that begins with this line is, if it is no text and well known."""
    return next((what for magic, what in _MAGIC.items() if line.startswith(magic)), "")
