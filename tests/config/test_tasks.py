"""The recipe key task: defaults, keys without effect, and stored runs without it."""

from __future__ import annotations

import pytest

from nmt.config.load import dump_recipe, recipe_from_text
from nmt.errors import UserError

TEXT = "task: {}\nsrc: en\ndata: {{train: a, dev: b}}\n"
TASKS = ("causal_lm", "masked_lm")


def errors_of(text: str) -> str:
    with pytest.raises(UserError) as error:
        recipe_from_text(text, "r.yaml")
    return str(error.value)


def test_a_recipe_without_task_is_translation():
    recipe = recipe_from_text("src: gl\ntgt: en\ndata: {train: a, dev: b}\n", "r.yaml")
    assert recipe.task == "translation"
    assert recipe.translates
    assert recipe.score.select_by == "bleu"


@pytest.mark.parametrize("task", TASKS)
def test_a_language_model_has_one_language_and_is_selected_by_perplexity(task: str):
    recipe = recipe_from_text(TEXT.format(task), "r.yaml")
    assert (recipe.tgt, recipe.score.select_by) == ("", "ppl")
    assert not recipe.translates
    assert recipe_from_text(dump_recipe(recipe), "config.yaml") == recipe


def test_translation_can_be_selected_by_perplexity():
    text = "src: gl\ntgt: en\ndata: {train: a, dev: b}\nscore: {select_by: ppl}\n"
    assert recipe_from_text(text, "r.yaml").score.select_by == "ppl"


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("tgt: gl", "4:1: tgt: gl has no effect with task: {}"),
        ("decode: {beam: 9}", "4:10: decode.beam has no effect with task: {}"),
        ("score: {metrics: [chrf]}", "4:9: score.metrics has no effect with task: {}"),
        ("score: {select_by: bleu}", "4:9: score.select_by: bleu needs translations"),
    ],
)
def test_keys_of_translation_are_refused(task: str, line: str, message: str):
    assert message.format(task) in errors_of(TEXT.format(task) + line + "\n")


@pytest.mark.parametrize(
    ("task", "key", "value"),
    [
        ("causal_lm", "enc_layers", "2"),
        ("masked_lm", "dec_layers", "2"),
        ("causal_lm", "tie", "tgt_out"),
    ],
)
def test_keys_of_the_other_stack_are_refused(task: str, key: str, value: str):
    found = errors_of(TEXT.format(task) + f"model: {{{key}: {value}}}\n")
    assert f"model.{key}" in found
    assert f"task: {task}" in found


def test_blocks_are_of_language_models():
    text = "src: gl\ntgt: en\ndata: {train: a, dev: b, block: 64}\n"
    assert "3:26: data.block has no effect with task: translation" in errors_of(text)


def test_an_unknown_task_lists_the_tasks():
    assert "translation, causal_lm or masked_lm" in errors_of(TEXT.format("mt"))
