"""Choose the device and the precision of a run, and explain missing support."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from nmt.errors import MachineError
from nmt.runtime.cpus import is_amd
from nmt.runtime.device_names import parse_device

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def resolve_device(name: str) -> torch.device:
    """Return the torch device of a name; ``auto`` is a GPU if there is one, else the CPU.

    With a GPU, torch stops using the attention of cuDNN. It compiles a plan for each new shape, and
    in a search each position has a new one: a validation took 42 seconds instead of 8 (H100).

    Raises:
        UserError: the name is not a device.
        MachineError: torch does not see this GPU.
    """
    kind, index = parse_device(name, torch.cuda.device_count, f"torch {torch.__version__}")
    if kind == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)
    return torch.device(kind) if index is None else torch.device(kind, index)


def resolve_precision(name: str, device: torch.device) -> str:
    """Return fp32, bf16 or fp16; ``auto`` is the fastest that the hardware supports.

    | device | auto |
    |---|---|
    | GPU of compute capability 8.0 or more (A100, RTX 30) | bf16 |
    | GPU of capability 7.0 to 7.5 (V100, T4) | fp16 |
    | older GPU (P100, GTX 10) | fp32 |
    | CPU with AMX, CPU of AMD with AVX512-BF16 | bf16 |
    | other CPU | fp32 |

    Raises:
        MachineError: bf16 is requested and the GPU would emulate it.
    """
    if name == "auto":
        return _fastest(device)
    if name == "bf16" and device.type == "cuda" and not _gpu_has_bf16(device):
        major, minor = torch.cuda.get_device_capability(device)
        other = "" if _fastest(device) == "fp16" else ", or precision=fp32, which is as fast"
        raise MachineError(
            f"{torch.cuda.get_device_name(device)} (compute capability {major}.{minor}) does not "
            "support bf16, which needs capability 8.0 or higher",
            at="precision",
            fix=f"set precision=fp16{other}; train.shard=full needs precision=fp32",
        )
    return name


def emulation_note(precision: str, device: torch.device) -> str | None:
    """Return a note for the user if the CPU emulates this precision, else None."""
    if device.type == "cpu" and precision == "bf16" and not _cpu_has_bf16():
        return "this CPU has no bf16 instructions: bf16 is emulated and slower than fp32"
    if device.type == "cpu" and precision == "fp16":
        return "fp16 is meant for GPUs: on a CPU it is emulated and slower than fp32"
    return None


def _fastest(device: torch.device) -> str:
    if device.type == "cpu":
        # Intel's AVX512-BF16 multiplies no faster than fp32, and the conversions come on top
        fast = torch.cpu._is_amx_tile_supported() or (_cpu_has_bf16() and is_amd())
        return "bf16" if fast else "fp32"
    if _gpu_has_bf16(device):
        return "bf16"
    # fp16 is faster on tensor cores, which start at 7.0. A P100 computes fp16 fast without them,
    # but torch makes cuBLAS accumulate in fp32, at the P100's rate for fp32: fp16 would only save
    # memory, and it can overflow. A GTX 10 computes fp16 at 1/64 of its rate for fp32.
    return "fp16" if torch.cuda.get_device_capability(device) >= (7, 0) else "fp32"


def _gpu_has_bf16(device: torch.device) -> bool:
    """Return whether the GPU supports bf16 in hardware; by default torch counts emulation too."""
    with torch.cuda.device(device):  # torch answers for the current GPU
        real = torch.cuda.is_bf16_supported(including_emulation=False)
    return real and torch.cuda.get_device_capability(device) >= (8, 0)


def _cpu_has_bf16() -> bool:
    """Return whether the CPU multiplies bf16 in hardware; emulated, it is slower than fp32."""
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def autocast(device: torch.device, precision: str) -> contextlib.AbstractContextManager[Any]:
    """Run forward passes in bf16 or fp16 with fp32 weights; with fp32 do nothing."""
    if precision == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=DTYPES[precision])
