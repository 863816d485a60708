"""The optimizer of a run: torch's Adam family, fused where the device has a fused kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from nmt.config import OptimConfig

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "radam": torch.optim.RAdam,
}


def make_optimizer(config: OptimConfig, model: nn.Module) -> torch.optim.Optimizer:
    """Adam with the recipe's settings over all parameters; the schedule sets lr at each update."""
    # fused Adam is 3x the per-tensor loop on a CPU, where foreach is slower than the loop; its rate
    # is a tensor, so that a GPU need not be waited for. RAdam has no fused kernel
    device = next(model.parameters()).device
    speed = {} if config.kind == "radam" else {"fused": True, "lr": torch.zeros((), device=device)}
    return OPTIMIZERS[config.kind](
        model.parameters(),
        **{"lr": 0.0, **speed},
        betas=config.betas,
        eps=config.eps,
        weight_decay=config.weight_decay,
    )


def take_step(
    optimizer: torch.optim.Optimizer, lr: float, shrink: Tensor | None, skip: Tensor
) -> None:
    """One step with gradients divided by ``shrink``, or none at all.

    The fused kernels do both, as they do for scaled fp16 gradients, and nothing is read from the
    device; RAdam has to look.

    Args:
        shrink: scalar, None = 1.
        skip: bool scalar; True leaves weights and moments as they are.
    """
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr
    if optimizer.defaults.get("fused"):
        optimizer.grad_scale = None if shrink is None else shrink.float()  # type: ignore[attr-defined]
        optimizer.found_inf = skip.float()  # type: ignore[attr-defined]
        optimizer.step()
    elif not skip:
        for group in optimizer.param_groups:
            for parameter in group["params"] if shrink is not None and shrink != 1 else ():
                parameter.grad.div_(shrink)
        optimizer.step()


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimizer's state as named tensors, ``NAME/exp_avg`` and so on, for a checkpoint."""
    state = optimizer.state_dict()["state"]
    return {
        f"{name}/{kind}": torch.as_tensor(value)
        for index, (name, _) in enumerate(model.named_parameters())
        for kind, value in state.get(index, {}).items()
    }


def load_optimizer_tensors(
    optimizer: torch.optim.Optimizer, model: nn.Module, tensors: dict[str, Tensor]
) -> None:
    """Put back what ``optimizer_tensors`` gave."""
    by_parameter: dict[int, dict[str, Any]] = {}
    names = {name: index for index, (name, _) in enumerate(model.named_parameters())}
    for key, value in tensors.items():
        name, kind = key.rsplit("/", 1)
        by_parameter.setdefault(names[name], {})[kind] = value
    state = optimizer.state_dict()
    optimizer.load_state_dict({**state, "state": by_parameter})
