"""Errors of a recipe as sentences: pydantic's errors with places, ranges in words, did-you-mean."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import BaseModel, ValidationError

from nmt.config.other_toolkits import our_name, our_value
from nmt.config.recipe import ENTRIES, RENAMED_KEYS, RENAMED_VALUES, Recipe, default_kind, groups
from nmt.config.schema import keys_of
from nmt.config.yaml import KEY_LIST, KeyPath, Location, Node, Problem, key_name
from nmt.errors import UserError

COMMAND_LINE = Location("command line")
MAX_SHOWN = 60  # characters of a wrong value
# next steps
ADD = f"add the key; {KEY_LIST}"
CHANGE = f"change the keys that the message names; {KEY_LIST}"
RENAME = f"rename or delete the key; {KEY_LIST}"


def raise_problems(problems: Iterable[Problem], file: str) -> None:
    """Raise all problems as one error: those of ``file`` first, those of the command line last.

    Raises:
        UserError: there is at least one problem.
    """
    ordered = sorted(problems, key=lambda p: (p.at == COMMAND_LINE, p.at.file != file, p.at))
    lines = list(dict.fromkeys(f"{problem.at}: {problem.text}" for problem in ordered))
    if len(lines) > 1:
        lines.insert(0, f"{len(lines)} errors in the recipe")
    if lines:
        fixes = list({problem.fix for problem in ordered})
        fix = fixes[0] if len(fixes) == 1 else f"correct each of them; {KEY_LIST}"
        raise UserError("\n".join(lines), fix=fix)


def explain(failure: ValidationError, document: Node) -> Iterator[Problem]:
    """Yield every error of pydantic at the place of the key or value that caused it."""
    for error in failure.errors(include_url=False, include_input=True):
        if entry := _entry_path(error["loc"], document):
            yield from _explain_entry(error, entry, document)
            continue
        path, index = _key_path(error["loc"])
        around = document.nearest(path[:-1]) or document
        kind = error["type"]
        if kind == "value_error":  # a rule between keys; its message names them
            for text in str(error["ctx"]["error"]).splitlines():
                yield Problem(_first_key_in(text, path, document), text, CHANGE)
        elif kind == "extra_forbidden":
            node = document.find(path)
            assert node is not None
            yield Problem(node.key_at, _unknown_key(path, document), RENAME)
        elif kind == "missing" and index is None:
            yield Problem(around.key_at, _missing_key(path, document), ADD)
        elif kind == "union_tag_invalid":
            node = document.find((*path, "kind")) or document.find(path) or around
            yield Problem(node.at, _wrong_kind(path, node))
        else:
            if kind == "missing":  # a list with too few items: the list is wrong
                index = None
            node = document.find(path) or around
            # a single path may replace a list of one, so a value without items can have an index
            if index is not None and isinstance(node.value, list):
                node = document.find((*path, index)) or node
            yield Problem(node.at, _wrong_value(path, index is not None, node, document))


def _entry_path(loc: tuple[int | str, ...], document: Node) -> tuple[str, ...]:
    """Return the path of the mapping of a corpus in which an error is; empty if it is in none.

    A recipe may write a single mapping without a list, where pydantic sees the first of a list.
    """
    loc = _without_kind(loc)
    key = tuple(map(str, loc[:2]))
    if len(loc) < 3 or key not in ENTRIES:
        return ()
    written = document.find(key)
    path = (*key, str(loc[2])) if written and isinstance(written.value, list) else key
    node = document.find(path)
    return path if node and isinstance(node.value, dict) else ()


def _explain_entry(error: Any, path: tuple[str, ...], document: Node) -> Iterator[Problem]:
    """Yield the problem of an entry of a corpus that is written as a mapping."""
    node, model = document.find(path), ENTRIES[path[0], path[1]]
    assert node is not None
    kind, options = error["type"], keys_of(model)
    if kind == "value_error":  # its messages begin with the key
        for text in str(error["ctx"]["error"]).splitlines():
            at = node.group.get(text.partition(":")[0], node).at
            yield Problem(at, f"{key_name(path)}.{text}", CHANGE)
        return
    key = str(_without_kind(error["loc"])[3])
    name = key_name((*path, key))
    if kind == "missing":
        yield Problem(node.key_at, f'required key "{name}" is missing', ADD)
    elif kind == "extra_forbidden":
        hint = did_you_mean(key, options) or f"; an entry has {', '.join(options)}"
        yield Problem(node.group[key].key_at, f'unknown key "{name}"{hint}', RENAME)
    else:
        wrong = node.group[key]
        text = f"{name}: {quote_value(wrong.plain())} is not {allowed(model, key)}"
        yield Problem(wrong.at, text)


def did_you_mean(word: str, options: Iterable[str], cutoff: float = 0.6) -> str:
    """Return ``; did you mean "norm"?``, or nothing when no option is close."""
    close = difflib.get_close_matches(word.lower(), list(options), n=1, cutoff=cutoff)
    return f'; did you mean "{close[0]}"?' if close else ""


def kind_of(group: str, document: Node) -> str:
    """Return the kind that a recipe writes for a group, existing or not, or the default kind."""
    node = document.find((group, "kind"))
    kinds_exist = "" not in groups()[group]
    return (
        node.value if kinds_exist and node and isinstance(node.value, str) else default_kind(group)
    )


def allowed(model: type[BaseModel], name: str, item: bool = False) -> str:
    """Return in words what a key may hold: ``a number of at least 0 and below 1``.

    Args:
        model: the group.
        name: the key.
        item: describe an item of the key's list instead.
    """
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
    if isinstance(value, dict):
        return "a group of keys"
    text = f'"{value}"' if isinstance(value, str) else format_value(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def join_or(words: list[str]) -> str:
    """Return ``a, b or c``."""
    return " or ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)


def _key_path(loc: tuple[int | str, ...]) -> tuple[tuple[str, ...], str | None]:
    """Split pydantic's location into keys, without kinds, and the index in a list."""
    parts = _without_kind(loc)
    index = next((i for i, part in enumerate(parts) if isinstance(part, int)), len(parts))
    item = str(parts[index]) if index < len(parts) else None
    return tuple(str(part) for part in parts[:index]), item


def _without_kind(loc: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Return pydantic's location without the kind of its group."""
    # a group without kinds has the kind "", which no location has: there it is a key
    has_kind = len(loc) > 1 and loc[1] and loc[1] in groups().get(str(loc[0]), ())
    return (loc[0], *loc[2:]) if has_kind else loc


def _first_key_in(text: str, path: KeyPath, document: Node) -> Location:
    """Return the place of the first key of the recipe that a message names, or of the group."""
    names = re.findall(r"[a-z_.]+[a-z_](?:\[\d+\](?:\.[a-z_]+)?)?", text)
    paths = [re.findall(r"[a-z_]+|\d+", name) for name in names]
    # a single entry of a corpus may be written without a list
    paths = [p for path in paths for p in (path, [part for part in path if not part.isdigit()])]
    found = (document.find(path) for path in paths)
    return next((node for node in found if node), document.nearest(path) or document).key_at


def _missing_key(path: KeyPath, document: Node) -> str:
    name = ".".join(path)
    if len(path) == 1 and path[0] in groups():
        needed = [key for key, f in keys_of(groups()[name][""]).items() if f.is_required()]
        return f'required group "{name}" is missing; it needs {" and ".join(needed)}'
    kind = kind_of(path[0], document) if len(path) > 1 else ""
    return f'required key "{name}" is missing' + (f"; kind: {kind} needs it" if kind else "")


def _wrong_kind(path: KeyPath, node: Node) -> str:
    name, value, kinds = f"{path[0]}.kind", node.plain(), list(groups()[path[0]])
    hint = _new_value(name, value) or did_you_mean(str(value), kinds)
    return f"{name}: {quote_value(value)} is not {join_or(kinds)}{hint}"


def _wrong_value(path: KeyPath, is_item: bool, node: Node, document: Node) -> str:
    model = groups()[path[0]][kind_of(path[0], document)] if len(path) > 1 else Recipe
    name, value, what = ".".join(path), node.plain(), allowed(model, path[-1], is_item)
    hint = _new_value(name, value)
    if isinstance(value, str) and not hint:
        if re.fullmatch(r"[\w+]+(, [\w+]+)* or [\w+]+", what):
            hint = did_you_mean(value, re.split(", | or ", what))
        if what.startswith("a list") and value.lower() not in ("", "none"):
            hint = f"; write [{value}]"
    return f"{name}: {quote_value(value)} is not {what}{hint}"


def _new_value(name: str, value: Any) -> str:
    new = RENAMED_VALUES.get(name, {}).get(value) if isinstance(value, str) else None
    if new:
        return f'; it was renamed to "{new}"'
    ours = our_value(name, value) if isinstance(value, str) else None
    return f'; use "{ours}"' if ours else ""


def _unknown_key(path: KeyPath, document: Node) -> str:
    """Return an error for a key that does not exist where it is written."""
    *above, key = path
    group, name = ".".join(above), ".".join(path)
    if new := RENAMED_KEYS.get(name):
        return f'unknown key "{name}"; it was renamed to {new}'
    kinds = groups().get(group, {"": Recipe})
    if having := [kind for kind, model in kinds.items() if key in keys_of(model)]:
        present = kind_of(group, document)
        return f'"{name}" is a key of kind: {join_or(having)}, but {group}.kind is {present}'
    if ours := our_name(group, key):
        return f'unknown key "{name}"; use {ours}'
    if key in keys_of(Recipe):
        return f'unknown key "{name}"; "{key}" belongs at the top level'
    here = keys_of(kinds[kind_of(group, document) if group in groups() else ""])
    if elsewhere := [
        f'"{group}"'
        for group, models in groups().items()
        if any(key in keys_of(model) for model in models.values())
    ]:
        near = did_you_mean(key, here, cutoff=0.65)
        return f'unknown key "{name}"; "{key}" belongs under {join_or(elsewhere)}{near}'
    first, dot, rest = key.partition(".")
    if dot and first in groups():
        return f'unknown key "{key}"; in a recipe, write "{rest}" under "{first}"'
    near = did_you_mean(key, here) or _close_elsewhere(key)
    if not near and (ours := our_name(group, key, exact=False)):
        near = f"; use {ours}"
    return f'unknown key "{name}"' + (near or f"; {group or 'the top level'} has {', '.join(here)}")


def _close_elsewhere(key: str) -> str:
    full = {
        k: f"{group}.{k}"
        for group, models in groups().items()
        for model in models.values()
        for k in keys_of(model)
    }
    close = difflib.get_close_matches(key.lower(), list(full), n=1, cutoff=0.75)
    return f'; did you mean "{full[close[0]]}"?' if close else ""


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
        return ("an integer" if kind == "integer" else "a number") + _range(schema)
    if kind == "array":
        some = "one or more" if schema.get("minItems") else "any number"
        count = schema["maxItems"] if "prefixItems" in schema else some
        return f"a list of {count}, each {_in_words(_item(schema))}"
    return {"boolean": "true or false", "string": "text", "null": "none"}.get(
        str(kind), "a group of keys"
    )


def _range(schema: dict[str, Any]) -> str:
    words = {
        "minimum": "of at least",
        "exclusiveMinimum": "above",
        "maximum": "at most",
        "exclusiveMaximum": "below",
    }
    limits = [f"{word} {schema[name]}" for name, word in words.items() if name in schema]
    return f" {' and '.join(limits)}" if limits else ""
