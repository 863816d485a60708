"""Recipes: files in, resolved recipes out; variants of one; dumped, compared."""

from __future__ import annotations

import copy
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from nmt.config.errors import did_you_mean
from nmt.config.recipe import Recipe
from nmt.config.resolve import PATHS, recipe_error, resolve, resolve_path
from nmt.config.schema import format_value
from nmt.config.variants import VariantSpec, is_variants_file, read_variants
from nmt.config.yaml import KeyPath, Problem, YamlDocument, read_yaml
from nmt.errors import UserError

LARGEST_FILE = 1 << 20  # bytes of a recipe


@dataclass(frozen=True)
class Variant:
    """A recipe that a variants file lists.

    Attributes:
        name: as ``--variant`` takes it.
        about: what it is, in one line.
        paper: figures that a paper prints, by name: dev, test, ppl; a number or "fails".
        recipe: resolved.
    """

    name: str
    about: str
    paper: dict[str, float | str]
    recipe: Recipe


def load_recipe(
    path: str | Path, overrides: Sequence[str] = (), variant: str | None = None
) -> Recipe:
    """Read a recipe, or a variant of one, and ``key=value`` overrides.

    Paths in a file are relative to it, those of overrides and ``out`` to the working directory;
    without ``out`` the run folder is runs/NAME, and runs/FILE/VARIANT for a variant.

    Args:
        path: a recipe, or a file that lists variants.
        overrides: applied last.
        variant: which variant; needed where there are several.

    Raises:
        UserError: everything that is wrong with it, each with file, line and column.
    """
    path = Path(path)
    source = _read(path)
    if is_variants_file(source):
        return _load_variant(path, source, overrides, variant)
    if variant is not None:
        raise UserError(
            "this is a recipe; it lists no variants", at=str(path), fix="leave out --variant"
        )
    return _with_paths(_resolved(source, overrides), path, Path("runs") / path.stem)


def load_variants(path: str | Path) -> list[Variant]:
    """Every variant that a file lists, in its order.

    Raises:
        UserError: the file is a recipe, or everything that is wrong with it.
    """
    path = Path(path)
    source = _read(path)
    if not is_variants_file(source):
        raise UserError(
            "this is a recipe; it lists no variants", at=str(path), fix="see recipes/ablations/"
        )
    return [Variant(d.name, d.about, d.paper, recipe) for d, recipe in _variants(path, source)]


def recipe_from_text(text: str, name: str, overrides: Sequence[str] = ()) -> Recipe:
    """A recipe from its YAML text, paths as they stand; ``name`` is what errors call the file.

    Raises:
        UserError: everything that is wrong with it, each with file, line and column.
    """
    return _resolved(read_yaml(text, name), overrides)


def dump_recipe(recipe: Recipe) -> str:
    """The resolved recipe as YAML; it reads back as an equal one."""
    values = _none_as_text(recipe.model_dump(by_alias=True, mode="json"))
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def changed_keys(old: Recipe, new: Recipe) -> list[str]:
    """``model.norm: scalenorm -> layernorm`` for every key that differs."""
    before, after = (dict(_leaves(r.model_dump(by_alias=True))) for r in (old, new))
    return [
        f"{'.'.join(path)}: {format_value(before.get(path))} -> {format_value(after.get(path))}"
        for path in [*before, *(p for p in after if p not in before)]
        if before.get(path) != after.get(path)
    ]


def _read(path: Path) -> YamlDocument:
    try:
        text = _bytes_of(path).decode("utf-8")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise UserError(
            f"not UTF-8 ({error.reason})", at=f"{path}:{line}", fix="save the recipe as UTF-8"
        ) from error
    except OSError as error:
        raise UserError(
            f"cannot read the recipe: {error.strerror}", at=str(path), fix="check the path"
        ) from error
    return read_yaml(text, str(path))


def _bytes_of(path: Path) -> bytes:
    """Read a file or a pipe; what has no end, or nobody to write to it, is refused."""

    def without_waiting(name: str, flags: int) -> int:  # for a writer that may never come
        return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))

    with open(path, "rb", opener=without_waiting) as file:
        mode = os.fstat(file.fileno()).st_mode
        if stat.S_ISFIFO(mode):
            os.set_blocking(file.fileno(), True)
        elif not stat.S_ISREG(mode):
            raise UserError("not a file", at=str(path), fix="give a YAML file, or a pipe")
        data = file.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        raise UserError(
            f"over {LARGEST_FILE:,} bytes, so it is not a recipe",
            at=str(path),
            fix="check the path",
        )
    if stat.S_ISFIFO(mode) and not data:
        raise UserError("nothing writes to this pipe", at=str(path), fix="give a YAML file")
    return data


def _load_variant(
    path: Path, source: YamlDocument, overrides: Sequence[str], variant: str | None
) -> Recipe:
    found = _variants(path, source)
    draft, recipe = found[_chosen(path, variant, found)]
    if not overrides:
        return recipe
    base = _base(draft, [])
    assert base is not None, "it has been read a moment ago"
    changed = _recipe_of(draft, path, base, overrides)
    if changed is None:
        raise recipe_error(base.problems, str(path))
    return changed


def _resolved(source: YamlDocument, overrides: Sequence[str]) -> Recipe:
    recipe = resolve(source, (), overrides)
    if recipe is None:
        raise recipe_error(source.problems, source.file)
    return recipe


def _variants(path: Path, source: YamlDocument) -> list[tuple[VariantSpec, Recipe]]:
    """All variants of a file: what is wrong with one is said before another has run for days."""
    drafts = read_variants(source)
    problems = list(source.problems)
    bases = {draft.base: draft for draft in drafts}
    sources = {base: _base(draft, problems) for base, draft in bases.items()}
    found: list[tuple[VariantSpec, Recipe]] = []
    first: dict[tuple[Path, str], VariantSpec] = {}
    for draft in drafts:
        if (base := copy.deepcopy(sources[draft.base])) is None:
            continue
        if (recipe := _recipe_of(draft, path, base)) is None:
            problems += base.problems
            continue
        setting = repr(recipe.model_copy(update={"out": ""}))
        same = first.setdefault((draft.base, setting), draft)
        if same is not draft:
            what = f'variant "{draft.name}" changes nothing against "{same.name}" at {same.place}'
            problems.append(Problem(draft.place, what))
        found.append((draft, recipe))
    if problems:
        raise recipe_error(problems, source.file)
    return found


def _base(draft: VariantSpec, problems: list[Problem]) -> YamlDocument | None:
    """The recipe that a variant changes, without its run folder; None if it is a problem."""
    if not draft.base.is_file():
        near = did_you_mean(draft.base.name, [p.name for p in draft.base.parent.glob("*.yaml")])
        problems.append(Problem(draft.base_place, f"base: there is no file {draft.base}{near}"))
        return None
    base = _read(draft.base)
    if is_variants_file(base):
        what = f"base: {draft.base} lists variants itself; a base is a recipe"
        problems.append(Problem(draft.base_place, what))
        return None
    base.values.pop("out", None)
    return base


def _recipe_of(
    draft: VariantSpec, path: Path, base: YamlDocument, overrides: Sequence[str] = ()
) -> Recipe | None:
    """What a variant makes of its base, which is changed; None if ``base.problems`` says why."""
    changes = [
        change._replace(value=resolve_path(path.parent, change.value))
        if change.path in PATHS
        else change
        for change in draft.changes
    ]
    recipe = resolve(base, changes, overrides)
    return recipe and _with_paths(recipe, draft.base, Path("runs") / path.stem / draft.name)


def _chosen(path: Path, wanted: str | None, found: list[tuple[VariantSpec, Recipe]]) -> int:
    """The place of the variant called ``wanted``.

    Raises:
        UserError: none is wanted or it does not exist; says which there are, each in a line.
    """
    names = [draft.name for draft, _ in found]
    if wanted in names:
        return names.index(wanted)
    if wanted is None:
        what = f"lists {len(names)} variants of a recipe"
    else:
        what = f'lists no variant "{wanted}"{did_you_mean(wanted, names)}'
    width = max(map(len, names))
    lines = [f"{draft.name:<{width}}  {draft.about}" for draft, _ in found]
    fix = "choose one with --variant:\n     " + "\n     ".join(lines)
    raise UserError(what, at=str(path), fix=fix)


def _with_paths(recipe: Recipe, file: Path, run: Path) -> Recipe:
    """The recipe of a file with absolute paths, and with its run folder, ``run`` by default."""
    folder = file.resolve().parent

    def absolute(path: str) -> str:
        return os.path.normpath(folder / os.path.expanduser(path))

    data, segment = recipe.data, recipe.segment
    given = {name: getattr(segment, name) for group, name in PATHS if hasattr(segment, name)}
    return recipe.model_copy(
        update={
            "out": os.path.expanduser(recipe.out) or str(run),
            "segment": segment.model_copy(
                update={k: absolute(path) for k, path in given.items() if path != "learn"}
            ),
            "data": data.model_copy(
                update={
                    "train": [absolute(prefix) for prefix in data.train],
                    "dev": absolute(data.dev),
                    "test": data.test and absolute(data.test),
                }
            ),
        }
    )


def _none_as_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _none_as_text(inner) for key, inner in value.items()}
    return "none" if value is None else value


def _leaves(values: dict[str, Any], above: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key), value
