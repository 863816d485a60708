"""Errors of a recipe as sentences: pydantic's errors with places, ranges in words, did-you-mean."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from nmt.config.recipe import Recipe, default_kind, groups
from nmt.config.schema import keys_of, models_of
from nmt.config.yaml import KEY_LIST, Group, KeyPath, Location, Place, Problem, key_name
from nmt.errors import UserError

COMMAND_LINE = Location("command line")
MAX_SHOWN = 60  # characters of a wrong value
MOST = 100  # errors of a recipe; to explain one takes milliseconds
LIMITS = {  # names in JSON schema
    "minimum": "of at least", "exclusiveMinimum": "above",
    "maximum": "at most", "exclusiveMaximum": "below",
}  # fmt: skip


def recipe_error(problems: Iterable[Problem], file: str) -> UserError:
    """Return all problems as one error: those of ``file`` first, those of the command line last."""
    ordered = sorted(problems, key=lambda p: (p.at == COMMAND_LINE, p.at.file != file, p.at))
    lines = list(dict.fromkeys(f"{problem.at}: {problem.text}" for problem in ordered))
    if len(lines) > 1:
        lines.insert(0, f"{len(lines)} errors in the recipe")
    fixes = list({problem.fix for problem in ordered})
    fix = fixes[0] if len(fixes) == 1 else f"correct each of them; {KEY_LIST}"
    return UserError("\n".join(lines), fix=fix)


class _Wrong(NamedTuple):
    """What an error of pydantic is about."""

    path: KeyPath  # of the value in the tree
    group: type[BaseModel]  # that has the key
    key: str  # the last one in ``path``
    is_item: bool  # whether it is about an item of the key's list


def explain(
    failure: ValidationError, model: type[BaseModel], tree: Group, above: KeyPath = ()
) -> Iterator[Problem]:
    """Yield the first errors of ``model``, each at the place of the key or value that caused it.

    Args:
        above: path of the group in the tree.
    """
    for error in failure.errors(include_url=False)[:MOST]:
        wrong, kind = _find(error["loc"], model, tree, above), error["type"]
        place, name = tree.place_of(wrong.path), key_name(wrong.path)
        if kind == "value_error":
            yield from _explain_rules(str(error["ctx"]["error"]), wrong.path, tree)
        elif error["loc"][-1] == "[key]" and "form" in _properties(wrong.group)[wrong.key]:
            what = f"{key_name(wrong.path[:-1])}: {quote_value(wrong.path[-1])} is not a key of "
            yield Problem(place.key, what + allowed(wrong.group, wrong.key))
        elif error["loc"][-1] == "[key]":
            what = f'"{wrong.path[-1]}" is not a valid name; a name has letters, digits, ".", "_" '
            yield Problem(place.key, f'{what}and "-", and begins with a letter or digit')
        elif kind == "extra_forbidden":
            yield Problem(
                place.key, _unknown_key(wrong, tree), f"rename or delete the key; {KEY_LIST}"
            )
        elif kind == "missing" and not wrong.is_item:
            around = tree.place_of(wrong.path[:-1])
            yield Problem(around.key, _missing_key(wrong, tree), f"add the key; {KEY_LIST}")
        elif kind == "union_tag_invalid":
            path = (*wrong.path, "kind")
            at, value = tree.place_of(path).value, tree.at(path)
            kinds = list(models_of(wrong.group.model_fields[wrong.key].annotation))
            hint = did_you_mean(str(value), kinds)
            yield Problem(at, f"{name}.kind: {quote_value(value)} is not {join_or(kinds)}{hint}")
        else:
            # a list with too few items lacks an item, and the error is about the list
            path = wrong.path[:-1] if kind == "missing" else wrong.path
            is_item = wrong.is_item and kind != "missing"
            what = _wrong_value(wrong, path, is_item, tree)
            yield Problem(tree.place_of(path).value, what)


def _find(
    loc: tuple[int | str, ...], model: type[BaseModel], tree: Group, above: KeyPath
) -> _Wrong:
    """Find the key of pydantic's location, which also has kinds, union members, list indices."""
    path, group, key, is_item = above, model, "", False
    models: dict[str, type[BaseModel]] = {"": model}
    for part in loc:
        if isinstance(part, int):
            # a single value may replace a list of one
            path = (*path, part) if isinstance(tree.at(path), list) else path
            is_item = True
        elif part in models and part:
            models = {"": models[part]}
        elif isinstance(tree.at(path), str):
            break  # a path that stands for an entry
        elif "" in models:
            path, group, key, is_item = (*path, part), models[""], part, False
            field = keys_of(group).get(part)
            models = models_of(field.annotation) if field else {}
        elif isinstance(below := tree.at(path), dict) and part in below:
            path = (*path, part)
    return _Wrong(path, group, key, is_item)


def _explain_rules(text: str, path: KeyPath, tree: Group) -> Iterator[Problem]:
    """Yield the broken rules of a group, each at the first key that it names."""
    for line in text.splitlines():
        first = line.partition(":")[0]
        own = (*path, first)
        if tree.at(own) is not None:
            at, line = tree.place_of(own).value, key_name(own) + line.removeprefix(first)
        else:
            at = (_first_key_in(line, tree) or tree.place_of(path)).key
            line = f"{key_name(path)}: {line}" if len(path) > 1 else line
        yield Problem(at, line, f"change the keys that the message names; {KEY_LIST}")


def _first_key_in(text: str, tree: Group) -> Place | None:
    for name in re.findall(r"[a-z_.]+[a-z_](?:\[\d+\](?:\.[a-z_]+)?)?", text):
        parts = re.findall(r"[a-z_]+|\d+", name)
        path = tuple(int(part) if part.isdigit() else part for part in parts)
        # a single entry of a corpus may be written without a list
        for candidate in (path, tuple(part for part in path if isinstance(part, str))):
            if tree.at(candidate) is not None:
                return tree.place_of(candidate)
    return None


def did_you_mean(word: str, options: Iterable[str], cutoff: float = 0.6) -> str:
    """Return ``; did you mean "norm"?``, or nothing when no option is close."""
    close = difflib.get_close_matches(word.lower(), list(options), n=1, cutoff=cutoff)
    return f'; did you mean "{close[0]}"?' if close else ""


def kind_of(group: str, tree: Group) -> str:
    """Return the kind that a recipe writes for a group, existing or not, or the default kind."""
    kind = tree.at((group, "kind"))
    return kind if "" not in groups()[group] and isinstance(kind, str) else default_kind(group)


def allowed(model: type[BaseModel], name: str, item: bool = False) -> str:
    """Return in words what a key, or an item of its list, may hold: ``a number of at least 0``."""
    schema = _properties(model)[name]
    lists = [s for s in schema.get("anyOf", [schema]) if s.get("type") == "array"]
    return _in_words(_item(lists[0]) if item and lists else schema)


def format_value(value: Any) -> str:
    """Return a value as a recipe writes it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(format_value, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {format_value(v)}" for key, v in value.items()) + "}"
    return str(value)


def quote_value(value: Any) -> str:
    """Return a wrong value for an error message, shortened."""
    if isinstance(value, dict) and value:
        return "a group of keys"
    text = f'"{value}"' if isinstance(value, str) else format_value(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def join_or(words: list[str]) -> str:
    """Return ``a, b or c``."""
    return " or ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)


def _missing_key(wrong: _Wrong, tree: Group) -> str:
    name, (group, *inner) = key_name(wrong.path), wrong.path
    if wrong.group is Recipe and group in groups():
        needed = [key for key, f in keys_of(groups()[wrong.key][""]).items() if f.is_required()]
        return f'required group "{name}" is missing; it needs {" and ".join(needed)}'
    kind = kind_of(group, tree) if inner and group in groups() else ""
    return f'required key "{name}" is missing' + (f"; kind: {kind} needs it" if kind else "")


def _wrong_value(wrong: _Wrong, path: KeyPath, is_item: bool, tree: Group) -> str:
    value, what = tree.at(path), allowed(wrong.group, wrong.key, is_item)
    name = key_name(path[:-1] if path and isinstance(path[-1], int) else path)
    hint = "; it must have at least one" if value == {} else ""
    if isinstance(value, str) and not hint:
        if re.fullmatch(r"[\w+]+(, [\w+]+)* or [\w+]+", what):
            hint = did_you_mean(value, re.split(", | or ", what))
        if what.startswith("a list") and value.lower() not in ("", "none"):
            hint = f"; write [{value}]"
    return f"{name}: {quote_value(value)} is not {what}{hint}"


def _unknown_key(wrong: _Wrong, tree: Group) -> str:
    """Return an error for a key that does not exist where it is written."""
    name, key, here = key_name(wrong.path), wrong.key, keys_of(wrong.group)
    group = key_name(wrong.path[:-1])
    unknown = f'unknown key "{name}"'
    listed = f"; {group or 'the top level'} has {', '.join(here)}"
    if wrong.group is not Recipe and group not in groups():
        return unknown + (did_you_mean(key, here) or listed)
    kinds = groups().get(group, {})
    if having := [kind for kind, model in kinds.items() if key in keys_of(model)]:
        present = kind_of(group, tree)
        return f'"{name}" is a key of kind: {join_or(having)}, but {group}.kind is {present}'
    if key in keys_of(Recipe):
        return f'{unknown}; "{key}" belongs at the top level'
    if elsewhere := [f'"{other}"' for other, k in _all_keys() if k == key]:
        near = did_you_mean(key, here, cutoff=0.65)
        return f'{unknown}; "{key}" belongs under {join_or(elsewhere)}{near}'
    first, dot, rest = key.partition(".")
    if dot and first in groups():
        return f'{unknown}; in a recipe, write "{rest}" under "{first}"'
    if near := did_you_mean(key, here):
        return unknown + near
    full = {k: f"{other}.{k}" for other, k in _all_keys()}
    if close := difflib.get_close_matches(key.lower(), list(full), n=1, cutoff=0.75):
        return f'{unknown}; did you mean "{full[close[0]]}"?'
    return unknown + listed


def _all_keys() -> list[tuple[str, str]]:
    """Return group and name of each key, once."""
    keys = [(g, k) for g, kinds in groups().items() for m in kinds.values() for k in keys_of(m)]
    return list(dict.fromkeys(keys))


@functools.cache
def _properties(model: type[BaseModel]) -> dict[str, Any]:
    properties: dict[str, Any] = model.model_json_schema(by_alias=True)["properties"]
    return properties


def _item(array: dict[str, Any]) -> dict[str, Any]:
    item: dict[str, Any] = array["prefixItems"][0] if "prefixItems" in array else array["items"]
    return item


def _in_words(schema: dict[str, Any]) -> str:
    """Return a JSON schema in words."""
    if "form" in schema:
        return str(schema["form"])
    if "anyOf" in schema:
        phrases = [_in_words(choice) for choice in schema["anyOf"]]
        return (", or " if " " in phrases[0] else " or ").join(phrases)
    if "enum" in schema:
        return join_or(schema["enum"])
    kind = schema.get("type")
    if kind in ("integer", "number"):
        number = "an integer" if kind == "integer" else "a number"
        if "minimum" in schema and "maximum" in schema:
            return f"{number} from {schema['minimum']} to {schema['maximum']}"
        limits = [f"{word} {schema[name]}" for name, word in LIMITS.items() if name in schema]
        return f"{number} {' and '.join(limits)}".rstrip()
    if kind == "array":
        some = "one or more" if schema.get("minItems") else "any number"
        count = schema["maxItems"] if "prefixItems" in schema else some
        return f"a list of {count}, each {_in_words(_item(schema))}"
    return {"boolean": "true or false", "string": "text", "null": "none"}.get(
        str(kind), "a group of keys"
    )
