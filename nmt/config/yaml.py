"""A recipe's YAML as nested dictionaries of text, and where in the file each key and value stands.

YAML 1.1 would read ``no`` as False, ``1:30`` as 90 and ``3e-4`` as text; here every scalar stays
the text that was written, and the type of its key decides. Tags, anchors and aliases are refused,
and so are deep nesting and huge files, so no text can run code or fill the memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn, TypeAlias

import yaml

from nmt.errors import UserError

KeyPath: TypeAlias = tuple[str, ...]
LARGEST = 1 << 18  # characters of a recipe
DEEPEST = 10  # levels of nesting
NONE = ("none", "null", "~", "")  # no value, for a key that may have none

# what PyYAML says -> what a person needs to hear
EXPLANATIONS = {
    r"character '\t'": "a tab; indent with spaces",
    "mapping values are not allowed": 'a second ": ", or an indentation that fits nothing above; '
    'quote a text that holds ": "',
    "could not find expected ':'": 'no ": " after the key',
    "expected <block end>": "an indentation that fits nothing above",
    "but found another document": "a second document begins; a recipe is one",
    "expected ',' or": "a comma or a closing bracket is missing",
}


class Location(NamedTuple):
    """Where something stands; line and column count from 1, line 0 = in no line of its own."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


class Problem(NamedTuple):
    """Something wrong with a recipe, and where."""

    place: Location
    text: str


@dataclass
class YamlDocument:
    """What was written: text in nested dictionaries and lists, with places.

    An item of a list has its index as the last part of its path.
    """

    file: str
    values: dict[str, Any] = field(default_factory=dict)
    keys: dict[KeyPath, Location] = field(default_factory=dict)
    places: dict[KeyPath, Location] = field(default_factory=dict)  # of values
    problems: list[Problem] = field(default_factory=list)


def read_yaml(text: str, file: str) -> YamlDocument:
    """Read a recipe's text; keys given twice are problems of the result.

    Raises:
        UserError: it is no YAML, no mapping, or has what a recipe may not have, with its place.
    """
    source = YamlDocument(file)
    node = _compose(text.removeprefix("\ufeff"), file)
    if not isinstance(node, yaml.MappingNode):
        what = "is empty" if node is None else "holds a list or a single value"
        raise UserError(
            f"{what}; a recipe is a mapping of keys",
            at=file,
            fix="begin with src, tgt and data as recipes/quickstart.yaml does",
        )
    source.values = _plain(node, (), source)
    return source


def read_list(text: str) -> Any:
    """The lists and text of a value such as ``[0.9, 0.98]``.

    Raises:
        UserError: it is no YAML.
    """
    return _plain(_compose(text, "value"), (), YamlDocument("value"))


def _compose(text: str, file: str) -> yaml.Node | None:
    if len(text) > LARGEST:
        raise UserError(f"over {LARGEST:,} characters are no recipe", at=file)
    try:
        depth = 0
        for event in yaml.parse(text, yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                _stop(
                    file,
                    event.start_mark,
                    "anchors and aliases (&, *) are not allowed; quote a text that begins with one",
                )
            if tag := getattr(event, "tag", None):
                shown = tag.replace("tag:yaml.org,2002:", "!!")
                _stop(file, event.start_mark, f"tags are not allowed, and this is one: {shown}")
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                _stop(file, event.start_mark, f"nested more than {DEEPEST} levels deep")
        node: yaml.Node | None = yaml.compose(text, yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        said = f"{error.problem or error.context}"
        why = next((why for seen, why in EXPLANATIONS.items() if seen in said), said)
        _stop(file, error.problem_mark or error.context_mark, f"not YAML: {why}")
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        at = Location(file, before.count("\n") + 1, error.position - before.rfind("\n"))
        what = f"not YAML: the character U+{ord(text[error.position]):04X} is not allowed"
        raise UserError(what, at=str(at)) from error
    return node


def _plain(node: Any, path: KeyPath, source: YamlDocument) -> Any:
    source.places[path] = _place(source.file, node.start_mark)
    if isinstance(node, yaml.ScalarNode):
        return node.value
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, (*path, str(i)), source) for i, item in enumerate(node.value)]
    values: dict[str, Any] = {}
    for key_node, value_node in node.value:
        at = _place(source.file, key_node.start_mark)
        if not isinstance(key_node, yaml.ScalarNode):
            source.problems.append(Problem(at, "a key must be one word"))
            continue
        name = key_node.value
        here = (*path, name)
        if name in values:
            first = source.keys[here]
            text = f'key "{".".join(here)}" is given twice, first at {first}'
            source.problems.append(Problem(at, text))
            continue
        source.keys[here] = at
        values[name] = _plain(value_node, here, source)
    return values


def _place(file: str, mark: Any) -> Location:
    return Location(file, mark.line + 1, mark.column + 1)


def _stop(file: str, mark: Any, what: str) -> NoReturn:
    raise UserError(what, at=str(_place(file, mark) if mark else file))
