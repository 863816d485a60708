"""Linear layers and norms for inference in bf16 or fp16, with weights that are cast once.

Shapes: N rows, I input features, O output features, D model dim, A types.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.model.embedding import InputEmbedding
from nmt.model.layers import Residual
from nmt.model.norms import RMSNorm, ScaleNorm

LinearFunction: TypeAlias = Callable[[Tensor], Tensor]
TYPE_MULTIPLE = 64  # logits are computed for a multiple of this many types, which GPUs do faster


def output_projection(table: Tensor, bias: Tensor, dtype: torch.dtype | None) -> LinearFunction:
    """Return a function that computes logits: [N, D] -> [N, A] of ``dtype``.

    Args:
        table: [A, D].
        bias: [A].
        dtype: None = that of autocast, or else that of the table.
    """
    types = len(table)
    padding = -types % TYPE_MULTIPLE if table.is_cuda else 0
    table, bias = F.pad(table, (0, 0, 0, padding)), F.pad(bias, (0, padding))
    if dtype is not None:
        table, bias = table.to(dtype), bias.to(dtype)
    return lambda x: F.linear(x if dtype is None else x.to(dtype), table, bias)[:, :types]


class InferenceLinear(nn.Module):
    """A linear layer that computes in a dtype; ``weight`` and ``bias`` stay readable."""

    def __init__(self, linear: nn.Linear, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight, self.bias, self.dtype = linear.weight, linear.bias, dtype
        self._weight = linear.weight.detach().to(dtype)
        self._bias = None if linear.bias is None else linear.bias.detach().to(dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x @ weight.T + bias``: [..., I] -> [..., O]."""
        return F.linear(x.to(self.dtype), self._weight, self._bias)


class InferenceNorm(nn.Module):
    """A norm whose result has the dtype of the layer that reads it; parameters stay readable."""

    def __init__(self, norm: nn.LayerNorm | RMSNorm | ScaleNorm, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype, self.norm_forward = dtype, norm.forward
        for name, parameter in norm.named_parameters():
            setattr(self, name, parameter)

    def forward(self, x: Tensor) -> Tensor:
        """Return the norm of x: [N, D] -> [N, D]."""
        return self.norm_forward(x).to(self.dtype)


def replace_layers(model: nn.Module, dtype: torch.dtype) -> None:
    """Replace linear layers and norms by inference versions, which need ``torch.no_grad``.

    Sublayers compute in ``dtype``; the residual stream stays in fp32.
    """
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, InferenceLinear(child, dtype))
            elif isinstance(child, nn.LayerNorm | RMSNorm | ScaleNorm):
                on_stream = isinstance(module, InputEmbedding) or (
                    isinstance(module, Residual) and name == "norm" and not module.pre
                )
                setattr(module, name, InferenceNorm(child, torch.float32 if on_stream else dtype))
