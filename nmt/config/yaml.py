"""Read YAML as values that know their file, line and column.

YAML 1.1 would read ``no`` as False, ``1:30`` as 90 and ``3e-4`` as text. Here every scalar stays
the text that was written, and the type of its key decides. Tags, anchors, aliases, deep nesting
and huge files are errors, so that no text can run code or fill the memory.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, TypeAlias

import yaml

from nmt.errors import UserError

KeyPath: TypeAlias = Sequence[str]
MAX_CHARACTERS = 1 << 18
MAX_DEPTH = 10
MAX_LINE = 60  # characters of a line in an error
KEY_LIST = "docs/recipe-keys.md lists all keys with their values"
EXAMPLE = "recipes/quickstart.yaml is an example"
NONE = ("none", "null", "~", "")  # no value, where a key may have none

# parts of PyYAML's messages
SECOND_COLON = "mapping values are not allowed"
NO_COLON = "could not find expected ':'"
# part of PyYAML's message -> explanation
EXPLANATIONS = {
    r"character '\t'": "a tab; indent with spaces",
    SECOND_COLON: 'a second ": ", or indentation that matches no line above; '
    'put text that contains ": " in quotes',
    NO_COLON: 'no ": " after the key',
    "expected <block end>": "indentation that matches no line above",
    "but found another document": "a second document begins here; a recipe is a single document",
    "expected ',' or": "a comma or a closing bracket is missing",
}


class Location(NamedTuple):
    """A place in a file; line and column count from 1, line 0 = the complete file."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


class Problem(NamedTuple):
    """An error in a recipe, its place, and the next step."""

    at: Location
    text: str
    fix: str = f"write an allowed value; {KEY_LIST}"


@dataclass(frozen=True)
class Node:
    """A value of a YAML file with its place.

    Attributes:
        value: text, a list of nodes, or a dictionary of nodes.
        at: place of the value.
        key_at: place of its key; for items of lists and the top level the same as ``at``.
    """

    value: str | list[Node] | dict[str, Node]
    at: Location
    key_at: Location

    @property
    def group(self) -> dict[str, Node]:
        """Return the nodes of a dictionary; empty if the value is not one."""
        return self.value if isinstance(self.value, dict) else {}

    def find(self, path: KeyPath) -> Node | None:
        """Return the node at a path of keys and list indices, or None."""
        node: Node | None = self
        for part in path:
            if node is None:
                return None
            if isinstance(node.value, list):
                index = int(part) if part.isdigit() else len(node.value)
                node = node.value[index] if index < len(node.value) else None
            else:
                node = node.group.get(part)
        return node

    def nearest(self, path: KeyPath) -> Node | None:
        """Return the node at a path, or of the innermost group around it; None at the top level."""
        found = (self.find(path[:length]) for length in range(len(path), 0, -1))
        return next((node for node in found if node), None)

    def plain(self) -> Any:
        """Return the value without places, as text, lists and dictionaries."""
        if isinstance(self.value, list):
            return [item.plain() for item in self.value]
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        return self.value


def key_name(path: KeyPath) -> str:
    """Return a path as messages write it: ``data.train[2].weight``."""
    parts = (f"[{part}]" if part.isdigit() else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def is_none(value: Any) -> bool:
    """Return whether a text means that a key has no value."""
    return isinstance(value, str) and value.lower() in NONE


def read_yaml(text: str, file: str, problems: list[Problem]) -> Node:
    """Read the text of a recipe.

    Args:
        text: YAML.
        file: name of the file in errors.
        problems: duplicate keys and keys that are not words are appended.

    Raises:
        UserError: the text is not YAML, not a mapping, or has what a recipe may not have.
    """
    node = _compose(text.removeprefix("\ufeff"), file)
    if not isinstance(node, yaml.MappingNode):
        what = "is empty" if node is None else "contains a list or a single value"
        raise UserError(
            f"{what}; a recipe has lines of the form key: value",
            at=file,
            fix="begin with src, tgt and data as recipes/quickstart.yaml does",
        )
    at = Location(file)
    return Node(_mapping(node, file, "", problems), at, at)


def read_value(text: str, at: Location, problems: list[Problem]) -> Node:
    """Read the YAML of one value, such as ``[0.9, 0.98]``; every node is placed ``at``.

    Args:
        problems: receives keys that are set twice or are not words.

    Raises:
        UserError: the text is not YAML.
    """

    def place(node: Node) -> Node:
        if isinstance(node.value, list):
            return Node([place(item) for item in node.value], at, at)
        if isinstance(node.value, dict):
            return Node({key: place(inner) for key, inner in node.value.items()}, at, at)
        return Node(node.value, at, at)

    return place(_node(_compose(text, "value"), at, "value", "", problems))


def _compose(text: str, file: str) -> Any:
    if len(text) > MAX_CHARACTERS:
        raise UserError(
            f"over {MAX_CHARACTERS:,} characters, so it is not a recipe",
            at=file,
            fix="check the path",
        )
    try:
        depth = 0
        for event in yaml.parse(text, yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                _stop(
                    file,
                    event.start_mark,
                    "anchors and aliases (&, *) are not allowed; put text that begins with & or * "
                    "in quotes",
                )
            if tag := getattr(event, "tag", None):
                shown = tag.replace("tag:yaml.org,2002:", "!!")
                _stop(file, event.start_mark, f"this tag is not allowed: {shown}")
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                _stop(file, event.start_mark, f"nested more than {MAX_DEPTH} levels deep")
        return yaml.compose(text, yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        _check_colon(text, file, error)
        message = f"{error.problem or error.context}"
        why = next((why for part, why in EXPLANATIONS.items() if part in message), message)
        _stop(file, error.problem_mark or error.context_mark, f"not YAML: {why}")
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        at = Location(file, before.count("\n") + 1, error.position - before.rfind("\n"))
        what = f"not YAML: the character U+{ord(text[error.position]):04X} is not allowed"
        raise UserError(what, at=str(at), fix="delete the character") from error


def _check_colon(text: str, file: str, error: yaml.MarkedYAMLError) -> None:
    """Raise UserError for a key without ": " if it caused an error on a line after it."""
    problem, key_mark = error.problem or "", None
    if NO_COLON in problem:
        key_mark = error.context_mark
    elif SECOND_COLON in problem:  # a value before the colon; without ": ", it began as a key
        with contextlib.suppress(yaml.YAMLError):
            for token in yaml.scan(text, yaml.SafeLoader):
                if isinstance(token, yaml.ScalarToken):
                    key_mark = token.start_mark
    if not key_mark:
        return
    line = re.sub(r"(^|\s)#.*", "", text.splitlines()[key_mark.line]).rstrip()
    key = line[key_mark.column :]
    if re.search(r":(\s|$)", line) or (line.lstrip().startswith("- ") and ":" not in key):
        return
    shown = key if len(key) <= MAX_LINE else f"{key[:MAX_LINE]}..."
    before, colon, after = shown.partition(":")
    need = f"a space after the colon: {before}: {after}" if colon else "a colon"
    raise UserError(
        f'"{shown}" needs {need}',
        at=str(_location(file, key_mark)),
        fix="write each key as KEY: VALUE",
    ) from error


def _node(
    node: Any, key_at: Location | None, file: str, name: str, problems: list[Problem]
) -> Node:
    """Convert a node of PyYAML; ``name`` is the dotted path of its key."""
    at = _location(file, node.start_mark)
    if isinstance(node, yaml.MappingNode):
        return Node(_mapping(node, file, name, problems), at, key_at or at)
    if isinstance(node, yaml.SequenceNode):
        items = [
            _node(item, None, file, f"{name}[{i}]", problems) for i, item in enumerate(node.value)
        ]
        return Node(items, at, key_at or at)
    return Node(node.value, at, key_at or at)


def _mapping(
    node: yaml.MappingNode, file: str, name: str, problems: list[Problem]
) -> dict[str, Node]:
    values: dict[str, Node] = {}
    for key, value in node.value:
        at = _location(file, key.start_mark)
        if not isinstance(key, yaml.ScalarNode):
            fix = f"correct the line; {EXAMPLE}"
            problems.append(Problem(at, "a key must be one word", fix))
            continue
        full = f"{name}.{key.value}" if name else key.value
        if first := values.get(key.value):
            what = f'key "{full}" is set twice, first at {first.key_at}'
            problems.append(Problem(at, what, "delete one of the two lines"))
            continue
        values[key.value] = _node(value, at, file, full, problems)
    return values


def _location(file: str, mark: Any) -> Location:
    return Location(file, mark.line + 1, mark.column + 1)


def _stop(file: str, mark: Any, what: str) -> NoReturn:
    at = str(_location(file, mark) if mark else file)
    raise UserError(what, at=at, fix=f"correct the line; {EXAMPLE}")
