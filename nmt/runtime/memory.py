"""Memory: whether a model or a file fits, and how fast it is allocated; torch is not needed."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.errors import MachineError
from nmt.runtime.files import human_bytes

if TYPE_CHECKING:
    import torch

PER_WEIGHT = 4  # bytes, in fp32
_MOMENTS = {"adafactor": 0}  # values that an optimizer keeps for each weight that trains; others: 2
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8  # from glibc's malloc.h


def require_memory(
    parameters: int, frozen: int, optimizer: str, device: torch.device, shards: int = 1
) -> None:
    """Raise MachineError if a share of weights, gradients and optimizer state does not fit.

    Args:
        frozen: parameters that do not train.
        optimizer: its kind in a recipe.
        shards: number of processes that divide them.
    """
    needed = memory_to_train(parameters, frozen, optimizer) // shards
    free = free_memory(device)
    if free is not None and needed > free:
        raise MachineError(
            f"a model of {parameters:,} parameters needs {human_bytes(needed)} to train, batches "
            f"not included; {device} has {human_bytes(free)} free",
            at="model",
            fix="lower model.dim, model.ffn_dim, model.enc_layers, model.dec_layers or the "
            "vocabulary size, set optim.kind=adafactor, or use a machine with more memory",
        )


def memory_to_train(parameters: int, frozen: int, optimizer: str) -> int:
    """Return the bytes of weights, gradients and optimizer state; batches need more.

    Args:
        frozen, optimizer: see ``require_memory``.
    """
    trained = parameters - frozen
    return PER_WEIGHT * (parameters + trained + moments(trained, optimizer))


def moments(trained: int, optimizer: str) -> int:
    """Count the values that an optimizer keeps for the parameters that train."""
    return trained * _MOMENTS.get(optimizer, 2)


def parameter_count(model: torch.nn.Module) -> int:
    """Return the number of values of a model's parameters."""
    return sum(p.numel() for p in model.parameters())


def frozen_count(model: torch.nn.Module) -> int:
    """Return the number of frozen parameters of a model (``init.freeze``)."""
    return sum(p.numel() for p in model.parameters() if not p.requires_grad)


def free_memory(device: torch.device) -> int | None:
    """Return the free bytes of a device; None if the system does not report them."""
    if device.type == "cuda":
        import torch

        return torch.cuda.mem_get_info(device)[0]
    return _free_host_memory()


def require_room(path: Path, size: int) -> None:
    """Raise MachineError if a file of ``size`` bytes does not fit in the memory of the machine."""
    free = _free_host_memory()
    if free is not None and size > free:
        raise MachineError(
            f"has {human_bytes(size)}, but only {human_bytes(free)} of memory are free",
            at=str(path),
            fix="use a machine with more memory, or replace the file by a copy of the right one",
        )


def _free_host_memory() -> int | None:
    limits = []
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        available = next(line for line in lines if line.startswith("MemAvailable:"))
        limits.append(1024 * int(available.split()[1]))
    with contextlib.suppress(OSError, ValueError):  # a container's limit; "max" = no limit
        limits.append(int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    return min(limits, default=None)


def keep_freed_memory() -> None:
    """Make glibc keep freed memory for the next allocation; other platforms are not affected.

    By default a large freed buffer goes back to the operating system. The next one of its size
    costs a page fault for each page: up to ten times the computation that fills it. With no mmap,
    no trimming and one heap for all threads, the process keeps freed memory.
    """
    if sys.platform != "linux":  # ctypes.CDLL(None) is an error on Windows
        return
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, -1)
        mallopt(_MMAP_MAX, 0)
        mallopt(_ARENA_MAX, 1)


def limit_onednn_cache(count: int) -> None:
    """Limit how many compiled matrix products oneDNN and torch keep.

    Call it before the first product; later calls have no effect, and environment variables that
    the user has set take precedence. Each number of rows is compiled separately. Where nearly every
    batch has a new one, the default of 1,024 entries grows to a gigabyte and saves no time.
    """
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, str(count))


def cached_products(precision: str) -> int:
    """Return how many compiled matrix products of oneDNN a run should keep.

    In bf16, batches are padded to a few sizes, and the products of all sizes are used again. In
    other precisions nearly every batch has a size of its own, so those of one update are enough.
    """
    return 768 if precision == "bf16" else 64
