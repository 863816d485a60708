"""Names of keys in other toolkits lead to ours."""

from __future__ import annotations

import re

import pytest

from nmt.config.load import recipe_from_text
from nmt.config.other_toolkits import NAMES
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
    assert names & {*NAMES} == {"patience"}  # of schedule
    assert not OURS & {*NAMES}


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("epochs", "train.max_validations"),
        ("decode.beam_size", "decode.beam"),
        ("optim.learning-rate", "schedule.lr"),
        ("data.max_tokens", "data.batch_tokens"),
        ("model.hidden_size", "model.dim"),
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
