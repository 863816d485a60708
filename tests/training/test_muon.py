"""Muon against closed forms, torch's own Muon, and the guarantees of every optimizer."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from nmt.config.recipe import OptimConfig
from nmt.model.config import ModelConfig
from nmt.model.transformer import Transformer
from nmt.store.checkpoint import shapes_of
from nmt.training.muon import A, B, C, Muon, orthogonalize
from nmt.training.optimizer import (
    load_optimizer_tensors,
    make_optimizer,
    optimizer_shapes,
    optimizer_tensors,
    take_step,
)

pytestmark = pytest.mark.cpu
SMALL = ModelConfig(dim=16, ffn_dim=32, heads=2, enc_layers=1, dec_layers=1)


def model_with_gradients(seed: int = 1) -> Transformer:
    model = Transformer(SMALL, 20)
    give_gradients(model, seed)
    return model


def give_gradients(model: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)


def muon(model: nn.Module, precision: str = "fp32", **keys: object) -> torch.optim.Optimizer:
    return make_optimizer(OptimConfig.model_validate({"kind": "muon", **keys}), model, precision)


def step(optimizer: torch.optim.Optimizer, lr: float, skip: bool = False) -> None:
    take_step(optimizer, lr, None, torch.tensor(skip))


@pytest.mark.parametrize("shape", [(24, 24), (16, 48), (48, 16)])
# bf16 has 8 significant bits, and five steps add up their rounding
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 1e-3), (torch.bfloat16, 0.1)])
def test_orthogonalize_sets_singular_values_to_about_one(shape, dtype, atol):
    x = torch.randn(3, *shape, generator=torch.Generator().manual_seed(1))
    u, s, v = torch.linalg.svd(x, full_matrices=False)
    rotated = u.mT @ orthogonalize(x, dtype) @ v.mT  # diagonal: the directions are those of x
    found = rotated.diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(rotated, torch.diag_embed(found), atol=atol, rtol=0)
    assert found.max() < 1.25
    assert found[s > 0.05 * s.amax(-1, keepdim=True)].min() > 0.6


@pytest.mark.parametrize("shape", [(24, 24), (16, 48)])
def test_orthogonalize_equals_the_plain_newton_schulz_iteration(shape):
    x = torch.randn(2, *shape, generator=torch.Generator().manual_seed(2))
    plain = x / x.norm(dim=(1, 2), keepdim=True)
    for _ in range(5):
        gram = plain @ plain.mT
        plain = A * plain + (B * gram + C * gram @ gram) @ plain
    torch.testing.assert_close(orthogonalize(x, torch.float32), plain, atol=5e-4, rtol=0)


def test_steps_are_close_to_those_of_torch():
    """torch.optim.Muon computes in bf16: three steps of size 0.2 lr sqrt(48) agree to 5 %."""
    torch.manual_seed(1)
    ours, theirs = (nn.Parameter(torch.zeros(16, 48)) for _ in range(2))
    other = nn.Parameter(torch.zeros(1))
    lr = torch.tensor(0.1)
    optimizers = (
        Muon([ours], [other], lr, (0.9, 0.99), 1e-8, 0.0, torch.float32),
        torch.optim.Muon([theirs], lr=0.1, weight_decay=0, adjust_lr_fn="match_rms_adamw"),
    )
    for _ in range(3):
        gradient = torch.randn(16, 48)
        ours.grad, theirs.grad, other.grad = gradient.clone(), gradient, torch.ones(1)
        for optimizer in optimizers:
            optimizer.step()
    assert (ours - theirs).norm() < 0.05 * theirs.norm()


def test_muon_updates_only_weights_of_linear_layers():
    model = model_with_gradients()
    optimizer = muon(model)
    step(optimizer, 1e-3)
    kinds = dict(name.rsplit("/", 1) for name in optimizer_tensors(optimizer, model))
    by_muon = {name for name, kind in kinds.items() if kind == "momentum"}
    layers = {f"{name}.weight" for name, m in model.named_modules() if isinstance(m, nn.Linear)}
    assert by_muon == layers
    assert "embed.weight" in kinds.keys() - by_muon
    assert kinds.keys() == {name for name, _ in model.named_parameters()}


def test_a_step_has_the_size_of_an_adam_step():
    model = model_with_gradients()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    step(muon(model), 1e-2)
    for name, parameter in model.named_parameters():
        if name.endswith("fc1.weight"):
            size = (parameter - before[name]).square().mean().sqrt()
            # a matrix of 16 singular values of 0.7 to 1.2, spread over 32 columns
            assert 0.6 * 2e-3 < size < 1.25 * 2e-3


def test_a_skipped_step_with_nan_changes_nothing():
    model = model_with_gradients()
    optimizer = muon(model)
    step(optimizer, 1e-3)
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    tensors = {name: t.clone() for name, t in optimizer_tensors(optimizer, model).items()}
    give_gradients(model, 2)
    model.encoder.layers[0].ffn.fc1.weight.grad[0, 0] = float("nan")
    step(optimizer, 1e-3, skip=True)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, weights[name]), name
    for name, tensor in optimizer_tensors(optimizer, model).items():
        assert torch.equal(tensor, tensors[name]), name


def test_weight_decay_is_decoupled_and_scaled_by_the_learning_rate():
    plain, decayed = model_with_gradients(), model_with_gradients()
    name = "encoder.layers.0.ffn.fc2.weight"
    before = plain.get_parameter(name).detach().clone()
    step(muon(plain), 1e-2)
    step(muon(decayed, weight_decay=0.5), 1e-2)
    difference = plain.get_parameter(name) - decayed.get_parameter(name)
    torch.testing.assert_close(difference, 1e-2 * 0.5 * before, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("kind", ["adam", "adamw", "radam", "muon", "adafactor"])
def test_optimizer_shapes_are_those_of_its_tensors(kind):
    model = model_with_gradients()
    optimizer = make_optimizer(OptimConfig(kind=kind), model, "fp32")
    step(optimizer, 1e-3)
    assert shapes_of(optimizer_tensors(optimizer, model)) == optimizer_shapes(kind, model)


def test_a_restored_optimizer_continues_exactly():
    model, other = model_with_gradients(), model_with_gradients()
    optimizer = muon(model)
    step(optimizer, 1e-3)
    other.load_state_dict(model.state_dict())
    resumed = muon(other)
    load_optimizer_tensors(resumed, other, optimizer_tensors(optimizer, model))
    for each, of in ((model, optimizer), (other, resumed)):
        give_gradients(each, 3)
        step(of, 1e-3)
    for (name, one), two in zip(model.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two), name
