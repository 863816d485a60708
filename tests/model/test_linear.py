"""The fused linear layer against torch's: results, gradients, dtypes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from nmt.model import linear as module
from nmt.model.linear import Linear, linear

pytestmark = pytest.mark.cpu

TYPES = [torch.float32, torch.bfloat16, torch.float64]


def inputs(dtype: torch.dtype, bias: bool = True) -> list[Tensor | None]:
    """Return numbers that are exact in bf16: x [37, 24], weight [19, 24], bias [19]."""
    rng = torch.Generator().manual_seed(1)
    shapes = [(37, 24), (19, 24), (19,)]
    made: list[Tensor | None] = [
        torch.randint(-8, 8, shape, generator=rng).to(dtype).div_(8).requires_grad_()
        for shape in shapes
    ]
    return made if bias else [*made[:2], None]


def run(f, parts: list[Tensor | None], dtype: torch.dtype | None = None) -> list[Tensor]:
    """Return the result under autocast, and the gradients of the sum of its squares."""
    with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
        y = f(*parts)
    y.float().square().sum().backward()
    return [y.detach(), *(part.grad for part in parts if part is not None)]


def fused(y: Tensor) -> bool:
    return type(y.grad_fn).__name__ == "_FusedLinearBackward"


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", TYPES)
def test_linear_equals_torch_s_linear_layer(dtype, bias):
    for found, expected in zip(
        run(linear, inputs(dtype, bias)), run(F.linear, inputs(dtype, bias)), strict=True
    ):
        assert found.dtype == expected.dtype
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("frozen", range(3))
def test_no_gradient_of_a_frozen_parameter_is_computed(frozen):
    x, weight, _ = (part.detach() for part in inputs(torch.float32))
    needed = tuple(i != frozen for i in range(3))
    context = SimpleNamespace(saved_tensors=(x, weight), needs_input_grad=needed)
    grads = module._FusedLinear.backward(context, torch.ones(len(x), len(weight)))
    assert [grad is not None for grad in grads] == list(needed)


def test_autocast_decides_the_dtype_and_gradients_have_that_of_the_weights():
    ours = run(linear, inputs(torch.float32), torch.bfloat16)
    theirs = run(F.linear, inputs(torch.float32), torch.bfloat16)
    assert [t.dtype for t in ours] == [torch.bfloat16] + [torch.float32] * 3
    for found, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.skipif(not module.FUSED_DTYPES, reason="this torch has no such operation")
def test_the_fused_operation_is_used_only_with_gradients_and_supported_dtypes(monkeypatch):
    x, weight, bias = inputs(torch.float32)
    assert fused(linear(x, weight, bias))
    assert not fused(linear(x, weight, None))
    assert not fused(linear(*(t.double() for t in (x, weight, bias))))
    with torch.no_grad():
        monkeypatch.setattr(module._FusedLinear, "apply", None)
        torch.testing.assert_close(linear(x, weight, bias), F.linear(x, weight, bias))


def test_without_the_fused_operation_linear_calls_torch(monkeypatch):
    expected = run(linear, inputs(torch.float32))
    monkeypatch.setattr(module, "FUSED_DTYPES", ())
    assert not fused(linear(*inputs(torch.float32)))
    for found, plain in zip(run(linear, inputs(torch.float32)), expected, strict=True):
        torch.testing.assert_close(found, plain)


def test_the_layer_has_the_parameters_of_torch_s_layer():
    layer = Linear(24, 19)
    assert {name: tuple(p.shape) for name, p in layer.named_parameters()} == {
        "weight": (19, 24),
        "bias": (19,),
    }
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()
    x = inputs(torch.float32)[0]
    torch.testing.assert_close(layer(x), F.linear(x, layer.weight, layer.bias))
