"""Linear layers and norms for inference, with weights that no longer change.

On a CPU, weights are packed once in oneDNN's memory layout. Products are then a tenth faster for
hundreds of rows. torch has the packing as operations of its compiler; where they are missing,
``F.linear`` computes the products. For the few rows of one sentence, a product with the transposed
weight is three to six times as fast as with the packed one (dim 192, Xeon): oneDNN looks up or
compiles a kernel for each number of rows.
A norm is one compiled pass over memory and writes the dtype that the next product reads.

Shapes: N rows, I input features, O output features, D model dim.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.model.cpu import kernels
from nmt.model.embedding import InputEmbedding
from nmt.model.layers import FeedForward, Residual
from nmt.model.linear import FUSED_DTYPES
from nmt.model.norms import RMSNorm, ScaleNorm

LinearFunction: TypeAlias = Callable[[Tensor], Tensor]
FEW_ROWS = 32  # up to here, calling oneDNN costs more than its layout saves
PACKING_ROWS = 256  # the number of rows that the layout is optimized for; it works for any number
TYPE_MULTIPLE = 64  # logits are computed for a multiple of this many types
ONEDNN_OPS = ("_reorder_linear_weight", "_linear_pointwise")


def packed_linear(
    weight: Tensor, bias: Tensor | None, dtype: torch.dtype | None, relu: bool = False
) -> LinearFunction:
    """Return a function that computes ``x @ weight.T + bias``: [N, I] -> [N, O] of ``dtype``.

    The function may keep a copy, so it may not see later changes of the weight and the bias.

    Args:
        weight: [O, I].
        bias: [O], or None.
        dtype: of the product; None = that of autocast, or else that of the weight.
        relu: apply ReLU to the result.
    """
    if dtype is None:
        device = weight.device.type
        casts = torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device) if casts else weight.dtype
    weight, bias = weight.detach().to(dtype), None if bias is None else bias.detach().to(dtype)
    packable = all(hasattr(torch.ops.mkldnn, name) for name in ONEDNN_OPS)
    if weight.device.type != "cpu" or dtype not in FUSED_DTYPES or not packable:
        if relu:
            return lambda x: F.linear(x.to(dtype), weight, bias).relu_()
        return lambda x: F.linear(x.to(dtype), weight, bias)
    reorder, linear = (getattr(torch.ops.mkldnn, name) for name in ONEDNN_OPS)
    packed = reorder(weight.contiguous(), PACKING_ROWS)
    activation = "relu" if relu else "none"
    return lambda x: linear(x.to(dtype), packed, bias, activation, [], "")


def transposed_linear(weight: Tensor, bias: Tensor | None, relu: bool) -> LinearFunction:
    """Return a function that computes ``x @ weight + bias`` fast for few rows: [N, I] -> [N, O].

    Args:
        weight: [I, O], contiguous.
        bias: [O], or None.
        relu: apply ReLU to the result.
    """
    bias = None if bias is None else bias.detach()

    def linear(x: Tensor) -> Tensor:
        y = x @ weight if bias is None else torch.addmm(bias, x, weight)
        return y.relu_() if relu else y

    return linear


def output_projection(table: Tensor, bias: Tensor, dtype: torch.dtype | None) -> LinearFunction:
    """Return ``packed_linear`` for logits, padded to a multiple of types with logits of -inf.

    In fp32, a product for 5,504 types takes four fifths of the time of one for 5,475. Padding that
    would add more than a sixteenth costs more than it saves, so it is left out.
    """
    padding = -len(table) % TYPE_MULTIPLE
    if padding * 16 > len(table):
        return packed_linear(table, bias, dtype)
    table, bias = F.pad(table, (0, 0, 0, padding)), F.pad(bias, (0, padding), value=-torch.inf)
    return packed_linear(table, bias, dtype)


class InferenceLinear(nn.Module):
    """A linear layer with packed weights; ``weight`` and ``bias`` stay readable."""

    def __init__(self, linear: nn.Linear, dtype: torch.dtype, relu: bool = False) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        self.linear = self.few_rows_linear = packed_linear(linear.weight, linear.bias, dtype, relu)
        if linear.weight.is_cpu and linear.weight.dtype == dtype == torch.float32:
            transposed = linear.weight.detach().t().contiguous()
            # a view of the transposed weight, so that a third copy needs no memory
            self.weight = nn.Parameter(transposed.t(), requires_grad=linear.weight.requires_grad)
            self.few_rows_linear = transposed_linear(transposed, linear.bias, relu)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x @ weight.T + bias``: [..., I] -> [..., O]."""
        if x.dim() == 2:
            # autocast would change the dtype of a product that is not oneDNN's own
            few = x.shape[0] <= FEW_ROWS and not torch.is_autocast_enabled("cpu")
            return self.few_rows_linear(x) if few else self.linear(x)
        return self.linear(x.flatten(0, -2)).unflatten(0, x.shape[:-1])


class InferenceNorm(nn.Module):
    """A norm whose result has the dtype of the layer that reads it; parameters stay readable."""

    def __init__(self, norm: nn.LayerNorm | RMSNorm | ScaleNorm, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype, self.norm_forward = dtype, norm.forward
        for name, parameter in norm.named_parameters():
            setattr(self, name, parameter)
        gain = norm.g.expand(norm.dim) if isinstance(norm, ScaleNorm) else norm.weight
        bias = norm.bias if isinstance(norm, nn.LayerNorm) else torch.zeros_like(gain)
        self.compiled = None
        if gain.is_cpu and dtype in kernels.DTYPES:
            self.compiled = kernels.CompiledNorm(
                gain,
                bias,
                norm.eps,
                centered=isinstance(norm, nn.LayerNorm),
                by_length=isinstance(norm, ScaleNorm),
            )

    def forward(self, x: Tensor) -> Tensor:
        """Return the norm of x: [N, D] -> [N, D]."""
        if self.compiled is not None and kernels.supports(x):
            return self.compiled(x, self.dtype)
        return self.norm_forward(x).to(self.dtype)


def replace_layers(model: nn.Module, dtype: torch.dtype) -> None:
    """Replace linear layers and norms by inference versions, which need ``torch.no_grad``.

    ReLU is computed with the product before it. Sublayers compute in ``dtype``; the residual
    stream stays in fp32.
    """
    for module in list(model.modules()):
        if isinstance(module, FeedForward) and module.activation is F.relu and not module.norm:
            module.add_module("fc1", InferenceLinear(module.fc1, dtype, relu=True))
            module.activation = nn.Identity()
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, InferenceLinear(child, dtype))
            elif isinstance(child, nn.LayerNorm | RMSNorm | ScaleNorm):
                on_stream = isinstance(module, InputEmbedding) or (
                    isinstance(module, Residual) and name == "norm" and not module.pre
                )
                setattr(module, name, InferenceNorm(child, torch.float32 if on_stream else dtype))
