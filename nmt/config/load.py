"""From files to recipes: a file and overrides in, a checked recipe out.

A file and overrides are merged as text and checked once. The schema decides the type of a value,
not YAML: ``no`` stays the language "no", ``3e-4`` is a number, and ``1:30`` for a number is an
error.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from nmt.config.errors import format_value, recipe_error
from nmt.config.merge import (
    absolute_paths,
    apply_overrides,
    as_tree,
    check,
    is_variants_file,
    read_file,
    with_run_folder,
)
from nmt.config.recipe import ENTRIES, Recipe
from nmt.config.yaml import Group, Location, Problem, read_yaml
from nmt.errors import UserError


def load_recipe(
    path: str | Path, overrides: Sequence[str] = (), variant: str | None = None
) -> Recipe:
    """Read a recipe, or a variant of one, and apply ``key=value`` overrides.

    Paths in a file are relative to that file; those of overrides and ``out`` are relative to the
    working directory. Without ``out`` the run folder is runs/NAME, or runs/FILE/VARIANT for a
    variant.

    Args:
        path: a recipe, or a file of variants.
        overrides: ``key=value``, applied last.
        variant: name of the variant; required if the file lists several.

    Raises:
        UserError: all errors of the recipe, each with file, line and column.
    """
    path = Path(path)
    problems: list[Problem] = []
    tree = read_file(path, problems)
    if is_variants_file(tree):
        from nmt.config.variants import choose_variant

        return choose_variant(tree, variant, overrides, problems)
    if variant is not None:
        what = "this is a recipe; it has no variants"
        raise UserError(what, at=str(path), fix="leave out --variant")
    tree = absolute_paths(tree, path.resolve().parent)
    return with_run_folder(_resolve(tree, overrides, problems), Path("runs") / path.stem)


def as_recipe(
    recipe: str | Path | Mapping[str, Any] | Recipe,
    overrides: Sequence[str] = (),
    variant: str | None = None,
) -> Recipe:
    """Return the recipe of a file, of a dictionary with the keys of a recipe, or of a Recipe.

    Paths in a dictionary are relative to the working directory. See ``load_recipe`` for the other
    arguments.

    Raises:
        UserError: all errors of the recipe, or it has no file and no run folder ``out``.
    """
    if isinstance(recipe, str | Path):
        return load_recipe(recipe, overrides, variant)
    if variant is not None:
        raise UserError("a variant is chosen from a file", fix="pass the path of the file")
    if isinstance(recipe, Recipe):
        # a key that nobody has set stays so: a parent may decide it
        recipe = recipe.model_dump(by_alias=True, exclude_unset=True)
    # as a YAML file with these values
    tree = absolute_paths(as_tree(recipe, Location("recipe")), Path.cwd())
    resolved = _resolve(tree, overrides, [])
    if not resolved.out:
        what = "a recipe without a file needs the path of a run folder"
        raise UserError(what, at="out", fix='set it, such as "out": "runs/first"')
    return with_run_folder(resolved, Path())


def recipe_from_text(text: str, name: str, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe from its YAML text; relative paths stay as they are.

    Raises:
        UserError: all errors of the recipe, each at a place in a file called ``name``.
    """
    problems: list[Problem] = []
    return _resolve(read_yaml(text, name, problems), overrides, problems)


@functools.lru_cache  # a command reads the recipe of a run at several places
def stored_recipe(text: str, name: str) -> Recipe:
    """Read the config.yaml of a run folder from its text.

    Raises:
        UserError: all errors of the recipe, each at a place in a file called ``name``; or an older
            version wrote it.
    """
    problems: list[Problem] = []
    tree = read_yaml(text, name, problems)
    if tree.at(("data", "normalize")) is None:  # dump_recipe writes all keys
        raise UserError(
            "this run was trained with version 0.2 or older, and this version cannot read it",
            at=name,
            fix="train again with this version, or use the run with version 0.2",
        )
    return _resolve(tree, (), problems)


def dump_recipe(recipe: Recipe) -> str:
    """Return all keys of a recipe as YAML, which reads back as an equal recipe."""
    values = _none_as_text(recipe.model_dump(by_alias=True, mode="json"))
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def recipe_values(recipe: Recipe) -> dict[str, Any]:
    """Return the values of all keys as JSON has them, by names such as ``model.norm``.

    Those of corpora are also by names such as ``data.train[0].tag``, besides their paths; what an
    entry does not set is that of the recipe.
    """
    values = dict(_leaves(recipe.model_dump(by_alias=True, mode="json")))
    for group, key in ENTRIES:
        for i, entry in enumerate(getattr(getattr(recipe, group), key, None) or []):
            src, tgt = entry.langs(recipe)
            own = entry.model_dump(exclude={"path", "other_refs"})
            own |= {"src": src, "tgt": tgt, "tokenized": entry.is_tokenized(recipe.data)}
            values |= {f"{group}.{key}[{i}].{name}": value for name, value in own.items()}
    return values


def changed_keys(old: Recipe, new: Recipe) -> dict[str, str]:
    """Return the keys that differ: ``model.norm`` -> ``scalenorm -> layernorm``.

    An entry that only one of the recipes has is in the value of its list, such as ``data.train``.
    """
    before, after = recipe_values(old), recipe_values(new)
    changed = {}
    for key in {**before, **after}:
        in_one_entry = "[" in key and not (key in before and key in after)
        if before.get(key) != after.get(key) and not in_one_entry:
            changed[key] = f"{format_value(before.get(key))} -> {format_value(after.get(key))}"
    return changed


def _resolve(tree: Group, overrides: Sequence[str], problems: list[Problem]) -> Recipe:
    recipe = check(Recipe, apply_overrides(tree, overrides, problems), problems)
    if recipe is None or problems:
        raise recipe_error(problems, tree.file)
    return recipe


def _none_as_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _none_as_text(inner) for key, inner in value.items()}
    return "none" if value is None else value


def _leaves(values: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value
