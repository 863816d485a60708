"""Train a model in several processes: complete in each, or divided among them.

Each process computes its batches of an update; gradients and losses are summed over processes.
``Replicated`` keeps the complete model in every process. ``Sharded`` is for models too large for
one device: torch's ``fully_shard`` (FSDP2) keeps a part of each parameter, its gradient and its
optimizer state in each process. A block's parameters are gathered while the block computes, and its
gradients are summed and divided again. Both give the same numbers up to rounding. Complete tensors
are gathered for checkpoints, so their format is the same.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from nmt.errors import UserError
from nmt.model.base import ModelBase
from nmt.model.layers import Block
from nmt.runtime.distributed import World


def require_shardable(precision: str) -> None:
    """Raise UserError if a sharded training cannot compute in this precision."""
    if precision == "fp16":
        raise UserError(
            "train.shard: full does not support fp16, because each process would see only the "
            "overflows of its own part",
            at="precision",
            fix="set precision=fp32, precision=bf16 on a GPU that supports it, or train.shard=off",
        )


class Replicated:
    """The complete model in every process.

    Args:
        model: with the same weights in all processes, on the CPU.

    Attributes:
        model: what trains, on the device.
        complete: a model with all weights, to evaluate in the main process.
    """

    def __init__(self, model: ModelBase, device: torch.device, world: World) -> None:
        self.model, self.world = model.to(device), world
        self.complete = self.model

    def reduce(self, gradients: Sequence[Tensor], losses: Sequence[Tensor]) -> None:
        """Replace gradients and losses by their sums over the processes."""
        self.world.all_reduce_sum([*gradients, *losses])

    def total_norm(self, gradients: Sequence[Tensor]) -> Tensor:
        """Return the L2 norm of all gradients together, a scalar, equal in all processes."""
        return torch.nn.utils.get_total_norm(gradients)

    def copy_to_complete(self) -> None:
        """Copy the current weights to ``complete``; all processes must call this together."""

    def release_complete(self) -> None:
        """Free the memory that ``complete`` takes on the device besides ``model``."""

    def gather(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return complete tensors in the main process, for a checkpoint.

        All processes must call this together.
        """
        return {name: tensor.detach() for name, tensor in tensors.items()}

    def part_of(self, value: Tensor, parameter: Tensor) -> Tensor:
        """Return the part of a parameter's tensor that this process keeps."""
        return value


class Sharded:
    """A part of the model in each process; the methods are those of ``Replicated``.

    Parameters without dimensions (the gain of a ScaleNorm, a scalar of ResScale) cannot be divided.
    Every process has them complete.

    The model is divided block by block, so that no device ever holds all of it. The main process
    has a complete copy on the CPU. It is moved to the device for validation, where it takes 4 bytes
    a parameter.
    """

    def __init__(self, model: ModelBase, device: torch.device, world: World) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import FSDPModule, fully_shard

        self.world, self.device = world, device
        self.complete = copy.deepcopy(model) if world.is_main else model
        mesh = init_device_mesh(device.type, (world.size,))
        scalars = {p for p in model.parameters() if p.ndim == 0}
        for scalar in scalars:
            scalar.data = scalar.data.to(device)
        blocks = [module for module in model.modules() if isinstance(module, Block)]
        for module in (*blocks, model):
            fully_shard(module, mesh=mesh, ignored_params=scalars)
            assert isinstance(module, FSDPModule)
            # losses are divided by the tokens of all processes, so gradients are summed
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)  # gloo has no other reduction
        self.model = model

    def reduce(self, gradients: Sequence[Tensor], losses: Sequence[Tensor]) -> None:
        """Sum what backward did not: losses, and gradients that are not divided."""
        self.world.all_reduce_sum([*_undivided(gradients), *losses])

    def total_norm(self, gradients: Sequence[Tensor]) -> Tensor:
        """Return the L2 norm of all gradients together, a scalar, equal in all processes."""
        complete = {id(g) for g in _undivided(gradients)}
        parts = [g.to_local() for g in gradients if id(g) not in complete]  # type: ignore[attr-defined]
        square = torch.nn.utils.get_total_norm(parts).square()
        self.world.all_reduce_sum([square])
        rest = torch.nn.utils.get_total_norm(_undivided(gradients))
        return (square + rest.square()).sqrt()

    def copy_to_complete(self) -> None:
        """Copy the current weights to ``complete``; all processes must call this together."""
        weights = self.gather(self.model.state_dict())
        if self.world.is_main:
            self.complete.load_state_dict(weights)
            self.complete.to(self.device)

    def release_complete(self) -> None:
        """Move ``complete`` to the CPU."""
        if self.world.is_main:
            self.complete.to("cpu")

    def gather(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return complete tensors on the CPU of the main process, and nothing in the others.

        One complete tensor at a time is on the device.
        """
        from torch.distributed.tensor import DTensor

        complete = {}
        for name, tensor in tensors.items():
            full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
            if self.world.is_main:
                complete[name] = full.detach().cpu()
        return complete

    def part_of(self, value: Tensor, parameter: Tensor) -> Tensor:
        """Return the part of a parameter's tensor that this process keeps."""
        from torch.distributed.tensor import DTensor, distribute_tensor

        # an optimizer's count of steps has another shape and is not divided
        if not isinstance(parameter, DTensor) or value.shape != parameter.shape:
            return value
        mesh, placements = parameter.device_mesh, parameter.placements
        # None: every process has the complete value, so nothing is sent
        return distribute_tensor(value, mesh, placements, src_data_rank=None)


def _undivided(gradients: Sequence[Tensor]) -> list[Tensor]:
    from torch.distributed.tensor import DTensor

    return [g for g in gradients if not isinstance(g, DTensor)]
