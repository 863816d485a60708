"""What is wrong with a recipe, in words and with places: pydantic's errors made ours."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pydantic import ValidationError

from nmt.config.recipe import Recipe, default_kind, groups
from nmt.config.schema import allowed, format_value, join_or, keys_of
from nmt.config.yaml import KeyPath, Location, Problem, YamlDocument

LONGEST = 60  # characters of a value that are shown


def explain(failure: ValidationError, source: YamlDocument) -> Iterator[Problem]:
    """Every error of pydantic's, at the line and column of the key or value that caused it."""
    for error in failure.errors(include_url=False, include_input=True):
        path, index = _key_path(error["loc"])
        kind = error["type"]
        if kind == "value_error":  # a rule between keys; its text names them
            for text in str(error["ctx"]["error"]).splitlines():
                yield Problem(_first_key_in(text, path, source), text)
        elif kind == "extra_forbidden":
            yield Problem(source.keys[path], _unknown(path, source))
        elif kind == "missing" and index is None:
            yield Problem(_nearest(source.keys, path[:-1], source), _missing(path, source))
        elif kind == "union_tag_invalid":
            at = (*path, "kind")
            value = _value(source, at)
            yield Problem(_nearest(source.places, at, source), _wrong_kind(path, value))
        else:
            if kind == "missing":  # too few items: the list is what is wrong
                index = None
            # a single path stands for a list of one: what is written has no items then
            has_items = index is not None and isinstance(_value(source, path), list)
            at = (*path, str(index)) if has_items else path
            place = _nearest(source.places, at, source)
            yield Problem(place, _wrong_value(path, index is not None, _value(source, at), source))


def did_you_mean(word: str, options: Iterable[str], cutoff: float = 0.6) -> str:
    """``; did you mean "norm"?``, or nothing when no option is close."""
    close = difflib.get_close_matches(word.lower(), list(options), n=1, cutoff=cutoff)
    return f'; did you mean "{close[0]}"?' if close else ""


def kind_of(group: str, values: dict[str, Any]) -> str:
    """The kind that a group of a recipe has, or would have if the kind existed."""
    inner = values.get(group)
    kind = inner.get("kind") if isinstance(inner, dict) else None
    return kind if "" not in groups()[group] and isinstance(kind, str) else default_kind(group)


def _key_path(loc: tuple[int | str, ...]) -> tuple[KeyPath, str | None]:
    """pydantic's location as keys, without the tags of kinds, and the index into a list."""
    parts = list(loc)
    # a group without kinds has "" for one, which no location holds: there it is a key
    if len(parts) > 1 and parts[1] and parts[1] in groups().get(str(parts[0]), ()):
        del parts[1]
    index = next((i for i, part in enumerate(parts) if isinstance(part, int)), len(parts))
    item = str(parts[index]) if index < len(parts) else None
    return tuple(str(part) for part in parts[:index]), item


def _value(source: YamlDocument, path: KeyPath) -> Any:
    value: Any = source.values
    for part in path:
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value


def _nearest(places: dict[KeyPath, Location], path: KeyPath, source: YamlDocument) -> Location:
    """The place of a path, or of the innermost group around it that is written."""
    for length in range(len(path), 0, -1):
        if path[:length] in places:
            return places[path[:length]]
    return Location(source.file)


def _first_key_in(text: str, path: KeyPath, source: YamlDocument) -> Location:
    """The first key that a text names and the recipe has, else the group of the rule."""
    named = (tuple(name.split(".")) for name in re.findall(r"[a-z_.]+[a-z_]", text))
    return next(
        (source.keys[name] for name in named if name in source.keys),
        _nearest(source.keys, path, source),
    )


def _missing(path: KeyPath, source: YamlDocument) -> str:
    name = ".".join(path)
    if len(path) == 1 and path[0] in groups():
        needed = [key for key, f in keys_of(groups()[name][""]).items() if f.is_required()]
        return f'required group "{name}" is missing; it needs {" and ".join(needed)}'
    kind = kind_of(path[0], source.values) if len(path) > 1 else ""
    return f'required key "{name}" is missing' + (f"; kind: {kind} needs it" if kind else "")


def _wrong_kind(path: KeyPath, value: Any) -> str:
    kinds = list(groups()[path[0]])
    hint = did_you_mean(str(value), kinds)
    return f"{'.'.join(path)}.kind: {_written(value)} is not {join_or(kinds)}{hint}"


def _wrong_value(path: KeyPath, item: bool, value: Any, source: YamlDocument) -> str:
    model = groups()[path[0]][kind_of(path[0], source.values)] if len(path) > 1 else Recipe
    what = allowed(model, path[-1], item)
    hint = ""
    if isinstance(value, str):
        if re.fullmatch(r"\w+(, \w+)* or \w+", what):
            hint = did_you_mean(value, re.split(", | or ", what))
        if what.startswith("a list") and value.lower() not in ("", "none"):
            hint = f"; write [{value}]"
    return f"{'.'.join(path)}: {_written(value)} is not {what}{hint}"


def _written(value: Any) -> str:
    """A value as the recipe has it."""
    if isinstance(value, dict):
        return "a group of keys"
    text = f'"{value}"' if isinstance(value, str) else format_value(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _unknown(path: KeyPath, source: YamlDocument) -> str:
    """What to say of a key that does not exist where it stands."""
    *above, key = path
    group, name = ".".join(above), ".".join(path)
    kinds = groups().get(group, {"": Recipe})
    if having := [kind for kind, model in kinds.items() if key in keys_of(model)]:
        present = kind_of(group, source.values)
        return f'"{name}" is a key of kind: {join_or(having)}, but {group}.kind is {present}'
    elsewhere = [
        group
        for group, models in groups().items()
        if any(key in keys_of(model) for model in models.values())
    ]
    if key in keys_of(Recipe):
        return f'unknown key "{name}"; "{key}" belongs at the top level'
    here = keys_of(kinds[kind_of(group, source.values) if group else ""])
    if elsewhere:
        near = did_you_mean(key, here, cutoff=0.65)
        return f'unknown key "{name}"; "{key}" belongs under {join_or(_quoted(elsewhere))}{near}'
    first, dot, rest = key.partition(".")
    if dot and first in groups():
        return f'unknown key "{key}"; in a recipe, write "{rest}" under "{first}"'
    near = did_you_mean(key, here) or _close_elsewhere(key)
    return f'unknown key "{name}"' + (near or f"; {group or 'the top level'} has {', '.join(here)}")


def _close_elsewhere(key: str) -> str:
    full = {
        k: f"{group}.{k}"
        for group, models in groups().items()
        for model in models.values()
        for k in keys_of(model)
    }
    close = difflib.get_close_matches(key.lower(), list(full), n=1)
    return f'; did you mean "{full[close[0]]}"?' if close else ""


def _quoted(words: Sequence[str]) -> list[str]:
    return [f'"{word}"' for word in words]
