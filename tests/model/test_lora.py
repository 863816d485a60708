"""LoRA: the formula, what trains, and merging."""

from __future__ import annotations

import torch

from nmt.model.linear import Linear
from nmt.model.lora import add_lora, merge_lora
from nmt.model.transformer import Transformer
from tests.model_cases import SOURCES, TARGETS, TYPES, batch_of, build, tiny

LAYERS = 2 * 4 + 2 * 7  # encoder: qkv, out, fc1, fc2; decoder: also q, kv, out


def with_lora(targets: tuple[str, ...] = ("*",), rank: int = 3, alpha: float = 6.0) -> Transformer:
    model = build(tiny())
    add_lora(model, rank, alpha, targets, seed=1)
    return model


def test_a_layer_adds_alpha_over_rank_times_b_a_x():
    layer = Linear(4, 5, bias=False)
    torch.nn.init.normal_(layer.weight, generator=torch.Generator().manual_seed(1))
    assert add_lora(layer, 2, 6.0, [""], seed=1) == 1
    a, b, x = layer.lora.a, layer.lora.b, torch.randn(7, 4)
    assert a.abs().min() > 0
    torch.testing.assert_close(layer(x), x @ layer.weight.T)  # B starts at 0
    with torch.no_grad():
        b.copy_(torch.randn(5, 2))
    torch.testing.assert_close(layer(x), x @ (layer.weight + 3.0 * b @ a).T)


def test_the_model_starts_as_its_parent_and_only_the_updates_train():
    parent, model, batch = build(tiny()), with_lora(), batch_of(SOURCES, TARGETS)
    torch.testing.assert_close(model(*batch.inputs), parent(*batch.inputs))
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert len(trained) == 2 * LAYERS
    assert all(".lora." in name for name in trained)


def test_targets_are_patterns_of_layer_names():
    model = with_lora(("decoder.*.qkv", "decoder.*.fc1"))
    names = {name.partition(".lora")[0] for name, p in model.named_parameters() if p.requires_grad}
    layers = ("decoder.layers.0.", "decoder.layers.1.")
    assert names == {f"{at}{part}" for at in layers for part in ("self_attn.qkv", "ffn.fc1")}
    assert add_lora(build(tiny()), 2, 2.0, ["no.such.layer"], seed=1) == 0


def test_merged_weights_compute_the_same():
    model, batch = with_lora(), batch_of(SOURCES, TARGETS)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(".lora.b"):
                parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator()))
    merged = Transformer(model.config, TYPES, model.allowed)
    merged.load_state_dict(merge_lora(model.state_dict()))
    expected = model(*batch.inputs)
    assert (expected - build(tiny())(*batch.inputs)).abs().max() > 0.1
    torch.testing.assert_close(merged.eval()(*batch.inputs), expected, rtol=1e-4, atol=1e-4)
