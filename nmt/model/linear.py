"""``nn.Linear``; in a training on a CPU, oneDNN adds the bias within the matrix product.

``F.linear`` first fills the result with the bias and then adds the product, which takes a tenth
longer than oneDNN's fused operation. That operation is part of torch's compiler and has no
gradient, so this module defines one. Where torch lacks it, the layer calls ``F.linear``.

Shapes: N rows, I input features, O output features.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


def _fused_dtypes() -> tuple[torch.dtype, ...]:
    onednn = torch.ops.mkldnn
    if not torch.backends.mkldnn.is_available() or not hasattr(onednn, "_linear_pointwise"):
        return ()
    if onednn._is_mkldnn_bf16_supported():
        return torch.float32, torch.bfloat16
    return (torch.float32,)


FUSED_DTYPES = _fused_dtypes()  # what oneDNN's linear operation supports on this processor


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return ``x @ weight.T + bias`` as ``F.linear`` does, also under autocast: [N, I] -> [N, O].

    The fused operation is used on a CPU when gradients are enabled and there is a bias. A search
    has another number of rows at each step, and compiling a kernel for each costs more than the
    fusion saves.
    """
    device = x.device.type
    if bias is None or device != "cpu" or not torch.is_grad_enabled():
        return F.linear(x, weight, bias)
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        x, weight, bias = x.to(dtype), weight.to(dtype), bias.to(dtype)
    if x.dtype not in FUSED_DTYPES:
        return F.linear(x, weight, bias)
    return _FusedLinear.apply(x, weight, bias)


class Linear(nn.Linear):
    """``nn.Linear`` for 2-D input, computed by ``linear``; the model draws its weights.

    Attributes:
        lora: adds to the output (``nmt.model.lora``); None = nothing.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__(in_features, out_features, bias)
        self.lora: nn.Module | None = None

    def reset_parameters(self) -> None:
        """Set weights and bias to 0, because ``ModelBase.init_weights`` draws them later."""
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x @ weight.T + bias``: [N, I] -> [N, O]."""
        y = linear(x, self.weight, self.bias)
        return y if self.lora is None else y + self.lora(x)


class _FusedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        for_x, for_weight, for_bias = ctx.needs_input_grad  # frozen parameters need none
        return (
            grad @ weight if for_x else None,
            grad.t() @ x if for_weight else None,
            grad.sum(0) if for_bias else None,
        )
