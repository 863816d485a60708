"""From the ``model`` section of a recipe to the settings of a model, which knows no recipes."""

from __future__ import annotations

from dataclasses import fields

from nmt.config import recipe
from nmt.errors import UserError
from nmt.model.config import ModelConfig

PRESET = "normformer"  # of the recipe; its keys are taken one by one


def model_config(section: recipe.ModelConfig) -> ModelConfig:
    """Return the settings of a model from a checked section, where presets are already expanded.

    Raises:
        UserError: the section has a key that no model knows, which would have no effect.
    """
    names = [field.name for field in fields(ModelConfig)]
    if lost := type(section).model_fields.keys() - {*names, PRESET}:
        what = f"no model knows the key {', '.join(sorted(lost))}"
        raise UserError(what, at="model", fix="add it to nmt.model.config.ModelConfig")
    return ModelConfig(**{name: getattr(section, name) for name in names})
