"""One training per run folder: a lock file that says who holds it and goes stale with its owner.

The file is made with O_EXCL, which is atomic on NFS too. On the owner's own machine the owner's
process decides whether the lock is alive; from elsewhere, whether the owner still touches the file.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from pathlib import Path

from nmt.errors import MachineError
from nmt.run.files import TEMPORARY, disk_errors

NAME = "lock"
BEAT_SECONDS = 30.0
STALE_SECONDS = 600.0  # far above BEAT_SECONDS: clocks of two machines may differ


class FolderLock:
    """The lock of one run folder, held by this process from ``acquire`` to ``release``."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self.held = False
        self._me = ""
        self._ended = threading.Event()

    def in_use(self) -> bool:
        """Whether a living training holds the lock."""
        text = _read(self.path)
        return text is not None and self._alive(text)

    def refuse_if_held(self) -> None:
        """Raises MachineError "in use by ..." while another training holds the lock."""
        text = _read(self.path)
        if text is None or not self._alive(text):
            return
        owner = _parse(text)
        raise MachineError(
            f"the run folder is in use by pid {owner['pid']} on {owner['host']} "
            f"since {owner['since']}"
            if owner
            else "another training is just starting in the run folder",
            at=str(self.path.parent),
            fix="wait for it, choose another folder with out=PATH, or, when that training is "
            f"surely gone, delete {self.path}",
        )

    def acquire(self) -> None:
        """Takes the lock, breaking a stale one.

        Raises:
            MachineError: another training holds it, or the folder cannot be written.
        """
        owner = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": time.strftime("%Y-%m-%d %H:%M:%S %z"),
            "scope": _scope(),
            "started": _start_of(os.getpid()),
            "token": uuid.uuid4().hex,
        }
        self._me = json.dumps(owner)
        with disk_errors(self.path):
            while not self._create():
                self.refuse_if_held()
                self._break_stale()
        self.held = True
        self.check()
        self._ended.clear()
        threading.Thread(target=self._beat, args=(self._ended,), daemon=True).start()

    def check(self) -> None:
        """Raises MachineError when the folder is gone or another training took it over."""
        assert self.held, "the run folder is written without its lock"
        with disk_errors(self.path):
            text = _read(self.path)
        if text == self._me:
            return
        raise MachineError(
            "the run folder was moved, deleted or unmounted during the run"
            if text is None
            else "another training took the run folder over",
            at=str(self.path.parent),
            fix="put it back and continue with --resume" if text is None else None,
        )

    def release(self) -> None:
        """Gives the lock back; another's lock and a vanished folder are left as they are."""
        self._ended.set()
        if self.held and _read(self.path) == self._me:
            self.path.unlink(missing_ok=True)
        self.held = False

    def follow(self, folder: Path) -> None:
        """The locked folder was renamed to ``folder``."""
        self.path = folder / NAME

    def _create(self) -> bool:
        try:
            with open(self.path, "x", encoding="utf-8") as file:
                file.write(self._me)
                file.flush()
                os.fsync(file.fileno())
        except FileExistsError:
            return False
        return True

    def _break_stale(self) -> None:
        judged = _read(self.path)
        aside = self.path.with_name(f"{TEMPORARY}lock-{uuid.uuid4().hex[:8]}")
        try:
            os.rename(self.path, aside)
        except FileNotFoundError:  # another start broke it first
            return
        if _read(aside) == judged:
            aside.unlink()
        else:  # between the look and the rename another start took the lock: it stays theirs
            os.rename(aside, self.path)

    def _alive(self, text: str) -> bool:
        owner = _parse(text)
        if owner and owner.get("scope") == _scope():
            return _runs(owner["pid"], owner.get("started", ""))
        try:
            return time.time() - self.path.stat().st_mtime < STALE_SECONDS
        except FileNotFoundError:
            return False

    def _beat(self, ended: threading.Event) -> None:
        while not ended.wait(BEAT_SECONDS):
            try:
                os.utime(self.path)
            except OSError:  # check() says so at the next write
                return


def _read(path: Path) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(4096)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _parse(text: str) -> dict | None:
    """The owner, or None while its file is still being written."""
    try:
        owner = json.loads(text)
        return owner if isinstance(owner["pid"], int) and owner["host"] and owner["since"] else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _scope() -> str:
    """Where a process id means something: this boot of this machine, this container."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def _start_of(pid: int) -> str:
    """When a process started, in clock ticks since boot ("" where the system has no /proc)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _runs(pid: int, started: str) -> bool:
    """Whether that very process lives; another one with its number does not count."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    now = _start_of(pid)
    return not (started and now) or started == now
