"""Read and write safetensors files: the weights of models, and other tensors. Nothing is
trusted."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from nmt.config.model import model_config
from nmt.errors import UserError
from nmt.model.base import ModelBase
from nmt.model.language_model import LanguageModel
from nmt.model.transformer import Transformer
from nmt.runtime.files import RESTORE
from nmt.store.manifest import FileEntry, foreign, read_verified
from nmt.store.model import WEIGHTS, Model

Shapes: TypeAlias = Mapping[str, tuple[torch.Size, torch.dtype]]


def empty_model(model: Model) -> ModelBase:
    """Return a model with uninitialized weights, on torch's default device."""
    about, config = model.about, model_config(model.about.model)
    types, allowed = len(model.vocab), model.allowed
    if about.translates:
        return Transformer(config, types, allowed, initialize=False)
    return LanguageModel(config, types, about.task == "causal_lm", allowed, initialize=False)


def read_weights(model: Model) -> dict[str, Tensor]:
    """Read the weights of a model by parameter name; UserError if they are not those of it."""
    file = model.path / WEIGHTS
    tensors = read_tensors(file, model.entry(WEIGHTS))
    with torch.device("meta"):  # an untrusted model.json may describe a model of any size
        shapes = shapes_of(empty_model(model).state_dict())
    require_fit(tensors, shapes, file)
    return tensors


def shapes_of(tensors: Mapping[str, Tensor]) -> Shapes:
    """Return the shape and the type of each tensor."""
    return {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}


def require_fit(tensors: Mapping[str, Tensor], expected: Shapes, file: Path) -> None:
    """Raise UserError naming the first tensor of a file that is missing, unknown or different."""
    shapes = shapes_of(tensors)
    for name in [*expected, *(name for name in tensors if name not in expected)]:
        has, required = shapes.get(name), expected.get(name)
        if has == required:
            continue
        describe = _type if has and required and has[0] == required[0] else _shape
        what = "is missing" if has is None else f"has {describe(*has)}"
        why = "no tensor of this name" if required is None else describe(*required)
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
    """Return the names of tensors with NaN or infinity, separated by commas."""
    bad = [n for n, t in tensors.items() if t.is_floating_point() and not _is_finite(t)]
    return ", ".join(bad[:5]) + (f" and {len(bad) - 5} more" if len(bad) > 5 else "")


def _is_finite(tensor: Tensor) -> bool:
    # without a copy of the tensor, as isfinite makes
    return tensor.numel() == 0 or all(end.isfinite() for end in tensor.aminmax())


_TYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


def safetensors_header(tensors: Mapping[str, Tensor]) -> tuple[list[str], bytes, int]:
    """Return the order of tensors in a safetensors file, its beginning, and its size."""
    facts = {name: (t.dtype, list(t.shape), t.nbytes) for name, t in tensors.items()}
    # large items first, so that all are aligned
    order = sorted(facts, key=lambda name: (-facts[name][0].itemsize, name))
    entries, end = {}, 0
    for name in order:
        dtype, shape, size = facts[name]
        offsets = [end, end := end + size]
        entries[name] = {"dtype": _TYPES[dtype], "shape": shape, "data_offsets": offsets}
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return order, struct.pack("<Q", len(text)) + text, 8 + len(text) + end


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> FileEntry:
    """Write a safetensors file, one tensor after the other, so that none is in memory twice."""
    order, start, size = safetensors_header(tensors)
    digest = hashlib.sha256(start)
    with open(path, "xb") as file:
        file.write(start)
        for name in order:
            tensor = tensors[name].detach().to("cpu").contiguous()
            data = tensor.reshape(-1).view(torch.uint8).numpy().data
            file.write(data)
            digest.update(data)
        file.flush()
        os.fsync(file.fileno())
    return FileEntry(size, digest.hexdigest())


def read_tensors(path: Path, entry: FileEntry) -> dict[str, Tensor]:
    """Read a safetensors file; UserError if it is not the expected one, or not finite."""
    data = read_verified(path, entry)
    try:
        tensors = safetensors.torch.load(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise foreign(path, "its content is not safetensors") from error
    if bad := non_finite(tensors):
        raise UserError(f"NaN or infinity in {bad}", at=str(path), fix=RESTORE)
    return tensors
