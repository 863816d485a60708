"""The parts of a recipe before they are checked: files, overrides, and groups that are merged.

A recipe is text until the schema has checked it, so that the schema decides the type of a value.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from nmt.config.errors import COMMAND_LINE, explain, format_value
from nmt.config.recipe import ENTRIES, Recipe, groups
from nmt.config.schema import is_none, keys_of
from nmt.config.yaml import (
    Group,
    Items,
    KeyPath,
    Location,
    Place,
    Problem,
    Text,
    key_name,
    read_value,
    read_yaml,
)
from nmt.errors import UserError
from nmt.runtime.files import open_file, require_usable
from nmt.runtime.missing import missing_fix, url_of

MAX_BYTES = 1 << 18  # of a recipe file
_MODEL = TypeVar("_MODEL", bound=BaseModel)

# keys that an override may give as a mapping
MAPPINGS = (*ENTRIES, ("init", "tag_rows"), ("data", "augment"))
# keys that hold a path -> whether a text is not a path but has a meaning of its own
PATHS: dict[tuple[str, str], Callable[[str], bool]] = {
    ("data", "train"): lambda text: False,
    ("data", "dev"): lambda text: False,
    ("data", "test"): is_none,
    ("segment", "codes"): lambda text: text == "learn",
    ("segment", "model"): lambda text: text == "learn",
    ("segment", "learn_from"): is_none,
    ("init", "from"): is_none,
}


def read_file(path: Path, problems: list[Problem]) -> Group:
    """Read the YAML of a file or a pipe; see ``read_yaml``.

    Raises:
        UserError: the file is missing, not UTF-8, too large or a device, or has no YAML.
    """
    try:
        with open_file(path, pipes=True) as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            what = f"over {MAX_BYTES:,} bytes, so it is not a recipe"
            raise UserError(what, at=str(path), fix="check the path")
        if not data and not path.is_file():
            raise UserError("nothing writes to this pipe", at=str(path), fix="pass a YAML file")
        return read_yaml(data.decode("utf-8"), str(path), problems)
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        what = f"not UTF-8 ({error.reason})"
        raise UserError(what, at=f"{path}:{line}", fix="save the recipe as UTF-8") from error
    except OSError as error:
        raise UserError(
            f"cannot read the recipe: {error.strerror}",
            at=str(path),
            fix=f"{missing_fix(path)}; nmt-suggest PREFIX -o FILE writes a recipe",
        ) from error


def check(
    model: type[_MODEL], tree: Group, problems: list[Problem], above: KeyPath = ()
) -> _MODEL | None:
    """Return the group ``above`` of a tree as ``model``; None if ``problems`` were appended."""
    try:
        return model.model_validate(tree.at(above))
    except ValidationError as failure:
        problems += explain(failure, model, tree, above)
        return None


def is_variants_file(tree: Group) -> bool:
    """Return whether a file lists variants; a recipe has neither of these keys."""
    return not tree.keys().isdisjoint(("base", "variants"))


def apply_overrides(tree: Group, overrides: Sequence[str], problems: list[Problem]) -> Group:
    """Apply ``key=value`` overrides, and append what is wrong with them to ``problems``.

    Raises:
        UserError: a path is not UTF-8.
    """
    values = _read_overrides(overrides, problems)
    # kinds come first: they decide which other keys of a group stay
    for path, value in sorted(values.items(), key=lambda item: item[0][-1] != "kind"):
        above = [path[:depth] for depth in range(1, len(path))]
        scalars = [a for a in above if isinstance(tree.at(a), (str, list))]
        if scalars and not is_none(tree.at(scalars[0])):
            what = f'"{key_name(scalars[0])}" is not a group of keys'
            override = f"{key_name(path)}={format_value(value)}"
            problems.append(Problem(COMMAND_LINE, f"{override}: {what}"))
            continue
        if len(path) > 2 and isinstance(old := tree.at(path[:-1]), Group):
            path, value = path[:-1], Group({**old, path[-1]: value}, old.place)
        # a shell completes paths that are relative to the working directory
        tree = merge(tree, absolute_paths(nest(path, value), Path.cwd()))
    return tree


def _read_overrides(overrides: Sequence[str], problems: list[Problem]) -> dict[KeyPath, Any]:
    values: dict[KeyPath, Any] = {}
    for override in overrides:
        name, equals, text = override.partition("=")
        path = tuple(name.split("."))
        if not equals or not all(path) or not name.isprintable():
            what = f'"{override}" is not key=value, for example model.norm=layernorm'
            problems.append(Problem(COMMAND_LINE, what))
        elif path in values:
            problems.append(Problem(COMMAND_LINE, f'"{name}" is set twice', "pass it once"))
        elif text.startswith("[") or (text.startswith("{") and path in MAPPINGS):
            require_usable(text, str(COMMAND_LINE))
            wrong: list[Problem] = []
            try:
                values[path] = as_tree(read_value(text, "value", wrong), COMMAND_LINE)
            except UserError as error:
                wrong.append(Problem(COMMAND_LINE, error.what))
            problems += [Problem(COMMAND_LINE, f"{override}: {p.text}") for p in wrong]
        else:
            values[path] = as_tree(text, COMMAND_LINE)
    return values


def as_tree(value: Any, at: Location) -> Any:
    """Return a value of Python as a recipe writes it, all of it at the same place."""
    place = Place(at, at)
    if isinstance(value, Mapping):
        return Group({str(key): as_tree(inner, at) for key, inner in value.items()}, place)
    if isinstance(value, list | tuple):
        return Items((as_tree(item, at) for item in value), place)
    return Text(format_value(value), place)


def nest(path: KeyPath, value: Any) -> Group:
    """Return a recipe in which only the key at ``path`` has a value; its place is that of all."""
    for key in reversed(path):
        value = Group({key: value}, value.place)
    return value


def merge(base: Group, changes: Group) -> Group:
    """Return a recipe with the keys of ``changes``; a group in both is merged key by key.

    A ``kind`` in ``changes`` removes the keys of the base's group that only other kinds have.
    """
    merged = Group(base, base.place)
    for name, new in changes.items():
        old = merged.get(name)
        if name in groups() and old is not None and isinstance(new, Group):
            keys = {} if is_none(old) else old
            if not isinstance(keys, dict):
                continue  # wrong in the base, where the error belongs
            kinds, kind = groups()[name], new.get("kind")
            if isinstance(kind, str) and kind in kinds:
                foreign = {key for model in kinds.values() for key in keys_of(model)}
                foreign -= keys_of(kinds[kind]).keys()
                keys = {key: value for key, value in keys.items() if key not in foreign}
            new = Group({**keys, **new}, old.place)
        merged[name] = new
    return merged


def absolute_paths(tree: Group, folder: Path) -> Group:
    """Return a recipe, or a part of one, whose relative paths are resolved in ``folder``.

    Raises:
        UserError: a path is not UTF-8.
    """
    resolved = Group(tree, tree.place)
    for path, is_word in PATHS.items():
        if (value := resolved.at(path)) is not None:
            group, key = path
            keys = resolved[group]
            resolved[group] = Group({**keys, key: _absolute(value, folder, is_word)}, keys.place)
    return resolved


def _absolute(value: Any, folder: Path, is_word: Callable[[str], bool]) -> Any:
    if isinstance(value, Items):
        return Items((_absolute(item, folder, is_word) for item in value), value.place)
    if isinstance(value, Group):  # an entry of a corpus
        paths = {key: value[key] for key in ("path", "other_refs") if key in value}
        paths = {key: _absolute(inner, folder, is_word) for key, inner in paths.items()}
        return Group({**value, **paths}, value.place)
    if not value or is_word(value):
        return value
    at = str(value.place.value)
    if url := url_of(value):
        raise UserError(
            f"{url} is a URL, and this key needs a path",
            at=at,
            fix="download the files and give their path; data.download names a public corpus",
        )
    path = os.path.normpath(folder / os.path.expanduser(value))
    require_usable(path, at)
    return Text(path, value.place)


def with_run_folder(recipe: Recipe, default: Path) -> Recipe:
    """Return a recipe whose ``out`` is a usable path; ``default`` if it has none.

    Raises:
        UserError: the path cannot be used.
    """
    out = os.path.expanduser(recipe.out) or str(default)
    require_usable(out, "out")
    if Path(out).name in ("", ".."):  # the cache is next to the run folder, and --fresh renames it
        out = os.path.abspath(out)
    return recipe.model_copy(update={"out": out})
