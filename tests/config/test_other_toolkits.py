"""Names of keys and options in other toolkits lead to ours."""

from __future__ import annotations

import re

import pytest

from nmt.config.load import recipe_from_text
from nmt.config.other_toolkits import NAMES, VALUES
from nmt.config.recipe import Recipe, groups
from nmt.config.schema import keys_of
from nmt.errors import UserError

MINIMAL = "src: gl\ntgt: en\ndata: {train: a/train, dev: a/dev}\n"
OURS = {*keys_of(Recipe)} | {
    f"{group}.{key}"
    for group, models in groups().items()
    for model in models.values()
    for key in keys_of(model)
}


def test_the_table_names_keys_that_exist():
    named = {key for ours in NAMES.values() for key in re.findall(r"\b[a-z]+\.[a-z_]+\b", ours)}
    assert named - {"gpus.md"} <= OURS
    assert {ours.split(",")[0] for ours in NAMES.values()} >= {"seed", "device", "precision", "out"}


def test_a_name_of_ours_is_not_taken_for_that_of_another_toolkit():
    names = {key.rpartition(".")[2] for key in OURS}
    assert names & {*NAMES} == {"patience", "alpha"}  # of schedule, of lora
    assert not OURS & {*NAMES}


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("epochs", "train.max_validations"),
        ("train.max_epoch", "train.max_validations"),
        ("beam_size", "decode.beam"),
        ("decode.beam_size", "decode.beam"),
        ("learning_rate", "schedule.lr"),
        ("optim.learning-rate", "schedule.lr"),
        ("max_steps", "schedule.total_updates"),
        ("train.patience", "train.stop_patience"),
        ("data.max_tokens", "data.batch_tokens"),
        ("model.hidden_size", "model.dim"),
        ("model.hiden_size", "model.dim"),
        ("decode.max_len", "decode.max_len_offset"),
        ("data.max_length", "data.max_pieces"),
        ("decode.max_length", "decode.max_len_offset"),
        ("fp16", "precision"),
    ],
)
def test_a_recipe_and_an_override_give_our_key(name: str, ours: str):
    group, _, key = name.rpartition(".")
    if group == "data":
        text = MINIMAL.replace("data: {", f"data: {{{key}: 3, ")
    else:
        text = MINIMAL + (f"{group}: {{{key}: 3}}" if group else f"{key}: 3")
    for args in ((text, "r.yaml"), (MINIMAL, "r.yaml", [f"{name}=3"])):
        with pytest.raises(UserError, match=rf"unknown key \"{name}\"; use {ours}\b"):
            recipe_from_text(*args)


@pytest.mark.parametrize(
    ("name", "value", "ours"),
    [
        ("schedule.kind", "noam", "inverse_sqrt"),
        ("segment.kind", "BPE", "fastbpe"),
        ("precision", "float16", "fp16"),
        ("device", "gpu", "cuda"),
    ],
)
def test_a_value_of_another_toolkit_gives_ours(name: str, value: str, ours: str):
    with pytest.raises(UserError, match=f'{name}: "{value}" is not .*; use "{ours}"'):
        recipe_from_text(MINIMAL, "r.yaml", [f"{name}={value}"])


def test_the_values_of_the_table_are_allowed():
    needed = ["schedule.lr=1", "schedule.total_updates=900"]
    for name, values in VALUES.items():
        for value in set(values.values()):
            more = {"linear": needed, "constant": needed[:1]}.get(value, [])
            recipe_from_text(MINIMAL, "r.yaml", [f"{name}={value}", *more])
