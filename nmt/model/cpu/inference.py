"""Linear layers and norms whose weights stay as they are, for translation alone.

On a CPU the weights are laid out once in the order in which oneDNN reads them: a tenth faster for
hundreds of rows, up to three times for the five beams of one sentence. torch has this as the
operations that its own compiler emits; where a torch lacks them, products are the plain ones. Norms
are one pass over memory, and write the type that the product after them reads.

Legend: N rows, I and O features in and out.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.model.cpu import kernels
from nmt.model.cpu.linear import FUSED
from nmt.model.layers import FeedForward, Residual
from nmt.model.norms import LayerNorm, RMSNorm, ScaleNorm

Product = Callable[[Tensor], Tensor]
ROWS = 256  # for how many rows the layout is chosen; it serves any number
WHOLE = 64  # logits are computed for a multiple of so many types
NAMES = ("_reorder_linear_weight", "_linear_pointwise")


def product(
    weight: Tensor, bias: Tensor | None, dtype: torch.dtype | None, relu: bool = False
) -> Product:
    """``x @ weight.T + bias``, with ``relu`` that of it: [N, I] -> [N, O] of ``dtype``.

    ``dtype`` None = that of autocast, or else of the weight. Later changes of weight [O, I] and
    bias [O] may go unseen.
    """
    if dtype is None:
        device = weight.device.type
        casts = torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device) if casts else weight.dtype
    weight, bias = weight.detach().to(dtype), None if bias is None else bias.detach().to(dtype)
    there = all(hasattr(torch.ops.mkldnn, name) for name in NAMES)
    if weight.device.type != "cpu" or dtype not in FUSED or not there:
        if relu:
            return lambda x: F.linear(x.to(dtype), weight, bias).relu_()
        return lambda x: F.linear(x.to(dtype), weight, bias)
    reorder, linear = (getattr(torch.ops.mkldnn, name) for name in NAMES)
    packed = reorder(weight.contiguous(), ROWS)
    then = "relu" if relu else "none"
    return lambda x: linear(x.to(dtype), packed, bias, then, [], "")


def output(rows: Tensor, bias: Tensor, dtype: torch.dtype | None) -> Product:
    """``product`` for logits, whose number of types is any: filled up to a whole number by -inf.

    In fp32 a product for 5,504 types takes four fifths of the time of one for 5,475.
    """
    more = -len(rows) % WHOLE
    if more * 16 > len(rows):  # of so few, more would cost more
        return product(rows, bias, dtype)
    return product(F.pad(rows, (0, 0, 0, more)), F.pad(bias, (0, more), value=-torch.inf), dtype)


class InferenceLinear(nn.Module):
    """A linear layer that is not trained any more."""

    def __init__(self, linear: nn.Linear, dtype: torch.dtype, relu: bool = False) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias  # as they were, for who reads them
        self.product = product(linear.weight, linear.bias, dtype, relu)

    def forward(self, x: Tensor) -> Tensor:
        """[..., I] -> [..., O]."""
        if x.dim() == 2:
            return self.product(x)
        return self.product(x.flatten(0, -2)).unflatten(0, x.shape[:-1])


class InferenceNorm(nn.Module):
    """A norm that is not trained any more; its result is of the type of what reads it."""

    def __init__(self, norm: LayerNorm | RMSNorm | ScaleNorm, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype, self.plain = dtype, norm.forward
        for name, parameter in norm.named_parameters():  # as they were, for who reads them
            setattr(self, name, parameter)
        length, centered = isinstance(norm, ScaleNorm), isinstance(norm, LayerNorm)
        gain = norm.g.expand(norm.dim) if isinstance(norm, ScaleNorm) else norm.weight
        bias = norm.bias if isinstance(norm, LayerNorm) else torch.zeros_like(gain)
        how = {"centered": centered, "length": length}
        compiles = gain.is_cpu and dtype in kernels.PRECISIONS
        self.compiled = kernels.Norm(gain, bias, norm.eps, **how) if compiles else None

    def forward(self, x: Tensor) -> Tensor:
        """[N, D] -> [N, D]."""
        if self.compiled is not None and kernels.suit(x):
            return self.compiled(x, self.dtype)
        return self.plain(x).to(self.dtype)


def prepare_layers(model: nn.Module, dtype: torch.dtype) -> None:
    """Put a frozen one in the place of each linear layer and norm, for ``torch.no_grad`` alone.

    Where only ReLU stands between two layers it is computed with the first. What sublayers pass on
    among themselves is of ``dtype``, what they are added to stays fp32.
    """
    for module in list(model.modules()):
        if isinstance(module, FeedForward) and module.activation is F.relu and not module.norm:
            module.add_module("fc1", InferenceLinear(module.fc1, dtype, relu=True))
            module.activation = nn.Identity()
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, InferenceLinear(child, dtype))
            elif isinstance(child, LayerNorm | RMSNorm | ScaleNorm):
                stays = isinstance(module, Residual) and name == "norm" and not module.pre
                setattr(module, name, InferenceNorm(child, torch.float32 if stays else dtype))
