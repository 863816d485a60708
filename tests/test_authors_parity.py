"""Parity with the released code of "Transformers without Tears", guarded by stored numbers.

tests/fixtures/authors.json stores the results of that code (github.com/tnq177/
transformers_without_tears at the commit named in the file; this repository has no part of it).
Weights and batches are made here from a seed. The results are log-probabilities, losses, gradients,
parameter counts and beam-search output, for ScaleNorm and LayerNorm, PreNorm and PostNorm, with and
without FixNorm. The language embedding, which the paper does not have, was zero. The beam search
ran one sentence at a time, because in that code the length limit depends on the batch. ``initial``
describes how that code starts a larger model: size, mean and standard deviation of each group of
parameters.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nmt.config.recipe import OptimConfig
from nmt.data.batches import Batch, collate_sources
from nmt.data.vocab import BOS, EOS, PAD
from nmt.decoding.options import SearchOptions
from nmt.decoding.search import beam_search
from nmt.model.config import ModelConfig
from nmt.model.layout import Layout
from nmt.model.transformer import Transformer
from nmt.training.loss import token_losses

pytestmark = pytest.mark.cpu

STORED = json.loads((Path(__file__).parent / "fixtures/authors.json").read_text())
V, D, F, HEADS, LAYERS = 40, 32, 64, 4, 2


def config_of(case: dict[str, Any]) -> ModelConfig:
    return ModelConfig(
        dim=D,
        ffn_dim=F,
        heads=HEADS,
        enc_layers=LAYERS,
        dec_layers=LAYERS,
        norm=case["norm"],
        norm_place=case["norm_place"],
        fixnorm=case["fixnorm"],
        dropout=0.0,
        word_dropout=0.0,
    )


def model_of(case: dict[str, Any]) -> Transformer:
    """Return a model with weights from a seed, in the order of their names; gains near 1."""
    rng = np.random.default_rng(20)
    allowed = rng.random(V) > 0.3
    allowed[:4] = [False, False, True, True]
    model = Transformer(config_of(case), V, allowed)
    weights = {}
    for name, tensor in sorted(model.state_dict().items()):
        noise = rng.normal(0, 0.08, tensor.shape)
        start = 0.0
        if name.endswith(".g"):
            start = D**0.5
        elif name.endswith("norm.weight"):
            start = 1.0
        weights[name] = torch.tensor(start + noise, dtype=torch.float32).view(tensor.shape)
    model.load_state_dict(weights)
    return model


def batch_of(model: Transformer) -> tuple[Batch, list[np.ndarray]]:
    rng = np.random.default_rng(21)
    types = np.flatnonzero(model.allowed.numpy())[2:]
    sources = [rng.integers(4, V, n) for n in (5, 3, 7)]
    targets = [rng.choice(types, n) for n in (4, 6, 2)]
    src, src_layout = collate_sources(sources)
    flat_in, flat_out = (
        torch.from_numpy(np.concatenate([np.r_[before, t, after] for t in targets]).astype(int))
        for before, after in (([BOS], []), ([], [EOS]))
    )
    layout = Layout.of([len(t) + 1 for t in targets])
    return Batch(src, src_layout, flat_in, flat_out, layout, np.arange(3)), sources


@pytest.mark.parametrize(
    "case", STORED["cases"], ids=lambda c: f"{c['norm']}-{c['norm_place']}-fix{c['fixnorm']}"
)
def test_our_numbers_equal_those_of_the_authors(case: dict[str, Any]):
    model = model_of(case)
    batch, sources = batch_of(model)
    logits = model(*batch.inputs)
    log_probs = logits.log_softmax(-1)[:, model.allowed]
    torch.testing.assert_close(log_probs, torch.tensor(case["log_probs"]), rtol=0, atol=1e-5)
    sums = token_losses(logits, batch.tgt_out, model.allowed, OptimConfig())
    (sums["smoothed"] / batch.tokens).backward()
    assert sum(p.numel() for p in model.parameters()) == case["parameters"]
    assert sums["smoothed"].item() / batch.tokens == pytest.approx(case["smoothed"], abs=1e-5)
    assert sums["nll"].item() / batch.tokens == pytest.approx(case["nll"], abs=1e-5)
    gradients = {name: p.grad for name, p in model.named_parameters()}
    assert sorted(gradients) == sorted(case["gradients"])
    for name, (norm, first) in case["gradients"].items():
        grad = gradients[name]
        assert grad is not None
        assert grad.norm().item() == pytest.approx(norm, abs=1e-5), name
        assert grad.flatten()[:4].tolist() == pytest.approx(first, abs=1e-5), name
    model.eval()
    for source, stored in zip(sources, case["beams"], strict=True):
        src, layout = collate_sources([source])
        limit = layout.lengths + 50
        with torch.no_grad():
            state = model.start_decoding(src, layout, 4, int(limit.max()))
            (found,) = beam_search(
                state, 4, limit, SearchOptions().penalty, torch.tensor([PAD, BOS]), n_best=4
            )
        assert [f.ids for f in found] == [ids for ids, _ in stored]
        assert [f.score for f in found] == pytest.approx([s for _, s in stored], abs=1e-4)


def initial_groups(case: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return the parameters of an untrained model, grouped by kind and stack."""
    sizes = {"dim": 128, "ffn_dim": 384, "heads": 4, "enc_layers": 2, "dec_layers": 2}
    model = Transformer(
        ModelConfig(**sizes, **{key: case[key] for key in ("norm", "norm_place", "fixnorm")}), 600
    )
    model.init_weights(torch.Generator().manual_seed(5))
    groups = defaultdict(list)
    for name, parameter in model.named_parameters():
        kind = re.sub(r"layers\.\d+\.", "", name)
        kind = re.sub(r"_attn\.(qkv|q|kv|out)\.", "_attn.", re.sub(r"\w+_res\.norm", "norm", kind))
        groups[kind].append(parameter.detach().double().flatten().numpy())
    return {kind: np.concatenate(parts) for kind, parts in groups.items()}


@pytest.mark.parametrize(
    "case", STORED["initial"], ids=lambda c: f"{c['norm']}-{c['norm_place']}-fix{c['fixnorm']}"
)
def test_our_initial_weights_have_the_distribution_of_the_authors(case: dict[str, Any]):
    """Means and standard deviations differ by at most five standard errors.

    Gains and biases start constant, so their deviation is 0 and they must be equal.
    """
    groups = initial_groups(case)
    assert sorted(groups) == sorted(case["groups"])
    for kind, (size, mean, std) in case["groups"].items():
        values = groups[kind]
        assert values.size == size, kind
        assert values.mean() == pytest.approx(mean, abs=5 * std * math.sqrt(2 / size), rel=1e-5)
        assert values.std() == pytest.approx(std, abs=5 * std / math.sqrt(size) + 1e-12), kind
