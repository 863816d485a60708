"""Initialization: SmallInit and Xavier against equation 4 and section 2.2 of T."""

import math

import pytest
import torch

from nmt.model.transformer import Transformer
from tests.model_cases import ALL_N_PARTS, tiny
from tests.reference import small_init_std, xavier_std

DIM, FFN, TYPES = 48, 80, 300
SIZES = {"dim": DIM, "ffn_dim": FFN, "heads": 4, "enc_layers": 1, "dec_layers": 1}


def drawn(seed: int = 1, **keys: object) -> dict[str, torch.Tensor]:
    model = Transformer(tiny(**SIZES, **keys), TYPES)
    model.init_weights(torch.Generator().manual_seed(seed))
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def assert_normal(weight: torch.Tensor, std: float) -> None:
    # five standard errors of the mean and of the standard deviation
    count = weight.numel()
    assert weight.mean().item() == pytest.approx(0, abs=5 * std / math.sqrt(count))
    assert weight.std().item() == pytest.approx(std, rel=5 / math.sqrt(2 * count))
    # normal, not uniform: a uniform distribution ends at 1.73 standard deviations
    assert 2.5 * std < weight.abs().max().item() < 6 * std


ATTENTION_PARTS = ("self_attn.qkv", "self_attn.out", "cross_attn.q", "cross_attn.kv")


@pytest.mark.parametrize(
    ("init", "std"), [("small", small_init_std(DIM)), ("xavier", xavier_std(DIM, DIM))]
)
def test_attention_weights_are_drawn_with_their_own_deviation(init, std):
    """Also where several d x d matrices share one parameter."""
    weights = drawn(init=init)
    for part in (*ATTENTION_PARTS, "cross_attn.out"):
        assert_normal(weights[f"decoder.layers.0.{part}.weight"], std)
    assert_normal(weights["encoder.layers.0.self_attn.qkv.weight"], std)


@pytest.mark.parametrize("init", ["small", "xavier"])
def test_feed_forward_weights_are_xavier_either_way(init):
    weights = drawn(init=init)
    for part in ("fc1", "fc2"):
        assert_normal(weights[f"encoder.layers.0.ffn.{part}.weight"], xavier_std(DIM, FFN))


@pytest.mark.parametrize("tie", ["src_tgt_out", "none"])
def test_word_tables_without_fixnorm_sum_to_unit_variance(tie):
    weights = drawn(fixnorm=False, tie=tie)
    for name in (name for name in weights if name.endswith("embed.weight")):
        assert_normal(weights[name], math.sqrt(1 / DIM))


@pytest.mark.parametrize("tie", ["src_tgt_out", "none"])
def test_word_tables_under_fixnorm_are_uniform_within_a_hundredth(tie):
    weights = drawn(fixnorm=True, tie=tie)
    for name in (name for name in weights if name.endswith("embed.weight")):
        weight = weights[name]
        assert 0.0099 < weight.abs().max() <= 0.01
        assert weight.std().item() == pytest.approx(0.01 / math.sqrt(3), rel=0.02)


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm", "scalenorm"])
@pytest.mark.parametrize("res_scale", ["ffn", "all", "scalar"])
def test_gains_start_at_one_and_biases_at_zero(norm, res_scale):
    weights = drawn(norm=norm, extra_norm=norm, res_scale=res_scale, **ALL_N_PARTS)
    seen = set()
    for name, value in weights.items():
        kind = name.rsplit(".", 1)[-1]
        if kind == "g":
            width = FFN if name.endswith(".ffn.norm.g") else DIM
            torch.testing.assert_close(value, torch.full_like(value, math.sqrt(width)))
        elif kind in ("bias", "out_bias"):
            assert value.abs().max() == 0, name
        elif kind in ("head_scale", "scale") or "norm" in name:
            assert value.eq(1).all(), name
        else:
            continue
        seen.add(kind)
    assert {"head_scale", "scale", "bias"} <= seen
    assert ("g" in seen) == (norm == "scalenorm")


def test_weights_are_a_function_of_the_generator():
    one, same, other = drawn(1), drawn(1), drawn(2)
    assert all(one[name].equal(same[name]) for name in one)
    assert not one["embed.weight"].equal(other["embed.weight"])


def test_no_two_matrices_start_equal():
    weights = drawn()
    encoder = weights["encoder.layers.0.self_attn.qkv.weight"]
    assert not encoder.equal(weights["decoder.layers.0.self_attn.qkv.weight"])
    q, k, v = encoder.chunk(3)
    assert not q.equal(k)
    assert not k.equal(v)
