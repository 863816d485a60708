"""oneDNN multiplies fp32 matrices where it does not round, and only inside the block."""

from __future__ import annotations

import pytest
import torch

from nmt.model.cpu import matmul
from nmt.model.cpu.matmul import onednn_is_exact, onednn_matmul

pytestmark = pytest.mark.cpu

CPU = torch.device("cpu")


def allows_rounding() -> bool:
    return torch.backends.mkldnn.matmul.fp32_precision == "bf16"


@pytest.fixture(autouse=True)
def clear_cache():
    onednn_is_exact.cache_clear()
    yield
    onednn_is_exact.cache_clear()


def test_products_match_double_precision():
    generator = torch.Generator().manual_seed(0)
    x, weight, dy = (
        torch.randn(shape, generator=generator, requires_grad=True)
        for shape in [(300, 512), (96, 512), (300, 96)]
    )
    with onednn_matmul(CPU):
        y = torch.nn.functional.linear(x, weight)
        y.backward(dy.detach())
    exact = [t.double() for t in (x, weight, dy)]
    # sums of 512 fp32 products; with bf16 or TF32 they differ by 0.1 or 0.01
    torch.testing.assert_close(y.double(), exact[0] @ exact[1].t(), atol=5e-4, rtol=0)
    torch.testing.assert_close(x.grad.double(), exact[2] @ exact[1], atol=5e-4, rtol=0)
    torch.testing.assert_close(weight.grad.double(), exact[2].t() @ exact[0], atol=5e-4, rtol=0)


def test_the_setting_is_restored_after_an_error(monkeypatch):
    monkeypatch.setattr(matmul, "onednn_is_exact", lambda: True)
    before = torch.backends.mkldnn.matmul.fp32_precision

    def work():
        with onednn_matmul(CPU):
            assert allows_rounding()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert torch.backends.mkldnn.matmul.fp32_precision == before
    with onednn_matmul(torch.device("cuda")):
        assert not allows_rounding()


@pytest.mark.parametrize("rounded_to", [torch.bfloat16, torch.float32])
def test_onednn_is_used_only_if_it_does_not_round(monkeypatch, rounded_to):
    """Replace both products, as oneDNN itself rounds on a CPU with AMX."""

    def product(a, b):
        return torch.matmul(a.to(rounded_to).double(), b.to(rounded_to).double()).float()

    monkeypatch.setattr(torch.Tensor, "__matmul__", product)
    monkeypatch.setattr(matmul, "linear", lambda x, weight, bias: product(x, weight.t()) + bias)
    exact = rounded_to is torch.float32
    assert onednn_is_exact() == exact
    with onednn_matmul(CPU):
        assert allows_rounding() == exact
