"""From a recipe to its task."""

from __future__ import annotations

import torch

from nmt.config.recipe import Recipe
from nmt.data.prepare import Prepared
from nmt.training.task import Model, Task
from nmt.training.translation import Translation

TASKS: dict[str, type[Task]] = {"translation": Translation}


def make_task(recipe: Recipe, prepared: Prepared, device: torch.device, precision: str) -> Task:
    """Return the task of a recipe on its prepared corpora."""
    return TASKS["translation"](recipe, prepared, device, precision)


def model_without_memory(recipe: Recipe, types: int) -> Model:
    """Return the model of a recipe on torch's meta device, where weights take no memory.

    Args:
        types: size of the vocabulary.
    """
    with torch.device("meta"):
        return TASKS["translation"].empty_model(recipe, types)
