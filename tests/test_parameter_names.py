"""Parameter names are part of the checkpoint format: a change breaks old checkpoints."""

import pytest
import torch

from nmt.config import recipe
from nmt.config.model import model_config
from nmt.model.transformer import Transformer

SIZES = {"dim": 4, "ffn_dim": 6, "heads": 2, "enc_layers": 1, "dec_layers": 1}

LINEARS = """
decoder.layers.0.cross_attn.kv.bias 8
decoder.layers.0.cross_attn.kv.weight 8x4
decoder.layers.0.cross_attn.out.bias 4
decoder.layers.0.cross_attn.out.weight 4x4
decoder.layers.0.cross_attn.q.bias 4
decoder.layers.0.cross_attn.q.weight 4x4
decoder.layers.0.ffn.fc1.bias 6
decoder.layers.0.ffn.fc1.weight 6x4
decoder.layers.0.ffn.fc2.bias 4
decoder.layers.0.ffn.fc2.weight 4x6
decoder.layers.0.self_attn.out.bias 4
decoder.layers.0.self_attn.out.weight 4x4
decoder.layers.0.self_attn.qkv.bias 12
decoder.layers.0.self_attn.qkv.weight 12x4
embed.weight 7x4
encoder.layers.0.ffn.fc1.bias 6
encoder.layers.0.ffn.fc1.weight 6x4
encoder.layers.0.ffn.fc2.bias 4
encoder.layers.0.ffn.fc2.weight 4x6
encoder.layers.0.self_attn.out.bias 4
encoder.layers.0.self_attn.out.weight 4x4
encoder.layers.0.self_attn.qkv.bias 12
encoder.layers.0.self_attn.qkv.weight 12x4
out_bias 7
"""
SCALENORMS = """
decoder.layers.0.cross_attn_res.norm.g scalar
decoder.layers.0.ffn_res.norm.g scalar
decoder.layers.0.self_attn_res.norm.g scalar
decoder.norm.g scalar
encoder.layers.0.ffn_res.norm.g scalar
encoder.layers.0.self_attn_res.norm.g scalar
encoder.norm.g scalar
"""
RMSNORMS = SCALENORMS.replace("norm.g scalar", "norm.weight 4")
LAYERNORMS = RMSNORMS + RMSNORMS.replace("weight", "bias")
NORMFORMER = """
decoder.layers.0.cross_attn.head_scale 2x1x1
decoder.layers.0.cross_attn_res.branch_norm.bias 4
decoder.layers.0.cross_attn_res.branch_norm.weight 4
decoder.layers.0.ffn.norm.bias 6
decoder.layers.0.ffn.norm.weight 6
decoder.layers.0.self_attn.head_scale 2x1x1
decoder.layers.0.self_attn_res.branch_norm.bias 4
decoder.layers.0.self_attn_res.branch_norm.weight 4
encoder.layers.0.ffn.norm.bias 6
encoder.layers.0.ffn.norm.weight 6
encoder.layers.0.self_attn.head_scale 2x1x1
encoder.layers.0.self_attn_res.branch_norm.bias 4
encoder.layers.0.self_attn_res.branch_norm.weight 4
"""
RES_SCALE_FFN = """
decoder.layers.0.ffn_res.scale 4
encoder.layers.0.ffn_res.scale 4
"""
RES_SCALE_ALL = """
decoder.layers.0.cross_attn_res.scale 4
decoder.layers.0.ffn_res.scale 4
decoder.layers.0.self_attn_res.scale 4
encoder.layers.0.ffn_res.scale 4
encoder.layers.0.self_attn_res.scale 4
"""
QKV_NORMS = """
decoder.layers.0.cross_attn.k_norm.weight 4
decoder.layers.0.cross_attn.q_norm.weight 4
decoder.layers.0.cross_attn.v_norm.weight 4
decoder.layers.0.self_attn.k_norm.weight 4
decoder.layers.0.self_attn.q_norm.weight 4
decoder.layers.0.self_attn.v_norm.weight 4
encoder.layers.0.self_attn.k_norm.weight 4
encoder.layers.0.self_attn.q_norm.weight 4
encoder.layers.0.self_attn.v_norm.weight 4
"""


def without(listing: str, *words: str) -> str:
    return "\n".join(
        line for line in listing.splitlines() if not any(word in line for word in words)
    )


PRESETS = {
    "prenorm_scalenorm_fixnorm": ({}, LINEARS + SCALENORMS),
    "postnorm_layernorm": (
        {"norm": "layernorm", "norm_place": "post", "fixnorm": False},
        LINEARS + without(LAYERNORMS, "decoder.norm", "encoder.norm"),
    ),
    "prenorm_rmsnorm": ({"norm": "rmsnorm"}, LINEARS + RMSNORMS),
    "fixed_gain": ({"scalenorm_gain": "fixed"}, LINEARS + "decoder.norm.g scalar"),
    "fixed_gain_postnorm": (
        {"scalenorm_gain": "fixed", "norm_place": "post"},
        LINEARS + "decoder.layers.0.ffn_res.norm.g scalar",
    ),
    "normformer": (
        {"norm": "layernorm", "normformer": True},
        LINEARS + LAYERNORMS + NORMFORMER,
    ),
    "normformer_res_scale": (
        {"norm": "layernorm", "normformer": True, "res_scale": "ffn"},
        LINEARS + LAYERNORMS + NORMFORMER + RES_SCALE_FFN,
    ),
    "res_scale_all": ({"res_scale": "all"}, LINEARS + SCALENORMS + RES_SCALE_ALL),
    "res_scale_scalar": (
        {"res_scale": "scalar"},
        LINEARS + SCALENORMS + RES_SCALE_ALL.replace("scale 4", "scale scalar"),
    ),
    "qkv_norm": (
        {"qkv_norm": True, "extra_norm": "rmsnorm"},
        LINEARS + SCALENORMS + QKV_NORMS,
    ),
    "no_biases": (
        {"bias": False, "out_bias": False},
        without(LINEARS, ".bias", "out_bias") + SCALENORMS,
    ),
    "tie_tgt_out": ({"tie": "tgt_out"}, LINEARS + SCALENORMS + "src_embed.weight 7x4"),
    "tie_none": (
        {"tie": "none"},
        LINEARS + SCALENORMS + "src_embed.weight 7x4\nout_embed.weight 7x4",
    ),
    "geglu": (
        {"activation": "geglu"},
        LINEARS.replace("fc1.bias 6", "fc1.bias 12").replace("fc1.weight 6x4", "fc1.weight 12x4")
        + SCALENORMS,
    ),
}


def listing(values: dict[str, torch.Tensor]) -> list[str]:
    return sorted(
        f"{name} {'x'.join(str(size) for size in value.shape) or 'scalar'}"
        for name, value in values.items()
    )


def model_of(preset: str) -> Transformer:
    section = recipe.ModelConfig(**SIZES, **PRESETS[preset][0])
    return Transformer(model_config(section), 7)


@pytest.mark.parametrize("preset", PRESETS)
def test_names_and_shapes(preset):
    model = model_of(preset)
    assert listing(dict(model.named_parameters())) == sorted(
        filter(None, PRESETS[preset][1].split("\n"))
    )


@pytest.mark.parametrize("preset", PRESETS)
def test_a_checkpoint_holds_the_parameters_and_nothing_else(preset):
    model = model_of(preset)
    assert set(model.state_dict()) == {name for name, _ in model.named_parameters()}
