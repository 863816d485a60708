"""Recipes from YAML: positions kept, every error at once, the schema decides the type, not YAML.

Scalars reach the schema as text: ``no`` stays the language "no", ``3e-4`` is a number, ``1:30`` for
a number is an error.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from nmt.config import SEGMENT_KINDS, Recipe
from nmt.errors import UserError
from nmt.training.schedules import SCHEDULES

Path_ = tuple[str, ...]
NONE = ("none", "null", "~", "")
LARGEST = 1 << 20  # bytes of a recipe
PATHS = {
    ("data", "train"),
    ("data", "dev"),
    ("data", "test"),
    ("segment", "codes"),
    ("segment", "model"),
}
GROUPS: dict[str, dict[str, type[BaseModel]]] = {"segment": SEGMENT_KINDS, "schedule": SCHEDULES}
DEFAULT_KINDS = {"segment": "fastbpe", "schedule": "inverse_sqrt"}


def load_recipe(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe and ``key=value`` overrides.

    Paths in the recipe are relative to it, those of overrides and ``out`` to the working
    directory; without ``out`` the run folder is runs/NAME.

    Raises:
        UserError: everything that is wrong with it, each with file, line and column.
    """
    path = Path(path)
    try:
        with open(path, "rb") as file:
            text = file.read(LARGEST + 1).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"not UTF-8: {error.reason}", at=str(path)) from error
    except OSError as error:
        raise UserError(str(error.strerror), at=str(path), fix="check the recipe's path") from error
    recipe = recipe_from_text(text, str(path), overrides)
    return _with_paths(recipe, path.resolve().parent, path.stem)


def recipe_from_text(text: str, name: str, overrides: Sequence[str] = ()) -> Recipe:
    """A recipe from its YAML text; ``name`` is what errors call the file."""
    reader = _Reader(name)
    values = reader.read(text)
    for override in overrides:
        reader.override(values, override)
    errors = reader.errors + reader.unknown_keys(values)
    recipe = None
    try:
        recipe = Recipe.model_validate(values)
    except ValidationError as failure:
        errors += [
            reader.explain(error)
            for error in failure.errors()
            if error["type"] not in ("extra_forbidden",)
        ]
    if errors or recipe is None:
        raise UserError("\n".join(dict.fromkeys(errors)))
    return recipe


def dump_recipe(recipe: Recipe) -> str:
    """The resolved recipe as YAML; it reads back as an equal one."""
    values = _as_text(recipe.model_dump(by_alias=True, mode="json"))
    # the preset is resolved into its parts
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def changed_keys(old: Recipe, new: Recipe) -> list[str]:
    """``model.norm: scalenorm -> layernorm`` for every key that differs."""
    before, after = (dict(_leaves(r.model_dump(by_alias=True))) for r in (old, new))
    return [
        f"{'.'.join(path)}: {before.get(path, 'none')} -> {after.get(path, 'none')}"
        for path in [*before, *(p for p in after if p not in before)]
        if before.get(path) != after.get(path)
    ]


def _leaves(values: dict[str, Any], above: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key), value


def _as_text(value: Any) -> Any:
    """Plain YAML values: none as the text "none", which every optional key reads as None."""
    if isinstance(value, dict):
        return {key: _as_text(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_as_text(inner) for inner in value]
    return "none" if value is None else value


def _with_paths(recipe: Recipe, folder: Path, stem: str) -> Recipe:
    def absolute(path: str) -> str:
        return os.path.normpath(folder / os.path.expanduser(path))

    data = recipe.data
    given = {
        name: absolute(value)
        for name in ("codes", "model")
        if (value := getattr(recipe.segment, name, "learn")) != "learn"
    }
    return recipe.model_copy(
        update={
            "out": os.path.expanduser(recipe.out) or str(Path("runs") / stem),
            "segment": recipe.segment.model_copy(update=given),
            "data": data.model_copy(
                update={
                    "train": [absolute(prefix) for prefix in data.train],
                    "dev": absolute(data.dev),
                    "test": data.test and absolute(data.test),
                }
            ),
        }
    )


class _Reader:
    """One recipe being read: where each key stands, and what is wrong so far."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.errors: list[str] = []
        self._keys: dict[Path_, str] = {}  # place of each key
        self._values: dict[Path_, str] = {}  # place of each value

    def read(self, text: str) -> dict[str, Any]:
        """YAML text as nested dictionaries and lists of text."""
        if len(text) > LARGEST:
            raise UserError(f"over {LARGEST:,} bytes are no recipe", at=self.name)
        try:
            for event in yaml.parse(text, yaml.SafeLoader):
                if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                    self._stop(event.start_mark, "anchors and aliases (&, *) are not allowed")
            node = yaml.compose(text, yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            self._stop(mark, f"not YAML: {error.problem or error.context}")
        except yaml.YAMLError as error:
            raise UserError(f"not YAML: {error}", at=self.name) from error
        if not isinstance(node, yaml.MappingNode):
            what = "the file is empty" if node is None else "a list or a single value"
            raise UserError(
                f"{what}; a recipe is a mapping of keys", at=self.name, fix="see README's example"
            )
        return self._plain(node, ())

    def override(self, values: dict[str, Any], override: str) -> None:
        """Apply one ``a.b=value`` of the command line."""
        name, equals, text = override.partition("=")
        place = "command line"
        if not equals or not name:
            self.errors.append(f'{place}: "{override}" is not key=value')
            return
        *above, key = path = tuple(name.split("."))
        group = values
        for depth, part in enumerate(above, 1):
            inner = group.setdefault(part, {})
            if not isinstance(inner, dict):
                self.errors.append(f'{place}: "{".".join(path[:depth])}" has no keys below it')
                return
            self._keys.setdefault(path[:depth], place)
            group = inner
        if key == "kind" and group.get("kind") not in (None, text):
            group.clear()  # keys of the other kind would be errors
        value = yaml.compose(text, yaml.SafeLoader) if text.startswith("[") else None
        self._keys[path] = self._values[path] = place
        plain = self._plain(value, path, place) if value else text
        if plain == text and text in NONE and self._optional(path):
            plain = None
        elif path in PATHS:  # what a shell completes is relative to the working directory
            plain = [_from_here(p) for p in plain] if value else _from_here(text)
        group[key] = plain

    def unknown_keys(self, values: dict[str, Any]) -> list[str]:
        """A line for every key that does not exist where it stands."""
        found = []
        for path, allowed in self._groups(values):
            group: Any = values
            for part in path:
                group = group[part]
            for key in group:
                if key not in allowed:
                    found.append(f"{self._keys[(*path, key)]}: {self._unknown(path, key, values)}")
        return found

    def explain(self, error: Any) -> str:
        """A line for people from one of pydantic's errors."""
        path = self._path(error["loc"])
        place = self._place(path, error["type"])
        name = ".".join(path)
        kind, context, value = error["type"], error.get("ctx", {}), error.get("input")
        if kind == "value_error":
            return f"{place}: {context['error']}"
        if kind == "missing":
            return f'{place}: required key "{name}" is missing'
        wanted = {
            "int_parsing": "is not an integer",
            "int_from_float": "is not an integer",
            "float_parsing": "is not a number",
            "bool_parsing": "is neither true nor false",
            "greater_than": f"must be above {context.get('gt')}",
            "greater_than_equal": f"must be at least {context.get('ge')}",
            "less_than": f"must be below {context.get('lt')}",
            "less_than_equal": f"must be at most {context.get('le')}",
            "literal_error": f"is not one of {context.get('expected')}",
            "union_tag_invalid": f"is not one of {context.get('expected_tags')}",
            "model_type": "must be a group of keys",
            "model_attributes_type": "must be a group of keys",
            "list_type": "must be a list",
            "string_type": "must be one value",
            "too_short": "must not be empty",
            "finite_number": "must be a finite number",
        }.get(kind, f"is not allowed ({error['msg']})")
        if kind == "union_tag_invalid":
            name, value = f"{name}.kind", context.get("tag")
        hint = ""
        if kind in ("literal_error", "union_tag_invalid"):
            options = (context.get("expected") or context.get("expected_tags") or "").replace(
                " or ", ", "
            )
            hint = _did_you_mean(str(value), [o.strip("' ") for o in options.split(", ")])
        shown = f'"{value}" ' if isinstance(value, (str, int, float)) else ""
        return f"{place}: {name}: {shown}{wanted}{hint}"

    def _plain(self, node: yaml.Node, path: Path_, place: str | None = None) -> Any:
        where = place or self._at(node.start_mark)
        self._values[path] = where
        if not node.tag.startswith("tag:yaml.org,2002:") or node.tag.startswith(
            "tag:yaml.org,2002:python"
        ):
            self._stop(node.start_mark, f"the tag {node.tag} is not allowed")
        if isinstance(node, yaml.ScalarNode):
            is_plain = node.style is None
            return None if is_plain and node.value in NONE and self._optional(path) else node.value
        if isinstance(node, yaml.SequenceNode):
            return [self._plain(n, (*path, str(i)), place) for i, n in enumerate(node.value)]
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._stop(key_node.start_mark, "a key must be a single word")
            key, here = key_node.value, (*path, key_node.value)
            if key in values:
                self.errors.append(
                    f'{self._at(key_node.start_mark)}: the key "{".".join(here)}" is given twice, '
                    f"first at {self._keys[here]}"
                )
                continue
            self._keys[here] = self._at(key_node.start_mark)
            values[key] = self._plain(value_node, here, place)
        return values

    @staticmethod
    def _optional(path: Path_) -> bool:
        """Whether the key may be None; elsewhere "none" and "no" are text."""
        field = _field(path)
        return field is not None and type(None) in get_args(field.annotation)

    def _groups(self, values: dict[str, Any]) -> Iterator[tuple[Path_, set[str]]]:
        yield (), set(Recipe.model_fields)
        for group, field in Recipe.model_fields.items():
            inner = values.get(group)
            if not isinstance(inner, dict):
                continue
            if group in GROUPS:
                model = GROUPS[group].get(inner.get("kind", DEFAULT_KINDS[group]))
                if model is None:
                    continue
                yield (group,), _names(model)
            elif isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
                yield (group,), _names(field.annotation)

    def _unknown(self, path: Path_, key: str, values: dict[str, Any]) -> str:
        name = ".".join((*path, key))
        if path and path[0] in GROUPS:
            kinds = [kind for kind, model in GROUPS[path[0]].items() if key in _names(model)]
            if kinds:
                present = values[path[0]].get("kind", DEFAULT_KINDS[path[0]])
                return (
                    f'"{name}" is a key of {path[0]}.kind: {" or ".join(kinds)}, not of {present}'
                )
        elsewhere = [group for group, names in _all_keys().items() if key in names]
        if elsewhere and path != (elsewhere[0],):
            where = f'under "{elsewhere[0]}"' if elsewhere[0] else "at the top level"
            return f'unknown key "{name}"; "{key}" belongs {where}'
        here = _all_keys()[path[0] if path else ""]
        return f'unknown key "{name}"{_did_you_mean(key, sorted(here))}'

    def _path(self, loc: tuple[Any, ...]) -> Path_:
        """pydantic's location without the tags of kinds."""
        parts = [str(part) for part in loc]
        if len(parts) > 1 and parts[0] in GROUPS and parts[1] in GROUPS[parts[0]]:
            del parts[1]
        return tuple(parts)

    def _place(self, path: Path_, kind: str) -> str:
        at_value = kind not in ("missing", "value_error")
        for length in range(len(path), -1, -1):
            part = path[:length]
            if at_value and part in self._values and part:
                return self._values[part]
            if part in self._keys:
                return self._keys[part]
        return self.name

    def _at(self, mark: Any) -> str:
        return f"{self.name}:{mark.line + 1}:{mark.column + 1}"

    def _stop(self, mark: Any, what: str) -> None:
        raise UserError(what, at=self._at(mark) if mark else self.name)


def _names(model: type[BaseModel]) -> set[str]:
    return {field.alias or name for name, field in model.model_fields.items()}


def _all_keys() -> dict[str, set[str]]:
    """Keys of every group; "" is the top level."""
    keys: dict[str, set[str]] = {"": set(Recipe.model_fields)}
    for group, field in Recipe.model_fields.items():
        if group in GROUPS:
            keys[group] = set().union(*(_names(model) for model in GROUPS[group].values()))
        elif isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            keys[group] = _names(field.annotation)
    return keys


def _field(path: Path_) -> FieldInfo | None:
    if len(path) == 1:
        return Recipe.model_fields.get(path[0])
    annotation = Recipe.model_fields[path[0]].annotation if path[0] in Recipe.model_fields else None
    if len(path) == 2 and isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation.model_fields.get(path[1])
    return None


def _did_you_mean(word: str, options: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, options, n=1, cutoff=0.6)
    return f'; did you mean "{close[0]}"?' if close else ""


def _from_here(path: str) -> str:
    return path if path == "learn" else os.path.abspath(os.path.expanduser(path))
