"""Products by the faster library, where it rounds nothing, and for no longer than is asked."""

from __future__ import annotations

import pytest
import torch

from nmt.runtime import matmul
from nmt.runtime.matmul import onednn_is_exact, onednn_matmul

pytestmark = pytest.mark.cpu

CPU = torch.device("cpu")


def handed_over() -> bool:
    return torch.backends.mkldnn.matmul.fp32_precision == "bf16"


@pytest.fixture(autouse=True)
def forget():
    onednn_is_exact.cache_clear()
    yield
    onednn_is_exact.cache_clear()


def test_products_are_those_of_double_precision():
    generator = torch.Generator().manual_seed(0)
    x, weight, dy = (
        torch.randn(shape, generator=generator, requires_grad=True)
        for shape in [(300, 512), (96, 512), (300, 96)]
    )
    with onednn_matmul(CPU):
        y = torch.nn.functional.linear(x, weight)
        y.backward(dy.detach())
    exact = [t.double() for t in (x, weight, dy)]
    torch.testing.assert_close(y.double(), exact[0] @ exact[1].t(), atol=1e-4, rtol=0)
    torch.testing.assert_close(x.grad.double(), exact[2] @ exact[1], atol=1e-4, rtol=0)
    torch.testing.assert_close(weight.grad.double(), exact[2].t() @ exact[0], atol=1e-4, rtol=0)


def test_the_setting_ends_with_the_update_also_by_an_error(monkeypatch):
    monkeypatch.setattr(matmul, "onednn_is_exact", lambda: True)
    before = torch.backends.mkldnn.matmul.fp32_precision

    def work():
        with onednn_matmul(CPU):
            assert handed_over()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert torch.backends.mkldnn.matmul.fp32_precision == before
    with onednn_matmul(torch.device("cuda")):
        assert not handed_over()


@pytest.mark.parametrize("rounded_to", [torch.bfloat16, torch.float32])
def test_a_library_that_rounds_is_not_asked(monkeypatch, rounded_to):
    def matmul(a, b):
        return torch.matmul(a.to(rounded_to).double(), b.to(rounded_to).double()).float()

    monkeypatch.setattr(torch.Tensor, "__matmul__", matmul)
    rounds = rounded_to is torch.bfloat16
    assert onednn_is_exact() == (not rounds)
    with onednn_matmul(CPU):
        assert handed_over() == (not rounds)
