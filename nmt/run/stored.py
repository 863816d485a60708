"""One checkpoint folder as it lies on the disk: its files, its manifest, and reading it verified.

Nothing in it is trusted: sizes and SHA-256 are compared, names outside the folder, links and
anything but safetensors and JSON are refused, and no weight that is not finite is handed out.
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
from nmt.errors import UserError
from nmt.run.state import TrainState
from nmt.runtime.files import disk_errors

Shapes: TypeAlias = Mapping[str, torch.Size]

FORMAT = 1
MODEL, OPTIMIZER, STATE, MANIFEST = (
    "model.safetensors",
    "optimizer.safetensors",
    "state.json",
    "manifest.json",
)
_FILES = (MODEL, OPTIMIZER, STATE)
RESTORE = "restore the checkpoint from a copy, or use another one of the run"
_JSON_LIMIT = 16 << 20  # bytes: bounds what a broken or hostile file can make us read


@dataclass(frozen=True)
class FileEntry:
    """What the manifest says of one file."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The list of a checkpoint's files, and which versions wrote them."""

    format: int
    nmt: str
    torch: str
    files: dict[str, FileEntry]


_MANIFEST = TypeAdapter(Manifest)


class NewerFormat(UserError):
    """A later version of this toolkit wrote the checkpoint: it is not damaged."""


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint on the CPU; ``optimizer`` is empty when it was not asked for."""

    state: TrainState
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    path: Path


def pack(
    state: TrainState, model: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]
) -> dict[str, bytes]:
    """File name -> bytes of a checkpoint, the manifest last."""
    contents = {
        MODEL: _pack(model),
        OPTIMIZER: _pack(optimizer),
        STATE: state.to_json().encode("utf-8"),
    }
    entries = {
        name: FileEntry(len(data), hashlib.sha256(data).hexdigest())
        for name, data in contents.items()
    }
    manifest = Manifest(FORMAT, nmt.__version__, str(torch.__version__), entries)
    return {**contents, MANIFEST: _MANIFEST.dump_json(manifest, indent=1)}


def read_checkpoint(path: Path, with_optimizer: bool = True) -> Checkpoint:
    """Reads a checkpoint folder, verifying every byte it uses.

    Raises:
        UserError: naming the file that is missing, damaged, not finite or not of this toolkit.
        MachineError: it cannot be read.
    """
    manifest = _read_manifest(path)
    state_text = _read_verified(path / STATE, manifest.files[STATE], _JSON_LIMIT)
    try:
        state = TrainState.from_json(state_text)
    except ValidationError as error:
        raise _foreign(path / STATE, f"{error.error_count()} values are wrong") from error
    model = _read_tensors(path / MODEL, manifest.files[MODEL])
    optimizer = _read_tensors(path / OPTIMIZER, manifest.files[OPTIMIZER]) if with_optimizer else {}
    return Checkpoint(state, model, optimizer, path)


def shapes_of(tensors: Mapping[str, Tensor]) -> Shapes:
    """The shape of each tensor."""
    return {name: tensor.shape for name, tensor in tensors.items()}


def require_fit(found: Mapping[str, Tensor], expected: Shapes, file: Path) -> None:
    """Raise UserError naming the first tensor that is missing, unknown or of another shape.

    Args:
        found: what ``file`` holds.
        expected: what the recipe's model has.
    """
    shapes = shapes_of(found)
    for name in [*expected, *(name for name in found if name not in expected)]:
        has, wanted = shapes.get(name), expected.get(name)
        if has == wanted:
            continue
        what = "is missing" if has is None else f"has shape {list(has)}"
        why = "no tensor of this name" if wanted is None else f"shape {list(wanted)}"
        raise UserError(f"tensor {name} {what}; expected is {why}", at=str(file), fix=RESTORE)


def _pack(tensors: Mapping[str, Tensor]) -> bytes:
    return safetensors.torch.save(
        {name: tensor.detach().to("cpu").contiguous() for name, tensor in tensors.items()}
    )


def non_finite(tensors: Mapping[str, Tensor]) -> str:
    """Names of tensors with a NaN or an infinity; empty when there is none."""
    bad = [n for n, t in tensors.items() if t.is_floating_point() and not t.isfinite().all()]
    return ", ".join(bad[:5]) + (f" and {len(bad) - 5} more" if len(bad) > 5 else "")


def _read_manifest(path: Path) -> Manifest:
    if not stat.S_ISDIR(_kind(path)):
        raise _foreign(path, "a checkpoint is a folder")
    try:
        manifest = _MANIFEST.validate_json(_read_file(path / MANIFEST, _JSON_LIMIT))
    except ValidationError as error:
        raise _foreign(path / MANIFEST, "no manifest of this toolkit") from error
    if manifest.format > FORMAT:
        raise NewerFormat(
            f"written by version {manifest.nmt} of this toolkit, in a format that version "
            f"{nmt.__version__} does not know",
            at=str(path),
            fix=f"install version {manifest.nmt} or newer",
        )
    if set(manifest.files) != set(_FILES):  # names outside of the folder end here too
        names = ", ".join(sorted(manifest.files)[:5])
        raise _foreign(path / MANIFEST, f"it must list {', '.join(_FILES)}; it lists {names}")
    return manifest


def _read_verified(path: Path, entry: FileEntry, limit: int | None = None) -> bytes:
    data = _read_file(path, limit, entry.bytes)
    if hashlib.sha256(data).hexdigest() != entry.sha256:
        raise UserError(
            f"damaged: its SHA-256 is not the one in {MANIFEST}", at=str(path), fix=RESTORE
        )
    return data


def _read_tensors(path: Path, entry: FileEntry) -> dict[str, Tensor]:
    data = _read_verified(path, entry)
    try:
        tensors = safetensors.torch.load(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise _foreign(path, "no safetensors file") from error
    bad = non_finite(tensors)
    if bad:
        raise UserError(f"NaN or infinity in {bad}", at=str(path), fix=RESTORE)
    return tensors


def _read_file(path: Path, limit: int | None, size: int | None = None) -> bytes:
    """A regular file of a checkpoint as bytes: no link, not over ``limit``, exactly ``size``."""
    if not stat.S_ISREG(_kind(path)):
        raise _foreign(path, "links and special files are refused")
    with disk_errors(path):
        there = path.stat().st_size
        if size is not None and there != size:
            raise UserError(f"damaged: it has {there} bytes, not {size}", at=str(path), fix=RESTORE)
        if limit is not None and there > limit:
            raise _foreign(path, f"over {limit} bytes")
        return path.read_bytes()


def _kind(path: Path) -> int:
    try:
        return os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        what = "missing: not a complete checkpoint of this toolkit"
        raise UserError(what, at=str(path), fix=RESTORE) from None


def _foreign(path: Path, why: str) -> UserError:
    return UserError(
        f"not a checkpoint of this toolkit ({why})",
        at=str(path),
        fix=RESTORE,
    )
