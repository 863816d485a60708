"""The losses of a batch by name, as sums over tokens, never means.

Shapes: N target tokens, V vocabulary size. A type is an entry of the vocabulary.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from nmt.config.recipe import OptimConfig

MAX_EXPONENT = 700.0  # exp of more is infinite
MAX_LOGITS = 2**25  # of one part of ``recomputed_losses``: 128 MiB in fp32
PERPLEXITIES = {"smoothed": "smoothed_ppl", "nll": "ppl"}  # what a log has of a cross-entropy

# Sums of losses over target tokens including EOS, in nats, by name. "nll" is the cross-entropy
# without smoothing, which is only measured. Training minimizes the sum of all others.
LossSums = dict[str, Tensor]
Sum = TypeVar("Sum", Tensor, float)


def perplexity(mean_nll: float) -> float:
    """Return exp of a mean loss in nats; a large finite number if that is too large."""
    return math.exp(min(mean_nll, MAX_EXPONENT))


def objective(sums: Mapping[str, Sum]) -> Sum:
    """Return what training minimizes, from the sums or the means of losses."""
    return functools.reduce(operator.add, (sums[name] for name in sums if name != "nll"))


def add_sums(total: dict[str, Sum], sums: Mapping[str, Sum]) -> None:
    """Add sums to a total of the same names; an empty total counts as zeros."""
    for name, value in sums.items():
        total[name] = total.get(name, 0.0) + value


def logged_losses(means: Mapping[str, float]) -> dict[str, float]:
    """Return what a log has of mean losses: perplexities, and other terms as they are."""
    return {
        PERPLEXITIES.get(name, name): perplexity(mean) if name in PERPLEXITIES else mean
        for name, mean in means.items()
    }


def token_losses(
    logits: Tensor,
    targets: Tensor,
    allowed: Tensor,
    optim: OptimConfig,
    weights: Tensor | None = None,
) -> LossSums:
    """Return the losses of all tokens; those that training minimizes have a gradient.

    ``smoothed`` is ``(1 - eps) * nll + eps * mean over allowed types of -log p``. The mass eps is
    ``label_smoothing``, uniform over the allowed types, the target included, as in the code of
    Nguyen & Salazar 2019.

    Args:
        logits: [N, V].
        targets: [N] int64.
        allowed: [V] bool, the types that the target language has.
        optim: the keys of the recipe that the loss has.
        weights: [N], the factor of each token in the sums: 0 for padding; None = 1.
    """
    smoothed, nll = _LabelSmoothedLoss.apply(
        logits, targets, allowed, optim.label_smoothing, weights
    )
    return {"smoothed": smoothed, "nll": nll}


def recomputed_losses(
    project: Callable[[Tensor, Tensor], Tensor],
    states: Tensor,
    table: Tensor,
    targets: Tensor,
    allowed: Tensor,
    optim: OptimConfig,
    weights: Tensor | None = None,
) -> LossSums:
    """Return the ``token_losses`` of ``project(states, table)`` without keeping all logits.

    The logits of some tokens are computed at a time, and again in the backward pass.

    Args:
        states: [N, D], of the last layer.
        table: [V, D].
    """

    def losses_of(rows: Tensor, table: Tensor, *rest: Tensor) -> LossSums:
        logits = project(rows, table)
        with torch.autocast(rows.device.type, enabled=False):  # as where all logits are kept
            return token_losses(logits, rest[0], allowed, optim, *rest[1:])

    size = max(1, MAX_LOGITS // len(table))
    inputs = [states, targets] if weights is None else [states, targets, weights]
    parts = [
        checkpoint(losses_of, rows, table, *rest, use_reentrant=False)
        for rows, *rest in zip(*(tensor.split(size) for tensor in inputs), strict=True)
    ]
    return {name: torch.stack([part[name] for part in parts]).sum() for name in parts[0]}


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
