"""The reference of recipe keys for docs/, generated from the classes that define the keys.

``python -m nmt.config.reference --write`` writes the tables of docs/recipe-keys.md, whose
introduction stays, and the two JSON schemas; a test fails when they are out of date.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from nmt import hooks
from nmt.config.entries import CorpusEntry, HeldOutEntry
from nmt.config.errors import allowed, format_value
from nmt.config.recipe import Recipe, groups
from nmt.config.schema import keys_of, meanings

DOCS = Path(__file__).parents[2] / "docs"
FIRST = "Top level"  # the first table; the text before it is written by hand
ENTRIES: dict[type[BaseModel], str] = {
    CorpusEntry: "`data.train` and `segment.learn_from`",
    HeldOutEntry: "`data.dev` and `data.test`",
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
                    parts.append(table(f"Each entry of {names}", entry, level=3))
    if more := hooks.find("reference"):
        parts += more.key_tables()
    return "\n\n".join(parts) + "\n"


def recipe_schema() -> str:
    """Return the JSON schema of a recipe."""
    return dump({"$schema": SCHEMA} | for_editors(Recipe.model_json_schema(by_alias=True)))


def files() -> dict[str, Callable[[], str]]:
    """Return the generated files of docs/, each with the function that makes it."""
    own = {"recipe-keys.md": key_tables, "recipe.schema.json": recipe_schema}
    more = hooks.find("reference")
    return {**own, **more.FILES} if more else own


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


def main() -> None:
    """Print the key tables, or write all three files to docs/."""
    parser = argparse.ArgumentParser(
        prog="python -m nmt.config.reference",
        description="Print the tables of recipe keys.",
        allow_abbrev=False,
    )
    parser.add_argument("--write", action="store_true", help=f"write docs/: {', '.join(files())}")
    write = parser.parse_args().write
    if not DOCS.is_dir():
        parser.exit(2, f"{DOCS}: no such folder\n  -> run this in a clone of the repository\n")
    elif not write:
        print(key_tables(), end="")
    else:
        for name, text in files().items():
            (DOCS / name).write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
