"""A key of ModelConfig that nobody has thought of is refused wherever keys are listed.

If one of these tests fails for a new key, decide what it means for each list, and name it there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from nmt.apps.transformers.families import FAMILIES
from nmt.apps.transformers.folder import HubFolder
from nmt.apps.transformers.marian import check_fits
from nmt.apps.transformers.weights import model_keys
from nmt.config import model, recipe
from nmt.config.recipe import Recipe
from nmt.decoding.ctranslate2.engine import from_model
from nmt.decoding.ctranslate2.spec import check_supported
from nmt.errors import UserError
from nmt.model.config import ModelConfig
from nmt.store.model import Description
from nmt.store.parent import require_same_function
from tests.apps.transformers.folders import SIZES
from tests.decoding.ctranslate2.cases import made

NAME = "unheard_of"
PLAIN: dict[str, Any] = {"norm": "layernorm", "fixnorm": False}


@dataclass(frozen=True)
class NewConfig(ModelConfig):
    """The settings of a model with a key more."""

    unheard_of: bool = False


class NewSection(recipe.ModelConfig):
    """The group ``model`` of a recipe with a key more."""

    unheard_of: bool = False


def description(section: recipe.ModelConfig) -> Description:
    values = {"src": "gl", "tgt": "en", "data": {"train": "train", "dev": "dev"}}
    values["segment"] = {"kind": "sentencepiece"}
    return replace(Description.of(Recipe.model_validate(values), "u1", None), model=section)


def refused(call: Any, *arguments: Any) -> bool:
    try:
        call(*arguments)
    except UserError as error:
        return NAME in error.what
    return False


@pytest.mark.parametrize("value", [False, True])
def test_formats_refuse_a_new_key_of_any_value(value):
    keys = {**PLAIN, NAME: value}
    assert refused(check_supported, NewConfig(**keys))
    assert refused(check_fits, description(NewSection(**keys)))
    assert not refused(check_supported, ModelConfig(**PLAIN))
    assert not refused(check_fits, description(recipe.ModelConfig(**PLAIN)))


def test_a_parent_must_have_the_same_value_of_a_new_key():
    old, off, on = recipe.ModelConfig(), NewSection(), NewSection(unheard_of=True)
    for parent, child in ((off, on), (on, off), (on, old), (old, on)):
        assert refused(require_same_function, parent, child)
    assert not refused(require_same_function, on, on)


def test_a_section_does_not_lose_a_key_on_its_way_to_the_model(monkeypatch):
    assert refused(model.model_config, NewSection())
    monkeypatch.setattr(model, "ModelConfig", NewConfig)
    assert model.model_config(NewSection(unheard_of=True)).unheard_of is True


def test_a_conversion_refuses_a_new_key(tmp_path, monkeypatch):
    config = {**SIZES, "scale_embedding": True, "activation_function": "relu"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    for family in FAMILIES:
        assert not refused(model_keys, family, HubFolder(tmp_path))
        with monkeypatch.context() as patch:
            patch.setattr(recipe, "ModelConfig", NewSection)
            assert refused(model_keys, family, HubFolder(tmp_path))


@pytest.mark.slow
def test_torch_translates_with_a_new_key():
    translator = made(**PLAIN)
    transformer = translator.transformer
    transformer.config = NewConfig(**vars(transformer.config))
    arguments = transformer, translator.codec, SimpleNamespace(), 1
    assert refused(from_model, *arguments)  # so Translation and Translator.load use torch
