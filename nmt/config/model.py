"""From the ``model`` section of a recipe to the settings of a model, which knows no recipes."""

from __future__ import annotations

from dataclasses import fields

from nmt.config import recipe
from nmt.model.config import ModelConfig


def model_config(section: recipe.ModelConfig) -> ModelConfig:
    """Return the settings of a model from a checked section, where presets are already expanded."""
    return ModelConfig(
        **{field.name: getattr(section, field.name) for field in fields(ModelConfig)}
    )
