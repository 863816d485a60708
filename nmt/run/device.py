"""Which device and which number format a run uses, and what to say when it is not there."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import torch

from nmt.errors import MachineError, UserError


def resolve_device(name: str) -> torch.device:
    """``auto`` = a GPU if there is one, else the CPU.

    Raises:
        UserError: no such name.
        MachineError: a GPU was asked for and this machine, or this torch, has none.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise UserError(f'"{name}" is not auto, cpu, cuda or cuda:N', at="device")
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
    """``auto`` = bf16 where the device has instructions for it, fp32 elsewhere.

    Raises:
        MachineError: bf16 was asked for and the GPU lacks it.
    """
    if device.type == "cpu":
        return ("bf16" if _cpu_has_bf16() else "fp32") if name == "auto" else name
    has_bf16 = torch.cuda.is_bf16_supported()
    if name == "bf16" and not has_bf16:
        raise MachineError(
            f"{torch.cuda.get_device_name(device)} cannot compute in bf16",
            at="precision",
            fix="set precision=fp32",
        )
    return ("bf16" if has_bf16 else "fp32") if name == "auto" else name


def _cpu_has_bf16() -> bool:
    """Whether the processor multiplies bf16 itself; without that it is slower than fp32."""
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def autocast(device: torch.device, precision: str) -> contextlib.AbstractContextManager[Any]:
    """Forward passes in bf16 with fp32 weights, or nothing in fp32."""
    if precision == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)
