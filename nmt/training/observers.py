"""Measure what the papers plot while a model trains.

An observer is a function from a model to named scalars. It is called when gradients are complete
and not yet clipped, and must not change the run. OBSERVERS names it for ``analysis.observe``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from nmt.config.recipe import AnalysisConfig
from nmt.model.attention import MultiHeadAttention
from nmt.model.layers import Residual
from nmt.store.metrics_log import MetricsLog

Observer = Callable[[nn.Module], dict[str, Tensor]]


def grad_total(model: nn.Module) -> dict[str, Tensor]:
    """Return the L2 norm of all gradients together, before clipping (T figure 2)."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    return {"": torch.nn.utils.get_total_norm(gradients)}


def grad_l1(model: nn.Module) -> dict[str, Tensor]:
    """Return the L1 norm of each weight matrix's gradient (N figures 3 and 7)."""
    return {name: gradient.abs().sum() for name, gradient in _matrix_gradients(model)}


def grad_l2(model: nn.Module) -> dict[str, Tensor]:
    """Return the L2 norm of each weight matrix's gradient."""
    return {name: gradient.norm() for name, gradient in _matrix_gradients(model)}


def gains(model: nn.Module) -> dict[str, Tensor]:
    """Return g of each ScaleNorm (T figures 3 and 4), and other norms' gains (N figure 4).

    Of LayerNorm and RMSNorm, these are the mean and the standard deviation (``.std``) of the gains.
    """
    scalars = {}
    for name, parameter in model.named_parameters():
        owner, _, kind = name.rpartition(".")
        if owner.endswith("norm") and kind in ("g", "weight"):
            gain = parameter.detach()
            scalars[owner] = gain.mean()
            if gain.numel() > 1:
                scalars[f"{owner}.std"] = gain.std(correction=0)
    return scalars


def head_scale(model: nn.Module) -> dict[str, Tensor]:
    """Return HeadScale's gamma of each head (N figure 4, right)."""
    return {
        f"{name}.{head}": gamma.detach()
        for name, module in model.named_modules()
        if isinstance(module, MultiHeadAttention) and module.head_scale is not None
        for head, gamma in enumerate(module.head_scale.flatten())
    }


def res_scale(model: nn.Module) -> dict[str, Tensor]:
    """Return the mean of ResScale's lambda of each residual (N figure 6)."""
    return {
        name: module.scale.detach().mean()
        for name, module in model.named_modules()
        if isinstance(module, Residual) and module.scale is not None
    }


OBSERVERS: dict[str, Observer] = {
    "grad_total": grad_total,
    "grad_l1": grad_l1,
    "grad_l2": grad_l2,
    "gains": gains,
    "head_scale": head_scale,
    "res_scale": res_scale,
}


class ObserverHook:
    """Log the scalars of the recipe's observers every ``analysis.every`` updates.

    A record has kind ``observed`` and an entry ``OBSERVER/MODULE`` for each scalar.
    """

    def __init__(self, config: AnalysisConfig, log: MetricsLog) -> None:
        self.every, self.log = config.every, log
        self.observers = {name: OBSERVERS[name] for name in config.observe}

    def __call__(self, update: int, model: nn.Module) -> None:
        """Observe the model if this update is due; otherwise this costs one comparison."""
        if not self.every or update % self.every:
            return
        scalars = {
            f"{observer}/{name}".rstrip("/"): value.float()
            for observer, observe in self.observers.items()
            for name, value in observe(model).items()
        }
        # one transfer from the device for all scalars
        values = torch.stack(list(scalars.values())).tolist() if scalars else []
        named = dict(zip(scalars, values, strict=True))
        self.log.record({"kind": "observed", "update": update, **named})


def _matrix_gradients(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield each weight matrix's gradient, with the name of its module or embedding table."""
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2 and parameter.grad is not None:
            yield name.removesuffix(".weight"), parameter.grad
