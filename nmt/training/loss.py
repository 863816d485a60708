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


def label_smoothed_loss(
    logits: Tensor,
    targets: Tensor,
    allowed: Tensor,
    smoothing: float,
    weights: Tensor | None = None,
) -> LossSums:
    """``(1 - eps) * nll + eps * mean over allowed types of -log p`` [A], summed over tokens.

    The mass ``smoothing`` lies uniformly on the types the target language has (``allowed`` [V]
    bool), the gold type included.

    Args:
        logits: [N, V].
        targets: [N] int64.
        weights: [N], each token's share in the sums: 0 for filler; None = 1.
    """
    smoothed, nll = _LabelSmoothed.apply(logits, targets, allowed, smoothing, weights)
    return LossSums(smoothed, nll, targets.numel())


class _LabelSmoothed(torch.autograd.Function):
    """One saved [N, V] tensor, the probabilities, turned into the gradient in place.

    The exponentials are taken once, as they are most of the loss's time on a CPU; what the forward
    pass needs of log-probabilities is linear in the logits and log(sum of exponentials).
    """

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        targets: Tensor,
        allowed: Tensor,
        smoothing: float,
        weights: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        precise = torch.float64 if logits.dtype == torch.float64 else torch.float32
        # converted first: on a CPU, a softmax that converts takes several times as long
        z = logits.to(precise)
        probs = z.softmax(-1)
        # [N, 1], from the likeliest type, which never underflows; max with its place is slower
        log_sum = z.amax(-1, keepdim=True) - probs.amax(-1, keepdim=True).log()
        spread = allowed.to(precise) / allowed.sum()
        nll = _total((log_sum - z.gather(1, targets[:, None]))[:, 0], weights)
        smoothed = (1 - smoothing) * nll
        if smoothing:
            rest = torch.addmv(log_sum[:, 0], z, spread, alpha=-1)
            smoothed = smoothed + smoothing * _total(rest, weights)
        ctx.save_for_backward(probs, targets, spread, weights)
        ctx.smoothing, ctx.dtype = smoothing, logits.dtype
        ctx.mark_non_differentiable(nll)
        return smoothed, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor, None, None, None, None]:
        d_logits, targets, spread, weights = ctx.saved_tensors
        # (p - smoothing * spread) * each, without weights in one pass
        if weights is None:
            each = grad.expand(len(targets), 1)
            torch.addcmul(spread * (grad * -ctx.smoothing), d_logits, grad, out=d_logits)
        else:
            each = (grad * weights.to(grad.dtype))[:, None]
            d_logits.sub_(spread, alpha=ctx.smoothing).mul_(each)
        d_logits.scatter_add_(1, targets[:, None], each * (ctx.smoothing - 1))
        return d_logits.to(ctx.dtype), None, None, None, None


def _total(rows: Tensor, weights: Tensor | None) -> Tensor:
    return rows.sum() if weights is None else rows @ weights.to(rows.dtype)
