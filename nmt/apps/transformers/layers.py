"""The layers of our model under the names of transformers, for both directions.

MarianMT, Pegasus, M2M-100 and mBART have the same names. They store queries, keys and values
separately; this toolkit stores them in one matrix. Their sinusoidal positions have all sines before
all cosines, where this toolkit alternates them (V section 3.5). So the conversion puts the even
dimensions of our model before the odd ones in every matrix, which does not change the function.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from nmt.decoding.ctranslate2.fold import PARTS, layers_of
from nmt.model.config import ModelConfig

_NAMES = {"self_attn": "self_attn", "cross_attn": "encoder_attn", "ffn": "final"}
_INPUTS = {"encoder": "src_input", "decoder": "tgt_input"}


class TensorPair(NamedTuple):
    """A tensor of transformers, and where it is here."""

    theirs: str  # its name
    ours: str
    axes: tuple[int, ...]  # of their tensor, those that are the dimensions of the model
    part: int = 0  # theirs is this one of the equal parts of the rows of ours
    parts: int = 1


def tensor_pairs(config: ModelConfig) -> Iterator[TensorPair]:
    """Yield the tensors of all layers, those of one tensor of ours in the order of its rows.

    Embeddings, positions and the output bias are not among them.
    """
    for stack, parts in PARTS.items():
        if config.embed_norm:
            yield from _norm(f"model.{stack}.layernorm_embedding", f"{_INPUTS[stack]}.norm")
        for number in layers_of(config, stack):
            theirs, ours = f"model.{stack}.layers.{number}", f"{stack}.layers.{number}"
            for part in parts:
                yield from _norm(f"{theirs}.{_NAMES[part]}_layer_norm", f"{ours}.{part}_res.norm")
                if part == "ffn":
                    yield from _linear(f"{theirs}.fc1", f"{ours}.ffn.fc1")
                    yield from _linear(f"{theirs}.fc2", f"{ours}.ffn.fc2", into=True)
                else:
                    yield from _attention(f"{theirs}.{_NAMES[part]}", f"{ours}.{part}")
        if config.norm_place == "pre":
            yield from _norm(f"model.{stack}.layer_norm", f"{stack}.norm")


def _norm(theirs: str, ours: str) -> Iterator[TensorPair]:
    for name in ("weight", "bias"):
        yield TensorPair(f"{theirs}.{name}", f"{ours}.{name}", (0,))


def _linear(
    theirs: str, ours: str, part: int = 0, parts: int = 1, into: bool = False
) -> Iterator[TensorPair]:
    """Yield a layer that reads vectors of the model, or writes them if ``into``."""
    yield TensorPair(f"{theirs}.weight", f"{ours}.weight", (0,) if into else (1,), part, parts)
    yield TensorPair(f"{theirs}.bias", f"{ours}.bias", (0,) if into else (), part, parts)


def _attention(theirs: str, ours: str) -> Iterator[TensorPair]:
    fused = ("q", "kv", "kv") if ours.endswith("cross_attn") else ("qkv", "qkv", "qkv")
    for letter, name in zip("qkv", fused, strict=True):
        yield from _linear(
            f"{theirs}.{letter}_proj", f"{ours}.{name}", name.index(letter), len(name)
        )
    yield from _linear(f"{theirs}.out_proj", f"{ours}.out", into=True)


def sines_first(dim: int) -> Tensor:
    """Return [D]: for each dimension of theirs, the one of ours."""
    return torch.cat([torch.arange(0, dim, 2), torch.arange(1, dim, 2)])


def to_transformers(config: ModelConfig, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the layers under their names; biases that the model lacks are 0."""
    order = sines_first(config.dim)
    tensors = {}
    for pair in tensor_pairs(config):
        tensor = weights.get(pair.ours)
        if tensor is None:
            tensor = torch.zeros(len(weights[pair.ours.removesuffix("bias") + "weight"]))
        tensor = tensor.chunk(pair.parts)[pair.part]
        for axis in pair.axes:
            tensor = tensor.index_select(axis, order)
        tensors[pair.theirs] = tensor
    return tensors


def from_transformers(
    pairs: Iterable[TensorPair], weights: Mapping[str, Tensor], order: Tensor
) -> Tensor:
    """Return a tensor of ours, in fp32.

    Args:
        pairs: all its parts, in order.
        weights: their tensors.
        order: [D], for each dimension of ours, the one of theirs.
    """
    parts = []
    for pair in pairs:
        tensor = weights[pair.theirs].float()
        for axis in pair.axes:
            tensor = tensor.index_select(axis, order)
        parts.append(tensor)
    return torch.cat(parts)
