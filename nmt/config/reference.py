"""README's key table and the JSON schemas for editors, made from the models of the keys.

``python -m nmt.config.reference --write`` refreshes them; a test says when they are stale.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

import nmt
from nmt.cli.common import run_command
from nmt.config.recipe import Recipe, groups
from nmt.config.schema import allowed, format_value, keys_of
from nmt.config.variants import Paper, VariantKeys, VariantsKeys
from nmt.errors import UserError

BEGIN, END = "<!-- keys:begin -->", "<!-- keys:end -->"


def table() -> str:
    """All keys as Markdown tables, one per group and kind."""
    parts = [_group("top level", Recipe, leave_out=groups())]
    for name, kinds in groups().items():
        for kind, model in kinds.items():
            title = f"`{name}` with `kind: {kind}`" if kind else f"`{name}`"
            # the kind is in the title
            parts.append(_group(title, model, leave_out={"kind": ""} if kind else {}))
    parts.append(_group("a file of variants", VariantsKeys, leave_out={}))
    parts.append(_group("each of its `variants`", VariantKeys, leave_out={}))
    parts.append(_group("`paper` of a variant", Paper, leave_out={}))
    return "\n\n".join(parts)


def schema() -> str:
    """The JSON schema of a recipe, for editors."""
    recipe = Recipe.model_json_schema(by_alias=True)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return json.dumps(head | _for_editors(recipe), indent=1) + "\n"


def variants_schema() -> str:
    """The JSON schema of a variants file, for editors: a variant is a part of a recipe."""
    recipe = json.loads(schema())
    file, variant = (
        _for_editors(m.model_json_schema(by_alias=True)) for m in (VariantsKeys, VariantKeys)
    )
    definitions = {**_without_required(recipe.pop("$defs")), **variant.pop("$defs")}
    definitions["Part"] = {"properties": recipe["properties"]}
    strict_part = {"$ref": "#/$defs/Part", "unevaluatedProperties": False}
    file["properties"]["common"] = strict_part
    own = {"properties": variant["properties"], "required": variant["required"]}
    named = file["properties"]["variants"]
    named["patternProperties"] = dict.fromkeys(named["patternProperties"], strict_part | own)
    named["additionalProperties"] = False
    whole = {"$schema": recipe["$schema"], **file, "$defs": definitions}
    return json.dumps(whole, indent=1) + "\n"


def _without_required(schema: Any) -> Any:
    """A schema of which parts may be left out."""
    if not isinstance(schema, dict):
        return schema
    return {k: _without_required(v) for k, v in schema.items() if k != "required"}


def insert(readme: str) -> str:
    """README with the key table between its markers.

    Raises:
        UserError: the markers are missing.
    """
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise UserError(f"no {BEGIN} ... {END}", at="README.md", fix="put the markers back")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def _group(title: str, model: type[BaseModel], leave_out: Mapping[str, Any]) -> str:
    rows = [
        f"| {name} | {_default(field)} | {allowed(model, name)} | {field.description} "
        f"| {_source(field)} |"
        for name, field in keys_of(model).items()
        if name not in leave_out
    ]
    head = ["| key | default | allowed | meaning | source |", "|---|---|---|---|---|"]
    return "\n".join([f"**{title}**", "", *head, *rows])


def _default(field: FieldInfo) -> str:
    return "required" if field.is_required() else format_value(field.default) or "empty"


def _source(field: FieldInfo) -> str:
    extra = field.json_schema_extra
    return str(extra["source"]) if isinstance(extra, dict) else ""


def _for_editors(schema: Any) -> Any:
    """What the loader takes beyond the strict types: ``none``, empty groups, a kind left out."""
    if isinstance(schema, list):
        return [_for_editors(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "null":
        return {"enum": [None, "none"]}
    schema = {key: _for_editors(value) for key, value in schema.items() if key != "discriminator"}
    if "oneOf" in schema:  # without a kind, keys may fit several
        schema["anyOf"] = schema.pop("oneOf")
    if schema.get("type") == "object":
        schema["type"] = ["object", "null"]
    return schema


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    p = argparse.ArgumentParser(
        prog="nmt.config.reference", description="Print or refresh the key table."
    )
    p.add_argument("--write", action="store_true", help="refresh README.md and docs/")
    return run_command(body, lambda: p, argv)


def body(args: argparse.Namespace) -> int:
    """Print the table, or write it where it belongs."""
    if not args.write:
        print(table())
        return 0
    root = Path(nmt.__file__).parents[1]
    readme = root / "README.md"
    if not readme.exists():
        raise UserError("no README.md", at=str(root), fix="run it in a clone of the repository")
    readme.write_text(insert(readme.read_text(encoding="utf-8")), encoding="utf-8")
    (root / "docs/recipe.schema.json").write_text(schema(), encoding="utf-8")
    (root / "docs/variants.schema.json").write_text(variants_schema(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
