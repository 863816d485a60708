"""Recipes as they are written: trees of text with places, which overrides and variants change.

A document is the ``Node`` of a recipe or of a part of one. Merging two documents is merging
dictionaries. ``nmt.config.load`` makes recipes of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nmt.config.errors import COMMAND_LINE, format_value
from nmt.config.recipe import ENTRIES, OLD_DEFAULTS, RENAMED_KEYS, RENAMED_VALUES, groups
from nmt.config.schema import keys_of
from nmt.config.yaml import KeyPath, Location, Node, Problem, is_none, read_value
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


def apply_overrides(document: Node, overrides: Sequence[str], problems: list[Problem]) -> Node:
    """Apply ``key=value`` overrides, and append what is wrong with them to ``problems``.

    Raises:
        UserError: a path is not UTF-8.
    """
    given = _read_overrides(overrides, problems)
    # kinds come first: they decide which other keys of a group stay
    for path, node in sorted(given.items(), key=lambda item: item[0][-1] != "kind"):
        if scalar := _scalar_above(document, path):
            text = f"{'.'.join(path)}={format_value(node.plain())}"
            problems.append(Problem(COMMAND_LINE, f'{text}: "{scalar}" is not a group of keys'))
            continue
        # a shell completes paths that are relative to the working directory
        document = merge(document, absolute_paths(nest(path, node), Path.cwd()))
    return document


def _read_overrides(
    overrides: Sequence[str], problems: list[Problem]
) -> dict[tuple[str, ...], Node]:
    """Return the values of ``key=value`` overrides, each by the path of its key.

    Raises:
        UserError: a path is not UTF-8.
    """
    given: dict[tuple[str, ...], Node] = {}
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
            of_value: list[Problem] = []
            try:
                given[path] = read_value(text, COMMAND_LINE, of_value)
                problems += [Problem(COMMAND_LINE, f"{override}: {p.text}") for p in of_value]
            except UserError as error:
                problems.append(Problem(COMMAND_LINE, f"{override}: {error.what}"))
        else:
            given[path] = Node(text, COMMAND_LINE, COMMAND_LINE)
    return given


def _scalar_above(document: Node, path: KeyPath) -> str:
    """Return the name of the first key above ``path`` that has a value and is not a group."""
    for depth in range(1, len(path)):
        node = document.find(path[:depth])
        if node and not isinstance(node.value, dict) and not is_none(node.value):
            return ".".join(path[:depth])
    return ""


def set_key(document: Node, path: KeyPath, text: str) -> Node:
    """Return a recipe with another value of a key, placed where its group is."""
    near = document.nearest(path) or document
    return merge(document, nest(path, replace(near, value=text)))


def nest(path: KeyPath, node: Node) -> Node:
    """Return a recipe in which only the key at ``path`` has a value."""
    for key in reversed(path):
        node = replace(node, value={key: node})
    return node


def merge(base: Node, changes: Node) -> Node:
    """Return a recipe with the keys of ``changes``; a group in both is merged key by key.

    A ``kind`` in ``changes`` removes the keys of the base's group that only other kinds have.
    """
    merged = dict(base.group)
    for name, new in changes.group.items():
        old = merged.get(name)
        if name in groups() and old and isinstance(new.value, dict):
            if not isinstance(old.value, dict) and not is_none(old.value):
                continue  # wrong in the base, where the error belongs
            kept, kinds = old.group, groups()[name]
            kind = new.group.get("kind")
            if kind and isinstance(kind.value, str) and kind.value in kinds:
                of_any_kind = {key for model in kinds.values() for key in keys_of(model)}
                foreign = of_any_kind - keys_of(kinds[kind.value]).keys()
                kept = {key: node for key, node in kept.items() if key not in foreign}
            new = replace(old, value={**kept, **new.group})
        merged[name] = new
    return replace(base, value=merged)


def as_node(value: Any, at: Location) -> Node:
    """Return a Python value as the node that a YAML file with it would give."""
    if isinstance(value, Mapping):
        return Node({str(key): as_node(inner, at) for key, inner in value.items()}, at, at)
    if isinstance(value, list | tuple):
        return Node([as_node(item, at) for item in value], at, at)
    if value is None or isinstance(value, bool):
        return Node("none" if value is None else str(value).lower(), at, at)
    return Node(str(value), at, at)


def absolute_paths(recipe: Node, folder: Path) -> Node:
    """Return a recipe, or a part of one, whose relative paths are resolved in ``folder``.

    Raises:
        UserError: a path is not UTF-8.
    """
    for (group, key), is_word in PATHS.items():
        if node := recipe.find((group, key)):
            changes = nest((group, key), _absolute(node, folder, is_word))
            recipe = merge(recipe, changes)
    return recipe


def _absolute(node: Node, folder: Path, is_word: Callable[[str], bool]) -> Node:
    if isinstance(node.value, list):
        return replace(node, value=[_absolute(item, folder, is_word) for item in node.value])
    if isinstance(node.value, dict):  # an entry of a corpus
        keys = {
            k: _absolute(v, folder, is_word) if k in ("path", "other_refs") else v
            for k, v in node.value.items()
        }
        return replace(node, value=keys)
    if not isinstance(node.value, str) or not node.value or is_word(node.value):
        return node
    if url := url_of(node.value):
        raise UserError(
            f"{url} is a URL, and this key needs a path",
            at=str(node.at),
            fix="download the files and give their path; data.download names a public corpus",
        )
    path = os.path.normpath(folder / os.path.expanduser(node.value))
    require_usable(path, str(node.at))
    return replace(node, value=path)


def with_present_names(document: Node) -> Node:
    """Return a stored recipe with the present names of its keys and values.

    Keys that it lacks get the default of its version if the present one differs.
    """

    def renamed(group: str, node: Node) -> Node:
        keys = {}
        for key, inner in node.group.items():
            name = RENAMED_KEYS.get(f"{group}.{key}", f"{group}.{key}")
            values = RENAMED_VALUES.get(name, {})
            if isinstance(inner.value, str) and inner.value in values:
                inner = replace(inner, value=values[inner.value])
            keys[name.rpartition(".")[2]] = inner
        return replace(node, value=keys)

    keys = {
        name: renamed(name, node) if isinstance(node.value, dict) else node
        for name, node in document.group.items()
    }
    document = replace(document, value=keys)
    for name, value in OLD_DEFAULTS.items():
        path = tuple(name.split("."))
        if document.find(path[:-1]) and not document.find(path):
            document = set_key(document, path, value)
    return document
