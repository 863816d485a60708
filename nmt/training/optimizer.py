"""Make a run's optimizer, scale the loss for fp16, and take clipped or skipped steps."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from nmt.config.recipe import OptimConfig
from nmt.store.tensors import Shapes
from nmt.training.muon import Muon

MIN_LOSS_SCALE = 1.0  # gradients that overflow fp16 without scaling overflow with it, too

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "radam": torch.optim.RAdam,
}
FUSED = ("adam", "adamw")


def make_optimizer(config: OptimConfig, model: nn.Module, precision: str) -> torch.optim.Optimizer:
    """Return the recipe's optimizer of the parameters that train; ``take_step`` sets its rate.

    Adafactor (Shazeer and Stern 2018) keeps a row and a column for each matrix instead of moments.
    Adam and AdamW are fused: on a CPU this takes a third of the time of the per-tensor loop, and
    ``foreach`` takes longer than the loop. RAdam has no fused version in torch. The learning rate
    is a tensor, so that the CPU does not wait for a GPU.

    Args:
        precision: of the run; in "bf16", Muon orthogonalizes in bf16, too.
    """
    device = next(model.parameters()).device
    lr = torch.zeros((), device=device)
    if config.kind == "muon":
        matrices, rest = _split_for_muon(model)
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        return Muon(matrices, rest, lr, config.betas, config.eps, config.weight_decay, dtype)
    if config.kind == "adafactor":
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        return torch.optim.Adafactor(trained, lr=0.0, weight_decay=config.weight_decay)
    fused = {"fused": True, "lr": lr} if config.kind in FUSED else {}
    # a fused step takes tensors of one class; of a sharded model, some parameters are not divided
    classes: dict[type[Tensor], list[Tensor]] = {}
    for parameter in model.parameters():
        if parameter.requires_grad:
            classes.setdefault(type(parameter), []).append(parameter)
    return OPTIMIZERS[config.kind](
        [{"params": parameters} for parameters in classes.values()],
        **{"lr": 0.0, **fused},
        betas=config.betas,
        eps=config.eps,
        weight_decay=config.weight_decay,
    )


def _split_for_muon(model: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """Return the weights of linear layers, which Muon updates, and all others; none is frozen."""
    matrices = [m.weight for m in model.modules() if isinstance(m, nn.Linear)]
    ids = {id(matrix) for matrix in matrices}
    rest = [p for p in model.parameters() if id(p) not in ids]
    return [m for m in matrices if m.requires_grad], [p for p in rest if p.requires_grad]


class LossScaler:
    """Multiply the loss by a factor that keeps small gradients within the range of fp16.

    This is torch's ``GradScaler`` with its default numbers: the scale is halved after an update
    with non-finite gradients and doubled after 2,000 finite ones in a row. ``GradScaler.step`` is
    not used, because ``take_step`` already skips and clips within the fused optimizer. In other
    precisions the scale is 1.

    The scale is a tensor that keeps its address, so that CUDA graphs can read it. Only ``state``
    waits for a GPU.

    Args:
        device: of the model.
        enabled: whether the precision is fp16.
        scale: the first scale.
        updates: updates with finite gradients at that scale so far.
    """

    def __init__(self, device: torch.device, enabled: bool, scale: float, updates: int) -> None:
        self._scaler = torch.amp.GradScaler(device.type, enabled=enabled)
        state = {"scale": scale, "_growth_tracker": updates}
        self._scaler.load_state_dict({**self._scaler.state_dict(), **state})
        self._one = torch.ones((), device=device)
        self._current()  # GradScaler allocates at its first call, which a capture must not do

    def scale(self, loss: Tensor) -> Tensor:
        """Return the loss times the scale, for ``backward``."""
        return self._scaler.scale(loss)

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide gradients by the scale, before norm, observers and clipping see them."""
        self._scaler.unscale_(optimizer)

    def at_minimum(self) -> Tensor:
        """Return whether the scale cannot be lowered: a bool scalar on the device."""
        return self._current() <= MIN_LOSS_SCALE

    def adjust(self) -> None:
        """Set the scale of the next update, depending on the gradients that ``unscale`` saw."""
        self._scaler.update()
        # GradScaler has no minimum: after 150 bad updates its scale would be 0
        self._scaler.update(self._current().clamp(min=MIN_LOSS_SCALE))

    def state(self) -> tuple[float, int]:
        """Return ``scale`` and ``updates`` for a checkpoint; this waits for a GPU."""
        state = self._scaler.state_dict()
        return state["scale"], state["_growth_tracker"]

    def _current(self) -> Tensor:
        return self._scaler.scale(self._one)


def take_step(
    optimizer: torch.optim.Optimizer, lr: float, divisor: Tensor | None, skip: Tensor
) -> None:
    """Update parameters with gradients divided by ``divisor``, or do nothing.

    Fused optimizers do both as they do for scaled fp16 gradients, without reading from the device.
    RAdam and Adafactor have to read ``skip`` and ``divisor``.

    Args:
        optimizer: from ``make_optimizer``.
        lr: the learning rate.
        divisor: scalar, None = 1.
        skip: bool scalar; True leaves weights and moments unchanged.
    """
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr
    if optimizer.defaults.get("fused"):
        optimizer.grad_scale = None if divisor is None else divisor.float()  # type: ignore[attr-defined]
        optimizer.found_inf = skip.float()  # type: ignore[attr-defined]
        optimizer.step()
    elif not skip:
        for group in optimizer.param_groups:
            for parameter in group["params"] if divisor is not None and divisor != 1 else ():
                parameter.grad.div_(divisor)
        optimizer.step()


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """Return the optimizer's state for a checkpoint, as tensors named ``PARAMETER/exp_avg`` etc."""
    return {
        f"{name}/{kind}": torch.as_tensor(value)
        for name, parameter in model.named_parameters()
        for kind, value in optimizer.state.get(parameter, {}).items()
    }


def optimizer_shapes(kind: str, model: nn.Module) -> Shapes:
    """Return names, shapes and types of ``optimizer_tensors`` after a step of an optimizer."""
    matrices = {id(p) for p in _split_for_muon(model)[0]} if kind == "muon" else set()
    shapes: dict[str, torch.Size] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        shape = parameter.shape
        if id(parameter) in matrices:
            moments = {"momentum": shape}
        elif kind == "adafactor" and len(shape) > 1:
            rows, columns = torch.Size([*shape[:-1], 1]), torch.Size([*shape[:-2], 1, shape[-1]])
            moments = {"step": torch.Size(), "row_var": rows, "col_var": columns}
        elif kind == "adafactor":
            moments = {"step": torch.Size(), "variance": shape}
        else:
            moments = {"step": torch.Size(), "exp_avg": shape, "exp_avg_sq": shape}
        shapes |= {f"{name}/{moment}": size for moment, size in moments.items()}
    return {name: (shape, torch.float32) for name, shape in shapes.items()}


def load_optimizer_tensors(
    optimizer: torch.optim.Optimizer,
    model: nn.Module,
    tensors: dict[str, Tensor],
    part_of: Callable[[Tensor, Tensor], Tensor] = lambda value, parameter: value,
) -> None:
    """Restore the state that ``optimizer_tensors`` returned.

    Args:
        part_of: returns the part of (value, parameter) that this process keeps.
    """
    parameters = dict(model.named_parameters())
    for key, value in tensors.items():
        name, kind = key.rsplit("/", 1)
        parameter = parameters[name]
        # only fused optimizers count steps on the device
        on_device = optimizer.defaults.get("fused") or kind != "step"
        device = parameter.device if on_device else value.device
        optimizer.state[parameter][kind] = part_of(value.to(device, copy=True), parameter)
