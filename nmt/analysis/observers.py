"""Observers: what the papers plot, measured while a model trains.

An observer is a function from a model, its gradients complete and not yet clipped, to named
scalars; a line in OBSERVERS gives it a name for ``analysis.observe``. Nothing that an observer does
changes the training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from nmt.config.recipe import AnalysisConfig
from nmt.model.attention import MultiHeadAttention
from nmt.model.layers import Residual
from nmt.run.metrics_log import MetricsLog

Observer = Callable[[nn.Module], dict[str, Tensor]]


def grad_total(model: nn.Module) -> dict[str, Tensor]:
    """L2 norm of all gradients together, as the clipping sees it (T figure 2)."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    return {"": torch.nn.utils.get_total_norm(gradients)}


def grad_l1(model: nn.Module) -> dict[str, Tensor]:
    """L1 norm of each weight matrix's gradient (N figures 3 and 7)."""
    return {name: gradient.abs().sum() for name, gradient in _matrix_gradients(model)}


def grad_l2(model: nn.Module) -> dict[str, Tensor]:
    """L2 norm of each weight matrix's gradient."""
    return {name: gradient.norm() for name, gradient in _matrix_gradients(model)}


def gains(model: nn.Module) -> dict[str, Tensor]:
    """g of a ScaleNorm (T figures 3 and 4), mean and deviation of other gains (N figure 4)."""
    found = {}
    for name, parameter in model.named_parameters():
        owner, _, kind = name.rpartition(".")
        if owner.endswith("norm") and kind in ("g", "weight"):
            gain = parameter.detach()
            found[owner] = gain.mean()
            if gain.numel() > 1:
                found[f"{owner}.std"] = gain.std(correction=0)
    return found


def head_scale(model: nn.Module) -> dict[str, Tensor]:
    """HeadScale's gamma of each head (N figure 4, right)."""
    return {
        f"{name}.{head}": gamma.detach()
        for name, module in model.named_modules()
        if isinstance(module, MultiHeadAttention) and module.head_scale is not None
        for head, gamma in enumerate(module.head_scale.flatten())
    }


def res_scale(model: nn.Module) -> dict[str, Tensor]:
    """Mean of ResScale's lambda of each residual (N figure 6)."""
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
    """Every ``analysis.every`` updates, writes what the chosen observers see as one record.

    The record has kind ``observed`` and an entry ``OBSERVER/MODULE`` per scalar.
    """

    def __init__(self, config: AnalysisConfig, log: MetricsLog) -> None:
        self.every, self.log = config.every, log
        self.observers = {name: OBSERVERS[name] for name in config.observe}

    def __call__(self, update: int, model: nn.Module) -> None:
        """Look at the model at this update; between two looks this costs a comparison."""
        if not self.every or update % self.every:
            return
        seen = {
            f"{observer}/{name}".rstrip("/"): value.float()
            for observer, observe in self.observers.items()
            for name, value in observe(model).items()
        }
        # one transfer from the device, whatever the number of scalars
        values = torch.stack(list(seen.values())).tolist() if seen else []
        named = dict(zip(seen, values, strict=True))
        self.log.record({"kind": "observed", "update": update, **named})


def _matrix_gradients(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Names of the modules (or tables) that own a weight matrix, with its gradient."""
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2 and parameter.grad is not None:
            yield name.removesuffix(".weight"), parameter.grad
