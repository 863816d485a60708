"""The recipes of a report as a table: all keys, with the differences from the defaults marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from nmt.config.errors import format_value
from nmt.config.recipe import Recipe, default_kind, groups
from nmt.config.schema import keys_of, meanings

# keys that say what is translated: their defaults are not settings that a run departs from
SUBJECT = ("src", "tgt", "data.train", "data.dev", "data.test")
PLACE = "out"


@dataclass(frozen=True)
class KeyRow:
    """A recipe key."""

    name: str  # with its group: model.dim
    values: list[str | None]  # of each recipe; None = the recipe does not have the key
    default: str | None  # None = the key is required
    changed: list[bool]  # whether each value differs from the default; False of a required key
    differs: bool  # whether the recipes differ
    meaning: str

    @property
    def marked(self) -> bool:
        """Whether a value differs from the default or from that of another recipe."""
        return any(self.changed) or self.differs

    @property
    def essential(self) -> bool:
        """Whether a short table has the key: it is marked, or says what is translated."""
        return self.marked or self.name in SUBJECT


def key_rows(recipes: Sequence[Recipe]) -> list[KeyRow]:
    """List the keys that at least one recipe has, in the order of docs/recipe-keys.md."""
    recipe_values = [_values(recipe) for recipe in recipes]
    names = list(dict.fromkeys(name for values in recipe_values for name in values))
    order = list(dict.fromkeys(name.partition(".")[0] for name in names))
    rows = []
    for name in sorted(names, key=lambda name: ("." in name, order.index(name.partition(".")[0]))):
        entries = [values.get(name) for values in recipe_values]
        texts = [entry and entry[0] for entry in entries]
        defaults = [entry and entry[1] for entry in entries]
        rows.append(
            KeyRow(
                name,
                texts,
                next((default for default in defaults if default is not None), None),
                [
                    default is not None and text != default and name not in (*SUBJECT, PLACE)
                    for text, default in zip(texts, defaults, strict=True)
                ],
                name != PLACE and len(set(texts)) > 1,
                next(entry[2] for entry in entries if entry),
            )
        )
    return rows


def _values(recipe: Recipe) -> dict[str, tuple[str, str | None, str]]:
    """Return the text of each key, that of its default, and its meaning."""
    dump = recipe.model_dump(by_alias=True)
    values = {}
    for name, field in keys_of(Recipe).items():
        if name not in groups():
            values[name] = (_text(dump[name]), _default(field), meanings(Recipe)[name])
            continue
        if not isinstance(dump[name], dict):  # a group that the recipe leaves out
            continue
        kinds = groups()[name]
        kind = "" if "" in kinds else dump[name]["kind"]
        for key, inner in keys_of(kinds[kind]).items():
            default = default_kind(name) if kind and key == "kind" else _default(inner)
            meaning = meanings(kinds[kind]).get(key, "")  # kind has none
            values[f"{name}.{key}"] = (_text(dump[name].get(key)), default, meaning)
    return values


def _default(field: FieldInfo) -> str | None:
    return None if field.is_required() else _text(field.get_default(call_default_factory=True))


def _text(value: Any) -> str:
    if isinstance(value, BaseModel):
        value = value.model_dump(by_alias=True)
    return format_value(value) or "empty"
