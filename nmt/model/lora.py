"""LoRA: train a low-rank update of linear layers, and nothing else (Hu et al. 2022).

Shapes: N rows, I input features, O output features, r rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.model.linear import Linear

A, B, SCALE = ".lora.a", ".lora.b", ".lora.scale"


class Lora(nn.Module):
    """What a linear layer adds to its output: ``scale * (x A^T) B^T`` (Hu et al. 2022, eq. 3).

    A starts at random, B at 0, so the model starts as its parent. ``scale`` is alpha / r.

    Difference from the paper: our layers for queries, keys and values are one matrix, with one A.
    """

    scale: Tensor

    def __init__(self, layer: nn.Linear, rank: int, alpha: float) -> None:
        super().__init__()
        self.a = nn.Parameter(layer.weight.new_zeros(rank, layer.in_features))
        self.b = nn.Parameter(layer.weight.new_zeros(layer.out_features, rank))
        self.register_buffer("scale", torch.tensor(alpha / rank, device=layer.weight.device))

    def forward(self, x: Tensor) -> Tensor:
        """Return the update of the layer's output: [N, I] -> [N, O]."""
        return F.linear(F.linear(x, self.a) * self.scale, self.b)


def add_lora(model: nn.Module, rank: int, alpha: float, targets: Sequence[str], seed: int) -> int:
    """Add ``Lora`` to linear layers, and freeze all other parameters.

    Args:
        targets: patterns of layer names, such as ``decoder.*.qkv``.
        seed: of the start values of A, ``N(0, 1 / I)``.

    Returns:
        The number of layers; 0 if no layer matches.
    """
    model.requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    layers = [
        layer
        for name, layer in model.named_modules()
        if isinstance(layer, Linear) and any(fnmatchcase(name, target) for target in targets)
    ]
    for layer in layers:
        layer.lora = lora = Lora(layer, rank, alpha)
        with torch.no_grad():
            lora.a.copy_(torch.randn(lora.a.shape, generator=generator) * layer.in_features**-0.5)
    return len(layers)


def merge_lora(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a model with each update added to its layer: ``W + scale * B A``."""
    merged = {name: tensor for name, tensor in tensors.items() if ".lora." not in name}
    for name, b in tensors.items():
        if name.endswith(B):
            layer = name.removesuffix(B)
            update = tensors[layer + SCALE] * (b @ tensors[layer + A])
            merged[f"{layer}.weight"] = tensors[f"{layer}.weight"] + update
    return merged
