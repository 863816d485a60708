"""Several processes that train one model, one to a GPU, as torchrun starts them."""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nmt.errors import RunError, UserError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# a validation keeps the other processes waiting; torchrun notices a process that has ended
TIMEOUT = datetime.timedelta(hours=12)


@dataclass(frozen=True)
class World:
    """The processes of one training; by default this one alone, for which nothing is exchanged.

    All processes must ask the same things in the same order. The first process alone validates,
    decodes and writes.

    Attributes:
        rank: number of this process, from 0.
        size: how many there are.
        gpu: the GPU of this process on its machine.
    """

    rank: int = 0
    size: int = 1
    gpu: int = 0

    @property
    def first(self) -> bool:
        """Whether this is the process that validates and writes."""
        return self.rank == 0

    def own(self, device: torch.device) -> torch.device:
        """The device of this process where the recipe says ``device``.

        Raises:
            UserError: the recipe names one GPU for all of them.
        """
        if self.size == 1 or device.type != "cuda":
            return device
        if device.index is not None:
            raise UserError(
                f'"{device}" is one GPU, and torchrun gives each process its own',
                at="device",
                fix="set device=cuda",
            )
        import torch

        torch.cuda.set_device(self.gpu)
        return torch.device("cuda", self.gpu)

    def add(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over the processes: one exchange, no waiting for a GPU."""
        if self.size == 1:
            return
        import torch
        import torch.distributed as dist

        flat = torch.cat([t.reshape(-1) for t in tensors])
        with _others():
            dist.all_reduce(flat)
        parts = flat.split([t.numel() for t in tensors])
        views = [part.view_as(t) for part, t in zip(parts, tensors, strict=True)]
        torch._foreach_copy_(list(tensors), views)

    def highest(self, *numbers: float) -> list[float]:
        """The highest that any process has of each number."""
        if self.size == 1:
            return list(numbers)
        import torch
        import torch.distributed as dist

        found = torch.tensor(numbers, dtype=torch.float64)
        with _others():
            dist.all_reduce(found, op=dist.ReduceOp.MAX)
        return found.tolist()

    def share(self, value: Any = None) -> Any:
        """What the first process has."""
        if self.size == 1:
            return value
        import torch.distributed as dist

        box = [value]
        with _others():
            dist.broadcast_object_list(box, src=0)
        return box[0]


@contextlib.contextmanager
def init_distributed() -> Iterator[World]:
    """The processes that torchrun started, or this one alone."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:  # what torchrun sets
        yield World()
        return
    import torch
    import torch.distributed as dist

    # numbers that the host decides by go over gloo, so that no GPU is waited for
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, timeout=TIMEOUT)
    try:
        yield World(dist.get_rank(), dist.get_world_size(), int(os.environ["LOCAL_RANK"]))
    finally:
        dist.destroy_process_group()


@contextlib.contextmanager
def _others() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # torch's for a connection that was closed
        raise RunError(
            "another process of this training has ended",
            fix="its message says why; --resume goes on from the last checkpoint",
        ) from error
