"""One training per run folder: a lock of the operating system, and a file that says who holds it.

The lock goes with its process, however that ends, so no lock is ever stale. The file names the
owner for people, and tells the owner when its folder was moved, deleted or taken over.
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
from nmt.runtime.files import disk_errors, write_atomic

NAME, OWNER = "lock", "lock.json"
PATIENCE = 1.0  # seconds: another process may hold the lock for a moment to see whether it is free
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


class FolderLock:
    """The lock of one run folder, held by this process from ``acquire`` to ``release``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.held = False
        self._me = ""
        self._lock = FileLock(folder / NAME, thread_local=False)

    def in_use(self) -> bool:
        """Whether a living process holds the lock."""
        if self._owner() is None:
            return False
        try:
            with FileLock(self.folder / NAME, timeout=0):
                return False
        except (Timeout, OSError):  # where it may not be tried, the owner's file is believed
            return True

    def refuse_if_held(self) -> None:
        """Raise MachineError "in use by ..." while another process holds the lock."""
        if self.in_use():
            raise self._refusal()

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
        self._me = json.dumps(owner)
        with disk_errors(self.folder / NAME):
            try:
                self._lock.acquire(timeout=PATIENCE)
            except Timeout:
                raise self._refusal() from None
            except (OSError, NotImplementedError) as error:
                if isinstance(error, OSError) and error.errno not in _NO_LOCKS:
                    raise
                raise MachineError(
                    "the file system of the run folder has no file locks",
                    at=str(self.folder),
                    fix="put the run folder on another file system, or mount this one with locks",
                ) from error
        try:
            write_atomic(self.folder / OWNER, self._me)
        except BaseException:
            self._lock.release()
            raise
        self.held = True

    def check(self) -> None:
        """Raise MachineError when the folder is gone or another process took it over."""
        assert self.held, "the run folder is written without its lock"
        text = self._owner()
        if text == self._me:
            return
        raise MachineError(
            "the run folder was moved, deleted or unmounted during the run"
            if text is None
            else "another training took the run folder over",
            at=str(self.folder),
            fix="put it back and continue with --resume"
            if text is None
            else "let that one end; its folder has what this one had saved",
        )

    def release(self) -> None:
        """Give the lock back; a folder that is another's now, or gone, is left as it is."""
        if self.held and self._owner() == self._me:
            (self.folder / OWNER).unlink(missing_ok=True)
        self._lock.release()
        self.held = False

    def follow(self, folder: Path) -> None:
        """The locked folder was renamed to ``folder``."""
        self.folder = folder

    def _owner(self) -> str | None:
        path = self.folder / OWNER
        with disk_errors(path):
            try:
                return path.read_text(encoding="utf-8", errors="replace")
            except (FileNotFoundError, NotADirectoryError):
                return None

    def _refusal(self) -> MachineError:
        try:
            who = json.loads(self._owner() or "")
            what = f"in use by pid {who['pid']} on {who['host']} since {who['since']}"
        except (ValueError, TypeError, KeyError, RecursionError):  # it has not been written yet
            what = "in use by a command that has just started"
        return MachineError(
            f"the run folder is {what}", at=str(self.folder), fix="wait until that has ended"
        )
