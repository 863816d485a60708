"""Writes that survive a power cut or leave nothing behind, and disk errors in a user's words."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nmt.errors import MachineError

TEMPORARY = ".tmp-"
OTHER_RUN = "choose another run folder with out=PATH"
RESUME = "run the same command with --resume"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_SLACK = 1 << 20  # bytes a file system may need beside the data itself


@contextmanager
def disk_errors(
    path: Path, needed: int = 0, elsewhere: str = OTHER_RUN, again: str = RESUME
) -> Iterator[None]:
    """Turn an OSError into a MachineError; the arguments are those of ``disk_error``.

    Raises:
        MachineError: in place of any OSError of the body but that of a pipe without a reader.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise disk_error(error, path, needed, elsewhere, again) from error


def disk_error(
    error: OSError,
    path: Path | None,
    needed: int = 0,
    elsewhere: str = OTHER_RUN,
    again: str = RESUME,
) -> MachineError:
    """Return an error that names the file, the reason and the next step.

    Args:
        error: of the operating system.
        path: what is being read or written, None = not known.
        needed: bytes about to be written, 0 = not known.
        elsewhere: how to have it in another place, as an imperative.
        again: what to do once the cause is gone, as an imperative.
    """
    at = _name(path)
    if error.errno in _FULL:
        return _full(path, needed, again)
    if error.errno == errno.EFBIG:
        return MachineError(
            f"must not grow larger than {_largest_file()}",
            at=at,
            fix=f"raise the limit (ulimit -f unlimited) or {elsewhere}, then {again}",
        )
    fixes = {
        errno.EACCES: f"give yourself the permission, or {elsewhere}",
        errno.EPERM: f"give yourself the permission, or {elsewhere}",
        errno.EROFS: f"the file system is read-only; {elsewhere}",
        errno.ENOENT: "it was there before: was the folder moved, deleted or unmounted?",
        errno.EIO: f"the disk or its connection is damaged; {elsewhere}",
    }
    reason = error.strerror or str(error) or type(error).__name__
    fix = fixes.get(error.errno or 0, f"check the path and its disk, then {again}")
    return MachineError(reason, at=at, fix=fix)


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


def write_atomic(path: Path, data: bytes | str, elsewhere: str = OTHER_RUN) -> None:
    """Replace ``path`` by ``data``: readers and crashes see all of the old content or of the new.

    Args:
        elsewhere: as of ``disk_error``.

    Raises:
        MachineError: the disk is full, or the folder is gone or not writable.
    """
    content = data.encode("utf-8") if isinstance(data, str) else data
    draft = path.with_name(f"{TEMPORARY}{path.name}-{uuid.uuid4().hex[:8]}")
    with disk_errors(path, len(content), elsewhere):
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


def _full(path: Path | None, needed: int, again: str = RESUME) -> MachineError:
    amounts = [f"{human_bytes(needed)} needed"] if needed else []
    if path is not None:
        place = path if path.exists() else path.parent
        try:
            amounts.append(f"{human_bytes(shutil.disk_usage(place).free)} free")
        except OSError:
            amounts.append("an unknown number of bytes free")
    return MachineError(
        "the disk (or your quota) is full" + (": " if amounts else "") + ", ".join(amounts),
        at=_name(path),
        fix=f"free some space, then {again}",
    )


def _name(path: Path | None) -> str:
    return "standard output or a file" if path is None else str(path)


def _largest_file() -> str:
    """Return the limit on the size of files, in words."""
    if sys.platform == "win32":
        return "its file system allows"
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit == resource.RLIM_INFINITY:
        return "its file system allows"
    return f"{human_bytes(limit)}, the limit on files of this shell (ulimit -f)"
