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


def test_a_recipe_without_task_is_translation_and_may_be_selected_by_perplexity():
    text = "src: gl\ntgt: en\ndata: {train: a, dev: b}\n"
    recipe = recipe_from_text(text, "r.yaml")
    assert (recipe.task, recipe.translates, recipe.score.select_by) == ("translation", True, "bleu")
    assert recipe_from_text(f"{text}score: {{select_by: ppl}}\n", "r.yaml").score.select_by == "ppl"


@pytest.mark.parametrize("task", TASKS)
def test_a_language_model_has_one_language_and_is_selected_by_perplexity(task: str):
    recipe = recipe_from_text(TEXT.format(task), "r.yaml")
    assert (recipe.tgt, recipe.score.select_by) == ("", "ppl")
    assert not recipe.translates
    assert recipe_from_text(dump_recipe(recipe), "config.yaml") == recipe


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("tgt: gl", "4:1: tgt: gl has no effect with task: {}"),
        ("model: {src_eos: false}", "4:9: model.src_eos has no effect with task: {}"),
        ("decode: {beam: 9}", "4:10: decode.beam has no effect with task: {}"),
        ("score: {metrics: [chrf]}", "4:9: score.metrics has no effect with task: {}"),
        ("score: {select_by: bleu}", "4:9: score.select_by: bleu needs translations"),
        (
            "model: {enc_layers: 2, dec_layers: 2, tie: tgt_out}",
            "model.{other}_layers has no effect with task: {}",
        ),
    ],
)
def test_keys_of_translation_or_of_the_other_stack_are_refused(task, line, message):
    other = "enc" if task == "causal_lm" else "dec"
    found = errors_of(TEXT.format(task) + line + "\n")
    assert message.format(task, other=other) in found
    assert ("model.tie" in found) == ("tie" in line)


def test_blocks_are_of_language_models_and_an_unknown_task_lists_the_tasks():
    text = "src: gl\ntgt: en\ndata: {train: a, dev: b, block: 64}\n"
    assert "3:26: data.block has no effect with task: translation" in errors_of(text)
    assert "translation, causal_lm or masked_lm" in errors_of(TEXT.format("mt"))
