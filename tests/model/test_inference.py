"""Layers prepared for inference: the same numbers in fp32, close ones in bf16."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from nmt.model import transformer
from nmt.model.config import ModelConfig
from nmt.model.cpu import inference
from nmt.model.cpu.active_rows import ROW_MULTIPLE, ActiveRows
from nmt.model.cpu.inference import InferenceLinear, output_projection, packed_linear
from nmt.model.transformer import Transformer
from tests.decoding.untrained import LINES, untrained

pytestmark = pytest.mark.cpu


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 5, 300])
@pytest.mark.parametrize("packable", [True, False])
def test_packed_linear_equals_the_linear_layer(bias, rows, packable, monkeypatch):
    """With packed weights, and as on a torch without the packing operations."""
    if not packable:
        monkeypatch.setattr(inference, "ONEDNN_OPS", ("no_such_operation",) * 2)
    rng = torch.Generator().manual_seed(1)
    x, weight = torch.randn(rows, 24, generator=rng), torch.randn(37, 24, generator=rng)
    shift = torch.randn(37, generator=rng) if bias else None
    expected = F.linear(x, weight, shift)
    for dtype, atol in (
        (torch.float32, 1e-5),
        (torch.bfloat16, 0.3),  # 24 products of up to 10, of 8 and 11 significant bits
        (torch.float16, 0.05),
        (torch.float64, 1e-5),
    ):
        for relu, result in ((False, expected), (True, expected.relu())):
            found = packed_linear(weight, shift, dtype, relu)(x)
            assert found.dtype == dtype
            torch.testing.assert_close(found.float(), result, rtol=0, atol=atol)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("relu", [True, False])
def test_few_and_many_rows_have_the_same_results_and_share_no_more_memory(bias, relu):
    plain = torch.nn.Linear(24, 37, bias=bias)
    layer = InferenceLinear(plain, torch.float32, relu)
    x = torch.randn(inference.FEW_ROWS + 1, 24, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = plain(x).relu() if relu else plain(x)
        torch.testing.assert_close(layer(x), expected, rtol=0, atol=1e-5)
        torch.testing.assert_close(layer(x[:-1]), expected[:-1], rtol=0, atol=1e-5)
        torch.testing.assert_close(layer(x[None, :3]), expected[None, :3], rtol=0, atol=1e-5)
    assert torch.equal(layer.weight, plain.weight)
    assert layer.weight.t().is_contiguous()  # a view of what few rows are multiplied with


@pytest.mark.parametrize(("types", "computed"), [(64, 64), (127, 128), (129, 129), (1025, 1088)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logits_are_padded_to_a_multiple_of_types(types, computed, dtype, monkeypatch):
    """Except where that adds over a sixteenth; the padding has logits of -inf."""
    widths = []

    def watched(weight, *args):
        widths.append(len(weight))
        return packed_linear(weight, *args)

    monkeypatch.setattr(inference, "packed_linear", watched)
    rng = torch.Generator().manual_seed(1)
    x, rows = torch.randn(9, 24, generator=rng), torch.randn(types, 24, generator=rng)
    bias = torch.randn(types, generator=rng)
    found = output_projection(rows, bias, dtype)(x)
    assert widths == [computed]
    assert found.shape == (9, computed)
    assert bool(found[:, types:].isneginf().all())
    atol = 1e-5 if dtype == torch.float32 else 0.5
    torch.testing.assert_close(found[:, :types].float(), F.linear(x, rows, bias), rtol=0, atol=atol)


def test_a_model_prepared_for_inference_translates_and_scores_as_before():
    plain, prepared = untrained(), untrained()
    prepared.transformer.prepare_for_inference(torch.float32)
    layers = [m for m in prepared.transformer.modules() if isinstance(m, InferenceLinear)]
    assert len(layers) == 4 + 2 * 7  # encoder layer: qkv, out, fc1, fc2; decoder: q, kv, out too
    assert not any(isinstance(m, torch.nn.Linear) for m in prepared.transformer.modules())
    assert prepared.engine.model_hash() == plain.engine.model_hash()
    translations = plain.translate(LINES)
    assert prepared.translate(LINES) == translations
    for ours, theirs in zip(
        prepared.score(LINES, translations), plain.score(LINES, translations), strict=True
    ):
        assert ours.log_prob == pytest.approx(theirs.log_prob, abs=1e-4)


@pytest.mark.parametrize("keys", [{"activation": "gelu"}, {"ffn_norm": True}, {"bias": False}])
def test_only_a_plain_relu_is_fused_into_the_product(keys):
    """With another activation or a norm after it, the product stays linear."""
    rng = torch.Generator().manual_seed(3)
    for of_model in ({}, keys):
        model = Transformer(ModelConfig(dim=16, ffn_dim=24, heads=2, **of_model), 9)
        model.init_weights(rng)
        ffn, x = model.encoder.layers[0].ffn.eval(), torch.randn(5, 16, generator=rng)
        with torch.no_grad():
            expected = ffn(x)
            model.prepare_for_inference(torch.float32)
            torch.testing.assert_close(ffn(x), expected, rtol=0, atol=1e-5)
            assert (ffn.fc1(x).amin() == 0) == ("bias" in of_model or not of_model)


@pytest.mark.slow
def test_a_model_prepared_for_inference_packs_its_output_projection_once(monkeypatch):
    """Once for the types of a plain search and once for all; other models pack at each call."""
    made = []
    monkeypatch.setattr(
        transformer,
        "output_projection",
        lambda *args: made.append(len(args[0])) or output_projection(*args),
    )
    plain, prepared = untrained(), untrained()
    prepared.transformer.prepare_for_inference(torch.float32)
    for _ in range(3):
        prepared.translate(LINES, batch_tokens=40)
        prepared.translate(LINES, no_repeat_ngram=2)
    types = prepared.transformer.allowed
    assert made == [int(types.sum()), len(types)]
    made.clear()
    plain.translate(LINES)
    plain.translate(LINES)
    assert len(made) > 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_used_in_search_and_in_scores(dtype):
    """In fp16, which the kernels do not support, by torch's operations."""
    exact, rounded = untrained(), untrained()
    rounded.transformer.prepare_for_inference(dtype)
    found = [best[0] for best in rounded.stream(LINES)]
    scored = rounded.score(LINES, [h.text for h in found])
    same = exact.score(LINES, [h.text for h in found])
    for one, again, before in zip(found, scored, same, strict=True):
        if one.finished:
            assert one.log_prob == pytest.approx(again.log_prob, abs=25 * torch.finfo(dtype).eps)
        assert again.log_prob == pytest.approx(before.log_prob, abs=200 * torch.finfo(dtype).eps)
    assert [h.log_prob for h in scored] != [h.log_prob for h in same]


def test_active_rows_keep_their_values():
    rng = torch.Generator().manual_seed(2)
    for total in (1, 7, 8, 40, 65):
        x = torch.arange(total)
        for share in (0.0, 0.1, 0.5, 0.9, 1.0):
            needed = torch.rand(total, generator=rng) < share
            rows = ActiveRows.of(needed[:, None, None], needed[:, None])
            taken = rows.flat(x[:, None])
            assert len(taken) == total or len(taken) % ROW_MULTIPLE == 0
            assert len(taken) - needed.sum() < ROW_MULTIPLE or len(taken) == total
            spread = rows.pad(taken)[:, 0]
            assert len(spread) == total
            assert torch.equal(spread[needed], x[needed])


def test_an_inactive_row_repeats_the_last_active_one():
    """The first position relies on it: only the first beam of each sentence is active."""
    needed = torch.zeros(16, 5, dtype=torch.bool)
    needed[:, 0] = True
    rows, all_rows = ActiveRows.of(needed[..., None], needed), torch.arange(80).view(16, 5)
    assert torch.equal(rows.pad(rows.flat(all_rows)), all_rows // 5 * 5)
