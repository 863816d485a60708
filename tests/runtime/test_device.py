"""Which precision a device computes in: GPUs as stubs, and this CPU with and without bf16."""

from __future__ import annotations

import contextlib

import pytest
import torch

from nmt.errors import MachineError
from nmt.runtime import device as module
from nmt.runtime.device import autocast, emulation_note, resolve_device, resolve_precision
from nmt.training.start import resumed_precision

CPU = torch.device("cpu")
# compute capability, and what auto chooses there
GPUS = {
    "Tesla T4": ((7, 5), "fp16"),
    "Tesla V100": ((7, 0), "fp16"),
    "Tesla P100": ((6, 0), "fp32"),
    "GeForce GTX 1080": ((6, 1), "fp32"),
    "NVIDIA A100": ((8, 0), "bf16"),
    "GeForce RTX 4090": ((8, 9), "bf16"),
    "NVIDIA H100": ((9, 0), "bf16"),
}


class Gpus:
    """torch.cuda of a machine with these GPUs; like torch, it counts emulated bf16 as support."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
        self.names, self.current = names, 0
        for name in ("get_device_capability", "get_device_name", "is_bf16_supported"):
            monkeypatch.setattr(torch.cuda, name, getattr(self, name))
        monkeypatch.setattr(torch.cuda, "device", self.device)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(names))

    def _name(self, device: torch.device | None = None) -> str:
        index = None if device is None else device.index
        return self.names[self.current if index is None else index]

    def get_device_capability(self, device: torch.device | None = None) -> tuple[int, int]:
        return GPUS[self._name(device)][0]

    def get_device_name(self, device: torch.device | None = None) -> str:
        return self._name(device)

    def is_bf16_supported(self, including_emulation: bool = True) -> bool:
        return including_emulation or self.get_device_capability() >= (8, 0)

    @contextlib.contextmanager
    def device(self, device: torch.device):
        before = self.current
        self.current = before if device.index is None else device.index
        yield
        self.current = before


def test_a_gpu_does_not_use_the_attention_of_cudnn(monkeypatch):
    """It compiles a plan for each new shape, and each position of a search has a new shape."""
    Gpus(monkeypatch, "NVIDIA H100")
    torch.backends.cuda.enable_cudnn_sdp(True)
    resolve_device("cuda")
    assert not torch.backends.cuda.cudnn_sdp_enabled()


@pytest.mark.parametrize("name", GPUS)
def test_auto_takes_the_fastest_precision_of_a_gpu(name, monkeypatch):
    Gpus(monkeypatch, name)
    gpu = resolve_device("auto")
    assert gpu.type == "cuda"
    assert resolve_precision("auto", gpu) == GPUS[name][1]
    assert resolve_precision("fp16", gpu) == "fp16"
    assert resolve_precision("fp32", gpu) == "fp32"


@pytest.mark.parametrize("name", GPUS)
def test_bf16_is_refused_if_the_gpu_would_emulate_it(name, monkeypatch):
    Gpus(monkeypatch, name)
    capability, auto = GPUS[name]
    if auto == "bf16":
        assert resolve_precision("bf16", torch.device("cuda")) == "bf16"
        return
    with pytest.raises(MachineError) as error:
        resolve_precision("bf16", torch.device("cuda"))
    assert name in error.value.what
    assert "capability {}.{}".format(*capability) in error.value.what
    assert error.value.at == "precision"
    assert error.value.fix is not None
    assert "set precision=fp16" in error.value.fix
    assert "train.shard=full needs precision=fp32" in error.value.fix
    with pytest.raises(MachineError, match="this run was trained in bf16") as error:
        resumed_precision("auto", "bf16", torch.device("cuda"))
    assert "resume on a device that supports bf16, or set precision=fp16" in str(error.value.fix)


def test_precision_depends_on_the_selected_gpu(monkeypatch):
    Gpus(monkeypatch, "Tesla T4", "NVIDIA A100")
    assert resolve_precision("auto", torch.device("cuda", 0)) == "fp16"
    assert resolve_precision("auto", torch.device("cuda", 1)) == "bf16"
    assert resolve_precision("bf16", torch.device("cuda", 1)) == "bf16"
    Gpus(monkeypatch, "NVIDIA A100", "Tesla T4")
    assert resolve_precision("auto", torch.device("cuda", 1)) == "fp16"
    with pytest.raises(MachineError, match="Tesla T4"):
        resolve_precision("bf16", torch.device("cuda", 1))


@pytest.mark.parametrize(
    ("amx", "amd", "fastest"),
    [(True, False, "bf16"), (False, True, "bf16"), (False, False, "fp32")],
)
def test_auto_on_a_cpu_with_bf16(amx, amd, fastest, monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    monkeypatch.setattr(module, "is_amd", lambda: amd)
    assert resolve_precision("auto", CPU) == fastest
    assert emulation_note("bf16", CPU) is None


def test_a_cpu_without_bf16_notes_the_emulation(monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    assert resolve_precision("auto", CPU) == "fp32"
    assert resolve_precision("bf16", CPU) == "bf16"
    note = emulation_note("bf16", CPU)
    assert note is not None
    assert "emulated" in note
    assert "slower than fp32" in note
    assert emulation_note("fp32", CPU) is None


def test_fp16_on_a_cpu_is_allowed_with_a_note():
    assert resolve_precision("fp16", CPU) == "fp16"
    assert "slower than fp32" in str(emulation_note("fp16", CPU))
    assert emulation_note("fp16", torch.device("cuda")) is None


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)],
)
def test_autocast_computes_products_in_the_precision(precision, dtype):
    x = torch.ones(2, 2)
    with autocast(CPU, precision):
        assert (x @ x).dtype == dtype
    assert (x @ x).dtype == torch.float32
