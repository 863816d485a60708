"""Norms against their formulas, with zero vectors, half precision and huge values."""

import math

import numpy as np
import pytest
import torch

from nmt.model.norms import NORMS, RMSNorm, ScaleNorm
from tests import reference

pytestmark = pytest.mark.cpu

DIM = 6
EPS = 1e-5
HALF = [torch.float32, torch.bfloat16, torch.float16]


def randomized(norm: torch.nn.Module) -> torch.nn.Module:
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter += 0.5 * torch.randn(parameter.shape, generator=generator)
    return norm


def sample(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 3 + 1


def rows(x: torch.Tensor) -> np.ndarray:
    return x.double().detach().numpy()


# A large eps shows where it is in the formula; 1e-5 would hide that.
def formula(norm: torch.nn.Module, vector: np.ndarray, eps: float = EPS) -> np.ndarray:
    values = [rows(value) for value in norm.parameters()]
    if isinstance(norm, ScaleNorm):
        return reference.scale_norm(vector, float(values[0].item()), eps)
    if isinstance(norm, RMSNorm):
        return reference.rms_norm(vector, *values, eps)
    return reference.layer_norm(vector, *values, eps)


# A large eps shows where it is in the formula; 1e-5 would hide that.
@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("eps", [EPS, 0.5])
def test_norms_are_the_formula(name, eps):
    norm, x = randomized(NORMS[name](DIM, eps)), sample(4, DIM)
    expected = [formula(norm, row, eps) for row in rows(x)]
    np.testing.assert_allclose(rows(norm(x)), expected, rtol=1e-5, atol=1e-6)


def test_scale_norm_clamps_the_length_instead_of_adding_to_it():
    short = torch.full((1, 4), 0.1)  # length 0.2, below an eps of 0.5
    norm = ScaleNorm(4, 0.5)
    torch.testing.assert_close(norm(short), norm.g.detach() * short / 0.5)
    long = torch.full((1, 4), 1.0)  # length 2, above eps: eps has no effect
    torch.testing.assert_close(norm(long), norm.g.detach() * long / 2)


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_scale_norm_without_gradients_equals_scale_norm_with_them(dtype):
    """Without gradients it takes another code path; zero and short vectors are included."""
    norm = randomized(ScaleNorm(DIM, 0.5)).to(dtype)
    x = (sample(4, DIM) * torch.tensor([[1.0], [1e-2], [0.0], [1e3]])).to(dtype)
    with torch.no_grad():
        found = norm(x)
    assert found.dtype == dtype
    torch.testing.assert_close(found, norm(x).detach(), rtol=4 * torch.finfo(dtype).eps, atol=0)


def test_scale_norm_starts_at_sqrt_d_as_g_itself_or_has_it_fixed():
    norm, fixed, x = ScaleNorm(DIM, EPS), ScaleNorm(DIM, EPS, learned=False), sample(5, DIM)
    ((name, g),) = norm.named_parameters()
    assert (name, g.numel(), g.item()) == ("g", 1, pytest.approx(math.sqrt(DIM)))
    assert not list(fixed.parameters())
    torch.testing.assert_close(fixed(x).norm(dim=-1), torch.full((5,), math.sqrt(DIM)))
    torch.testing.assert_close(fixed(x), norm(x))


def test_rms_norm_with_tied_gains_over_sqrt_d_is_scale_norm():
    """T section 4.2: "tying the g_i of RMSNorm and dividing by sqrt(d) retrieves ScaleNorm"."""
    x = sample(5, DIM)
    rms, scale = RMSNorm(DIM, 1e-12), ScaleNorm(DIM, 1e-12)
    with torch.no_grad():
        scale.g.fill_(1.7)
        rms.weight.fill_(1.7 / math.sqrt(DIM))
    torch.testing.assert_close(rms(x), scale(x))


@pytest.mark.parametrize("name", NORMS)
def test_parameter_counts(name):
    """2d for LayerNorm, d for RMSNorm, one for ScaleNorm (T sections 2.3 and 4.2)."""
    count = sum(p.numel() for p in NORMS[name](DIM, EPS).parameters())
    assert count == {"layernorm": 2 * DIM, "rmsnorm": DIM, "scalenorm": 1}[name]


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("factor", [0.5, 7.0])
def test_norms_ignore_the_scale_of_the_input(name, factor):
    norm, x = randomized(NORMS[name](DIM, 1e-9)), sample(5, DIM)
    torch.testing.assert_close(norm(factor * x), norm(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NORMS)
def test_norms_treat_every_vector_alone_in_any_shape(name):
    norm, x = randomized(NORMS[name](DIM, EPS)), sample(2, 3, DIM)
    torch.testing.assert_close(norm(x)[1, 2], norm(x[1, 2]))
    torch.testing.assert_close(norm(x).reshape(-1, DIM), norm(x.reshape(-1, DIM)))


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_zero_vector_has_finite_output_and_gradient(name, dtype):
    norm = NORMS[name](DIM, EPS)
    x = torch.zeros(3, DIM, dtype=dtype, requires_grad=True)
    out = norm(x)
    assert out.isfinite().all()
    assert out.abs().max() == 0
    out.float().sum().backward()
    assert x.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in norm.parameters())


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("dtype", HALF[1:], ids=str)
def test_half_precision_takes_statistics_in_fp32(name, dtype):
    # 300^2 * 512 overflows fp16, and bf16 sums of 512 squares would lose over a percent.
    norm = NORMS[name](512, EPS)
    x = (sample(4, 512) * 100).to(dtype)
    exact = norm(x.float())
    relative = (norm(x).float() - exact).abs().max() / exact.abs().max()
    assert relative < torch.finfo(dtype).eps


# Lengths from just above eps to 2,000, gradients as large as a loss scale makes them: g / length,
# 1 / length and gradient times x exceed the range of fp16, but the results do not.
@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("size", [1e-5, 1e-3, 1.0, 900.0])
@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_half_precision_keeps_the_formula_for_short_and_long_vectors(name, size, dtype):
    exact = (sample(4, DIM) / 3 * size).to(dtype)
    x = exact.clone().requires_grad_()
    norm, wide = NORMS[name](DIM, EPS), exact.double().requires_grad_()
    out, expected = norm(x), NORMS[name](DIM, EPS).double()(wide)
    weights = sample(4, DIM, seed=9) * min(size, 1.0) * 2.0**10
    assert out.dtype == dtype
    (out.float() * weights).sum().backward()
    (expected * weights.double()).sum().backward()
    close = {"rtol": 8 * torch.finfo(dtype).eps, "atol": 8 * torch.finfo(dtype).eps}
    torch.testing.assert_close(out.double(), expected, **close)
    largest = float(wide.grad.abs().max())
    torch.testing.assert_close(x.grad.double() / largest, wide.grad / largest, **close)


@pytest.mark.parametrize("name", NORMS)
def test_gradient_is_the_finite_difference_of_the_formula(name):
    norm = randomized(NORMS[name](DIM, EPS))
    x, weights, step = sample(DIM).requires_grad_(), sample(DIM, seed=9), 1e-6
    (norm(x) @ weights).backward()
    moved = ([formula(norm, rows(x) + s * step * unit) for s in (1, -1)] for unit in np.eye(DIM))
    expected = [(up - down) @ rows(weights) / (2 * step) for up, down in moved]
    np.testing.assert_allclose(rows(x.grad), expected, rtol=1e-3, atol=1e-5)
