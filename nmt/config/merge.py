"""The parts of a recipe before they are checked: files, overrides, and groups that are merged.

A recipe is text until the schema has checked it, so that the schema decides the type of a value.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from nmt.config.errors import COMMAND_LINE, explain, format_value
from nmt.config.recipe import ENTRIES, Recipe, groups
from nmt.config.schema import is_none, keys_of
from nmt.config.yaml import Document, KeyPath, Place, Problem, key_name, read_value, read_yaml
from nmt.errors import UserError
from nmt.runtime.files import open_file, require_usable
from nmt.runtime.missing import missing_fix, url_of

MAX_BYTES = 1 << 20  # of a recipe file
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


def read_file(path: Path, problems: list[Problem]) -> Document:
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
    model: type[_MODEL], document: Document, problems: list[Problem], above: KeyPath = ()
) -> _MODEL | None:
    """Return the group ``above`` of a document as ``model``; None if ``problems`` were appended."""
    try:
        return model.model_validate(document.get(above))
    except ValidationError as failure:
        problems += explain(failure, model, document, above)
        return None


def is_variants_file(document: Document) -> bool:
    """Return whether a file lists variants; a recipe has neither of these keys."""
    return not document.values.keys().isdisjoint(("base", "variants"))


def apply_overrides(
    document: Document, overrides: Sequence[str], problems: list[Problem]
) -> Document:
    """Apply ``key=value`` overrides, and append what is wrong with them to ``problems``.

    Raises:
        UserError: a path is not UTF-8.
    """
    given = _read_overrides(overrides, problems)
    # kinds come first: they decide which other keys of a group stay
    for path, value in sorted(given.items(), key=lambda item: item[0][-1] != "kind"):
        above = [path[:depth] for depth in range(1, len(path))]
        scalars = [a for a in above if isinstance(document.get(a), (str, list))]
        if scalars and not is_none(document.get(scalars[0])):
            what = f'"{key_name(scalars[0])}" is not a group of keys'
            override = f"{key_name(path)}={format_value(value)}"
            problems.append(Problem(COMMAND_LINE, f"{override}: {what}"))
            continue
        if len(path) > 2 and isinstance(old := document.get(path[:-1]), dict):
            path, value = path[:-1], {**old, path[-1]: value}  # the mapping keeps its other keys
        # a shell completes paths that are relative to the working directory
        change = absolute_paths(nest(path, value, Place(COMMAND_LINE, COMMAND_LINE)), Path.cwd())
        document = merge(document, change)
    return document


def _read_overrides(overrides: Sequence[str], problems: list[Problem]) -> dict[KeyPath, Any]:
    given: dict[KeyPath, Any] = {}
    for override in overrides:
        name, equals, text = override.partition("=")
        path = tuple(name.split("."))
        if not equals or not all(path) or not name.isprintable():
            what = f'"{override}" is not key=value, for example model.norm=layernorm'
            problems.append(Problem(COMMAND_LINE, what))
        elif path in given:
            problems.append(Problem(COMMAND_LINE, f'"{name}" is set twice', "pass it once"))
        elif text.startswith("[") or (text.startswith("{") and path in MAPPINGS):
            require_usable(text, str(COMMAND_LINE))
            found: list[Problem] = []
            try:
                given[path], _ = read_value(text, "value", found)
            except UserError as error:
                found.append(Problem(COMMAND_LINE, error.what))
            problems += [Problem(COMMAND_LINE, f"{override}: {p.text}") for p in found]
        else:
            given[path] = text
    return given


def nest(path: KeyPath, value: Any, place: Place) -> Document:
    """Return a document in which only the key at ``path`` has a value."""
    places = {path[:length]: place for length in range(1, len(path) + 1)}
    for key in reversed(path):
        value = {key: value}
    return Document(value, places, place.value.file)


def merge(base: Document, changes: Document) -> Document:
    """Return a recipe with the keys of ``changes``; a group in both is merged key by key.

    A ``kind`` in ``changes`` removes the keys of the base's group that only other kinds have.
    """
    merged = dict(base.values)
    for name, new in changes.values.items():
        old = merged.get(name)
        if name in groups() and old is not None and isinstance(new, dict):
            old = {} if is_none(old) else old
            if not isinstance(old, dict):
                continue  # wrong in the base, where the error belongs
            kinds, kind = groups()[name], new.get("kind")
            if isinstance(kind, str) and kind in kinds:
                foreign = {key for model in kinds.values() for key in keys_of(model)}
                foreign -= keys_of(kinds[kind]).keys()
                old = {key: value for key, value in old.items() if key not in foreign}
            new = {**old, **new}
        merged[name] = new
    kept = {
        path: place
        for path, place in base.places.items()
        if path[:2] not in changes.places or (len(path) == 1 and path[0] in groups())
    }
    return Document(merged, {**changes.places, **kept}, base.file)


def absolute_paths(document: Document, folder: Path) -> Document:
    """Return a recipe, or a part of one, whose relative paths are resolved in ``folder``.

    Raises:
        UserError: a path is not UTF-8.
    """
    values = dict(document.values)
    for (group, key), is_word in PATHS.items():
        if document.get((group, key)) is not None:
            at = document.place((group, key)).value
            absolute = _absolute(values[group][key], folder, is_word, str(at))
            values[group] = {**values[group], key: absolute}
    return replace(document, values=values)


def _absolute(value: Any, folder: Path, is_word: Callable[[str], bool], at: str) -> Any:
    if isinstance(value, list):
        return [_absolute(item, folder, is_word, at) for item in value]
    if isinstance(value, dict):  # an entry of a corpus
        paths = {key: value[key] for key in ("path", "other_refs") if key in value}
        return value | {key: _absolute(v, folder, is_word, at) for key, v in paths.items()}
    if not value or is_word(value):
        return value
    if url := url_of(value):
        raise UserError(
            f"{url} is a URL, and this key needs a path",
            at=at,
            fix="download the files and give their path; data.download names a public corpus",
        )
    path = os.path.normpath(folder / os.path.expanduser(value))
    require_usable(path, at)
    return path


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
