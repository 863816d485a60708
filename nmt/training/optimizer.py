"""The optimizer of a run: Muon, or torch's Adam family, fused where the device has a kernel."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from nmt.config.recipe import OptimConfig
from nmt.training.muon import Muon

MIN_LOSS_SCALE = 1.0  # gradients that overflow fp16 unscaled will not fit by scaling

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "radam": torch.optim.RAdam,
}


def make_optimizer(config: OptimConfig, model: nn.Module) -> torch.optim.Optimizer:
    """Make the recipe's optimizer over all parameters; the schedule sets lr at each update."""
    # fused Adam is 3x the per-tensor loop on a CPU, where foreach is slower than the loop; its rate
    # is a tensor, so that a GPU need not be waited for. RAdam has no fused kernel
    device = next(model.parameters()).device
    lr = torch.zeros((), device=device)
    if config.kind == "muon":
        matrices, others = _by_muon(model)
        return Muon(matrices, others, lr, config.betas, config.eps, config.weight_decay)
    speed = {} if config.kind == "radam" else {"fused": True, "lr": lr}
    return OPTIMIZERS[config.kind](
        model.parameters(),
        **{"lr": 0.0, **speed},
        betas=config.betas,
        eps=config.eps,
        weight_decay=config.weight_decay,
    )


def _by_muon(model: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """The weights of linear layers, which Muon updates, and all other parameters."""
    matrices = [m.weight for m in model.modules() if isinstance(m, nn.Linear)]
    known = {id(matrix) for matrix in matrices}
    return matrices, [p for p in model.parameters() if id(p) not in known]


def optimizer_shapes(kind: str, model: nn.Module) -> dict[str, torch.Size]:
    """Return the shapes of what ``optimizer_tensors`` gives after the first step."""
    matrices = {id(p) for p in _by_muon(model)[0]} if kind == "muon" else set()
    shapes = {}
    for name, parameter in model.named_parameters():
        if id(parameter) in matrices:
            shapes[f"{name}/momentum"] = parameter.shape
        else:
            shapes[f"{name}/step"] = torch.Size()
            shapes |= {f"{name}/{of}": parameter.shape for of in ("exp_avg", "exp_avg_sq")}
    return shapes


class LossScaler:
    """The factor on the loss that keeps small gradients within the range of fp16.

    It is torch's ``GradScaler`` with its usual numbers: halved after an update whose gradients are
    not finite, doubled after 2,000 finite ones in a row. Its ``step`` is left out, as ``take_step``
    already skips and clips inside the fused optimizer. In other precisions the scale is always 1.

    The scale is a tensor that keeps its address, so recorded CUDA graphs read it, and nothing here
    waits for a GPU.

    Args:
        device: of the model.
        enabled: whether the precision is fp16.
        scale: what to multiply by first.
        updates: updates with finite gradients at that scale so far.
    """

    def __init__(self, device: torch.device, enabled: bool, scale: float, updates: int) -> None:
        self._scaler = torch.amp.GradScaler(device.type, enabled=enabled)
        before = {"scale": scale, "_growth_tracker": updates}
        self._scaler.load_state_dict({**self._scaler.state_dict(), **before})
        self._one = torch.ones((), device=device)
        self._now()  # GradScaler makes its tensors at the first call; a recording may not make them

    def scale(self, loss: Tensor) -> Tensor:
        """Multiply the loss, before ``backward``."""
        return self._scaler.scale(loss)

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide the gradients; norm, observers and clipping see them as in fp32."""
        self._scaler.unscale_(optimizer)

    def at_minimum(self) -> Tensor:
        """Return whether the scale cannot be lowered: a bool scalar on the device."""
        return self._now() <= MIN_LOSS_SCALE

    def adjust(self) -> None:
        """Set the scale of the next update by the gradients that ``unscale`` saw."""
        self._scaler.update()
        # GradScaler has no floor: after 150 bad updates its scale would be 0
        self._scaler.update(self._now().clamp(min=MIN_LOSS_SCALE))

    def state(self) -> tuple[float, int]:
        """Return ``scale`` and ``updates`` for a checkpoint; waits for a GPU."""
        state = self._scaler.state_dict()
        return state["scale"], state["_growth_tracker"]

    def _now(self) -> Tensor:
        return self._scaler.scale(self._one)


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
    return {
        f"{name}/{kind}": torch.as_tensor(value)
        for name, parameter in model.named_parameters()
        for kind, value in optimizer.state.get(parameter, {}).items()
    }


def load_optimizer_tensors(
    optimizer: torch.optim.Optimizer, model: nn.Module, tensors: dict[str, Tensor]
) -> None:
    """Put back what ``optimizer_tensors`` gave."""
    parameters = dict(model.named_parameters())
    for key, value in tensors.items():
        name, kind = key.rsplit("/", 1)
        parameter = parameters[name]
        # only fused kernels count steps on the device
        fused = optimizer.defaults.get("fused")
        device = parameter.device if fused or kind != "step" else value.device
        optimizer.state[parameter][kind] = value.to(device, copy=True)
