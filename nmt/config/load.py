"""From files to recipes: a file, a variant and overrides in, a checked recipe out.

A file, variants and overrides are merged as text with places (``nmt.config.document``). The merged
document then becomes a recipe. The schema decides the type of a value, not YAML: ``no`` stays the
language "no", ``3e-4`` is a number, and ``1:30`` for a number is an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from nmt.config.document import (
    absolute_paths,
    apply_overrides,
    as_node,
    merge,
    nest,
    set_key,
    with_present_names,
)
from nmt.config.errors import did_you_mean, explain, format_value, kind_of, raise_problems
from nmt.config.recipe import ENTRIES, CorpusEntry, HeldOutEntry, Recipe, groups
from nmt.config.schedules import MAX_UPDATES
from nmt.config.schema import keys_of
from nmt.config.variants import (
    Budget,
    Range,
    VariantsKeys,
    VariantSpec,
    is_variants_file,
    read_range,
    read_variants,
)
from nmt.config.yaml import KeyPath, Location, Node, Problem, is_none, key_name, read_yaml
from nmt.errors import UserError
from nmt.runtime.files import open_file, require_usable
from nmt.runtime.missing import missing_fix

MAX_BYTES = 1 << 20  # of a recipe file
TOTAL_UPDATES = ("schedule", "total_updates")
DIGITS = r"\d+(?:_\d+)*"
ODD_NUMBER = re.compile(  # pydantic reads 08 as 8, 1_000 as 1000, 1e-5_0 as 1e-50
    rf"[-+]?0\d+|(?=.*_)[-+]?(?:{DIGITS}(?:\.(?:{DIGITS})?)?|\.{DIGITS})(?:[eE][-+]?{DIGITS})?",
    re.ASCII,
)


@dataclass(frozen=True)
class Variant:
    """A variant of a recipe, from a file of variants.

    Attributes:
        name: as ``--variant`` takes it.
        group: base and corpus, the part of the name before the variant's own, or empty.
        about: a description in one line.
        paper: figures that a paper prints, by name: dev, test, ppl; a number or "fails".
        recipe: the recipe of the variant.
        document: its base with the changes of the variant.
        budget: of the file; it sets the updates of a linear schedule that names none.
    """

    name: str
    group: str
    about: str
    paper: dict[str, float | str]
    recipe: Recipe
    document: Node
    budget: Budget | None

    @property
    def own_name(self) -> str:
        """Return the name without base and corpus."""
        return self.name.removeprefix(f"{self.group}/") if self.group else self.name


@dataclass(frozen=True)
class SearchPlan:
    """A search over recipe keys.

    Attributes:
        trials: trainings of each variant.
        prune: whether bad trials end early.
        space: recipe key -> its range, or the texts of its values.
    """

    trials: int
    prune: bool
    space: dict[str, Range | list[str]]


@dataclass(frozen=True)
class Sweep:
    """A file of variants, as nmt-sweep trains it.

    Attributes:
        variants: in the order of the file, by base and corpus.
        seeds: of each variant; empty = the seed of its recipe.
        baseline: name of the variant that the others are compared with.
        budget: limits of each run.
        search: trains trials instead of seeds; None = no search.
    """

    variants: list[Variant]
    seeds: list[int]
    baseline: str
    budget: Budget | None
    search: SearchPlan | None


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
    document = _read_file(path, problems)
    if is_variants_file(document):
        chosen = _choose(variant, path, _read_variants(path, document, problems)[1])
        return variant_recipe(chosen, overrides) if overrides else chosen.recipe
    if variant is not None:
        raise UserError(
            "this is a recipe; it has no variants", at=str(path), fix="leave out --variant"
        )
    document = absolute_paths(document, path.resolve().parent)
    return _resolve(document, overrides, Path("runs") / path.stem, problems)


def load_variants(path: str | Path) -> list[Variant]:
    """Read every variant that a file lists, in its order.

    Raises:
        UserError: the file is a recipe, or all errors of its variants.
    """
    path = Path(path)
    problems: list[Problem] = []
    document = _read_file(path, problems)
    if not is_variants_file(document):
        raise UserError(
            "this is a recipe; it has no variants",
            at=str(path),
            fix="name a file of variants, such as those in recipes/ablations/",
        )
    return _read_variants(path, document, problems)[1]


def load_sweep(path: str | Path, overrides: Sequence[str] = ()) -> Sweep:
    """Read a file of variants with the keys that nmt-sweep uses.

    Args:
        path: a file of variants.
        overrides: ``key=value``, applied last to each variant.

    Raises:
        UserError: the file is a recipe, or all errors of its variants and its search.
    """
    path = Path(path)
    problems: list[Problem] = []
    document = _read_file(path, problems)
    if not is_variants_file(document):
        raise UserError(
            "this is a recipe; a sweep needs a file of variants",
            at=str(path),
            fix=f"write a file with base: {path.name} and variants, as those in recipes/sweeps/",
        )
    file, variants = _read_variants(path, document, problems)
    if overrides:
        variants = [
            replace(variant, recipe=variant_recipe(variant, overrides)) for variant in variants
        ]
    search = None
    if file.search is not None:
        space = _search_space(document, path.resolve().parent, variants, problems)
        search = SearchPlan(file.search.trials, file.search.prune, space)
    raise_problems(problems, str(path))
    baseline = file.baseline or next(iter(file.variants))
    return Sweep(variants, file.seeds, baseline, file.budget, search)


def variant_recipe(variant: Variant, overrides: Sequence[str]) -> Recipe:
    """Return the recipe of a variant with other overrides than it was read with.

    Args:
        variant: of a file of variants.
        overrides: ``key=value``, applied last.

    Raises:
        UserError: all errors of the recipe.
    """
    out = Path(variant.recipe.out)
    return _resolve(variant.document, overrides, out, budget=variant.budget)


def _search_space(
    document: Node, folder: Path, variants: Sequence[Variant], problems: list[Problem]
) -> dict[str, Range | list[str]]:
    """Return the values of each key of a search; each value alone must give a valid recipe.

    Args:
        folder: where relative paths are resolved.
    """
    node = document.find(("search", "space"))
    assert node is not None
    space: dict[str, Range | list[str]] = {}
    for name, given in node.group.items():
        key = name.split(".")
        values = absolute_paths(nest(key, given), folder).find(key) or given
        ends = [values.group[end] for end in ("low", "high") if end in values.group]
        tried = values.value if isinstance(values.value, list) else ends
        before = len(problems)
        _try_values(name, values, tried, variants, problems)
        limits = read_range(values, name, document, problems)
        whole = limits and limits.low % 1 == limits.high % 1 == 0 and not limits.integer
        if limits and whole and len(problems) == before:
            between = replace(values, value=f"{(limits.low + limits.high) // 2 + 0.5}")
            found: list[Problem] = []
            _try_values(name, values, [between], variants, found)
            if found:
                text = f"search.space.{name}: the key takes whole numbers only; add int: true"
                problems.append(Problem(values.at, text))
        space[name] = limits or [format_value(value.plain()) for value in tried]
    return space


def _try_values(
    name: str,
    values: Node,
    tried: Sequence[Node],
    variants: Sequence[Variant],
    problems: list[Problem],
) -> None:
    """Append what is wrong with the variants if a key of ``search.space`` has one of some values.

    Args:
        values: of the key in the file.
        tried: values of the key.
    """
    for variant in variants:
        for value in tried:
            changes = nest(name.split("."), replace(value, key_at=values.key_at))
            _validate(merge(variant.document, changes), problems, variant.budget)


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
    document = absolute_paths(as_node(recipe, Location("recipe")), Path.cwd())
    resolved = _resolve(document, overrides, None)
    if not resolved.out:
        raise UserError(
            "a recipe without a file needs the path of a run folder",
            at="out",
            fix='set it, such as "out": "runs/first"',
        )
    return _with_run_folder(resolved, Path())


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
    return _resolve(read_yaml(text, name, problems), overrides, None, problems)


def stored_recipe(text: str, name: str) -> Recipe:
    """Read the config.yaml of a run folder; keys of versions 0.1 and 0.2 get their present names.

    Args:
        text: YAML that ``dump_recipe`` wrote.
        name: name of the file in errors.

    Raises:
        UserError: all errors of the recipe, each with file, line and column.
    """
    problems: list[Problem] = []
    return _resolve(with_present_names(read_yaml(text, name, problems)), (), None, problems)


def dump_recipe(recipe: Recipe) -> str:
    """Return all keys of a recipe as YAML, which reads back as an equal recipe."""
    values = _none_as_text(recipe.model_dump(by_alias=True, mode="json"))
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def changed_keys(old: Recipe, new: Recipe) -> dict[str, str]:
    """Return the keys that differ: ``model.norm`` -> ``scalenorm -> layernorm``."""
    before, after = (dict(_leaves(r.model_dump(by_alias=True))) for r in (old, new))
    return {
        ".".join(path): f"{format_value(before.get(path))} -> {format_value(after.get(path))}"
        for path in {**before, **after}
        if before.get(path) != after.get(path)
    }


def recipe_values(recipe: Recipe) -> dict[str, Any]:
    """Return the values of all keys as JSON has them, by names such as ``model.norm``.

    Those of corpora are by names such as ``data.train[0].tag``, besides ``data.train``.
    """
    values = {
        ".".join(path): v for path, v in _leaves(recipe.model_dump(by_alias=True, mode="json"))
    }
    for group, key in ENTRIES:
        for i, entry in enumerate(getattr(getattr(recipe, group), key, None) or []):
            named = _entry_values(entry, recipe).items()
            values |= {f"{group}.{key}[{i}].{name}": value for name, value in named}
    return values


def changed_entries(old: Recipe, new: Recipe) -> list[str]:
    """Return what differs in the entries of corpora besides their paths, a sentence each.

    A number of entries that differs is not listed: the files then differ too.
    """
    found = []
    for group, key in ENTRIES:
        before, after = (getattr(getattr(r, group), key, None) or [] for r in (old, new))
        for i, (entry_before, entry_after) in enumerate(zip(before, after, strict=False)):
            then, now = _entry_values(entry_before, old), _entry_values(entry_after, new)
            found += [
                f"{group}.{key}[{i}].{name}: {format_value(then.get(name))} -> "
                f"{format_value(now.get(name))}"
                for name in {**then, **now}
                if then.get(name) != now.get(name)
            ]
    return found


def _entry_values(entry: CorpusEntry | HeldOutEntry, recipe: Recipe) -> dict[str, Any]:
    """Return the values of an entry besides its paths, those of the recipe where it has none."""
    src, tgt = entry.langs(recipe)
    values = entry.model_dump(exclude={"path", "other_refs"})
    return {**values, "src": src, "tgt": tgt, "tokenized": entry.is_tokenized(recipe.data)}


def _read_file(path: Path, problems: list[Problem]) -> Node:
    try:
        text = _read_bytes(path).decode("utf-8")
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
    return read_yaml(text, str(path), problems)


def _read_bytes(path: Path) -> bytes:
    """Read a file or a pipe; refuse devices, huge files and pipes without a writer."""
    with open_file(path, pipes=True) as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise UserError(
            f"over {MAX_BYTES:,} bytes, so it is not a recipe", at=str(path), fix="check the path"
        )
    if not data and not path.is_file():
        raise UserError("nothing writes to this pipe", at=str(path), fix="pass a YAML file")
    return data


def _resolve(
    document: Node,
    overrides: Sequence[str],
    run_folder: Path | None,
    problems: Sequence[Problem] = (),
    budget: Budget | None = None,
) -> Recipe:
    """Apply overrides and check the result.

    Args:
        document: a recipe.
        overrides: ``key=value``.
        run_folder: of a recipe without ``out``; None leaves ``out`` as it is.
        problems: already found.
        budget: sets the updates of a linear schedule that names none.

    Raises:
        UserError: all errors of the recipe.
    """
    found = list(problems)
    recipe = _validate(apply_overrides(document, overrides, found), found, budget)
    raise_problems(found, document.at.file)
    assert recipe is not None, "a recipe that is not valid has problems"
    return recipe if run_folder is None else _with_run_folder(recipe, run_folder)


def _validate(
    document: Node, problems: list[Problem], budget: Budget | None = None
) -> Recipe | None:
    """Return the recipe of a document, or None after appending what is wrong with it."""
    linear = kind_of("schedule", document) == "linear"
    if budget and budget.tokens and linear and not document.find(TOTAL_UPDATES):
        # any number of updates gives the recipe whose batches decide the number of the budget
        anything = _validate(set_key(document, TOTAL_UPDATES, str(MAX_UPDATES)), problems)
        if anything is None:
            return None
        document = set_key(document, TOTAL_UPDATES, str(budget.updates(anything)))
    before = len(problems)
    try:
        recipe = Recipe.model_validate(_read_values(document, problems))
    except ValidationError as failure:
        problems += explain(failure, document)
    return None if len(problems) > before else recipe


def _read_values(document: Node, problems: list[Problem]) -> dict[str, Any]:
    """Return the values of a document as text, or None where a key allows it, for pydantic."""
    values: dict[str, Any] = document.plain()
    for group, kinds in groups().items():
        if group in values and is_none(values[group]):
            values[group] = {}
        model = kinds.get(kind_of(group, document))
        if model and isinstance(values.get(group), dict):
            _read_text(values[group], keys_of(model), (group,), document, problems)
    for (group, key), entry in ENTRIES.items():
        given = values[group].get(key) if isinstance(values.get(group), dict) else None
        if isinstance(given, dict):
            _read_text(given, keys_of(entry), (group, key), document, problems)
        for i, item in enumerate(given if isinstance(given, list) else ()):
            if isinstance(item, dict):
                _read_text(item, keys_of(entry), (group, key, str(i)), document, problems)
    _read_text(values, keys_of(Recipe), (), document, problems)
    return values


def _read_text(
    values: dict[str, Any],
    keys: Mapping[str, FieldInfo],
    above: tuple[str, ...],
    document: Node,
    problems: list[Problem],
) -> None:
    """Replace "none" by None where the key allows it, and refuse ambiguous numbers."""
    for key in values.keys() & keys.keys():
        value, path = values[key], (*above, key)
        types = set(_types(keys[key].annotation))
        if type(None) in types and is_none(value):
            values[key] = None
        elif types & {int, float} and isinstance(value, str) and ODD_NUMBER.fullmatch(value):
            plain = re.sub(r"^([-+]?)0+(?=\d)", r"\1", value.replace("_", ""))
            text = f'{key_name(path)}: "{value}" can be read in two ways; write {plain}'
            node = document.find(path)
            assert node is not None
            problems.append(Problem(node.at, text))


def _types(annotation: Any) -> list[Any]:
    inner = [t for argument in get_args(annotation) for t in _types(argument)]
    return inner or [annotation]


def _with_run_folder(recipe: Recipe, default: Path) -> Recipe:
    out = os.path.expanduser(recipe.out) or str(default)
    require_usable(out, "out")
    if Path(out).name in ("", ".."):  # the cache is next to the run folder, and --fresh renames it
        out = os.path.abspath(out)
    return recipe.model_copy(update={"out": out})


def _read_variants(
    path: Path, document: Node, problems: list[Problem]
) -> tuple[VariantsKeys, list[Variant]]:
    """Return the top level of a file, and all variants, each with a checked recipe.

    Errors in one variant are found before another one trains for days.

    Raises:
        UserError: all errors of all variants.
    """
    file, specs = read_variants(document, problems)
    budget = file.budget if file else None
    of_base = {spec.base: spec for spec in specs}
    bases = {base: _read_base(spec, problems) for base, spec in of_base.items()}
    variants = []
    first: dict[tuple[Path, str], VariantSpec] = {}
    for spec in specs:
        merged = bases[spec.base]
        if merged is None:
            continue
        for changes in spec.changes:
            merged = merge(merged, absolute_paths(changes, path.resolve().parent))
        recipe = _validate(merged, problems, budget)
        if recipe is None:
            continue
        same = first.setdefault((spec.base, repr(recipe.model_copy(update={"out": ""}))), spec)
        if same is not spec:
            what = f'variant "{spec.name}" gives the same recipe as "{same.name}" at {same.at}'
            problems.append(Problem(spec.at, what))
        recipe = _with_run_folder(recipe, Path("runs") / path.stem / spec.name)
        variants.append(
            Variant(spec.name, spec.group, spec.about, spec.paper, recipe, merged, budget)
        )
    raise_problems(problems, str(path))
    assert file is not None, "a file that is not valid has problems"
    return file, variants


def _read_base(spec: VariantSpec, problems: list[Problem]) -> Node | None:
    """Return the recipe that a variant changes, without its run folder; None after a problem."""
    if not spec.base.is_file():
        near = did_you_mean(spec.base.name, [p.name for p in spec.base.parent.glob("*.yaml")])
        problems.append(Problem(spec.base_at, f"base: there is no file {spec.base}{near}"))
        return None
    base = _read_file(spec.base, problems)
    if is_variants_file(base):
        what = f"base: {spec.base} is a file of variants; a base must be a recipe"
        problems.append(Problem(spec.base_at, what))
        return None
    keys = {key: node for key, node in base.group.items() if key != "out"}
    return absolute_paths(replace(base, value=keys), spec.base.resolve().parent)


def _choose(wanted: str | None, path: Path, variants: Sequence[Variant]) -> Variant:
    """Return the variant named ``wanted``.

    Raises:
        UserError: ``wanted`` is None or not the name of a variant; lists all variants.
    """
    names = [variant.name for variant in variants]
    if wanted in names:
        return variants[names.index(wanted)]
    if wanted is None:
        what = f"lists {len(names)} variant{'s' * (len(names) != 1)} of a recipe"
    else:
        what = f'has no variant "{wanted}"{did_you_mean(wanted, names)}'
    width = max(map(len, names))
    lines = [f"{variant.name:<{width}}  {variant.about}" for variant in variants]
    fix = "choose one with --variant:\n     " + "\n     ".join(lines)
    raise UserError(what, at=str(path), fix=fix)


def _none_as_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _none_as_text(inner) for key, inner in value.items()}
    return "none" if value is None else value


def _leaves(values: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[KeyPath, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key), value
