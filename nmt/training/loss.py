"""Label-smoothed cross-entropy as sums over tokens, never means.

Legend: N target tokens, V types.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


@dataclass(frozen=True)
class LossSums:
    """Sums over ``tokens`` target tokens incl. EOS, in nats; divide by tokens for the mean.

    Attributes:
        smoothed: the training objective, a scalar with a gradient.
        nll: cross-entropy without smoothing, a scalar without one.
        tokens: how many tokens were summed.
    """

    smoothed: Tensor
    nll: Tensor
    tokens: int


def label_smoothed(logits: Tensor, targets: Tensor, allowed: Tensor, smoothing: float) -> LossSums:
    """``(1 - eps) * nll + eps * mean over allowed types of -log p`` [A], summed over tokens.

    The mass ``smoothing`` lies uniformly on the types the target language has (``allowed`` [V]
    bool), the gold type included.

    Args:
        logits: [N, V].
        targets: [N] int64.
    """
    smoothed, nll = _LabelSmoothed.apply(logits, targets, allowed, smoothing)
    return LossSums(smoothed, nll, targets.numel())


class _LabelSmoothed(torch.autograd.Function):
    """One saved [N, V] tensor: log-probabilities forward, turned into the gradient in place."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, allowed: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        precise = torch.float64 if logits.dtype == torch.float64 else torch.float32
        log_probs = logits.log_softmax(-1, dtype=precise)
        spread = allowed.to(precise) / allowed.sum()
        nll = -log_probs.gather(1, targets[:, None]).sum()
        smoothed = (1 - smoothing) * nll
        if smoothing:
            smoothed = smoothed - smoothing * (log_probs @ spread).sum()
        ctx.save_for_backward(log_probs, targets, spread)
        ctx.smoothing, ctx.dtype = smoothing, logits.dtype
        ctx.mark_non_differentiable(nll)
        return smoothed, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor, None, None, None]:
        log_probs, targets, spread = ctx.saved_tensors
        d_logits = log_probs.exp_()
        if ctx.smoothing:
            d_logits.sub_(spread, alpha=ctx.smoothing)
        minus = torch.full_like(d_logits[:, :1], ctx.smoothing - 1)
        d_logits.scatter_add_(1, targets[:, None], minus)
        return d_logits.mul_(grad).to(ctx.dtype), None, None, None
