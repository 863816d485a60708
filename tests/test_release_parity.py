"""Parity with NormFormer's release, guarded by stored numbers.

tests/fixtures/normformer.json stores the results of the release's decoder layer without
cross-attention (github.com/facebookresearch/fairseq at the commit named in the file; this
repository has no part of it). Weights and inputs are made here from a seed. The results are outputs
and gradients of inputs and weights, with each operation alone and with all of them. The release's
switches are scale_heads, scale_attn, scale_fc and scale_resids.

The release scales slices of the projected output (``head_scale_place: outside``). The paper's
equation scales each head before the projection, which the release cannot do. For that case, gamma
was multiplied into the columns of the output projection, and gamma's gradient was computed from
theirs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nmt.config.recipe import ModelConfig
from nmt.data.layout import Layout
from nmt.model.dropout import DropoutRng
from nmt.model.layers import Block
from nmt.model.norms import LayerNorm

pytestmark = pytest.mark.cpu

FIXTURE = Path(__file__).parent / "fixtures/normformer.json"
D, F, HEADS, LENGTHS = 8, 12, 2, (5, 3, 7)


def block_of(keys: dict[str, Any]) -> Block:
    """Return a decoder layer without cross-attention, with weights from a seed by name order."""
    config = ModelConfig(dim=D, ffn_dim=F, heads=HEADS, dropout=0.0, norm="layernorm", **keys)

    def layer_norm(dim: int) -> LayerNorm:
        return LayerNorm(dim, config.norm_eps)

    block = Block(config, DropoutRng(), layer_norm, layer_norm, causal=True, cross=False)
    rng = np.random.default_rng(30)
    weights = {}
    for name, tensor in sorted(block.state_dict().items()):
        gain = name.endswith(("norm.weight", "scale"))
        values = rng.normal(1.0 if gain else 0.0, 0.3, tensor.shape)
        weights[name] = torch.tensor(values, dtype=torch.float32)
    block.load_state_dict(weights)
    return block


def inputs() -> tuple[Tensor, Tensor]:
    """Return input and output gradient, [N, D] each, of all sentences in a row."""
    rng = np.random.default_rng(31)
    x, cotangent = (torch.from_numpy(rng.normal(size=(sum(LENGTHS), D))).float() for _ in "ab")
    return x.requires_grad_(), cotangent


def close(ours: Tensor | None, stored: list[float], name: str) -> None:
    assert ours is not None, name
    np.testing.assert_allclose(ours.detach().flatten(), stored, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    "case",
    json.loads(FIXTURE.read_text())["cases"],
    ids=lambda c: "-".join(f"{key}={value}" for key, value in c["keys"].items()),
)
def test_our_numbers_equal_those_of_the_release(case: dict[str, Any]):
    block = block_of(case["keys"])
    x, cotangent = inputs()
    out = block(x, *block.batch_attention(Layout.of(LENGTHS)))
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
        outputs.append(block(x, *block.batch_attention(Layout.of(LENGTHS))))
    assert (outputs[0] - outputs[1]).abs().max() > 0.01
