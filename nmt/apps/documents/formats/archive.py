"""The zip archive of an office document, which is not trusted."""

from __future__ import annotations

import contextlib
import io
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from nmt.apps.documents.formats.xml import Reader
from nmt.errors import UserError
from nmt.runtime.files import UNPACKED, human_bytes

MAX_SIZE = UNPACKED  # bytes of all files: a small archive may hold a very large one
_BLOCK = 1 << 16
_OLE = bytes.fromhex("d0cf11e0a1b11ae1")  # begins old files of Word, and new ones with a password
_DAMAGED = (
    zipfile.BadZipFile,
    EOFError,
    NotImplementedError,
    OSError,
    RuntimeError,
    ValueError,
    struct.error,
    zlib.error,
)


class Archive:
    """An archive with a limit on the total unpacked size, whatever its headers state.

    Args:
        kind: what it should be, for messages.

    Attributes:
        names: of the files, by the name in small letters: Word does not distinguish them.

    Raises:
        UserError: it is damaged, encrypted, too large, or has implausible file names.
    """

    def __init__(self, source: BinaryIO, name: str, kind: str) -> None:
        self.name, self._left = name, MAX_SIZE
        self.damaged = UserError(
            f"is not a {kind}, or it is damaged",
            at=name,
            fix="open it in your word processor and save it again in this format",
        )
        self.encrypted = UserError(
            f"is not a {kind}, or it has a password",
            at=name,
            fix="open it in your word processor and save it again in this format, without password",
        )
        start = source.read(len(_OLE))
        source.seek(0)
        if start == _OLE:
            raise self.encrypted
        with self._errors():
            self.zip = zipfile.ZipFile(source)
        self.names: dict[str, str] = {}
        for info in self.zip.infolist():
            part = info.filename
            if info.flag_bits & 1:
                raise self.encrypted
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise self.damaged
            folders = re.split(r"[/\\]", part)
            if part.lower() in self.names or not folders[0] or ".." in folders:
                raise self.damaged
            self.names[part.lower()] = part

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except _DAMAGED as error:
            raise self.damaged from error

    def blocks(self, part: str) -> Iterator[bytes]:
        """Yield the bytes of a file."""
        with self._errors():
            file = self.zip.open(part)
        with file:
            while True:
                with self._errors():
                    block = file.read(_BLOCK)
                if not block:
                    return
                self._left -= len(block)
                if self._left < 0:
                    what = f"has over {human_bytes(MAX_SIZE)}, unpacked"
                    raise UserError(what, at=self.name, fix="divide the document")
                yield block

    def reader(self, part: str) -> Reader:
        """Return the events of a file."""
        return Reader(_Blocks(self.blocks(part)), f"{self.name}:{part}")  # type: ignore[arg-type]


class _Blocks(io.RawIOBase):
    """A file of blocks."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks

    def read(self, size: int = -1) -> bytes:
        """Return the next block, whatever the size."""
        return next(self._blocks, b"")
