"""Linear layers in training: on a CPU, the bias is added while the product is made.

torch fills the result with the bias and has the product added to that, which takes a tenth longer
than oneDNN's linear layer, an operation that torch's own compiler emits. That one has no gradient,
so it is given here; where a torch lacks it, the linear layer is the plain one.

Legend: N rows, I and O features in and out.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


def _types() -> tuple[torch.dtype, ...]:
    onednn = torch.ops.mkldnn
    if not torch.backends.mkldnn.is_available() or not hasattr(onednn, "_linear_pointwise"):
        return ()
    if onednn._is_mkldnn_bf16_supported():
        return torch.float32, torch.bfloat16
    return (torch.float32,)


FUSED = _types()  # what oneDNN's linear layer computes on this processor


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``x @ weight.T + bias``, [N, I] -> [N, O], as ``F.linear``, under autocast too."""
    device = x.device.type
    # without a bias there is nothing to bring; a search asks for another number of rows at each
    # step, and kernels for them take longer to make than they save
    if bias is None or device != "cpu" or not torch.is_grad_enabled():
        return F.linear(x, weight, bias)
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        x, weight, bias = x.to(dtype), weight.to(dtype), bias.to(dtype)
    if x.dtype not in FUSED:
        return F.linear(x, weight, bias)
    return _Fused.apply(x, weight, bias)


class Linear(nn.Linear):
    """``nn.Linear`` for rows, computed by ``linear``; its weights are drawn by the model."""

    def reset_parameters(self) -> None:
        """Set weights and bias to 0: torch would draw numbers that nobody uses."""
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        """[N, I] -> [N, O]."""
        return linear(x, self.weight, self.bias)


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        return grad @ weight, grad.t() @ x, grad.sum(0)
