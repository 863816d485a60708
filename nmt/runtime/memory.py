"""Whether a model fits in memory, found out before it is built."""

from __future__ import annotations

import contextlib
from pathlib import Path

import torch

from nmt.errors import MachineError
from nmt.runtime.files import human_bytes

PER_PARAMETER = 16  # bytes: weight, gradient and Adam's two moments, each in fp32


def require_memory(parameters: int, device: torch.device) -> None:
    """Raise MachineError when not even the weights and what the optimizer keeps of them fit."""
    needed, free = PER_PARAMETER * parameters, free_memory(device)
    if free is not None and needed > free:
        raise MachineError(
            f"a model of {parameters:,} parameters needs {human_bytes(needed)} to train, without "
            f"its batches; {device} has {human_bytes(free)} free",
            at="model",
            fix="make model.dim, model.ffn_dim, the number of layers or the vocabulary smaller, or "
            "use a machine with more memory",
        )


def free_memory(device: torch.device) -> int | None:
    """Bytes that a process can still have on a device; None where the system does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    found = []
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        available = next(line for line in lines if line.startswith("MemAvailable:"))
        found.append(1024 * int(available.split()[1]))
    with contextlib.suppress(OSError, ValueError):  # of a container; "max" is none
        found.append(int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    return min(found, default=None)
