"""From a recipe to its task."""

from __future__ import annotations

from typing import Any

import torch

from nmt.config.recipe import Recipe
from nmt.model.base import ModelBase
from nmt.training.task import PreparedData, Task
from nmt.training.translation import Translation

TASKS: dict[str, type[Task[Any, Any]]] = {"translation": Translation}


def make_task(
    recipe: Recipe, prepared: PreparedData, device: torch.device, precision: str
) -> Task[Any, Any]:
    """Return the task of a recipe on its prepared corpora.

    Raises:
        UserError: the corpora have nothing to predict.
    """
    return TASKS[recipe.task](recipe, prepared, device, precision)


def model_without_memory(recipe: Recipe, types: int) -> ModelBase:
    """Return the model of a recipe on torch's meta device, where weights take no memory.

    Args:
        types: size of the vocabulary.
    """
    with torch.device("meta"):
        model: ModelBase = TASKS[recipe.task].empty_model(recipe, types)
    return model
