"""A journal of finished documents, so that the same command can continue after a kill.

The journal lists each document with the SHA-256 of its source and of its translation. It is in the
output folder until the command ends. A translation with another SHA-256 is from another command or
was edited, so it is never replaced. Names of drafts have the id of their command; drafts of a
command that no longer runs are removed.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from nmt.errors import MachineError
from nmt.runtime.files import (
    AGAIN,
    TEMPORARY,
    disk_errors,
    file_digest,
    json_object,
    read_text,
    sync_folder,
    write_atomic,
)

ELSEWHERE = "choose another folder with --output"
_LOCK = ".lock"


class Journal:
    """The journal of a command; as a context manager, it is locked inside the block.

    Args:
        folder: of the translations.
        command: everything that determines them.
    """

    def __init__(self, folder: Path, command: str) -> None:
        self._folder = folder
        self._id = hashlib.sha256(command.encode("utf-8", "surrogateescape")).hexdigest()[:8]
        self._path = folder / f".unfinished-{self._id}.json"
        self._finished: dict[str, list[str]] = {}  # name -> SHA-256 of source and translation
        with suppress(OSError, ValueError):
            self._finished = json_object(read_text(self._path))

    def has(self, source: Path) -> bool:
        """Return whether the command has translated this source before it was interrupted."""
        target = self._folder / source.name
        return (
            target.exists()
            and source.is_file()
            and self.owns(source)
            and self._finished[source.name][0] == file_digest(source)
        )

    def owns(self, source: Path) -> bool:
        """Return whether the translation of a source belongs to this command."""
        target = self._folder / source.name
        if source.name not in self._finished:
            return False
        return not target.exists() or self._finished[source.name][1] == file_digest(target)

    def draft(self, source: Path) -> Path:
        """Return the name of an incomplete translation."""
        return self._folder / f"{TEMPORARY}{source.name}-{self._id}"

    def add(self, source: Path) -> None:
        """Record that the draft of a source is complete, before it is renamed."""
        self._finished[source.name] = [file_digest(source), file_digest(self.draft(source))]
        write_atomic(self._path, json.dumps(self._finished), ELSEWHERE, AGAIN)

    def finish(self, source: Path) -> None:
        """Rename a complete draft to its final name."""
        target = self._folder / source.name
        with disk_errors(target, elsewhere=ELSEWHERE, again=AGAIN):
            self.draft(source).replace(target)
            sync_folder(self._folder)

    def delete(self) -> None:
        """Delete the journal, because the command ends."""
        self._path.unlink(missing_ok=True)

    def __enter__(self) -> Journal:
        self._lock = FileLock(self._folder / f"{TEMPORARY}{self._id}{_LOCK}")
        with disk_errors(self._folder, elsewhere=ELSEWHERE, again=AGAIN):
            try:
                self._lock.acquire(timeout=0)
            except Timeout as error:
                raise MachineError(
                    "the same command is already running",
                    at=str(self._folder),
                    fix="wait until it ends",
                ) from error
            for path in self._folder.glob(f"{TEMPORARY}*{_LOCK}"):
                self._remove_drafts(path)
        return self

    def _remove_drafts(self, lock_path: Path) -> None:
        """Remove the drafts of a command, unless another process runs it."""
        command = lock_path.name.removeprefix(TEMPORARY).removesuffix(_LOCK)
        with suppress(Timeout, OSError):
            if command != self._id:
                with FileLock(lock_path, timeout=0):
                    lock_path.unlink()
            for draft in self._folder.glob(f"{TEMPORARY}*-{command}"):
                draft.unlink()

    def __exit__(self, *exception: object) -> None:
        Path(self._lock.lock_file).unlink(missing_ok=True)
        self._lock.release()
