"""What every group of recipe keys is built from, and what its keys may hold, in words."""

from __future__ import annotations

import functools
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic.fields import FieldInfo


class ConfigBase(BaseModel):
    """A group of recipe keys: frozen, unknown keys forbidden, defaults checked like values."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False
    )


def option(default: Any, meaning: str, source: str, form: str | None = None, **limits: Any) -> Any:
    """One recipe key: default (``...`` = required), one-sentence meaning, where it comes from.

    ``source`` names paper and place (T = Transformers without Tears, N = NormFormer, A = T's
    released code, V = Vaswani et al. 2017, W = Wu et al. 2016, O = ours). ``form`` says in words
    what a text must be. ``limits`` are pydantic's (``gt``, ``ge``, ``pattern``, ...). The key table
    of README is generated from these fields.
    """
    extra: dict[str, JsonValue] = {"source": source}
    if form:
        extra["form"] = form
    return Field(default, description=meaning, json_schema_extra=extra, **limits)


def check_rules(*rules: tuple[bool, str]) -> None:
    """Raise for every rule between keys that is broken: (is it broken?, what to say).

    Raises:
        ValueError: the texts of the broken rules, one a line.
    """
    if broken := [text for is_broken, text in rules if is_broken]:
        raise ValueError("\n".join(broken))


def keys_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The keys of a group as a recipe writes them."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def allowed(model: type[BaseModel], name: str, item: bool = False) -> str:
    """What a key may hold, for people: ``a number of at least 0 and below 1``.

    Args:
        model: the group.
        name: the key.
        item: what an item of the key's list may hold instead.
    """
    schema = _properties(model)[name]
    lists = [s for s in schema.get("anyOf", [schema]) if s.get("type") == "array"]
    return _phrase(_item(lists[0]) if item and lists else schema)


def format_value(value: Any) -> str:
    """A value as a recipe writes it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(format_value, value))}]"
    return str(value)


def join_or(words: list[str]) -> str:
    """``a, b or c``."""
    return " or ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)


@functools.cache
def _properties(model: type[BaseModel]) -> dict[str, Any]:
    properties: dict[str, Any] = model.model_json_schema(by_alias=True)["properties"]
    return properties


def _item(array: dict[str, Any]) -> dict[str, Any]:
    item: dict[str, Any] = array["prefixItems"][0] if "prefixItems" in array else array["items"]
    return item


def _phrase(schema: dict[str, Any]) -> str:
    """A JSON schema in words."""
    if "form" in schema:
        return str(schema["form"])
    if "anyOf" in schema:
        phrases = [_phrase(choice) for choice in schema["anyOf"]]
        return (", or " if " " in phrases[0] else " or ").join(phrases)
    if "enum" in schema:
        return join_or(schema["enum"])
    kind = schema.get("type")
    if kind in ("integer", "number"):
        return ("an integer" if kind == "integer" else "a number") + _range(schema)
    if kind == "array":
        some = "one or more" if schema.get("minItems") else "any number"
        count = schema["maxItems"] if "prefixItems" in schema else some
        return f"a list of {count}, each {_phrase(_item(schema))}"
    return {"boolean": "true or false", "string": "text", "null": "none"}.get(
        str(kind), "a group of keys"
    )


def _range(schema: dict[str, Any]) -> str:
    words = {
        "minimum": "of at least",
        "exclusiveMinimum": "above",
        "maximum": "at most",
        "exclusiveMaximum": "below",
    }
    limits = [f"{word} {schema[name]}" for name, word in words.items() if name in schema]
    return f" {' and '.join(limits)}" if limits else ""
