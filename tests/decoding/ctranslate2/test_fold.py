"""The folded model, as a Transformer, computes what the original model computes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from nmt.decoding.ctranslate2.fold import fold
from nmt.errors import UserError
from nmt.model.transformer import Transformer
from tests.decoding.ctranslate2.cases import GRID, OTHERS
from tests.model_cases import ALLOWED, SOURCES, TARGETS, TYPES, batch_of, build, short, tiny

VARIANTS = [*GRID, *OTHERS]


@pytest.fixture(autouse=True)
def _fp64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def folded(model: Transformer) -> Transformer:
    """Return the folded model, without a logit mask."""
    config, weights = fold(model.state_dict(), model.config, model.allowed)
    copy = Transformer(config, TYPES).eval()
    copy.load_state_dict(weights)
    return copy


def original(seed: int = 1, noise: float = 0.3, **keys: Any) -> Transformer:
    # folding a residual scale is exact except for epsilon, so epsilon is tiny here
    eps = {"norm_eps": 1e-12} if keys.get("res_scale") else {}
    return build(tiny(**{**keys, **eps}), seed, noise)


def same(model: Transformer, copy: Transformer) -> bool:
    batch = batch_of(SOURCES, TARGETS)
    with torch.no_grad():
        ours, theirs = (m(*batch.inputs).log_softmax(-1) for m in (model, copy))
    possible = ours > -1e3  # a masked type has -1e4
    assert torch.equal(possible, theirs > -1e3)
    return torch.allclose(ours[possible], theirs[possible], rtol=0, atol=1e-10)


@pytest.mark.parametrize("keys", VARIANTS, ids=short)
def test_the_folded_model_is_equivalent(keys):
    model = original(**keys)
    copy = folded(model)
    config = copy.config
    assert config.norm != "scalenorm"
    kept = (config.fixnorm, config.head_scale, config.logit_mask, config.res_scale)
    assert kept == (False, False, False, "none")
    assert same(model, copy)


@pytest.mark.parametrize("place", ["pre", "post"])
@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm", "scalenorm"])
def test_residual_scales_may_be_negative(place, norm):
    model = original(norm=norm, norm_place=place, res_scale="scalar")
    scales = [p for name, p in model.named_parameters() if name.endswith("_res.scale")]
    assert len(scales) == 2 * 2 + 2 * 3
    with torch.no_grad():
        for number, scale in enumerate(scales):
            scale.fill_((-1.5, 0.4, -0.7, 2.0, 1.2)[number % 5])
    assert same(model, folded(model))


def test_the_comparison_notices_each_folded_part():
    """A small change to gains, heads, residuals, tables or the mask makes the comparison fail."""
    model = original(head_scale=True, res_scale="scalar")
    copy = folded(model)
    for name in ("decoder.norm.weight", "encoder.layers.0.self_attn.out.weight",
                 "decoder.layers.1.cross_attn.out.bias", "embed.weight", "out_bias"):  # fmt: skip
        with torch.no_grad():
            weight = copy.get_parameter(name)
            before = weight.clone()
            weight[: len(weight) // 2] *= 1.01
            assert not same(model, copy), name
            weight.copy_(before)
    assert same(model, copy)


def test_a_residual_scale_of_zero_is_an_error():
    model = original(res_scale="scalar")
    with torch.no_grad():
        model.get_parameter("decoder.layers.1.ffn_res.scale").zero_()
    with pytest.raises(UserError, match=r"decoder\.layers\.1\.ffn_res\.scale"):
        folded(model)


def test_folding_does_not_change_the_original_weights():
    model = original(head_scale=True)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    folded(model)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert list(ALLOWED) == model.allowed.tolist()
