"""The files of one checkpoint, and how they are verified.

A checkpoint is a folder of safetensors and JSON, without pickle::

    u000123/model.safetensors   u000123/optimizer.safetensors   u000123/state.json
    u000123/manifest.json       sizes and SHA-256 of these files, versions that wrote them

A checkpoint may come from another person, so nothing in it is trusted. Sizes and SHA-256 must
match; links, unknown files and non-finite tensors are refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from nmt.errors import UserError
from nmt.run.manifest import (
    FORMAT,
    MANIFEST,
    MANIFEST_TYPE,
    MODEL,
    OPTIMIZER,
    RESTORE,
    STATE,
    FileEntry,
    Manifest,
    foreign,
    parse_state,
    read_manifest,
    read_verified,
)
from nmt.run.state import TrainState
from nmt.version import __version__

Shapes: TypeAlias = Mapping[str, tuple[torch.Size, torch.dtype]]


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
    manifest = Manifest(FORMAT, __version__, str(torch.__version__), entries)
    return {**contents, MANIFEST: MANIFEST_TYPE.dump_json(manifest, indent=1)}


def read_checkpoint(path: Path, with_optimizer: bool = True) -> Checkpoint:
    """Read a checkpoint folder and verify every file that is used.

    Raises:
        UserError: a file is missing, damaged, not finite or not of this toolkit.
        MachineError: a file cannot be read.
    """
    manifest = read_manifest(path)
    state = parse_state(path, manifest)
    model = _read_tensors(path / MODEL, manifest.files[MODEL])
    optimizer = _read_tensors(path / OPTIMIZER, manifest.files[OPTIMIZER]) if with_optimizer else {}
    return Checkpoint(state, model, optimizer, path)


def find_problem(path: Path, shapes: Shapes) -> UserError | None:
    """Return why the model of a checkpoint cannot be used, or None."""
    try:
        require_fit(read_checkpoint(path, with_optimizer=False).model, shapes, path / MODEL)
    except UserError as error:
        return error
    return None


def shapes_of(tensors: Mapping[str, Tensor]) -> Shapes:
    """Return the shape and the type of each tensor."""
    return {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}


def require_fit(found: Mapping[str, Tensor], expected: Shapes, file: Path) -> None:
    """Raise UserError naming the first tensor that is missing, unknown or of another shape or type.

    Args:
        found: the tensors of ``file``.
        expected: the shapes and types that the recipe's model or optimizer has.
    """
    shapes = shapes_of(found)
    for name in [*expected, *(name for name in found if name not in expected)]:
        has, wanted = shapes.get(name), expected.get(name)
        if has == wanted:
            continue
        describe = _type if has and wanted and has[0] == wanted[0] else _shape
        what = "is missing" if has is None else f"has {describe(*has)}"
        why = "no tensor of this name" if wanted is None else describe(*wanted)
        raise UserError(
            f"tensor {name} {what}; expected {why}",
            at=str(file),
            fix=f"{RESTORE}; if config.yaml changed, restore it",
        )


def _shape(shape: torch.Size, dtype: torch.dtype) -> str:
    return f"shape {list(shape)}"


def _type(shape: torch.Size, dtype: torch.dtype) -> str:
    return f"type {str(dtype).removeprefix('torch.')}"


def non_finite(tensors: Mapping[str, Tensor]) -> str:
    """Return the names of tensors with NaN or infinity; empty if there are none."""
    bad = [n for n, t in tensors.items() if t.is_floating_point() and not t.isfinite().all()]
    return ", ".join(bad[:5]) + (f" and {len(bad) - 5} more" if len(bad) > 5 else "")


def _to_safetensors(tensors: Mapping[str, Tensor]) -> bytes:
    return safetensors.torch.save(
        {name: tensor.detach().to("cpu").contiguous() for name, tensor in tensors.items()}
    )


def _read_tensors(path: Path, entry: FileEntry) -> dict[str, Tensor]:
    data = read_verified(path, entry)
    try:
        tensors = safetensors.torch.load(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise foreign(path, "its content is not safetensors") from error
    bad = non_finite(tensors)
    if bad:
        raise UserError(f"NaN or infinity in {bad}", at=str(path), fix=RESTORE)
    return tensors
