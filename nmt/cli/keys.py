"""README's key table and the JSON schema for editors, made from nmt/config.py.

``python -m nmt.cli.keys --write`` refreshes both; a test says when they are stale.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from nmt.cli.main import run_command
from nmt.config import SEGMENT_KINDS, Recipe
from nmt.errors import UserError
from nmt.training.schedules import SCHEDULES

BEGIN, END = "<!-- keys:begin -->", "<!-- keys:end -->"
KINDS: dict[str, dict[str, type[BaseModel]]] = {"segment": SEGMENT_KINDS, "schedule": SCHEDULES}


def table() -> str:
    """All keys as Markdown tables, one per group."""
    parts = [_group("top level", _top_level())]
    for name, field in Recipe.model_fields.items():
        if name in KINDS:
            parts += [
                _group(f"`{name}` with `kind: {kind}`", model.model_fields.items())
                for kind, model in KINDS[name].items()
            ]
        elif isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            parts.append(_group(f"`{name}`", field.annotation.model_fields.items()))
    return "\n\n".join(parts)


def schema() -> str:
    """The JSON schema of a recipe."""
    return json.dumps(Recipe.model_json_schema(by_alias=True), indent=1) + "\n"


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


def _top_level() -> Iterator[tuple[str, FieldInfo]]:
    for name, field in Recipe.model_fields.items():
        if field.description:
            yield name, field


def _group(title: str, fields: Any) -> str:
    rows = [
        f"| {field.alias or name} | {_default(field)} | {_meaning(field)} | {_source(field)} |"
        for name, field in fields
        if field.description
    ]
    return "\n".join(
        [f"**{title}**", "", "| key | default | meaning | source |", "|---|---|---|---|", *rows]
    )


def _default(field: FieldInfo) -> str:
    value = field.default
    if value is PydanticUndefined:
        return "required"
    if value is None or value == "":
        return "none" if value is None else "empty"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(str, value))}]"
    return str(value)


def _meaning(field: FieldInfo) -> str:
    """The description, after the values allowed if they are few."""
    choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    if len(choices) < 2:
        return str(field.description)
    return f"{', '.join(f'`{c}`' for c in choices)}: {field.description}"


def _source(field: FieldInfo) -> str:
    extra = field.json_schema_extra
    return str(extra["source"]) if isinstance(extra, dict) else ""


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
    readme = Path("README.md")
    readme.write_text(insert(readme.read_text(encoding="utf-8")), encoding="utf-8")
    Path("docs/recipe.schema.json").write_text(schema(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
