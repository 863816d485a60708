"""Which device and which number format a run uses, and what to say when it is not there."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import torch

from nmt.errors import MachineError, UserError

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def resolve_device(name: str) -> torch.device:
    """``auto`` = a GPU if there is one, else the CPU.

    Raises:
        UserError: no such name.
        MachineError: a GPU was asked for and this machine, or this torch, has none.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise UserError(
            f'"{name}" is not auto, cpu, cuda or cuda:N',
            at="device",
            fix="give one of these, such as cuda:0",
        )
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise MachineError(
            f'"{name}" was asked for, but torch {torch.__version__} sees '
            f"{torch.cuda.device_count()} GPUs",
            at="device",
            fix="set device=cpu, or device=auto to take a GPU only when there is one",
        )
    return device


def resolve_precision(name: str, device: torch.device) -> str:
    """Return fp32, bf16 or fp16; ``auto`` is the fastest that the device itself computes.

    | device | auto |
    |---|---|
    | GPU of compute capability 8.0 or more (A100, RTX 30) | bf16 |
    | GPU of capability 7.0 to 7.5 (V100, T4) | fp16 |
    | older GPU (P100, GTX 10) | fp32 |
    | CPU with AVX512-BF16 or AMX | bf16 |
    | other CPU | fp32 |

    Raises:
        MachineError: bf16 was asked for and the GPU would emulate it.
    """
    if name == "auto":
        return _fastest(device)
    if name == "bf16" and device.type == "cuda" and not _gpu_has_bf16(device):
        major, minor = torch.cuda.get_device_capability(device)
        fast = _fastest(device) == "fp16"
        raise MachineError(
            f"{torch.cuda.get_device_name(device)} (compute capability {major}.{minor}) does not "
            "compute in bf16; GPUs from capability 8.0 on do",
            at="precision",
            fix="set precision=fp16" + ("" if fast else ", or precision=fp32, which is as fast"),
        )
    return name


def emulation_note(precision: str, device: torch.device) -> str | None:
    """Return what to tell the user when the CPU emulates the chosen precision, else None."""
    if device.type == "cpu" and precision == "bf16" and not _cpu_has_bf16():
        return "this CPU has no bf16 instructions: bf16 is emulated and slower than fp32"
    if device.type == "cpu" and precision == "fp16":
        return "fp16 is for GPUs: on a CPU it is emulated and slower than fp32"
    return None


def _fastest(device: torch.device) -> str:
    if device.type == "cpu":
        return "bf16" if _cpu_has_bf16() else "fp32"
    if _gpu_has_bf16(device):
        return "bf16"
    # fp16 is faster on tensor cores. A P100 has fast fp16 arithmetic without them, but torch tells
    # cuBLAS to accumulate fp16 products in fp32, which a P100 does at its rate for fp32: only
    # memory is saved, and fp16 can overflow. A GTX 10 computes fp16 at 1/64 of that rate.
    return "fp16" if torch.cuda.get_device_capability(device) >= (7, 0) else "fp32"


def _gpu_has_bf16(device: torch.device) -> bool:
    """Whether the GPU computes bf16 itself; torch otherwise counts emulation, and a T4 as able."""
    with torch.cuda.device(device):  # torch answers for the current GPU
        real = torch.cuda.is_bf16_supported(including_emulation=False)
    return real and torch.cuda.get_device_capability(device) >= (8, 0)


def _cpu_has_bf16() -> bool:
    """Whether the processor multiplies bf16 itself; without that it is slower than fp32."""
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def autocast(device: torch.device, precision: str) -> contextlib.AbstractContextManager[Any]:
    """Compute forward passes in bf16 or fp16 with fp32 weights; in fp32 change nothing."""
    if precision == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=DTYPES[precision])
