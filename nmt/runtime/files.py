"""Open, read and write files. Only this module does so in folders that may be untrusted.

Files and folders are written completely or not at all. Disk errors are explained to the user.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import re
import shutil
import stat
import sys
import uuid
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from nmt.errors import MachineError, UserError

with suppress(ImportError):  # not on Windows
    import fcntl

TEMPORARY = ".tmp-"  # prefix of what is not complete yet
REPLACED = ".old-"  # prefix of a folder while another one takes its name
OTHER_RUN = "choose another run folder with out=PATH"
RESUME = "run the same command with --resume"
AGAIN = "run the same command again"
RESTORE = "restore the file from a copy of its folder"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_SLACK = 1 << 20  # additional bytes that a file system may need
SMALL = 16 << 20  # maximum bytes of a settings file
LONGEST_PATH, LONGEST_NAME = 4000, 255  # bytes; Linux allows 4,095 with the names of our files
LONGEST_SHOWN = 100  # characters of a path in a message about its length
UNPACKED = 200 << 20  # unpacked bytes of a document or a workbook
LARGE = 1 << 30  # maximum bytes of a log, a vocabulary or a segmenter


def open_file(path: Path, limit: int | None = None, pipes: bool = False) -> BinaryIO:
    """Open a file for reading; refuse devices and pipes, which could block or never end.

    A folder from another person may contain a FIFO, or a link to a device, under any name.

    Args:
        limit: bytes that the file may have; None = any number.
        pipes: accept a pipe too, for a path that the user typed. If nothing writes to it, it is
            empty.

    Raises:
        UserError: the path is not a regular file, or the file is too large.
        OSError: as ``open`` does, for example because the file is missing.
    """

    def without_waiting(name: str, flags: int) -> int:  # for a writer that may never come
        return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))

    file = open(path, "rb", opener=without_waiting)  # noqa: SIM115, the caller closes it
    try:
        info = os.fstat(file.fileno())
        if pipes and stat.S_ISFIFO(info.st_mode):
            os.set_blocking(file.fileno(), True)
        elif not stat.S_ISREG(info.st_mode):
            raise UserError(
                "not a regular file", at=str(path), fix="replace it by a copy of the file"
            )
        elif limit is not None and info.st_size > limit:
            raise UserError(
                f"has {human_bytes(info.st_size)}; at most {human_bytes(limit)} are allowed",
                at=str(path),
                fix="check the path, or replace it by a copy of the file",
            )
    except BaseException:
        file.close()
        raise
    return file


def read_file(path: Path, limit: int | None = SMALL) -> bytes:
    """Return the content of a file; see ``open_file`` for the arguments and errors."""
    with open_file(path, limit) as file:
        return file.read(os.fstat(file.fileno()).st_size)  # at most, even if it grows meanwhile


def read_text(path: Path, limit: int = SMALL, errors: str = "strict") -> str:
    """Return the text of a UTF-8 file; see ``open_file`` and ``bytes.decode`` for the arguments."""
    return read_file(path, limit).decode("utf-8", errors)


def require_unpackable(path: Path) -> None:
    """Raise UserError for a zip archive whose files are too large for memory; others pass.

    zipfile never unpacks more than the archive states.
    """
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            size = sum(info.file_size for info in archive.infolist())
        if size > UNPACKED:
            what = f"has {human_bytes(size)}, unpacked; at most {human_bytes(UNPACKED)} are allowed"
            raise UserError(what, at=str(path), fix="divide the file")


def json_object(text: str | bytes) -> dict[str, Any]:
    """Return the JSON object of a text; ValueError if it is anything else."""
    try:
        values = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(values, dict):
        raise ValueError("not an object")
    return values


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object of a small file; empty if the file is missing or damaged."""
    try:
        return json_object(read_text(path))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return {}


def require_usable(path: str, place: str = "") -> None:
    """Raise UserError if a path is not UTF-8, has a NUL, or is too long for this system.

    Args:
        place: where a user wrote the path, for the message.
    """
    shown = path if len(path) <= LONGEST_SHOWN else f"{path[:LONGEST_SHOWN]}..."
    at = f"{place}: {shown}" if place else shown
    try:
        encoded = path.encode()
    except UnicodeEncodeError as error:
        raise UserError(
            "this path has bytes that are not UTF-8", at=at, fix="rename the file or folder"
        ) from error
    if b"\0" in encoded:
        raise UserError("a path cannot have a NUL character", at=at, fix="remove it")
    if len(encoded) > LONGEST_PATH or max(map(len, encoded.split(b"/"))) > LONGEST_NAME:
        raise UserError(
            f"a path has at most {LONGEST_PATH:,} bytes, and each name in it {LONGEST_NAME}",
            at=at,
            fix="choose a shorter path",
        )


def replace_surrogates(text: str) -> str:
    """Return text that UTF-8 can represent, with U+FFFD for each surrogate.

    A path has a surrogate for each byte that is not UTF-8.
    """
    return re.sub("[\ud800-\udfff]", "\N{REPLACEMENT CHARACTER}", text)


class DiskError(MachineError):
    """A file or folder cannot be read or written, for a reason other than its content."""


@contextmanager
def disk_errors(
    path: Path, needed: int = 0, elsewhere: str = OTHER_RUN, again: str = RESUME
) -> Iterator[None]:
    """Turn any OSError of the block except BrokenPipeError into a DiskError; see ``disk_error``.

    If the disk is full, the outermost of nested blocks with ``needed`` decides, because it knows
    the command and all bytes to write.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except DiskError as inner:
        cause = inner.__cause__
        if needed and isinstance(cause, OSError) and cause.errno in (*_FULL, errno.EFBIG):
            raise disk_error(cause, path, needed, elsewhere, again) from cause
        raise
    except OSError as error:
        raise disk_error(error, path, needed, elsewhere, again) from error


def disk_error(
    error: OSError,
    path: Path | None,
    needed: int = 0,
    elsewhere: str = OTHER_RUN,
    again: str = RESUME,
) -> DiskError:
    """Return a DiskError that names the file, the reason and the next step.

    Args:
        path: what is read or written; None = not known.
        needed: bytes about to be written; 0 = not known.
        elsewhere, again: imperatives that advise where else to write, and how to continue.
    """
    at = _name(path)
    if error.errno in _FULL:
        return _full(path, needed, again)
    if error.errno == errno.EFBIG:
        return DiskError(
            f"must not grow larger than {_largest_file()}",
            at=at,
            fix=f"raise the limit (ulimit -f unlimited) or {elsewhere}, then {again}",
        )
    fixes = {
        errno.EACCES: f"change the permissions (chmod), or {elsewhere}",
        errno.EPERM: f"change the permissions (chmod), or {elsewhere}",
        errno.EROFS: f"the file system is read-only; {elsewhere}",
        errno.ENOENT: "it existed before: check whether it was moved, deleted or unmounted",
        errno.EIO: f"the disk or its connection is damaged; {elsewhere}",
    }
    reason = error.strerror or str(error) or type(error).__name__
    fix = fixes.get(error.errno or 0, f"check the path and its disk, then {again}")
    return DiskError(reason, at=at, fix=fix)


def require_space(folder: Path, needed: int) -> None:
    """Raise MachineError if the disk of an existing folder has fewer than ``needed`` bytes free."""
    with disk_errors(folder):
        free = shutil.disk_usage(folder).free
    if free < needed + _SLACK:
        raise _full(folder, needed + _SLACK)


def temporary(path: Path) -> Path:
    """Return an unused name next to ``path`` for an incomplete file or folder."""
    return path.with_name(f"{TEMPORARY}{path.name}-{uuid.uuid4().hex[:8]}")


def write_synced(path: Path, data: bytes) -> None:
    """Write a new file and flush it to the disk; a crash can leave a part of it."""
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk; without this a power cut can undo a rename."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:  # some network file systems cannot flush a folder, and need not
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def write_atomic(
    path: Path, data: bytes | str, elsewhere: str = OTHER_RUN, again: str = RESUME
) -> None:
    """Replace ``path`` by ``data``: readers and crashes see the old content or the new one.

    Text is written as UTF-8. See ``disk_error`` for the other arguments and for errors.
    """
    content = data.encode("utf-8") if isinstance(data, str) else data
    draft = temporary(path)
    with disk_errors(path, len(content), elsewhere, again):
        try:
            write_synced(draft, content)
            os.replace(draft, path)
            sync_folder(path.parent)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise


def replace_together(drafts: Mapping[Path, Path]) -> None:
    """Give complete drafts their names, so that a kill never leaves files of different commands.

    Files with these names are deleted first, except the first one, which is replaced.

    Args:
        drafts: final name -> draft on the same disk, flushed to it.

    Raises:
        OSError: the folder is not writable.
    """
    for path in list(drafts)[1:]:
        path.unlink(missing_ok=True)
    for path, draft in drafts.items():
        sync_folder(path.parent)
        os.replace(draft, path)
    sync_folder(path.parent)


@contextmanager
def atomic_folder(path: Path, replace: bool = False) -> Iterator[Path]:
    """Yield a new empty folder, which is renamed to ``path`` when the block ends.

    After an error nothing is left, and an old folder of this name is unchanged. The next call for
    this path removes what a killed process left. Linux exchanges the names of both folders at once.
    Elsewhere, the old one is called ``.old-NAME`` for a moment; a kill then leaves it. The block
    flushes its files itself (``write_synced``) where they must survive a power cut; names are
    flushed here.

    Args:
        path: the final name; its parent must exist.
        replace: replace an existing folder.

    Raises:
        FileExistsError: ``path`` exists at the end, and ``replace`` is not set.
        OSError: the disk is full or not writable.
    """
    clear_drafts(path.parent, path.name)
    draft = temporary(path)
    old = path.with_name(REPLACED + path.name)
    if os.path.lexists(old):  # a killed process left it
        old = old.with_name(f"{old.name}-{uuid.uuid4().hex[:8]}")
    os.mkdir(draft)  # without parents: a deleted run folder must not come back half empty
    held = _hold(draft)
    try:
        yield draft
        sync_folder(draft)
        if os.path.lexists(path):
            if not replace:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
            if not _exchange(draft, path):
                os.rename(path, old)
        if os.path.lexists(draft) and not os.path.lexists(path):
            os.rename(draft, path)
        sync_folder(path.parent)
    finally:
        if os.path.lexists(old) and not os.path.lexists(path):
            os.rename(old, path)
        for folder in (draft, old):
            shutil.rmtree(folder, ignore_errors=True)
        if held is not None:
            os.close(held)


def clear_drafts(folder: Path, name: str = "") -> None:
    """Remove the drafts of killed processes: those that no process holds.

    Args:
        name: final name of the drafts; "" = any.
    """
    pattern = re.compile(re.escape(TEMPORARY + name) + ".*-[0-9a-f]{8}")
    for draft in [path for path in folder.iterdir() if pattern.fullmatch(path.name)]:
        if (held := _hold(draft)) is not None:
            shutil.rmtree(draft, ignore_errors=True)
            os.close(held)


def _hold(folder: Path) -> int | None:
    """Lock a folder until its descriptor is closed or the process ends; None = it is not free.

    Some network file systems and Windows have no such locks: then no folder is free.
    """
    try:
        held = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (NameError, OSError):
        os.close(held)
        return None
    return held


def _exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two folders at once; return False where the system cannot."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    here, exchange = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux
    return bool(rename(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0)


def clear_leftovers(root: Path, name: str = "") -> None:
    """Clean up after killed ``atomic_folder``: remove drafts, restore what was being replaced.

    Args:
        name: with which the names of the folders begin.
    """
    for folder in list(root.iterdir()):
        if folder.name.startswith(REPLACED + name):
            final = folder.with_name(folder.name.removeprefix(REPLACED))
            if not final.exists():
                os.rename(folder, final)
                continue
        if folder.name.startswith((TEMPORARY + name, REPLACED + name)):
            shutil.rmtree(folder, ignore_errors=True)


def append_line(path: Path, line: str) -> None:
    """Append one line to an existing file, completely or not at all.

    The file is opened again each time, so that a deleted or moved run folder is noticed.
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


def file_digest(path: Path, algorithm: str = "sha256") -> str:
    """Return the hex digest of the content of a file."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with open_file(path) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def human_bytes(count: float) -> str:
    """Format a number of bytes: 1536 -> ``1.5 KB``."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TB"


def _full(path: Path | None, needed: int, again: str = RESUME) -> DiskError:
    amounts = [f"{human_bytes(needed)} needed"] if needed else []
    if path is not None:
        place = path if path.exists() else path.parent
        try:
            free = shutil.disk_usage(place).free
            amounts.append(f"{human_bytes(free)} free")
            if free > needed + _SLACK:
                amounts.append("so perhaps it can hold no more files (see df -i)")
        except OSError:
            amounts.append("an unknown number of bytes free")
    return DiskError(
        "the disk (or your quota) is full" + (": " if amounts else "") + ", ".join(amounts),
        at=_name(path),
        fix=f"free some space, then {again}",
    )


def _name(path: Path | None) -> str:
    return "standard output or a file" if path is None else str(path)


def _largest_file() -> str:
    if sys.platform == "win32":
        return "its file system allows"
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit == resource.RLIM_INFINITY:
        return "its file system allows"
    return f"{human_bytes(limit)}, the limit on files of this shell (ulimit -f)"
