"""The keys of files of variants for docs/: tables and a JSON schema."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from nmt import Recipe
from nmt.apps.sweep.variants import Budget, Paper, VariantKeys, VariantsKeys
from nmt.config.reference import SCHEMA, dump, for_editors, table


def key_tables() -> list[str]:
    """Write the part of docs/recipe-keys.md about files of variants."""
    parts = [
        "## Files of variants\n\nA file of variants lists changes to one or several recipes. "
        "Examples are in recipes/ablations/.\n`nmt-sweep` trains all variants of a file. The keys "
        "after `variants` are for `nmt-sweep` only."
    ]
    tables: dict[str, type[BaseModel]] = {
        "A file of variants": VariantsKeys,
        "Each entry of `variants`, in addition to recipe keys": VariantKeys,
        "`paper` of a variant": Paper,
        "`budget` of a file of variants": Budget,
    }
    parts += [table(title, model, level=3) for title, model in tables.items()]
    return parts


def variants_schema() -> str:
    """Return the JSON schema of a file of variants. A variant sets some keys of a recipe."""
    recipe = for_editors(Recipe.model_json_schema(by_alias=True))
    file, variant = (
        for_editors(m.model_json_schema(by_alias=True)) for m in (VariantsKeys, VariantKeys)
    )
    definitions = {**_all_optional(recipe.pop("$defs")), **variant.pop("$defs")}
    definitions["Part"] = {"properties": recipe["properties"]}
    part = {"$ref": "#/$defs/Part", "unevaluatedProperties": False}
    definitions |= file.pop("$defs")
    file["properties"]["common"] = part
    file["properties"]["corpora"]["patternProperties"] = dict.fromkeys(
        file["properties"]["corpora"]["patternProperties"], part
    )
    own = {"properties": variant["properties"], "required": variant["required"]}
    named = file["properties"]["variants"]
    named["patternProperties"] = dict.fromkeys(named["patternProperties"], part | own)
    named["additionalProperties"] = False
    return dump({"$schema": SCHEMA, **file, "$defs": definitions})


FILES = {"variants.schema.json": variants_schema}


def _all_optional(schema: Any) -> Any:
    """Return a schema without ``required`` at any level."""
    if not isinstance(schema, dict):
        return schema
    return {k: _all_optional(v) for k, v in schema.items() if k != "required"}
