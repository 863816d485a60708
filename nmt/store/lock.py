"""Allow one process to train in a run folder.

``lock`` is locked by the operating system, which frees it when the process ends in any way.
``lock.json`` names the owner for other users. The owner reads it before it writes a checkpoint,
to notice that its folder was moved, deleted or taken over.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import time
import uuid
from pathlib import Path

from filelock import FileLock, Timeout

from nmt.errors import MachineError
from nmt.runtime.files import disk_errors, json_object, read_text, write_atomic

NAME, OWNER = "lock", "lock.json"
TIMEOUT = 1.0  # seconds: another process may hold the lock briefly to test whether it is free
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL)


class FolderLock:
    """The lock of an existing folder; as a context manager it is held inside the block.

    Attributes:
        folder: the folder; set it after the locked folder was renamed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._me: str | None = None  # the content of lock.json while this process holds the lock
        self._lock = FileLock(folder / NAME, thread_local=False)

    def in_use(self) -> bool:
        """Return whether a running process holds the lock."""
        if self._owner() is None:
            return False
        try:
            with FileLock(self.folder / NAME, timeout=0):
                return False
        except (Timeout, OSError, NotImplementedError):  # if it cannot be tried, believe lock.json
            return True

    def refuse_if_held(self) -> None:
        """Raise MachineError "in use by ..." if another process holds the lock."""
        if self.in_use():
            raise self._in_use_error()

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            MachineError: another process holds it, or the folder cannot be written or locked.
        """
        owner = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": time.strftime("%Y-%m-%d %H:%M:%S %z"),
            "token": uuid.uuid4().hex,
        }
        with disk_errors(self.folder / NAME):
            try:
                self._lock.acquire(timeout=TIMEOUT)
            except Timeout:
                raise self._in_use_error() from None
            except (OSError, NotImplementedError) as error:
                if isinstance(error, OSError) and error.errno not in _NO_LOCKS:
                    raise
                raise MachineError(
                    "the file system of the run folder does not support file locks",
                    at=str(self.folder),
                    fix="use a folder on a local disk: start the run with out=PATH, or copy "
                    "this run folder there and use the copy",
                ) from error
        try:
            self._me = json.dumps(owner)
            write_atomic(self.folder / OWNER, self._me)
        except BaseException:
            self._lock.release()
            raise

    def check(self) -> None:
        """Raise MachineError if the folder is gone or another process has taken it over."""
        assert self._me, "the run folder is written without its lock"
        owner = self._owner()
        if owner is None:
            raise MachineError(
                "the run folder was moved, deleted or unmounted during the run",
                at=str(self.folder),
                fix="put it back and continue with --resume",
            )
        if owner != self._me:
            raise MachineError(
                "another process has taken over the run folder",
                at=str(self.folder),
                fix="let that process end; it continues from what this one saved",
            )

    def release(self) -> None:
        """Free the lock; lock.json stays if it names another process."""
        if self._me and self._owner() == self._me:
            (self.folder / OWNER).unlink(missing_ok=True)
        self._lock.release()
        self._me = None

    def __enter__(self) -> FolderLock:
        self.acquire()
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()

    def _owner(self) -> str | None:
        path = self.folder / OWNER
        with disk_errors(path):
            try:
                return read_text(path, errors="replace")
            except (FileNotFoundError, NotADirectoryError):
                return None

    def _in_use_error(self) -> MachineError:
        try:
            who = json_object(self._owner() or "")
            what = f"in use by pid {who['pid']} on {who['host']} since {who['since']}"
        except (ValueError, KeyError):  # not written yet
            what = "in use by a command that has just started"
        return MachineError(
            f"the run folder is {what}", at=str(self.folder), fix="wait until that process ends"
        )
