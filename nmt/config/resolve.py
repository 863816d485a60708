"""From what was written to a recipe: overrides and variants applied, text read by type, checked.

The schema decides the type of a value, not YAML: ``no`` stays the language "no", ``3e-4`` is a
number, ``1:30`` for a number is an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from nmt.config.errors import explain, kind_of
from nmt.config.recipe import Recipe, groups
from nmt.config.schema import keys_of
from nmt.config.yaml import NONE, KeyPath, Location, Problem, YamlDocument, read_list
from nmt.errors import UserError

DIGITS = r"\d+(?:_\d+)*"
ODD_NUMBER = re.compile(  # pydantic reads 08 as 8, 1_000 as 1000, 1e-5_0 as 1e-50
    rf"[-+]?0\d+|(?=.*_)[-+]?(?:{DIGITS}(?:\.(?:{DIGITS})?)?|\.{DIGITS})(?:[eE][-+]?{DIGITS})?",
    re.ASCII,
)
COMMAND_LINE = Location("command line")
PATHS = (
    ("data", "train"),
    ("data", "dev"),
    ("data", "test"),
    ("segment", "codes"),
    ("segment", "model"),
)


class Change(NamedTuple):
    """A key of a recipe set anew: where the key stands now, and its value and the value's items."""

    path: KeyPath
    value: Any
    key: Location
    places: dict[KeyPath, Location]


def resolve(
    source: YamlDocument, changes: Sequence[Change] = (), overrides: Sequence[str] = ()
) -> Recipe | None:
    """The recipe of ``source``, which is changed; None if ``source.problems`` says why not."""
    _apply(source, changes)
    _apply(source, _overriding(source, overrides))
    _read_text(source)
    recipe = None
    try:
        recipe = Recipe.model_validate(source.values)
    except ValidationError as failure:
        source.problems += explain(failure, source)
    return None if source.problems else recipe


def recipe_error(problems: Iterable[Problem], file: str) -> UserError:
    """In the order of ``file``, then of other files; the command line's last."""
    ordered = sorted(
        problems, key=lambda p: (p.place == COMMAND_LINE, p.place.file != file, p.place)
    )
    lines = list(dict.fromkeys(f"{problem.place}: {problem.text}" for problem in ordered))
    head = [f"{len(lines)} errors in the recipe"] if len(lines) > 1 else []
    return UserError("\n".join([*head, *lines]))


def resolve_path(folder: Path, value: Any) -> Any:
    """A path, or a list of them, that is relative to ``folder``, as absolute."""
    if isinstance(value, list):
        return [resolve_path(folder, item) for item in value]
    if not isinstance(value, str) or value == "learn" or value.lower() in NONE:
        return value
    return os.path.normpath(folder.absolute() / os.path.expanduser(value))


def _overriding(source: YamlDocument, overrides: Sequence[str]) -> list[Change]:
    """``a.b=value`` as changes."""
    given: dict[KeyPath, Change] = {}
    for override in overrides:
        name, equals, text = override.partition("=")
        path = tuple(name.split("."))
        if not equals or not all(path):
            what = f'"{override}" is not key=value, for example model.norm=layernorm'
        elif path in given:
            what = f'"{name}" is given twice'
        else:
            try:
                value = read_list(text) if text.startswith("[") else text
            except UserError as error:
                what = f"{override}: {error.what}"
            else:
                if path in PATHS:  # what a shell completes is relative to the working directory
                    value = resolve_path(Path(), value)
                given[path] = Change(path, value, COMMAND_LINE, {path: COMMAND_LINE})
                continue
        source.problems.append(Problem(COMMAND_LINE, what))
    return kinds_first(given.values())


def kinds_first(changes: Iterable[Change]) -> list[Change]:
    """Changes in the order to apply them: kinds decide which keys there are."""
    return sorted(changes, key=lambda change: change.path[-1] != "kind")


def _apply(source: YamlDocument, changes: Iterable[Change]) -> None:
    for change in changes:
        try:
            _set(source, change)
        except UserError as error:
            written = f"{'.'.join(change.path)}={change.value}"
            source.problems.append(Problem(change.key, f"{written}: {error.what}"))


def _set(source: YamlDocument, change: Change) -> None:
    path, value = change.path, change.value
    group = source.values
    for depth, part in enumerate(path[:-1], 1):
        if group.get(part) in (None, *NONE):
            group[part] = {}
        group = group[part]
        if not isinstance(group, dict):
            raise UserError(f'"{".".join(path[:depth])}" is not a group of keys')
        source.keys.setdefault(path[:depth], change.key)
        source.places.setdefault(path[:depth], change.key)
    group[path[-1]] = value
    for places in (source.keys, source.places):  # what stood there in the file stands no more
        for old in [p for p in places if p[: len(path)] == path]:
            del places[old]
    source.keys[path] = change.key
    source.places.update(change.places)
    kinds = groups().get(path[0], {})
    if path[1:] == ("kind",) and value in list(kinds):  # the other kind's keys go with it
        for key in set(group) - set(keys_of(kinds[value])):
            if any(key in keys_of(model) for model in kinds.values()):
                del group[key]


def _read_text(source: YamlDocument) -> None:
    """What text means by the type of its key; numbers that people read in two ways are problems."""
    values = source.values
    for group, kinds in groups().items():
        if group in values and values[group] in (None, *NONE):
            values[group] = {}
        model = kinds.get(kind_of(group, values))
        if model and isinstance(values.get(group), dict):
            _read_group(values[group], keys_of(model), (group,), source)
    _read_group(values, keys_of(Recipe), (), source)


def _read_group(
    group: dict[str, Any], keys: dict[str, FieldInfo], above: KeyPath, source: YamlDocument
) -> None:
    for key in group.keys() & keys.keys():
        value, path = group[key], (*above, key)
        types = set(_types(keys[key].annotation))
        if type(None) in types and isinstance(value, str) and value.lower() in NONE:
            group[key] = None
        elif types & {int, float} and isinstance(value, str) and ODD_NUMBER.fullmatch(value):
            plain = re.sub(r"^([-+]?)0+(?=\d)", r"\1", value.replace("_", ""))
            what = f'{".".join(path)}: "{value}" can be read in two ways; write {plain}'
            source.problems.append(Problem(source.places[path], what))


def _types(annotation: Any) -> list[Any]:
    inner = [t for argument in get_args(annotation) for t in _types(argument)]
    return inner or [annotation]
