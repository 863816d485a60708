"""The CPUs that this process may use: their number and maker, and limits for its processes."""

from __future__ import annotations

import contextlib
import math
import os
import platform
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

GROUPS = Path("/proc/self/cgroup")  # lists the control groups of this process
MOUNT = Path("/sys/fs/cgroup")
_LIMIT: ContextVar[int | None] = ContextVar("limit of processes", default=None)


@contextlib.contextmanager
def limit_processes(count: int) -> Iterator[None]:
    """Use at most ``count`` processes inside the block; with 1, nothing is forked."""
    token = _LIMIT.set(count)
    try:
        yield
    finally:
        _LIMIT.reset(token)


def within_limit(count: int) -> int:
    """Return a number of processes, or the limit of ``limit_processes`` if it is smaller."""
    limit = _LIMIT.get()
    return count if limit is None else min(count, limit)


def available_cpus(groups: Path = GROUPS, mount: Path = MOUNT) -> int:
    """Return the number of CPUs in this process's affinity, or its container's quota if smaller.

    A quota of 1.5 CPUs counts as two.

    Args:
        groups: the file that lists the control groups of the process, version 1 or 2.
        mount: the folder where control groups are mounted.
    """
    if hasattr(os, "sched_getaffinity"):  # Linux
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    return max(1, min([count, *map(math.ceil, _quotas(groups, mount))]))


def num_threads() -> int:
    """Return the number of threads that torch computes with, without loading torch for it."""
    if "torch" in sys.modules:
        import torch

        return torch.get_num_threads()
    limit = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return int(limit) if limit.isdecimal() and int(limit) else available_cpus()


def is_amd(info: Path = Path("/proc/cpuinfo")) -> bool:
    """Return whether the CPU is one of AMD.

    Args:
        info: Linux' description of the processors.
    """
    with contextlib.suppress(OSError):
        return "AuthenticAMD" in info.read_text(encoding="utf-8")
    return "AuthenticAMD" in platform.processor()  # Windows


def _quotas(groups: Path, mount: Path) -> Iterator[float]:
    """Yield the CPU quotas of the control groups and of their parents."""
    for folder in _folders(groups, mount):
        with contextlib.suppress(OSError, ValueError):  # no such file, or no quota: "max"
            most, period = (folder / "cpu.max").read_text().split()
            yield int(most) / int(period)
        with contextlib.suppress(OSError, ValueError):
            quota = int((folder / "cpu.cfs_quota_us").read_text())
            if quota > 0:  # -1 = no quota
                yield quota / int((folder / "cpu.cfs_period_us").read_text())


def _folders(groups: Path, mount: Path) -> Iterator[Path]:
    """Yield the folders of the groups that limit CPUs, from each group up to the mount."""
    lines = []
    with contextlib.suppress(OSError):
        lines = groups.read_text().splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers or "cpu" in controllers.split(","):
            top = mount / controllers if controllers else mount
            # inside a container the path may be the host's, and only the top folder exists
            group = Path(path.lstrip("/"))
            yield from (top / folder for folder in (group, *group.parents))
