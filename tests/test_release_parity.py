"""Parity with NormFormer's release, guarded by stored numbers.

Two files store results of the release (github.com/facebookresearch/fairseq at the commit that they
name; this repository has no part of it). Weights and inputs are made here from a seed. The
release's switches are scale_heads, scale_attn, scale_fc and scale_resids.

- tests/fixtures/normformer.json: its decoder layer without cross-attention, outputs and gradients
  of inputs and weights, with each operation alone and with all of them.
- tests/fixtures/normformer_lm.json: its complete language model (``transformer_lm``) of two layers:
  logits, loss, and gradients of every parameter.

The release scales slices of the projected output (``head_scale_place: outside``). The paper's
equation scales each head before the projection, which the release cannot do. For that case, gamma
was multiplied into the columns of the output projection, and gamma's gradient was computed from
theirs.

The language models differ in one part, the sinusoids of a position (``release_positions``).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nmt.config.model import model_config
from nmt.config.recipe import ModelConfig, OptimConfig
from nmt.data.lm import TextBatch
from nmt.model.dropout import DropoutRng
from nmt.model.embedding import sinusoids
from nmt.model.language_model import LanguageModel
from nmt.model.layers import Block
from nmt.model.layout import Layout
from nmt.training.loss import token_losses

pytestmark = pytest.mark.cpu

FIXTURE = Path(__file__).parent / "fixtures/normformer.json"
D, F, HEADS, LENGTHS = 8, 12, 2, (5, 3, 7)


def block_of(keys: dict[str, Any]) -> Block:
    """Return a decoder layer without cross-attention, with weights from a seed by name order."""
    section = ModelConfig(dim=D, ffn_dim=F, heads=HEADS, dropout=0.0, norm="layernorm", **keys)
    config = model_config(section)

    def layer_norm(dim: int) -> nn.LayerNorm:
        return nn.LayerNorm(dim, config.norm_eps)

    block = Block(config, DropoutRng(), layer_norm, layer_norm, causal=True, cross=False)
    set_weights(block, seed=30)
    return block


def set_weights(module: nn.Module, seed: int) -> None:
    """Give every parameter, in the order of names, normal numbers around 0, gains around 1."""
    rng = np.random.default_rng(seed)
    weights = {}
    for name, tensor in sorted(module.state_dict().items()):
        gain = name.endswith(("norm.weight", "scale"))
        values = rng.normal(1.0 if gain else 0.0, 0.3, tensor.shape)
        weights[name] = torch.tensor(values, dtype=torch.float32)
    module.load_state_dict(weights)


def inputs() -> tuple[Tensor, Tensor]:
    """Return input and output gradient, [N, D] each, of all sentences in a row."""
    rng = np.random.default_rng(31)
    x, cotangent = (torch.from_numpy(rng.normal(size=(sum(LENGTHS), D))).float() for _ in "ab")
    return x.requires_grad_(), cotangent


def close(ours: Tensor | None, stored: list[float], name: str) -> None:
    assert ours is not None, name
    # sums of fp32 in another order differ by up to 1e-5; a wrong operation by 0.1
    np.testing.assert_allclose(ours.detach().flatten(), stored, rtol=1e-4, atol=1e-4, err_msg=name)


@pytest.mark.parametrize(
    "case",
    json.loads(FIXTURE.read_text())["cases"],
    ids=lambda c: "-".join(f"{key}={value}" for key, value in c["keys"].items()),
)
def test_our_numbers_equal_those_of_the_release(case: dict[str, Any]):
    block = block_of(case["keys"])
    x, cotangent = inputs()
    out = block(x, Layout.of(LENGTHS))
    (out * cotangent).sum().backward()
    close(out, case["output"], "output")
    close(x.grad, case["input_gradient"], "input")
    gradients = {name: p.grad for name, p in block.named_parameters()}
    assert sorted(gradients) == sorted(case["gradients"])
    for name, stored in case["gradients"].items():
        close(gradients[name], stored, name)


def test_the_two_places_of_head_scale_are_different_functions():
    x, _ = inputs()
    outputs = []
    for place in ("inside", "outside"):
        block = block_of({"head_scale": True, "head_scale_place": place})
        outputs.append(block(x, Layout.of(LENGTHS)))
    assert (outputs[0] - outputs[1]).abs().max() > 0.01


# ---------------------------------------------------------------- the complete language model

LM_FIXTURE = Path(__file__).parent / "fixtures/normformer_lm.json"
V = 11


def language_model_of(keys: dict[str, Any]) -> LanguageModel:
    """Return a causal model of two layers with tied embeddings, as ``transformer_lm_gpt3_*``."""
    section = ModelConfig(
        dim=D,
        ffn_dim=F,
        heads=HEADS,
        dec_layers=2,
        norm="layernorm",
        **{"fixnorm": False, "out_bias": False, "dropout": 0.0, "word_dropout": 0.0, **keys},
    )
    model = LanguageModel(model_config(section), V, causal=True)
    set_weights(model, seed=32)
    return model


def texts() -> TextBatch:
    """Return texts of different lengths; id 1 is padding in the release and does not occur."""
    ids = np.random.default_rng(33).integers(2, V, (2, sum(LENGTHS)))
    inputs, targets = torch.from_numpy(ids)
    return TextBatch(inputs, Layout.of(LENGTHS), targets, None, np.arange(len(LENGTHS)))


def release_positions(length: int) -> Tensor:
    """Return the release's position vectors: [length, D].

    They follow tensor2tensor instead of V section 3.5. Sines come before cosines, the D/2
    wavelengths reach 10000 itself, and the first position is 2, after the id of padding.
    """
    rates = 10000.0 ** (-torch.arange(D // 2, dtype=torch.float64) / (D // 2 - 1))
    angles = torch.arange(2, length + 2, dtype=torch.float64)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=1).float()


@pytest.mark.parametrize(
    "case",
    json.loads(LM_FIXTURE.read_text())["cases"],
    ids=lambda c: "-".join(f"{key}={value}" for key, value in c["keys"].items()),
)
def test_a_language_model_equals_that_of_the_release(case: dict[str, Any]):
    model, batch = language_model_of(case["keys"]), texts()
    model.tgt_input.positions.table = release_positions(max(LENGTHS))
    logits = model(*batch.inputs)
    loss = token_losses(logits, batch.targets, model.allowed, OptimConfig(label_smoothing=0.0))
    loss["smoothed"].backward()
    close(logits, case["logits"], "logits")
    close(loss["nll"], [case["loss"]], "loss")
    gradients = {name: p.grad for name, p in model.named_parameters()}
    assert sorted(gradients) == sorted(case["gradients"])
    for name, stored in case["gradients"].items():
        close(gradients[name], stored, name)


def test_our_positions_are_those_of_the_paper_that_both_name():
    """V section 3.5; the release's own text says that its positions differ slightly from it."""
    ours, theirs = sinusoids(max(LENGTHS), D), release_positions(max(LENGTHS))
    assert torch.equal(ours[0], torch.tensor([0.0, 1.0] * (D // 2)))
    assert (ours[:, 0::2] - theirs[:, : D // 2]).abs().max() > 0.1
