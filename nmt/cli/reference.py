"""Generate the reference of recipe keys and search options in docs/ from their classes.

``python -m nmt.cli.reference --write`` writes the tables of docs/recipe-keys.md, whose
introduction stays, the one of docs/search-options.md, and the two JSON schemas; a test fails when
they are out of date.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from nmt.config.entries import CorpusEntry, Entry, HeldOutEntry
from nmt.config.errors import allowed, format_value
from nmt.config.recipe import Recipe, SearchConfig, groups
from nmt.config.schema import keys_of, meanings
from nmt.config.variants import Budget, Paper, VariantKeys, VariantsKeys
from nmt.decoding.options import SearchOptions

DOCS = Path(__file__).parents[2] / "docs"
FIRST = "Top level"  # the first table; the text before it is written by hand
ENTRIES: dict[type[BaseModel], str] = {
    Entry: "`data.train`, `data.dev`, `data.test` and `segment.learn_from`",
    CorpusEntry: "`data.train` and `segment.learn_from`, in addition",
    HeldOutEntry: "`data.dev` and `data.test`, in addition",
}
VARIANTS = """\
## Files of variants

A file of variants lists changes to one or several recipes. Examples are in recipes/sweeps/ and
recipes/papers/. `nmt-sweep` trains all variants of a file. The keys after `variants` are for
`nmt-sweep` only."""
VARIANT_TABLES: dict[str, type[BaseModel]] = {
    "A file of variants": VariantsKeys,
    "Each entry of `variants`, in addition to recipe keys": VariantKeys,
    "`paper` of a variant": Paper,
    "`budget` of a file of variants": Budget,
}
SCHEMA = "https://json-schema.org/draft/2020-12/schema"


def key_tables() -> str:
    """Return docs/recipe-keys.md: its introduction and a table for each group and kind."""
    introduction = (DOCS / "recipe-keys.md").read_text(encoding="utf-8").partition(f"## {FIRST}")[0]
    parts = [introduction.rstrip(), table(FIRST, Recipe, omit=groups())]
    for name, kinds in groups().items():
        for kind, model in kinds.items():
            title = f"`{name}` with `kind: {kind}`" if kind else f"`{name}`"
            parts.append(table(title, model, omit=("kind",) if kind else ()))
            if name == "data":
                for entry, names in ENTRIES.items():
                    shared = () if entry is Entry else Entry.model_fields
                    parts.append(table(f"Each entry of {names}", entry, shared, level=3))
    parts.append(VARIANTS)
    parts += [table(title, model, level=3) for title, model in VARIANT_TABLES.items()]
    return "\n\n".join(parts) + "\n"


def recipe_schema() -> str:
    """Return the JSON schema of a recipe."""
    return dump({"$schema": SCHEMA} | for_editors(Recipe.model_json_schema(by_alias=True)))


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


def options_page() -> str:
    """Return docs/search-options.md: its text, and at the end the options without a decode key."""
    title = "Options that recipes do not have"
    text = (DOCS / "search-options.md").read_text(encoding="utf-8").partition(f"## {title}")[0]
    return text + table(title, SearchOptions, omit=SearchConfig.model_fields) + "\n"


FILES: dict[str, Callable[[], str]] = {
    "recipe-keys.md": key_tables,
    "recipe.schema.json": recipe_schema,
    "variants.schema.json": variants_schema,
    "search-options.md": options_page,
}
"""Generated files of docs/, each with the function that makes it."""


def table(title: str, model: type[BaseModel], omit: Collection[str] = (), level: int = 2) -> str:
    """Return a Markdown table of the keys of a group."""
    meaning = meanings(model)
    rows = ["| key | default | allowed | meaning | source |", "|---|---|---|---|---|"]
    for name, field in keys_of(model).items():
        if name not in omit:
            default = format_value(field.default) or "empty"
            extra = field.json_schema_extra
            cells = (
                name,
                "required" if field.is_required() else default,
                allowed(model, name),
                meaning[name],
                extra["source"] if isinstance(extra, dict) else "",
            )
            row = " | ".join(map(str, cells)).replace("<", "\\<")  # no HTML tags
            rows.append(f"| {row} |")
    return "\n".join([f"{'#' * level} {title}", "", *rows])


def for_editors(schema: Any) -> Any:
    """Return a schema that also accepts what recipes may write: ``none``, an empty group, no kind.

    pydantic's schema describes typed values, not the text of a recipe.
    """
    if isinstance(schema, list):
        return [for_editors(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "null":
        return {"enum": [None, "none"]}
    schema = {key: for_editors(value) for key, value in schema.items() if key != "discriminator"}
    if "oneOf" in schema:  # without a kind, keys may fit several
        schema["anyOf"] = schema.pop("oneOf")
    if schema.get("type") == "object":
        schema["type"] = ["object", "null"]
    return schema


def dump(schema: dict[str, Any]) -> str:
    """Return a JSON schema as text."""
    return json.dumps(schema, indent=1) + "\n"


def _all_optional(schema: Any) -> Any:
    """Return a schema without ``required`` at any level."""
    if not isinstance(schema, dict):
        return schema
    return {k: _all_optional(v) for k, v in schema.items() if k != "required"}


def main() -> None:
    """Print the key tables, or write all three files to docs/."""
    parser = argparse.ArgumentParser(
        prog="python -m nmt.cli.reference",
        description="Print the tables of recipe keys.",
        allow_abbrev=False,
    )
    parser.add_argument("--write", action="store_true", help=f"write docs/: {', '.join(FILES)}")
    write = parser.parse_args().write
    if not DOCS.is_dir():
        parser.exit(2, f"{DOCS}: no such folder\n  -> run this in a clone of the repository\n")
    elif not write:
        print(key_tables(), end="")
    else:
        for name, text in FILES.items():
            (DOCS / name).write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
