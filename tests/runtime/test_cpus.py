"""CPUs that a process may use: affinity, and the quota of its container."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

from nmt.runtime.cpus import available_cpus, is_amd


@pytest.fixture(autouse=True)
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)


def write(root: Path, files: dict[str, str]) -> tuple[Path, Path]:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root / "groups", root / "mount"


@pytest.mark.parametrize(
    ("files", "count"),
    [
        # version 2: in a container, on the host, of a parent, no quota
        ({"groups": "0::/\n", "mount/cpu.max": "200000 100000\n"}, 2),
        ({"groups": "0::/a/b\n", "mount/a/b/cpu.max": "150000 100000\n"}, 2),
        ({"groups": "0::/a/b\n", "mount/a/b/cpu.max": "max 100000\n",
          "mount/a/cpu.max": "300000 100000\n"}, 3),
        ({"groups": "0::/\n", "mount/cpu.max": "max 100000\n"}, 8),
        ({"groups": "0::/\n", "mount/cpu.max": "10000 100000\n"}, 1),
        ({"groups": "0::/\n", "mount/cpu.max": "6400000 100000\n"}, 8),
        # version 1: on the host, and in a container that sees the host's path
        ({"groups": "5:memory:/m\n4:cpu,cpuacct:/d/x\n",
          "mount/cpu,cpuacct/d/x/cpu.cfs_quota_us": "250000\n",
          "mount/cpu,cpuacct/d/x/cpu.cfs_period_us": "100000\n"}, 3),
        ({"groups": "4:cpu,cpuacct:/d/x\n0::/\n",
          "mount/cpu,cpuacct/cpu.cfs_quota_us": "50000\n",
          "mount/cpu,cpuacct/cpu.cfs_period_us": "50000\n"}, 1),
        ({"groups": "4:cpu:/\n", "mount/cpu/cpu.cfs_quota_us": "-1\n",
          "mount/cpu/cpu.cfs_period_us": "100000\n"}, 8),
        ({"groups": "4:cpuset:/\n", "mount/cpuset/cpu.max": "100000 100000\n"}, 8),
        # damaged or none
        ({"groups": "0::/\n", "mount/cpu.max": "nonsense\n"}, 8),
        ({"groups": "0::/\n", "mount/cpu.max": ""}, 8),
        ({}, 8),
    ],
)  # fmt: skip
def test_a_quota_is_respected(tmp_path: Path, files: dict[str, str], count: int) -> None:
    assert available_cpus(*write(tmp_path, files)) == count


def test_affinity_is_respected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 5})
    assert available_cpus(tmp_path / "none", tmp_path) == 2
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    assert available_cpus(tmp_path / "none", tmp_path) == 4


@pytest.mark.parametrize(("vendor", "amd"), [("AuthenticAMD", True), ("GenuineIntel", False)])
def test_the_maker_of_the_processor(tmp_path, vendor, amd):
    info = tmp_path / "cpuinfo"
    info.write_text(f"processor\t: 0\nvendor_id\t: {vendor}\n", encoding="utf-8")
    assert is_amd(info) is amd


def test_without_a_description_the_platform_tells_the_maker(tmp_path, monkeypatch):
    monkeypatch.setattr(platform, "processor", lambda: "AMD64 Family 25 Model 97, AuthenticAMD")
    assert is_amd(tmp_path / "missing")
