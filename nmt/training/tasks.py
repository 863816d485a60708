"""Make the task of a recipe."""

from __future__ import annotations

from typing import Any

import torch

from nmt.config.recipe import Recipe
from nmt.data.prepare import Prepared
from nmt.model.base import ModelBase
from nmt.training.freeze import choose_trained
from nmt.training.language_models import CausalLM, MaskedLM
from nmt.training.task import Task
from nmt.training.translation import Translation

TASKS: dict[str, type[Task[Any, Any]]] = {
    "translation": Translation,
    "causal_lm": CausalLM,
    "masked_lm": MaskedLM,
}


def make_task(
    recipe: Recipe, prepared: Prepared, device: torch.device, precision: str
) -> Task[Any, Any]:
    """Return the task of a recipe on its prepared corpora.

    Raises:
        UserError: the corpora have nothing to predict.
    """
    return TASKS[recipe.task](recipe, prepared, device, precision)


def model_without_memory(recipe: Recipe, vocab_size: int) -> ModelBase:
    """Return the model of a recipe on torch's meta device, where weights take no memory.

    Parameters that do not train (``init.freeze``, LoRA) do not require gradients.

    Args:
        vocab_size: number of types.

    Raises:
        UserError: a pattern of ``init.freeze`` or ``lora.targets`` is wrong.
    """
    with torch.device("meta"):
        model: ModelBase = TASKS[recipe.task].empty_model(recipe, vocab_size)
        choose_trained(model, recipe)
    return model
