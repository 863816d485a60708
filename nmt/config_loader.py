"""Recipes: read with overrides, checked with every error at once, resolved, dumped, compared.

The schema decides the type of a value, not YAML: ``no`` stays the language "no", ``3e-4`` is a
number, ``1:30`` for a number is an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from nmt.config import Recipe, groups
from nmt.config_errors import explain, kind_of
from nmt.config_yaml import KeyPath, Place, Problem, Source, read_list, read_yaml
from nmt.errors import UserError
from nmt.schema import keys_of, shown

NONE = ("none", "null", "~", "")  # no value, for a key that may have none
DIGITS = r"\d+(?:_\d+)*"
ODD_NUMBER = re.compile(  # pydantic reads 08 as 8, 1_000 as 1000, 1e-5_0 as 1e-50
    rf"[-+]?0\d+|(?=.*_)[-+]?(?:{DIGITS}(?:\.(?:{DIGITS})?)?|\.{DIGITS})(?:[eE][-+]?{DIGITS})?",
    re.ASCII,
)
COMMAND_LINE = Place("command line")
PATHS = (
    ("data", "train"),
    ("data", "dev"),
    ("data", "test"),
    ("segment", "codes"),
    ("segment", "model"),
)


def load_recipe(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe and ``key=value`` overrides.

    Paths in the recipe are relative to it, those of overrides and ``out`` to the working
    directory; without ``out`` the run folder is runs/NAME.

    Raises:
        UserError: everything that is wrong with it, each with file, line and column.
    """
    path = Path(path)
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise UserError(
            f"not UTF-8 ({error.reason})", at=f"{path}:{line}", fix="save the recipe as UTF-8"
        ) from error
    except OSError as error:
        raise UserError(
            f"cannot read the recipe: {error.strerror}", at=str(path), fix="check the path"
        ) from error
    recipe = recipe_from_text(text, str(path), overrides)
    return _with_paths(recipe, path.resolve().parent, path.stem)


def recipe_from_text(text: str, name: str, overrides: Sequence[str] = ()) -> Recipe:
    """A recipe from its YAML text, paths as they stand; ``name`` is what errors call the file.

    Raises:
        UserError: everything that is wrong with it, each with file, line and column.
    """
    source = read_yaml(text, name)
    _override(source, overrides)
    _read_text(source)
    recipe = None
    try:
        recipe = Recipe.model_validate(source.values)
    except ValidationError as failure:
        source.problems += explain(failure, source)
    if source.problems or recipe is None:
        raise _all_at_once(source)
    return recipe


def dump_recipe(recipe: Recipe) -> str:
    """The resolved recipe as YAML; it reads back as an equal one."""
    values = _none_as_text(recipe.model_dump(by_alias=True, mode="json"))
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def changed_keys(old: Recipe, new: Recipe) -> list[str]:
    """``model.norm: scalenorm -> layernorm`` for every key that differs."""
    before, after = (dict(_leaves(r.model_dump(by_alias=True))) for r in (old, new))
    return [
        f"{'.'.join(path)}: {shown(before.get(path))} -> {shown(after.get(path))}"
        for path in [*before, *(p for p in after if p not in before)]
        if before.get(path) != after.get(path)
    ]


def _all_at_once(source: Source) -> UserError:
    """In the order of the file, the command line's last."""
    ordered = sorted(source.problems, key=lambda p: (p.place.file != source.file, p.place))
    lines = list(dict.fromkeys(f"{problem.place}: {problem.text}" for problem in ordered))
    head = [f"{len(lines)} errors in the recipe"] if len(lines) > 1 else []
    return UserError("\n".join([*head, *lines]))


def _override(source: Source, overrides: Sequence[str]) -> None:
    """Apply ``a.b=value``; kinds first, because they decide which keys there are."""
    given: dict[KeyPath, str] = {}
    for override in overrides:
        name, equals, text = override.partition("=")
        path = tuple(name.split("."))
        if not equals or not all(path):
            what = f'"{override}" is not key=value, for example model.norm=layernorm'
            source.problems.append(Problem(COMMAND_LINE, what))
        elif path in given:
            source.problems.append(Problem(COMMAND_LINE, f'"{name}" is given twice'))
        else:
            given[path] = text
    for path in sorted(given, key=lambda path: path[-1] != "kind"):
        try:
            _set(source, path, _override_value(path, given[path]))
        except UserError as error:
            what = f"{'.'.join(path)}={given[path]}: {error.what}"
            source.problems.append(Problem(COMMAND_LINE, what))


def _override_value(path: KeyPath, text: str) -> Any:
    value = read_list(text) if text.startswith("[") else text
    if path not in PATHS:
        return value
    return _from_here(value)  # what a shell completes is relative to the working directory


def _set(source: Source, path: KeyPath, value: Any) -> None:
    group = source.values
    for depth, part in enumerate(path[:-1], 1):
        if group.get(part) in (None, *NONE):
            group[part] = {}
        group = group[part]
        if not isinstance(group, dict):
            raise UserError(f'"{".".join(path[:depth])}" is not a group of keys')
        source.keys.setdefault(path[:depth], COMMAND_LINE)
        source.places.setdefault(path[:depth], COMMAND_LINE)
    group[path[-1]] = value
    for places in (source.keys, source.places):  # what stood there in the file stands no more
        for old in [p for p in places if p[: len(path)] == path]:
            del places[old]
    source.keys[path] = source.places[path] = COMMAND_LINE
    kinds = groups().get(path[0], {})
    if path[1:] == ("kind",) and value in list(kinds):  # the other kind's keys go with it
        for key in set(group) - set(keys_of(kinds[value])):
            if any(key in keys_of(model) for model in kinds.values()):
                del group[key]


def _read_text(source: Source) -> None:
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
    group: dict[str, Any], keys: dict[str, FieldInfo], above: KeyPath, source: Source
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


def _with_paths(recipe: Recipe, folder: Path, stem: str) -> Recipe:
    """The recipe with absolute paths, and with its run folder."""

    def absolute(path: str) -> str:
        return os.path.normpath(folder / os.path.expanduser(path))

    data, segment = recipe.data, recipe.segment
    given = {name: getattr(segment, name) for group, name in PATHS if hasattr(segment, name)}
    return recipe.model_copy(
        update={
            "out": os.path.expanduser(recipe.out) or str(Path("runs") / stem),
            "segment": segment.model_copy(
                update={k: absolute(path) for k, path in given.items() if path != "learn"}
            ),
            "data": data.model_copy(
                update={
                    "train": [absolute(prefix) for prefix in data.train],
                    "dev": absolute(data.dev),
                    "test": data.test and absolute(data.test),
                }
            ),
        }
    )


def _from_here(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_here(item) for item in value]
    if not isinstance(value, str) or value == "learn" or value.lower() in NONE:
        return value
    return os.path.abspath(os.path.expanduser(value))


def _none_as_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _none_as_text(inner) for key, inner in value.items()}
    return "none" if value is None else value


def _leaves(values: dict[str, Any], above: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key), value
