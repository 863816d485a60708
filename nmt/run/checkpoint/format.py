"""The files of one checkpoint, and how they are verified.

A checkpoint is a folder of safetensors and JSON, without pickle::

    u000123/model.safetensors   u000123/optimizer.safetensors   u000123/state.json
    u000123/manifest.json       sizes and SHA-256 of these files, versions that wrote them

A checkpoint may come from another person, so nothing in it is trusted. Sizes and SHA-256 must
match; links, unknown files and non-finite tensors are refused.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import safetensors.torch
import torch
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError
from torch import Tensor

import nmt
from nmt.data.text import quantity
from nmt.errors import UserError
from nmt.run.checkpoint.state import TrainState
from nmt.runtime.files import disk_errors

Shapes: TypeAlias = Mapping[str, torch.Size]

FORMAT = 1
MODEL = "model.safetensors"
OPTIMIZER = "optimizer.safetensors"
STATE = "state.json"
MANIFEST = "manifest.json"
RESTORE = "restore the checkpoint from a copy, or use another checkpoint of the run"
_JSON_LIMIT = 16 << 20  # bytes: bounds what a broken or hostile file can make us read


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


_MANIFEST = TypeAdapter(Manifest)


class NewerFormat(UserError):
    """A later version of this toolkit wrote the checkpoint, which is not damaged."""


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint on the CPU; ``optimizer`` is empty if it was not requested."""

    state: TrainState
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    path: Path


def checkpoint_files(
    state: TrainState, model: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]
) -> dict[str, bytes]:
    """Return the content of each file of a checkpoint, the manifest last."""
    contents = {
        MODEL: _to_safetensors(model),
        OPTIMIZER: _to_safetensors(optimizer),
        STATE: state.to_json().encode("utf-8"),
    }
    entries = {
        name: FileEntry(len(data), hashlib.sha256(data).hexdigest())
        for name, data in contents.items()
    }
    manifest = Manifest(FORMAT, nmt.__version__, str(torch.__version__), entries)
    return {**contents, MANIFEST: _MANIFEST.dump_json(manifest, indent=1)}


def read_checkpoint(path: Path, with_optimizer: bool = True) -> Checkpoint:
    """Read a checkpoint folder and verify every file that is used.

    Raises:
        UserError: a file is missing, damaged, not finite or not of this toolkit.
        MachineError: a file cannot be read.
    """
    manifest = _read_manifest(path)
    state = _read_state(path, manifest)
    model = _read_tensors(path / MODEL, manifest.files[MODEL])
    optimizer = _read_tensors(path / OPTIMIZER, manifest.files[OPTIMIZER]) if with_optimizer else {}
    return Checkpoint(state, model, optimizer, path)


def read_state(path: Path) -> TrainState:
    """Read the state of a checkpoint without its tensors; see ``read_checkpoint`` for errors."""
    return _read_state(path, _read_manifest(path))


def weights_hash(path: Path) -> str:
    """Return the SHA-256 of a checkpoint's weights, as its manifest has it.

    Raises:
        UserError: the manifest is missing or damaged.
    """
    return _read_manifest(path).files[MODEL].sha256


def find_problem(path: Path, shapes: Shapes) -> UserError | None:
    """Return why the model of a checkpoint cannot be used, or None."""
    try:
        require_fit(read_checkpoint(path, with_optimizer=False).model, shapes, path / MODEL)
    except UserError as error:
        return error
    return None


def shapes_of(tensors: Mapping[str, Tensor]) -> Shapes:
    """Return the shape of each tensor."""
    return {name: tensor.shape for name, tensor in tensors.items()}


def require_fit(found: Mapping[str, Tensor], expected: Shapes, file: Path) -> None:
    """Raise UserError naming the first tensor that is missing, unknown or of another shape.

    Args:
        found: the tensors of ``file``.
        expected: the shapes that the recipe's model or optimizer has.
    """
    shapes = shapes_of(found)
    for name in [*expected, *(name for name in found if name not in expected)]:
        has, wanted = shapes.get(name), expected.get(name)
        if has == wanted:
            continue
        what = "is missing" if has is None else f"has shape {list(has)}"
        why = "no tensor of this name" if wanted is None else f"shape {list(wanted)}"
        raise UserError(f"tensor {name} {what}; expected {why}", at=str(file), fix=RESTORE)


def non_finite(tensors: Mapping[str, Tensor]) -> str:
    """Return the names of tensors with NaN or infinity; empty if there are none."""
    bad = [n for n, t in tensors.items() if t.is_floating_point() and not t.isfinite().all()]
    return ", ".join(bad[:5]) + (f" and {len(bad) - 5} more" if len(bad) > 5 else "")


def _to_safetensors(tensors: Mapping[str, Tensor]) -> bytes:
    return safetensors.torch.save(
        {name: tensor.detach().to("cpu").contiguous() for name, tensor in tensors.items()}
    )


def _read_manifest(path: Path) -> Manifest:
    if not stat.S_ISDIR(_file_mode(path)):
        raise _foreign(path, "a checkpoint is a folder")
    try:
        manifest = _MANIFEST.validate_json(_read_file(path / MANIFEST, _JSON_LIMIT))
    except ValidationError as error:
        raise _foreign(path / MANIFEST, "its content is not a manifest") from error
    if manifest.format > FORMAT:
        raise NewerFormat(
            f"written by version {manifest.nmt} of this toolkit, in a format that version "
            f"{nmt.__version__} cannot read",
            at=str(path),
            fix=f"install version {manifest.nmt} or newer",
        )
    expected = {MODEL, OPTIMIZER, STATE}
    if set(manifest.files) != expected:  # also refuses names outside of the folder
        names = ", ".join(sorted(manifest.files)[:5])
        wanted = ", ".join(sorted(expected))
        raise _foreign(path / MANIFEST, f"it must list {wanted}; it lists {names}")
    return manifest


def _read_state(path: Path, manifest: Manifest) -> TrainState:
    text = _read_verified(path / STATE, manifest.files[STATE], _JSON_LIMIT)
    try:
        return TrainState.from_json(text)
    except ValidationError as error:
        raise _foreign(path / STATE, quantity(error.error_count(), "wrong value")) from error


def _read_tensors(path: Path, entry: FileEntry) -> dict[str, Tensor]:
    data = _read_verified(path, entry)
    try:
        tensors = safetensors.torch.load(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise _foreign(path, "its content is not safetensors") from error
    bad = non_finite(tensors)
    if bad:
        raise UserError(f"NaN or infinity in {bad}", at=str(path), fix=RESTORE)
    return tensors


def _read_verified(path: Path, entry: FileEntry, limit: int | None = None) -> bytes:
    data = _read_file(path, limit, entry.bytes)
    if hashlib.sha256(data).hexdigest() != entry.sha256:
        raise UserError(
            f"damaged: its SHA-256 is not the one in {MANIFEST}", at=str(path), fix=RESTORE
        )
    return data


def _read_file(path: Path, limit: int | None, expected: int | None = None) -> bytes:
    """Read a regular file of at most ``limit`` and exactly ``expected`` bytes."""
    if not stat.S_ISREG(_file_mode(path)):
        raise _foreign(path, "links and special files are refused")
    with disk_errors(path):
        size = path.stat().st_size
        if expected is not None and size != expected:
            what = f"damaged: it has {size} bytes, not {expected}"
            raise UserError(what, at=str(path), fix=RESTORE)
        if limit is not None and size > limit:
            raise _foreign(path, f"over {limit} bytes")
        return path.read_bytes()


def _file_mode(path: Path) -> int:
    try:
        return os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        what = "missing: not a complete checkpoint of this toolkit"
        raise UserError(what, at=str(path), fix=RESTORE) from None


def _foreign(path: Path, why: str) -> UserError:
    return UserError(f"not a checkpoint of this toolkit ({why})", at=str(path), fix=RESTORE)
