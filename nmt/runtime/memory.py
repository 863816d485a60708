"""Check that a model or a file fits in memory before it is built or read."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.errors import MachineError
from nmt.runtime.files import human_bytes

if TYPE_CHECKING:
    import torch

PER_PARAMETER = 16  # bytes: weight, gradient and Adam's two moments, each in fp32


def require_memory(parameters: int, device: torch.device, shards: int = 1) -> None:
    """Raise MachineError if the weights, gradients and optimizer state do not fit.

    Args:
        shards: number of processes that divide them.
    """
    needed, free = PER_PARAMETER * parameters // shards, free_memory(device)
    if free is not None and needed > free:
        raise MachineError(
            f"a model of {parameters:,} parameters needs {human_bytes(needed)} to train, batches "
            f"not included; {device} has {human_bytes(free)} free",
            at="model",
            fix="lower model.dim, model.ffn_dim, model.enc_layers, model.dec_layers or the "
            "vocabulary size, or use a machine with more memory",
        )


def parameter_count(model: torch.nn.Module) -> int:
    """Return the number of values of a model's parameters."""
    return sum(p.numel() for p in model.parameters())


def frozen_count(model: torch.nn.Module) -> int:
    """Return the number of a model's values that do not train (``init.freeze``)."""
    return sum(p.numel() for p in model.parameters() if not p.requires_grad)


def free_memory(device: torch.device) -> int | None:
    """Return the free bytes of a device; None if the system does not report them."""
    if device.type == "cuda":
        import torch

        return torch.cuda.mem_get_info(device)[0]
    return _free_host_memory()


def require_room(path: Path, size: int) -> None:
    """Raise MachineError if the content of a file does not fit in the memory of the machine.

    Args:
        size: its bytes.
    """
    free = _free_host_memory()
    if free is not None and size > free:
        raise MachineError(
            f"has {human_bytes(size)}, but only {human_bytes(free)} of memory are free",
            at=str(path),
            fix="use a machine with more memory, or replace the file by a copy of the right one",
        )


def _free_host_memory() -> int | None:
    found = []
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        available = next(line for line in lines if line.startswith("MemAvailable:"))
        found.append(1024 * int(available.split()[1]))
    with contextlib.suppress(OSError, ValueError):  # a container's limit; "max" = no limit
        found.append(int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    return min(found, default=None)
