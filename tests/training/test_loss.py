"""Label-smoothed cross-entropy against sums by hand."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from nmt.config.recipe import OptimConfig
from nmt.training.loss import token_losses
from tests.reference import log_softmax, smoothed_loss

pytestmark = pytest.mark.cpu

ALLOWED = torch.tensor([False, False, True, True, True, False, True])
TARGETS = torch.tensor([2, 6, 4, 4, 3])


def logits(masked: bool = True) -> torch.Tensor:
    out = torch.randn(5, 7, generator=torch.Generator().manual_seed(1)) * 2
    return out.masked_fill(~ALLOWED, -1e9) if masked else out


def by_hand(values: torch.Tensor, smoothing: float) -> tuple[float, float]:
    rows = np.stack([log_softmax(row) for row in values.double().numpy()])
    return smoothed_loss(rows, TARGETS.tolist(), ALLOWED.numpy(), smoothing)


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_sums_equal_sums_by_hand(masked, smoothing):
    sums = token_losses(logits(masked), TARGETS, ALLOWED, OptimConfig(label_smoothing=smoothing))
    smoothed, true = by_hand(logits(masked), smoothing)
    assert sums["smoothed"].item() == pytest.approx(smoothed, rel=1e-5)
    assert sums["nll"].item() == pytest.approx(true, rel=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_without_a_mask_the_loss_equals_torch_s(smoothing):
    values, everything = logits(masked=False), torch.ones(7, dtype=torch.bool)
    theirs = F.cross_entropy(values, TARGETS, label_smoothing=smoothing, reduction="sum")
    ours = token_losses(values, TARGETS, everything, OptimConfig(label_smoothing=smoothing))
    torch.testing.assert_close(ours["smoothed"], theirs)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_gradient_is_probability_minus_smoothed_target(smoothing):
    values = logits().requires_grad_()
    sums = token_losses(values, TARGETS, ALLOWED, OptimConfig(label_smoothing=smoothing))
    (sums["smoothed"] / 5).backward()
    mass = (1 - smoothing) * F.one_hot(TARGETS, 7) + smoothing * ALLOWED / ALLOWED.sum()
    torch.testing.assert_close(values.grad, (logits().softmax(-1) - mass) / 5, atol=1e-6, rtol=1e-5)
    assert values.grad[:, ~ALLOWED].abs().max() == 0


def test_the_caller_s_logits_do_not_change():
    values = logits().requires_grad_()
    token_losses(values, TARGETS, ALLOWED, OptimConfig())["smoothed"].backward()
    assert values.detach().equal(logits())


def test_sums_add_up_over_batches():
    whole = token_losses(logits(), TARGETS, ALLOWED, OptimConfig())
    parts = [
        token_losses(logits()[part], TARGETS[part], ALLOWED, OptimConfig())
        for part in (slice(0, 2), slice(2, 5))
    ]
    assert sum(part["smoothed"] for part in parts).item() == pytest.approx(whole["smoothed"].item())
    assert sum(part["nll"] for part in parts).item() == pytest.approx(whole["nll"].item())


def test_the_minimum_of_the_loss_is_the_entropy_of_the_smoothed_target():
    """It is reached when the model's probabilities equal the smoothed target."""
    mass = 0.9 * F.one_hot(TARGETS, 7) + 0.1 * ALLOWED / ALLOWED.sum()
    best = token_losses(mass.log().clamp(min=-1e9), TARGETS, ALLOWED, OptimConfig())["smoothed"]
    entropy = -(mass * mass.log().nan_to_num(neginf=0)).sum()
    torch.testing.assert_close(best, entropy)
    assert token_losses(logits(), TARGETS, ALLOWED, OptimConfig())["smoothed"] > best


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_logits_are_summed_in_fp32(dtype):
    values = logits(masked=False).to(dtype).requires_grad_()
    sums = token_losses(values, TARGETS, ALLOWED, OptimConfig())
    assert sums["smoothed"].dtype == torch.float32
    assert sums["smoothed"].item() == pytest.approx(by_hand(values.detach(), 0.1)[0], rel=1e-5)
    sums["smoothed"].backward()
    assert values.grad.dtype == dtype


def test_huge_logits_stay_finite():
    values = torch.full((5, 7), -1e4)
    values[:, 2] = 1e4
    values.requires_grad_()
    sums = token_losses(values, TARGETS, ALLOWED, OptimConfig())
    sums["smoothed"].backward()
    assert sums["smoothed"].isfinite()
    assert values.grad.isfinite().all()


def test_nll_has_no_gradient():
    assert not token_losses(logits().requires_grad_(), TARGETS, ALLOWED, OptimConfig())[
        "nll"
    ].requires_grad
