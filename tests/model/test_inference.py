"""Layers prepared for inference: the same numbers in fp32, close ones in bf16."""

from __future__ import annotations

import pytest
import torch

from nmt.model import transformer
from nmt.model.inference import InferenceLinear, output_projection
from tests.decoding.untrained import LINES, untrained

pytestmark = pytest.mark.cpu


def test_a_model_prepared_for_inference_translates_and_scores_as_before():
    plain, prepared = untrained(), untrained()
    prepared.transformer.prepare_for_inference(torch.float32)
    assert prepared.engine.model_hash() == plain.engine.model_hash()
    translations = plain.translate(LINES)
    assert prepared.translate(LINES) == translations
    for ours, theirs in zip(
        prepared.score(LINES, translations), plain.score(LINES, translations), strict=True
    ):
        assert ours.log_prob == pytest.approx(theirs.log_prob, abs=1e-4)


@pytest.mark.slow
def test_a_model_prepared_for_inference_gathers_its_output_projection_once(monkeypatch):
    """Once for the types of a plain search and once for all; other models gather at each call."""
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
    exact, rounded = untrained(), untrained()
    rounded.transformer.prepare_for_inference(dtype)
    layers = [m for m in rounded.transformer.modules() if isinstance(m, InferenceLinear)]
    assert len(layers) == 4 + 2 * 7  # encoder layer: qkv, out, fc1, fc2; decoder: q, kv, out too
    assert not any(isinstance(m, torch.nn.Linear) for m in rounded.transformer.modules())
    found = [best[0] for best in rounded.stream(LINES)]
    scored = rounded.score(LINES, [h.text for h in found])
    same = exact.score(LINES, [h.text for h in found])
    for one, again, before in zip(found, scored, same, strict=True):
        if one.finished:
            assert one.log_prob == pytest.approx(again.log_prob, abs=25 * torch.finfo(dtype).eps)
        assert again.log_prob == pytest.approx(before.log_prob, abs=200 * torch.finfo(dtype).eps)
    assert [h.log_prob for h in scored] != [h.log_prob for h in same]
