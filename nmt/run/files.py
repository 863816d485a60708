"""Writes that survive a power cut or leave nothing behind, and disk errors in a user's words."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nmt.errors import MachineError

TEMPORARY = ".tmp-"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_SLACK = 1 << 20  # bytes a file system may need beside the data itself


@contextmanager
def disk_errors(path: Path, needed: int = 0) -> Iterator[None]:
    """Turns an OSError into a MachineError naming ``path``, the reason and the next step.

    Args:
        path: what is being read or written.
        needed: bytes about to be written, for the message of a full disk.

    Raises:
        MachineError: in place of any OSError of the body.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise _full(path, needed) from error
        reason = error.strerror or type(error).__name__
        permission = "give yourself the permission, or choose another run folder with out=PATH"
        fixes = {
            errno.EACCES: permission,
            errno.EPERM: permission,
            errno.EROFS: "the file system is read-only; choose another run folder with out=PATH",
            errno.ENOENT: "it was there before: was the folder moved, deleted or unmounted?",
        }
        raise MachineError(reason, at=str(path), fix=fixes.get(error.errno or 0)) from error


def require_space(folder: Path, needed: int) -> None:
    """Refuses work that the disk of ``folder`` has no room for.

    Args:
        folder: an existing folder.
        needed: bytes.

    Raises:
        MachineError: naming needed and free bytes.
    """
    with disk_errors(folder):
        free = shutil.disk_usage(folder).free
    if free < needed + _SLACK:
        raise _full(folder, needed)


def write_synced(path: Path, data: bytes) -> None:
    """A new file, flushed to the disk; the caller names it so that nobody takes it for complete."""
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Flushes the names in a folder: a rename is on the disk only after this."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:  # some network file systems cannot flush a folder, and need not
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def write_atomic(path: Path, data: bytes | str) -> None:
    """Replaces ``path`` by ``data``: readers and crashes see the old content or the new, whole.

    Raises:
        MachineError: the disk is full, or the folder is gone or not writable.
    """
    content = data.encode("utf-8") if isinstance(data, str) else data
    draft = path.with_name(f"{TEMPORARY}{path.name}-{uuid.uuid4().hex[:8]}")
    with disk_errors(path, len(content)):
        try:
            write_synced(draft, content)
            os.replace(draft, path)
            sync_folder(path.parent)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise


def append_line(path: Path, line: str) -> None:
    """Appends one line to an existing file, whole or not at all.

    The file is opened anew each time, so that a deleted or moved run folder is noticed.

    Raises:
        MachineError: the disk is full, or the file is gone.
    """
    data = (line + "\n").encode("utf-8", "backslashreplace")
    with disk_errors(path, len(data)):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
        try:
            size = os.fstat(descriptor).st_size
            try:
                if os.write(descriptor, data) != len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError:
                os.ftruncate(descriptor, size)
                raise
        finally:
            os.close(descriptor)


def human_bytes(count: float) -> str:
    """1536 -> ``1.5 KB``."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TB"


def _full(path: Path, needed: int) -> MachineError:
    place = path if path.exists() else path.parent
    try:
        free = human_bytes(shutil.disk_usage(place).free)
    except OSError:
        free = "an unknown number of bytes"
    return MachineError(
        f"the disk (or your quota) is full: {human_bytes(needed)} needed, {free} free",
        at=str(path),
        fix="free some space, then run the same command with --resume",
    )
