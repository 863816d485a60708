"""Lines of tar members, tabs kept; damage is an error, never a gap."""

from __future__ import annotations

import gzip
import lzma
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from nmt.errors import UserError


@contextmanager
def whole(path: Path) -> Iterator[None]:
    """Turns what the decompressors raise on a damaged archive into one error for people."""
    try:
        yield
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, tarfile.TarError) as error:
        raise UserError(
            f"damaged or truncated archive ({error})", at=str(path), fix="fetch or pack it again"
        ) from error


def decoded(lines: Iterable[bytes], name: str) -> Iterator[str]:
    """UTF-8 lines without line ends and byte order mark.

    Raises:
        UserError: a line is not UTF-8 (names file and line).
    """
    for number, line in enumerate(lines, 1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise UserError(
                f"not UTF-8 at byte {error.start + 1} of the line",
                at=f"{name}:{number}",
                fix="convert the file to UTF-8 (iconv -f OLD -t UTF-8)",
            ) from error
        yield text.rstrip("\r\n")


def member_lines(archive: Path, member: str) -> Iterator[str]:
    """Lines of one file of a .tar.gz, found by the end of its path and read without unpacking.

    Raises:
        UserError: damaged archive, or no such member.
    """
    with whole(archive), tarfile.open(archive, "r:*") as tar:
        for info in tar:
            if info.isfile() and f"/{info.name}".endswith(f"/{member}"):
                file = tar.extractfile(info)
                assert file is not None  # isfile() said so
                yield from decoded(file, f"{archive}:{member}")
                return
    raise UserError(f"has no {member}", at=str(archive), fix="give the publisher's own archive")


def member_names(archive: Path) -> list[str]:
    """Paths of all files of a .tar.gz."""
    with whole(archive), tarfile.open(archive, "r:*") as tar:
        return [info.name for info in tar if info.isfile()]
