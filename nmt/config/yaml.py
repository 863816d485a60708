"""Read YAML as a tree whose values know their file, line and column.

YAML 1.1 would read ``no`` as False, ``1:30`` as 90 and ``3e-4`` as text. Here every scalar stays
the text that was written, and the type of its key decides. Tags, anchors, aliases and deep
nesting are errors, so that no text can run code or fill the memory.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, NoReturn, TypeAlias

import yaml

from nmt.errors import UserError

KeyPath: TypeAlias = tuple[str | int, ...]
MAX_DEPTH = 10
MAX_LINE = 60  # characters of a line in an error
KEY_LIST = "docs/recipe-keys.md lists all keys with their values"
EXAMPLE = "recipes/quickstart.yaml is an example"

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


class Place(NamedTuple):
    """Where a value and its key are; for items of lists they are the same."""

    key: Location
    value: Location


class Text(str):
    """A scalar of a recipe, as it is written."""

    place: Place

    def __new__(cls, text: str, place: Place) -> Text:
        """Create a text that knows its place."""
        value = super().__new__(cls, text)
        value.place = place
        return value


class Items(list[Any]):
    """A list in a recipe."""

    def __init__(self, items: Iterable[Any], place: Place) -> None:
        super().__init__(items)
        self.place = place


class Group(dict[Any, Any]):
    """Keys with their values, each a Text, Items or a Group; also a complete recipe."""

    def __init__(self, values: Mapping[Any, Any], place: Place) -> None:
        super().__init__(values)
        self.place = place

    @property
    def file(self) -> str:
        """The name of its file in errors."""
        return self.place.value.file

    def at(self, path: KeyPath) -> Any:
        """Return the value at a path, or None."""
        value: Any = self
        for part in path:
            if isinstance(value, Group):
                value = value.get(part)
            elif isinstance(value, Items) and isinstance(part, int) and part < len(value):
                value = value[part]
            else:
                return None
        return value

    def place_of(self, path: KeyPath) -> Place:
        """Return the place of the value at a path, or of the innermost group around it."""
        while (value := self.at(path)) is None:
            path = path[:-1]
        place: Place = value.place
        return place


def key_name(path: KeyPath) -> str:
    """Return a path as messages write it: ``data.train[2].weight``."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def read_yaml(text: str, file: str, problems: list[Problem]) -> Group:
    """Read the text of a recipe; append duplicate keys and keys that are not words to problems.

    Raises:
        UserError: the text is not YAML, not a mapping, or has what a recipe may not have.
    """
    values = read_value(text.removeprefix("\ufeff"), file, problems)
    if not isinstance(values, Group):
        what = "is empty" if values is None else "contains a list or a single value"
        raise UserError(
            f"{what}; a recipe has lines of the form key: value",
            at=file,
            fix="begin with src, tgt and data as recipes/quickstart.yaml does",
        )
    return Group(values, Place(Location(file), Location(file)))


def read_value(text: str, file: str, problems: list[Problem]) -> Text | Items | Group | None:
    """Read the YAML of any value as ``read_yaml`` does."""

    def read(node: Any, path: KeyPath, key: Location | None = None) -> Text | Items | Group:
        at = _location(file, node.start_mark)
        place = Place(key or at, at)
        if isinstance(node, yaml.SequenceNode):
            return Items((read(item, (*path, i)) for i, item in enumerate(node.value)), place)
        if not isinstance(node, yaml.MappingNode):
            return Text(node.value, place)
        values = Group({}, place)
        for name, inner in node.value:
            key = _location(file, name.start_mark)
            below = (*path, name.value)
            if not isinstance(name, yaml.ScalarNode):
                fix = f"correct the line; {EXAMPLE}"
                problems.append(Problem(key, "a key must be one word", fix))
            elif name.value in values:
                first = values[name.value].place.key
                what = f'key "{key_name(below)}" is set twice, first at {first}'
                problems.append(Problem(key, what, "delete one of the two lines"))
            else:
                values[name.value] = read(inner, below, key)
        return values

    node = _compose(text, file)
    return None if node is None else read(node, ())


class _Loader(yaml.SafeLoader):
    """PyYAML's loader, without what a recipe may not have: anchors, tags and deep nesting."""

    def __init__(self, text: str, file: str) -> None:
        self.file, self.depth = file, 0
        super().__init__(text)

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Compose a node and those inside it."""
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent) or event.anchor:
            what = "anchors and aliases (&, *) are not allowed; put text that begins with & or * "
            _stop(self.file, event.start_mark, f"{what}in quotes")
        if event.tag:
            shown = event.tag.replace("tag:yaml.org,2002:", "!!")
            _stop(self.file, event.start_mark, f"this tag is not allowed: {shown}")
        if isinstance(event, yaml.CollectionStartEvent) and self.depth == MAX_DEPTH:
            _stop(self.file, event.start_mark, f"nested more than {MAX_DEPTH} levels deep")
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def _compose(text: str, file: str) -> Any:
    try:
        return _Loader(text, file).get_single_node()
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


def _location(file: str, mark: Any) -> Location:
    return Location(file, mark.line + 1, mark.column + 1)


def _stop(file: str, mark: Any, what: str) -> NoReturn:
    at = str(_location(file, mark) if mark else file)
    raise UserError(what, at=at, fix=f"correct the line; {EXAMPLE}")
