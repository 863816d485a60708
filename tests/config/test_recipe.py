"""Recipe keys: the defaults of the papers, rules between keys, and allowed values in words."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from nmt.config.recipe import (
    DataConfig,
    ModelConfig,
    OptimConfig,
    Recipe,
    ScoreConfig,
    SentencePieceConfig,
    TrainConfig,
    groups,
)
from nmt.config.schedules import Constant, InverseSqrt, LrRamp, ValDecay
from nmt.config.schema import keys_of, meanings
from nmt.model.layers import ACTIVATIONS
from nmt.model.norms import NORMS

DATA = DataConfig(train="a", dev="b")
MODELS = [
    (group, kind, model) for group, kinds in groups().items() for kind, model in kinds.items()
]


def recipe(**keys: Any) -> Recipe:
    return Recipe(**{"src": "gl", "tgt": "en", "data": DATA, **keys})


def test_defaults_are_those_of_transformers_without_tears():
    """T appendix A and table 1; dropout and sizes are those of every pair except gl-en."""
    assert ModelConfig().model_dump(include={"dim", "ffn_dim", "heads", "enc_layers"}) == {
        "dim": 512,
        "ffn_dim": 2048,
        "heads": 8,
        "enc_layers": 6,
    }
    model, optim = ModelConfig(), OptimConfig()
    assert (model.norm, model.norm_place, model.fixnorm) == ("scalenorm", "pre", True)
    assert (model.dropout, model.word_dropout, model.tie) == (0.3, 0.1, "src_tgt_out")
    assert (optim.betas, optim.eps, optim.label_smoothing) == ((0.9, 0.999), 1e-8, 0.1)
    assert (recipe().schedule, recipe().data.batch_tokens) == (InverseSqrt(), 4096)
    assert (TrainConfig().validate_every, TrainConfig().max_validations) == (1500, 200)


def test_every_allowed_name_is_in_the_table_of_classes():
    """A name that is missing in the table would fail only after data preparation."""
    assert set(NORMS) == {"layernorm", "rmsnorm", "scalenorm"}
    for key, table in (("norm", NORMS), ("extra_norm", NORMS), ("activation", ACTIVATIONS)):
        schema = ModelConfig.model_json_schema()["properties"][key]
        assert set(schema["enum"]) == set(table), key


@pytest.mark.parametrize(("group", "kind", "model"), MODELS)
def test_every_key_has_a_meaning_and_a_source(group: str, kind: str, model: type[BaseModel]):
    for name, field in keys_of(model).items():
        if kind and name == "kind":
            continue
        assert meanings(model)[name]
        assert isinstance(field.json_schema_extra, dict)
        assert field.json_schema_extra["source"], name


@pytest.mark.parametrize(
    ("model", "keys", "named"),
    [
        (ModelConfig, {"dim": 9, "heads": 9}, ["model.dim (9) must be even"]),
        (ModelConfig, {"dim": 9, "heads": 2}, ["model.heads (2)", "model.dim (9) must be even"]),
        (
            SentencePieceConfig,
            {"dropout": 0.1, "model_type": "unigram"},
            ["dropout requires model_type: bpe; for unigram, set sampling_alpha: 0.2"],
        ),
        (SentencePieceConfig, {"sampling_alpha": 0.1}, ["sampling_alpha requires model_type"]),
        (
            SentencePieceConfig,
            {"sampling_alpha": 0.1, "dropout": 0.1, "model": "a.model"},
            ["sampling_alpha and dropout exclude each other"],
        ),
        (
            recipe,
            {"segment": {"dropout": 0.1}, "data": DATA.model_copy(update={"rebatch": False})},
            ["data.rebatch: false excludes segment.dropout"],
        ),
        (
            recipe,
            {"data": {"train": ["t", "u"], "dev": "d", "temperature": 5, "rebatch": False}},
            ["data.rebatch: false excludes data.temperature"],
        ),
        (
            recipe,
            {"segment": {"dropout": 0.1}, "task": "masked_lm", "tgt": ""},
            ["segment.dropout and segment.sampling_alpha", "task: masked_lm"],
        ),
    ],
)
def test_contradictions_name_every_key(
    model: type[BaseModel], keys: dict[str, Any], named: list[str]
):
    with pytest.raises(ValidationError) as error:
        model(**keys)
    assert all(name in str(error.value) for name in named)


def test_valid_combinations_are_accepted():
    assert ModelConfig(scalenorm_gain="fixed", norm="scalenorm").scalenorm_gain == "fixed"
    assert ModelConfig(extra_norm="rmsnorm", qkv_norm=True).extra_norm == "rmsnorm"
    assert ModelConfig(normformer=True, ffn_norm=True).head_scale
    assert ScoreConfig(metrics=["ter"], select_by="tokenized_bleu").metrics == ["ter"]
    for name in ("bleu", "chrf", "chrf++"):  # each can be asked for by this key alone
        assert name in ScoreConfig(select_by=name).metrics
    with pytest.raises(ValidationError):
        ScoreConfig(select_by="chrf++", metrics=["chrf"])
    assert recipe(schedule=LrRamp(lr_per_update=1e-9)).train.min_lr == 1e-6
    assert recipe(schedule=Constant(lr=1e-6)).train.min_lr == 1e-6


@pytest.mark.parametrize("schedule", [Constant(lr=9e-7), ValDecay(scale=1e-3)])
def test_a_learning_rate_always_below_the_minimum_is_an_error(schedule: Any):
    with pytest.raises(ValidationError, match=r"train.min_lr \(1e-06\) is above"):
        recipe(schedule=schedule)
    assert recipe(schedule=schedule, train=TrainConfig(min_lr=0)).schedule == schedule


def test_a_recipe_cannot_be_changed():
    with pytest.raises(ValidationError, match="frozen"):
        recipe().seed = 2
