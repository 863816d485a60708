"""LayerNorm, RMSNorm and ScaleNorm with statistics in fp32, and the table that names them.

Every norm is built as ``(dim, eps)`` and maps x [..., D] to [..., D] over its last axis. RMSNorm
and ScaleNorm are one autograd function each: a chain of elementary operations would need more
passes over memory than LayerNorm, these need fewer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

MakeNorm = Callable[[int], nn.Module]


class RMSNorm(nn.Module):
    """``x / sqrt(mean(x^2) + eps) * weight``, no bias (Zhang & Sennrich 2019; Nguyen 4.2)."""

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize the last axis: [..., D] -> [..., D]."""
        return _RMSNorm.apply(x, self.weight, self.eps)


class ScaleNorm(nn.Module):
    """``g * x / max(|x|, eps)`` (Nguyen equation 5, listing in appendix C).

    The parameter is g itself and starts at sqrt(D). A factor on sqrt(D) would learn at another
    speed under Adam. With ``learned=False`` g stays at sqrt(D) (Nguyen table 7).
    """

    def __init__(self, dim: int, eps: float, learned: bool = True) -> None:
        super().__init__()
        self.dim, self.eps = dim, eps
        gain = torch.tensor(float(dim) ** 0.5)
        if learned:
            self.g = nn.Parameter(gain)
        else:
            self.register_buffer("g", gain, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize the last axis: [..., D] -> [..., D]."""
        if not torch.is_grad_enabled():  # takes half the time for few rows
            wide = _widen_fp16(x)
            factor = self.g / _row_norm(x).clamp_(min=self.eps)
            return (wide * factor.to(wide.dtype)).to(x.dtype)
        return _ScaleNorm.apply(x, self.g, self.eps)


NORMS: dict[str, Callable[..., nn.Module]] = {
    "layernorm": nn.LayerNorm,  # NormFormer section 1
    "rmsnorm": RMSNorm,
    "scalenorm": ScaleNorm,
}


def _row_dot(a: Tensor, b: Tensor) -> Tensor:
    """Return the dot products of rows in the dtype of statistics: 2 x [..., D] -> [..., 1]."""
    return (a * b).sum(-1, keepdim=True, dtype=_stats_dtype(a))


def _row_norm(x: Tensor) -> Tensor:
    """Return the L2 norms of rows in the dtype of statistics: [..., D] -> [..., 1]."""
    return torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=_stats_dtype(x))


def _stats_dtype(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _widen_fp16(x: Tensor) -> Tensor:
    """Convert fp16 to fp32: g / eps, or x times a scaled gradient, exceeds the range of fp16."""
    return x.float() if x.dtype == torch.float16 else x


class _ScaleNorm(torch.autograd.Function):
    """``dx = g / |x| * (grad - n (n . grad))`` and ``dg = n . grad``, with ``n = x / |x|``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, g: Tensor, eps: float) -> Tensor:
        wide, length = _widen_fp16(x), _row_norm(x)
        inverse = length.clamp(min=eps).reciprocal()
        if any(ctx.needs_input_grad):
            # below eps the length is a constant, so backward has no term n (n . grad) there
            ctx.save_for_backward(x, g, inverse, torch.where(length > eps, inverse, 0.0))
        return (wide * (g * inverse).to(wide.dtype)).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        x_in, g, inverse, projection = ctx.saved_tensors
        x, grad = _widen_fp16(x_in), _widen_fp16(grad)
        along = _row_dot(grad, x) * inverse  # the gradient's component along x / |x|
        dx = torch.addcmul(grad, x, (along * projection).to(x.dtype), value=-1)
        factor = g * inverse
        if x_in.dtype == torch.float16:
            # g / eps of a zero vector overflows fp16; without a limit every update is skipped
            limit = torch.finfo(torch.float16).max
            factor = torch.where(projection > 0, factor, factor.clamp(-limit, limit))
        dx = dx.mul_(factor.to(x.dtype)).to(x_in.dtype)
        return dx, along.sum().to(g.dtype) if ctx.needs_input_grad[1] else None, None


class _RMSNorm(torch.autograd.Function):
    """``dx = (w grad - n mean(n w grad)) / rms`` and ``dw = n grad``, with ``n = x / rms``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        wide = _widen_fp16(x)
        inverse = (_row_norm(x).square() / x.shape[-1] + eps).rsqrt()
        ctx.save_for_backward(x, weight, inverse)
        return (wide * inverse.to(wide.dtype)).mul_(weight.to(wide.dtype)).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x_in, weight, inverse = ctx.saved_tensors
        x, grad = _widen_fp16(x_in), _widen_fp16(grad)
        unit = x * inverse.to(x.dtype)
        d_weight = (grad * unit).reshape(-1, x.shape[-1]).sum(0, dtype=_stats_dtype(x))
        scaled = grad * weight.to(x.dtype)
        mean = _row_dot(scaled, unit) / x.shape[-1]
        dx = scaled.addcmul_(unit, mean.to(x.dtype), value=-1).mul_(inverse.to(x.dtype))
        return dx.to(x_in.dtype), d_weight.to(weight.dtype), None
