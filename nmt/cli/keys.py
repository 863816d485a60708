"""README's key table and the JSON schema for editors, made from nmt/config.py.

``python -m nmt.cli.keys --write`` refreshes both; a test says when they are stale.
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
from nmt.cli.main import run_command
from nmt.config import Recipe, groups
from nmt.errors import UserError
from nmt.schema import allowed, keys_of, shown

BEGIN, END = "<!-- keys:begin -->", "<!-- keys:end -->"


def table() -> str:
    """All keys as Markdown tables, one per group and kind."""
    parts = [_group("top level", Recipe, leave_out=groups())]
    for name, kinds in groups().items():
        for kind, model in kinds.items():
            title = f"`{name}` with `kind: {kind}`" if kind else f"`{name}`"
            # the kind is in the title
            parts.append(_group(title, model, leave_out={"kind": ""} if kind else {}))
    return "\n\n".join(parts)


def schema() -> str:
    """The JSON schema of a recipe, for editors."""
    recipe = Recipe.model_json_schema(by_alias=True)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return json.dumps(head | _for_editors(recipe), indent=1) + "\n"


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
    return "required" if field.is_required() else shown(field.default) or "empty"


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
    p = argparse.ArgumentParser(prog="nmt.cli.keys", description="Print or refresh the key table.")
    p.add_argument("--write", action="store_true", help="refresh README.md and docs/")
    return run_command(body, p, argv)


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
    return 0


if __name__ == "__main__":
    sys.exit(main())
