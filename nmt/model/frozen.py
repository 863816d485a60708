"""Matrix products with weights that stay as they are, for translation alone.

On a CPU the weights are laid out once in the order in which oneDNN reads them: a tenth faster for
hundreds of rows, up to three times for the five beams of one sentence. torch has this as the
operations that its own compiler emits; where a torch lacks them, products are the plain ones.

Legend: N rows, I and O features in and out.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.model.layers import FeedForward
from nmt.model.linear import FUSED

Product = Callable[[Tensor], Tensor]
ROWS = 256  # for how many rows the layout is chosen; it serves any number
WHOLE = 64  # logits are computed for a multiple of so many types
NAMES = ("_reorder_linear_weight", "_linear_pointwise")


def product(
    weight: Tensor, bias: Tensor | None, dtype: torch.dtype | None, relu: bool = False
) -> Product:
    """``x @ weight.T + bias``, [N, I] -> [N, O], computed in ``dtype``; x's type in and out.

    With ``relu`` that follows, and what comes out is of ``dtype``. ``dtype`` None = that of
    autocast, or else of the weight. Later changes of weight [O, I] and bias [O] may go unseen.
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
        return lambda x: F.linear(x.to(dtype), weight, bias).to(x.dtype)
    reorder, linear = (getattr(torch.ops.mkldnn, name) for name in NAMES)
    packed = reorder(weight.contiguous(), ROWS)
    if relu:
        return lambda x: linear(x.to(dtype), packed, bias, "relu", [], "")
    return lambda x: linear(x.to(dtype), packed, bias, "none", [], "").to(x.dtype)


def output(rows: Tensor, bias: Tensor, dtype: torch.dtype | None) -> Product:
    """``product`` for logits, whose number of types is any: filled up to a whole number and cut.

    In fp32 a product for 5,504 types takes four fifths of the time of one for 5,475.
    """
    types = len(rows)
    more = -types % WHOLE
    if more * 16 > types:  # of so few, more would cost more
        return product(rows, bias, dtype)
    filled = product(F.pad(rows, (0, 0, 0, more)), F.pad(bias, (0, more)), dtype)
    return lambda x: filled(x)[:, :types]


class FrozenLinear(nn.Module):
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


def freeze_layers(model: nn.Module, dtype: torch.dtype) -> None:
    """Put a frozen one in the place of each linear layer, for ``torch.no_grad`` alone.

    Where only ReLU stands between two of them it is computed with the first.
    """
    for module in list(model.modules()):
        if isinstance(module, FeedForward) and module.activation is F.relu and not module.norm:
            module.add_module("fc1", FrozenLinear(module.fc1, dtype, relu=True))
            module.activation = nn.Identity()
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, FrozenLinear(child, dtype))
