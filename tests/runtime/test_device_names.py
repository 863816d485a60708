from __future__ import annotations

import pytest

from nmt.errors import MachineError, UserError
from nmt.runtime.device_names import parse_device


@pytest.mark.parametrize(
    ("name", "gpus", "expected"),
    [
        ("auto", 0, ("cpu", None)),
        ("auto", 2, ("cuda", None)),
        ("cpu", 2, ("cpu", None)),
        ("cuda", 1, ("cuda", None)),
        ("cuda:1", 2, ("cuda", 1)),
    ],
)
def test_names_of_devices(name, gpus, expected):
    assert parse_device(name, lambda: gpus, "torch") == expected


@pytest.mark.parametrize("name", ["gpu", "cpu:0", "auto:1", "cuda:", "cuda:x", "Cuda", ""])
def test_other_names_are_errors_before_gpus_are_counted(name):
    with pytest.raises(UserError, match=r"is not auto, cpu, cuda or cuda:N"):
        parse_device(name, lambda: pytest.fail("counted"), "torch")


@pytest.mark.parametrize(("name", "gpus"), [("cuda", 0), ("cuda:1", 1), ("cuda:99", 8)])
def test_a_gpu_that_the_library_does_not_find_is_an_error(name, gpus):
    found = "1 GPU" if gpus == 1 else f"{gpus} GPUs"
    with pytest.raises(MachineError, match=f'"{name}" does not exist: torch 2 finds {found}\n'):
        parse_device(name, lambda: gpus, "torch 2")
