"""Label-smoothed cross-entropy as sums over tokens, never means.

Shapes: N target tokens, V vocabulary size. A type is an entry of the vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

MAX_EXPONENT = 700.0  # exp of more is infinite
MAX_LOGITS = 2**25  # of one part of ``recomputed_loss``: 128 MiB in fp32


def perplexity(mean_nll: float) -> float:
    """Return exp of a mean loss in nats; a large finite number if that is too large."""
    return math.exp(min(mean_nll, MAX_EXPONENT))


@dataclass(frozen=True)
class LossSums:
    """Sums over target tokens including EOS, in nats; divide by ``tokens`` for the mean.

    Attributes:
        smoothed: the training objective, a scalar with a gradient.
        nll: cross-entropy without smoothing, a scalar without a gradient.
        tokens: the number of tokens.
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
    """Return ``(1 - eps) * nll + eps * mean over allowed types of -log p``, summed over tokens.

    The mass ``smoothing`` (eps) is uniform over the allowed types, the target included, as in the
    code of Nguyen & Salazar 2019.

    Args:
        logits: [N, V].
        targets: [N] int64.
        allowed: [V] bool, the types that the target language has.
        smoothing: between 0 and 1.
        weights: [N], the factor of each token in the sums: 0 for padding; None = 1.
    """
    smoothed, nll = _LabelSmoothedLoss.apply(logits, targets, allowed, smoothing, weights)
    return LossSums(smoothed, nll, targets.numel())


def recomputed_loss(
    project: Callable[[Tensor, Tensor], Tensor],
    states: Tensor,
    table: Tensor,
    targets: Tensor,
    allowed: Tensor,
    smoothing: float,
    weights: Tensor | None = None,
) -> LossSums:
    """Return ``label_smoothed_loss`` of ``project(states, table)`` without keeping all logits.

    The logits of some tokens are computed at a time, and again in the backward pass.

    Args:
        states: [N, D], of the last layer.
        table: [V, D].
    """

    def sums(rows: Tensor, table: Tensor, *rest: Tensor) -> tuple[Tensor, Tensor]:
        logits = project(rows, table)
        with torch.autocast(rows.device.type, enabled=False):  # as where all logits are kept
            loss = label_smoothed_loss(logits, rest[0], allowed, smoothing, *rest[1:])
        return loss.smoothed, loss.nll

    size = max(1, MAX_LOGITS // len(table))
    inputs = [states, targets] if weights is None else [states, targets, weights]
    parts = [
        checkpoint(sums, rows, table, *rest, use_reentrant=False)
        for rows, *rest in zip(*(tensor.split(size) for tensor in inputs), strict=True)
    ]
    smoothed, nll = (torch.stack(values).sum() for values in zip(*parts, strict=True))
    return LossSums(smoothed, nll, targets.numel())


class _LabelSmoothedLoss(torch.autograd.Function):
    """Save one [N, V] tensor, the probabilities, and turn it into the gradient in place.

    The exponentials take most of the loss's time on a CPU, so they are computed once. Everything
    else that the forward pass needs is linear in the logits and the log-sum-exp.
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
        # [N, 1], from the most likely type, whose probability never underflows; two amax are
        # faster than one max that also returns the index
        log_sum = z.amax(-1, keepdim=True) - probs.amax(-1, keepdim=True).log()
        uniform = allowed.to(precise) / allowed.sum()
        nll = _weighted_sum((log_sum - z.gather(1, targets[:, None]))[:, 0], weights)
        smoothed = (1 - smoothing) * nll
        if smoothing:
            uniform_nll = torch.addmv(log_sum[:, 0], z, uniform, alpha=-1)
            smoothed = smoothed + smoothing * _weighted_sum(uniform_nll, weights)
        ctx.save_for_backward(probs, targets, uniform, weights)
        ctx.smoothing, ctx.dtype = smoothing, logits.dtype
        ctx.mark_non_differentiable(nll)
        return smoothed, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor, None, None, None, None]:
        d_logits, targets, uniform, weights = ctx.saved_tensors
        # (p - smoothing * uniform) * row_grad; without weights in one pass
        if weights is None:
            row_grad = grad.expand(len(targets), 1)
            torch.addcmul(uniform * (grad * -ctx.smoothing), d_logits, grad, out=d_logits)
        else:
            row_grad = (grad * weights.to(grad.dtype))[:, None]
            d_logits.sub_(uniform, alpha=ctx.smoothing).mul_(row_grad)
        d_logits.scatter_add_(1, targets[:, None], row_grad * (ctx.smoothing - 1))
        return d_logits.to(ctx.dtype), None, None, None, None


def _weighted_sum(rows: Tensor, weights: Tensor | None) -> Tensor:
    return rows.sum() if weights is None else rows @ weights.to(rows.dtype)
