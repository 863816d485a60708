"""Observers return what their formulas say, and do not change the training."""

from __future__ import annotations

import math
import typing
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.cli.train import main
from nmt.config.recipe import AnalysisConfig, OptimConfig
from nmt.model.transformer import Transformer
from nmt.training.loss import token_losses
from nmt.training.observers import OBSERVERS
from tests.model_cases import SOURCES, TARGETS, batch_of, tiny
from tests.toy import toy_corpus, toy_recipe
from tests.training.helpers import records

EVERYTHING = ["grad_total", "grad_l1", "grad_l2", "gains", "head_scale", "res_scale"]


def model_with_gradients(**keys: Any) -> Transformer:
    model = Transformer(tiny(**keys), 12)
    batch = batch_of(SOURCES, TARGETS)
    sums = token_losses(model(*batch.inputs), batch.tgt_out, model.allowed, OptimConfig())
    sums["smoothed"].backward()
    return model


def test_the_recipe_allows_every_observer():
    allowed = typing.get_args(AnalysisConfig.model_fields["observe"].annotation)[0]
    assert list(typing.get_args(allowed)) == list(OBSERVERS) == EVERYTHING


def test_gradient_norms_are_those_of_the_gradients():
    model = model_with_gradients()
    name = "decoder.layers.1.ffn.fc2"
    gradient = model.get_parameter(f"{name}.weight").grad
    assert OBSERVERS["grad_l1"](model)[name].item() == pytest.approx(gradient.abs().sum().item())
    assert OBSERVERS["grad_l2"](model)[name].item() == pytest.approx(gradient.norm().item())
    squares = sum(p.grad.double().square().sum().item() for p in model.parameters())
    assert OBSERVERS["grad_total"](model)[""].item() == pytest.approx(math.sqrt(squares))


def test_gradients_of_exactly_the_weight_matrices_are_observed():
    model = model_with_gradients(normformer=True)
    matrices = {n.removesuffix(".weight") for n, p in model.named_parameters() if p.dim() == 2}
    assert "embed" in matrices
    assert set(OBSERVERS["grad_l1"](model)) == set(OBSERVERS["grad_l2"](model)) == matrices


def test_gains_of_scalenorm_are_g():
    model = Transformer(tiny(norm="scalenorm"), 12)
    with torch.no_grad():
        model.decoder.layers[1].cross_attn_res.norm.g.fill_(7.0)
    seen = OBSERVERS["gains"](model)
    assert seen.pop("decoder.layers.1.cross_attn_res.norm").item() == 7.0
    assert len(seen) == 2 * 2 + 2 * 3 + 2 - 1  # a g per sublayer and per stack
    assert {round(g.item(), 4) for g in seen.values()} == {round(math.sqrt(8), 4)}


def test_gains_of_other_norms_have_mean_and_deviation():
    model = Transformer(tiny(norm="layernorm", normformer=True), 12)
    with torch.no_grad():
        model.encoder.layers[0].ffn.norm.weight.copy_(torch.tensor([0.0, 2.0]).repeat(6))
    seen = OBSERVERS["gains"](model)
    name = "encoder.layers.0.ffn.norm"
    assert (seen[name].item(), seen[f"{name}.std"].item()) == (1.0, 1.0)
    assert seen["decoder.layers.0.self_attn_res.branch_norm.std"].item() == 0.0


def test_head_scale_and_res_scale():
    model = Transformer(tiny(head_scale=True, res_scale="ffn"), 12)
    with torch.no_grad():
        model.decoder.layers[1].cross_attn.head_scale[1].fill_(0.25)
        model.encoder.layers[1].ffn_res.scale.fill_(0.5)
    heads = OBSERVERS["head_scale"](model)
    assert heads.pop("decoder.layers.1.cross_attn.1").item() == 0.25
    assert {gamma.item() for gamma in heads.values()} == {1.0}
    assert len(heads) == 2 * (2 + 4) - 1
    assert OBSERVERS["res_scale"](model)["encoder.layers.1.ffn_res"].item() == 0.5
    assert OBSERVERS["head_scale"](Transformer(tiny(), 12)) == {}


@pytest.fixture
def recipe(tmp_path) -> Path:
    toy_corpus(tmp_path)
    return toy_recipe(tmp_path, {"model": {"normformer": True, "res_scale": "ffn"}})


@pytest.mark.slow
def test_observing_a_run_logs_the_observers_and_changes_no_loss(recipe, tmp_path):
    watched, plain = tmp_path / "watched", tmp_path / "plain"
    settings = ["analysis.every=3", f"analysis.observe=[{', '.join(EVERYTHING)}]"]
    assert main([str(recipe), f"out={watched}", *settings]) == 0
    assert main([str(recipe), f"out={plain}"]) == 0
    seen = records(watched, "observed")
    assert [record["update"] for record in seen] == [3, 6, 9, 12]
    assert {name.split("/")[0] for name in seen[0]} == {"kind", "update", *EVERYTHING}
    assert records(plain, "observed") == []
    losses = [[r["loss"] for r in records(run, "train")] for run in (watched, plain)]
    assert losses[0] == losses[1]
    # the norm before clipping at the third update is the observed one
    assert seen[0]["grad_total"] == pytest.approx(records(watched, "train")[2]["grad_norm"])


@pytest.mark.parametrize("setting", ["analysis.every=5", "analysis.observe=[gains]"])
def test_analysis_every_and_observe_require_each_other(recipe, setting, capsys):
    assert main([str(recipe), setting, "--dry-run"]) == 2
    assert "analysis.every and analysis.observe require each other" in capsys.readouterr().err


def test_an_unknown_observer_is_named(recipe, capsys):
    assert main([str(recipe), "analysis.every=5", "analysis.observe=[gain]", "--dry-run"]) == 2
    assert "gains" in capsys.readouterr().err
