"""Activation checkpointing gives the same gradients, with dropout, from less memory."""

from __future__ import annotations

import pytest
import torch

from nmt.config.recipe import OptimConfig
from nmt.model.layers import Stack
from nmt.training.loss import token_losses
from tests.model_cases import ALLOWED, SOURCES, TARGETS, batch_of, build, tiny


def gradients(recompute: bool, **keys: float) -> tuple[dict[str, torch.Tensor], int]:
    """Return the gradients of a batch, and the bytes that the graph keeps for them."""
    model = build(tiny(dropout=0.3, enc_layers=4, dec_layers=4, **keys)).train()
    if recompute:
        for stack in (model.encoder, model.decoder):
            stack.recompute_rng = model.dropout_rng
    model.dropout_rng.seed(1, 2, 3)
    batch, kept = batch_of(SOURCES, TARGETS), 0

    def count(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal kept
        kept += tensor.nbytes
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        logits = model(*batch.inputs)
    allowed = torch.from_numpy(ALLOWED)
    token_losses(logits, batch.tgt_out, allowed, OptimConfig())["smoothed"].backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}, kept


@pytest.mark.parametrize("keys", [{}, {"attn_dropout": 0.5, "ffn_dropout": 0.0}], ids=str)
def test_gradients_are_equal_with_dropout_and_the_graph_is_smaller(keys: dict[str, float]):
    kept_all, usual = gradients(False, **keys)
    recomputed, small = gradients(True, **keys)
    assert kept_all.keys() == recomputed.keys()
    for name, gradient in kept_all.items():
        assert torch.equal(gradient, recomputed[name]), name
    assert small < usual / 3


def test_the_generator_continues_after_a_backward_pass_as_without_recomputing():
    after = []
    for recompute in (False, True):
        model = build(tiny(dropout=0.3)).train()
        for stack in (m for m in model.modules() if isinstance(m, Stack)):
            stack.recompute_rng = model.dropout_rng if recompute else None
        model.dropout_rng.seed(1, 2, 3)
        model(*batch_of(SOURCES, TARGETS).inputs).sum().backward()
        after.append(model.dropout_rng.mask(torch.Size([64]), 0.5, torch.float32))
    assert torch.equal(*after)


def test_inference_does_not_recompute(monkeypatch: pytest.MonkeyPatch):
    model = build(tiny())
    model.encoder.recompute_rng = model.dropout_rng
    monkeypatch.setattr("nmt.model.layers.recomputed", None)  # calling it would fail
    assert model(*batch_of(SOURCES, TARGETS).inputs).isfinite().all()
