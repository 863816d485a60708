"""How the keys of recipes are declared: a class for each group, with rules between its keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, WithJsonSchema
from pydantic.fields import FieldInfo


class ConfigBase(BaseModel):
    """A group of recipe keys: immutable, without unknown keys, defaults checked like values."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False
    )


def option(default: Any, meaning: str, source: str, form: str | None = None, **limits: Any) -> Any:
    """Return the field of one recipe key.

    Args:
        default: ``...`` = required.
        meaning: what the key does, with its unit; docs/recipe-keys.md prints it.
        source: paper and place: T = Transformers without Tears, A = T's released code,
            N = NormFormer, V = Vaswani et al. 2017, W = Wu et al. 2016, O = ours.
        form: what a text must look like, in words.
        limits: pydantic's (``gt``, ``ge``, ``pattern``, ...).
    """
    extra: dict[str, JsonValue] = {"source": source}
    if form:
        extra["form"] = form
    return Field(default, description=meaning, json_schema_extra=extra, **limits)


def check_rules(*rules: tuple[bool, str]) -> None:
    """Check rules between keys, each a pair (is it broken?, error message).

    Raises:
        ValueError: the messages of all broken rules, one a line.
    """
    if broken := [message for is_broken, message in rules if is_broken]:
        raise ValueError("\n".join(broken))


def keys_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the keys of a group under the names that a recipe uses."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def as_list(value: Any) -> Any:
    """Return the list of one item for a text or a path, any other value unchanged."""
    return [value] if isinstance(value, (str, Path)) else value


def item_or_list(item: dict[str, Any], form: str, **limits: int) -> WithJsonSchema:
    """Return the JSON schema of a key that holds one item or several.

    Args:
        item: JSON schema of an item.
        form: what the key may hold, in words.
        limits: of the list in JSON schema, such as ``minItems``.
    """
    several = {"type": "array", "items": item, **limits}
    return WithJsonSchema({"anyOf": [item, several], "form": form})
