"""Append corrections to the file of ``nmt-serve --corrections``, each completely or not at all.

A row is written at once, under a lock of the operating system, and flushed to the disk before the
request is answered. So requests and servers can share a file, and a kill at any time leaves all
rows that were answered. A part of a row, which a kill may leave, is removed before the next row.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from filelock import FileLock

from nmt.data.corrections import COLUMNS, write_row
from nmt.errors import UserError
from nmt.runtime.files import append_line, disk_errors

TIME = "%Y-%m-%dT%H:%M:%SZ"


class CorrectionsFile:
    """A file of corrections to append to; it is created if it does not exist.

    Raises:
        UserError: its folder does not exist, or the file has another header.
        MachineError: it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        if not path.absolute().parent.is_dir():
            fix = "create the folder, or choose another one"
            raise UserError("no such folder", at=str(path.parent), fix=fix)
        self.path, self._lock = path, f"{path}.lock"
        with disk_errors(path, 0, "choose another file"), FileLock(self._lock):
            self._repair()

    def append(self, values: Sequence[str]) -> None:
        """Append a row: the values of all columns but the last, the time.

        Raises:
            UserError: the file is another one now.
            MachineError: the disk is full or not writable; the file is as before.
        """
        time = datetime.now(timezone.utc).strftime(TIME)
        with disk_errors(self.path), FileLock(self._lock):
            self._repair()
            append_line(self.path, write_row([*values, time]))
            with self.path.open("ab") as file:
                os.fsync(file.fileno())

    def _repair(self) -> None:
        """Begin an empty file with the header, and remove a row that is not complete."""
        header = f"{write_row(COLUMNS)}\n".encode()
        with self.path.open("a+b") as file:
            file.seek(0)
            if (first := file.readline()) != header:
                if not header.startswith(first):
                    what = f"is not a file of corrections, whose first line is {header.decode()!r}"
                    fix = "choose a file that nmt-serve wrote, or a new name"
                    raise UserError(what, at=f"{self.path}:1", fix=fix)
                file.truncate(0)
                file.write(header)
                return
            end = file.seek(-1, os.SEEK_END) + 1
            if file.read() == b"\n":
                return
            file.seek(0)
            *_, last = file
            if _has_time(last):  # an editor removed the line end
                file.write(b"\n")
                return
            file.truncate(end - len(last))
            print(f"note: {self.path}: an incomplete last row was removed", file=sys.stderr)


def _has_time(row: bytes) -> bool:
    try:
        datetime.strptime(row.decode().rpartition("\t")[2], TIME)
    except ValueError:
        return False
    return True
