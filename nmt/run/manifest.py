"""The manifest and the state of a checkpoint: its JSON files, which are read without torch.

A checkpoint may come from another person, so nothing in it is trusted. Sizes and SHA-256 must
match; links, unknown files and non-finite tensors are refused.
"""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from nmt.data.text import quantity
from nmt.errors import UserError
from nmt.run.state import TrainState
from nmt.runtime.files import SMALL, disk_errors, read_file
from nmt.runtime.memory import require_room
from nmt.version import __version__

FORMAT = 1
MODEL = "model.safetensors"
OPTIMIZER = "optimizer.safetensors"
STATE = "state.json"
MANIFEST = "manifest.json"
RESTORE = "restore the checkpoint from a copy, or use another checkpoint of the run"


@dataclass(frozen=True)
class FileEntry:
    """Size and hash of one file, as the manifest has them."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The files of a checkpoint, and the versions that wrote them."""

    format: int
    nmt: str
    torch: str
    files: dict[str, FileEntry]


MANIFEST_TYPE = TypeAdapter(Manifest)


class NewerFormat(UserError):
    """A later version of this toolkit wrote the checkpoint, which is not damaged."""


def read_state(path: Path) -> TrainState:
    """Read the state of a checkpoint without its tensors; see ``read_checkpoint`` for errors."""
    return parse_state(path, read_manifest(path))


def weights_hash(path: Path) -> str:
    """Return the SHA-256 of a checkpoint's weights, as its manifest has it.

    Raises:
        UserError: the manifest is missing or damaged.
    """
    return read_manifest(path).files[MODEL].sha256


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of a checkpoint folder; see ``read_checkpoint`` for errors."""
    if not stat.S_ISDIR(_file_mode(path)):
        raise foreign(path, "a checkpoint is a folder")
    try:
        manifest = MANIFEST_TYPE.validate_json(_read_file(path / MANIFEST, SMALL))
    except ValidationError as error:
        raise foreign(path / MANIFEST, "its content is not a manifest") from error
    if manifest.format > FORMAT:
        raise NewerFormat(
            f"written by version {manifest.nmt} of this toolkit, in a format that version "
            f"{__version__} cannot read",
            at=str(path),
            fix=f"install version {manifest.nmt} or newer",
        )
    expected = {MODEL, OPTIMIZER, STATE}
    if set(manifest.files) != expected:  # also refuses names outside of the folder
        names = ", ".join(sorted(manifest.files)[:5])
        wanted = ", ".join(sorted(expected))
        raise foreign(path / MANIFEST, f"it must list {wanted}; it lists {names}")
    return manifest


def parse_state(path: Path, manifest: Manifest) -> TrainState:
    """Read the state of a checkpoint with this manifest; see ``read_checkpoint`` for errors."""
    text = read_verified(path / STATE, manifest.files[STATE], SMALL)
    try:
        return TrainState.from_json(text)
    except ValidationError as error:
        raise foreign(path / STATE, quantity(error.error_count(), "wrong value")) from error


def read_verified(path: Path, entry: FileEntry, limit: int | None = None) -> bytes:
    """Return the content of a file of a checkpoint.

    Args:
        entry: the size and the hash that the file must have.
        limit: bytes that it may have; None = as many as the memory holds.

    Raises:
        UserError: it is missing, not a regular file, or not the file of the entry.
        MachineError: it cannot be read, or is larger than the free memory.
    """
    data = _read_file(path, limit, entry.bytes)
    if hashlib.sha256(data).hexdigest() != entry.sha256:
        raise UserError(
            f"damaged: its SHA-256 is not the one in {MANIFEST}", at=str(path), fix=RESTORE
        )
    return data


def _read_file(path: Path, limit: int | None, expected: int | None = None) -> bytes:
    """Read a regular file of at most ``limit`` and exactly ``expected`` bytes."""
    if not stat.S_ISREG(_file_mode(path)):
        raise foreign(path, "links and special files are refused")
    with disk_errors(path):
        size = path.stat().st_size
        if expected is not None and size != expected:
            what = f"damaged: it has {size} bytes, not {expected}"
            raise UserError(what, at=str(path), fix=RESTORE)
        if limit is not None and size > limit:
            raise foreign(path, f"over {limit} bytes")
        require_room(path, size)
        return read_file(path, size)


def _file_mode(path: Path) -> int:
    try:
        return os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        what = "missing: not a complete checkpoint of this toolkit"
        raise UserError(what, at=str(path), fix=RESTORE) from None


def foreign(path: Path, why: str) -> UserError:
    """Return the error of a file or folder that cannot be part of a checkpoint."""
    return UserError(f"not a checkpoint of this toolkit ({why})", at=str(path), fix=RESTORE)
