"""From files to recipes: a file and overrides in, a checked recipe out.

A file and overrides are merged as text (``nmt.config.document``) and checked once. The schema
decides the type of a value, not YAML: ``no`` stays the language "no", ``3e-4`` is a number, and
``1:30`` for a number is an error.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from nmt import hooks
from nmt.config.document import absolute_paths, apply_overrides, as_document
from nmt.config.errors import explain, format_value, raise_problems
from nmt.config.recipe import ENTRIES, Recipe
from nmt.config.yaml import Document, KeyPath, Problem, read_yaml
from nmt.errors import UserError
from nmt.runtime.files import open_file, require_usable
from nmt.runtime.missing import missing_fix

MAX_BYTES = 1 << 20  # of a recipe file
_MODEL = TypeVar("_MODEL", bound=BaseModel)


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
    document = read_file(path, problems)
    if is_variants_file(document):
        variants = hooks.find("variants")
        if variants is None:
            raise UserError(
                "a file of variants needs the package nmt.apps", at=str(path), fix="pass a recipe"
            )
        chosen: Recipe = variants.choose_variant(document, variant, overrides, problems)
        return chosen
    if variant is not None:
        raise UserError(
            "this is a recipe; it has no variants", at=str(path), fix="leave out --variant"
        )
    document = absolute_paths(document, path.resolve().parent)
    return with_run_folder(_resolve(document, overrides, problems), Path("runs") / path.stem)


def is_variants_file(document: Document) -> bool:
    """Return whether a file lists variants; a recipe has neither of these keys."""
    return not document.values.keys().isdisjoint(("base", "variants"))


def as_recipe(
    recipe: str | Path | Mapping[str, Any] | Recipe,
    overrides: Sequence[str] = (),
    variant: str | None = None,
) -> Recipe:
    """Return the recipe of a file, of a dictionary with the keys of a recipe, or of a Recipe.

    Args:
        recipe: paths in a dictionary are relative to the working directory.
        overrides: ``key=value``, applied last.
        variant: name of the variant in a file of variants.

    Raises:
        UserError: all errors of the recipe, or it has no file and no run folder ``out``.
    """
    if isinstance(recipe, str | Path):
        return load_recipe(recipe, overrides, variant)
    if variant is not None:
        raise UserError("a variant is chosen from a file", fix="pass the path of the file")
    if isinstance(recipe, Recipe):
        # a key that nobody has set stays so: under init.vocab: parent, the parent decides it
        recipe = recipe.model_dump(by_alias=True, exclude_unset=True)
    document = absolute_paths(as_document(recipe, "recipe"), Path.cwd())
    resolved = _resolve(document, overrides)
    if not resolved.out:
        raise UserError(
            "a recipe without a file needs the path of a run folder",
            at="out",
            fix='set it, such as "out": "runs/first"',
        )
    return with_run_folder(resolved, Path())


def recipe_from_text(text: str, name: str, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe from its YAML text; relative paths stay as they are.

    Args:
        text: YAML.
        name: name of the file in errors.
        overrides: ``key=value``, applied last.

    Raises:
        UserError: all errors of the recipe, each with file, line and column.
    """
    problems: list[Problem] = []
    return _resolve(read_yaml(text, name, problems), overrides, problems)


def stored_recipe(text: str, name: str) -> Recipe:
    """Read the config.yaml of a run folder.

    Args:
        text: YAML that ``dump_recipe`` wrote.
        name: name of the file in errors.

    Raises:
        UserError: all errors of the recipe, each with file, line and column; or an older version
            wrote it.
    """
    problems: list[Problem] = []
    document = read_yaml(text, name, problems)
    if document.get(("data", "normalize")) is None:  # dump_recipe writes all keys
        raise UserError(
            "this run was trained with version 0.2 or older, and this version cannot read it",
            at=name,
            fix="train again with this version, or use the run with version 0.2",
        )
    return _resolve(document, (), problems)


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
    return {
        key: f"{format_value(before.get(key))} -> {format_value(after.get(key))}"
        for key in {**before, **after}
        if before.get(key) != after.get(key)
        and not ("[" in key and (key not in before or key not in after))
    }


def read_file(path: Path, problems: list[Problem]) -> Document:
    """Read the YAML of a file or a pipe.

    Args:
        path: the file.
        problems: see ``read_yaml``.

    Raises:
        UserError: the file is missing, not UTF-8, too large or a device, or ``read_yaml`` fails.
    """
    try:
        with open_file(path, pipes=True) as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            what = f"over {MAX_BYTES:,} bytes, so it is not a recipe"
            raise UserError(what, at=str(path), fix="check the path")
        if not data and not path.is_file():
            raise UserError("nothing writes to this pipe", at=str(path), fix="pass a YAML file")
        return read_yaml(data.decode("utf-8"), str(path), problems)
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise UserError(
            f"not UTF-8 ({error.reason})", at=f"{path}:{line}", fix="save the recipe as UTF-8"
        ) from error
    except OSError as error:
        raise UserError(
            f"cannot read the recipe: {error.strerror}",
            at=str(path),
            fix=f"{missing_fix(path)}; nmt-train --suggest PREFIX -o FILE writes a recipe",
        ) from error


def check(
    model: type[_MODEL], document: Document, problems: list[Problem], above: KeyPath = ()
) -> _MODEL | None:
    """Return what a document has as ``model``, or None after appending what is wrong with it.

    Args:
        model: ``Recipe``, or another group.
        document: what was read.
        problems: receives the errors.
        above: path of the group in the document.
    """
    try:
        return model.model_validate(document.get(above))
    except ValidationError as failure:
        problems += explain(failure, model, document, above)
        return None


def with_run_folder(recipe: Recipe, default: Path) -> Recipe:
    """Return a recipe whose ``out`` is a usable path; ``default`` if it has none.

    Raises:
        UserError: the path cannot be used.
    """
    out = os.path.expanduser(recipe.out) or str(default)
    require_usable(out, "out")
    if Path(out).name in ("", ".."):  # the cache is next to the run folder, and --fresh renames it
        out = os.path.abspath(out)
    return recipe.model_copy(update={"out": out})


def _resolve(
    document: Document, overrides: Sequence[str], problems: Sequence[Problem] = ()
) -> Recipe:
    found = list(problems)
    recipe = check(Recipe, apply_overrides(document, overrides, found), found)
    raise_problems(found, document.file)
    assert recipe is not None, "a recipe that is not valid has problems"
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
