"""Overrides, paths and merging: what changes a recipe before it is checked."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nmt.config.errors import COMMAND_LINE, format_value
from nmt.config.recipe import ENTRIES, groups
from nmt.config.schema import is_none, keys_of
from nmt.config.yaml import Document, KeyPath, Place, Problem, key_name, read_value
from nmt.errors import UserError
from nmt.runtime.files import require_usable
from nmt.runtime.missing import url_of

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
            text = f"{key_name(path)}={format_value(value)}"
            what = f'{text}: "{key_name(scalars[0])}" is not a group of keys'
            problems.append(Problem(COMMAND_LINE, what))
            continue
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
        elif text.startswith("[") or (text.startswith("{") and path in ENTRIES):
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


def as_document(values: Mapping[str, Any], file: str) -> Document:
    """Return Python values as the document that a YAML file with them would give."""
    return Document(_as_text(values), {}, file)


def _as_text(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _as_text(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_as_text(item) for item in value]
    if value is None or isinstance(value, bool):
        return format_value(value)
    return str(value)


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
        return {
            k: _absolute(v, folder, is_word, at) if k in ("path", "other_refs") else v
            for k, v in value.items()
        }
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
