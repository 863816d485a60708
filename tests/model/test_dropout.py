"""Dropout: rate, scale, and masks that depend only on (seed, epoch, batch)."""

import pytest
import torch

from nmt.model.dropout import Dropout, DropoutRng

pytestmark = pytest.mark.cpu

DRAWS = 20_000


def mask(seed: int, epoch: int, batch: int) -> torch.Tensor:
    rng = DropoutRng()
    rng.seed(seed, epoch, batch)
    return Dropout(0.5, rng).train()(torch.ones(50, 3)) == 0


def test_masks_are_a_function_of_seed_epoch_and_batch():
    assert mask(1, 2, 3).equal(mask(1, 2, 3))
    for other in [(2, 2, 3), (1, 3, 3), (1, 2, 4)]:
        assert not mask(1, 2, 3).equal(mask(*other))


@pytest.mark.parametrize("p", [0.1, 0.3, 0.4, 0.9])
def test_rate_and_scale(p):
    dropout = Dropout(p, DropoutRng()).train()
    out = dropout(torch.ones(DRAWS))
    kept = out[out != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - p)))
    # five standard deviations of a binomial share
    assert 1 - len(kept) / DRAWS == pytest.approx(p, abs=5 * (p * (1 - p) / DRAWS) ** 0.5)


def test_each_call_within_a_batch_draws_another_mask():
    dropout = Dropout(0.5, DropoutRng()).train()
    assert not dropout(torch.ones(99)).equal(dropout(torch.ones(99)))


def test_gradient_passes_where_the_value_passed():
    x = torch.ones(99, requires_grad=True)
    out = Dropout(0.5, DropoutRng()).train()(x)
    out.sum().backward()
    assert x.grad.equal(out.detach())
    assert x.equal(torch.ones(99))


def test_eval_mode_and_rate_zero_change_nothing():
    x = torch.ones(9)
    assert Dropout(0.5, DropoutRng()).eval()(x).equal(x)
    assert Dropout(0.0, DropoutRng()).train()(x).equal(x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_masks_are_equal_in_every_dtype(dtype):
    rng = DropoutRng()
    rng.seed(1, 2, 3)
    exact = rng.mask(torch.Size((DRAWS,)), 0.1, torch.float64)
    rng.seed(1, 2, 3)
    found = rng.mask(torch.Size((DRAWS,)), 0.1, dtype)
    assert found.equal(exact.to(dtype))
    assert set(exact.tolist()) == {0.0, 1 / 0.9}


def test_a_new_model_does_not_seed_the_generators_of_gpus(monkeypatch):
    """Of a program that loads a model and draws numbers itself."""
    seeded: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    rng = DropoutRng()
    rng.seed(1, 2, 3)  # without a GPU in use
    assert not seeded
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    DropoutRng()
    assert not seeded
    rng.seed(1, 2, 3)
    assert len(seeded) == 1
