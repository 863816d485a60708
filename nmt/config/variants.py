"""Files of variants: a base recipe, and named variants of it with the keys that each changes.

A variant is a part of a recipe, a description in one line, and the figures that a paper prints
for it::

    base: ../en-vi.yaml
    common:
      model: {norm: layernorm}
    variants:
      post-8k:
        about: PostNorm with 8k updates of warm-up
        paper: {dev: 28.20}
        model: {norm_place: post}

With a list of bases, each variant exists for each of them, under the name BASE/NAME. With corpora,
it exists for each corpus: CORPUS/NAME, or BASE/CORPUS/NAME. A variant has a run folder of its own:
``out`` of a base does not count. ``seeds``, ``baseline`` and ``budget`` are for nmt-sweep, which
trains all variants; nmt-train ignores them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import ConfigDict, Field

from nmt.config.errors import did_you_mean, format_value, kind_of, recipe_error
from nmt.config.merge import (
    absolute_paths,
    apply_overrides,
    check,
    is_variants_file,
    merge,
    nest,
    read_file,
    with_run_folder,
)
from nmt.config.recipe import Recipe, groups
from nmt.config.schedules import MAX_UPDATES
from nmt.config.schema import ConfigBase, in_words, is_none, key, keys_of, list_of
from nmt.config.yaml import Group, KeyPath, Problem, Text
from nmt.errors import UserError
from nmt.runtime.files import require_usable

Printed: TypeAlias = Annotated[float, Field(ge=0)] | Literal["fails"]
_FORM = "a number or fails; for several bases, one for each: {gl-en: 18.47, sk-en: fails}"
Figure: TypeAlias = Annotated[Printed | dict[str, Printed] | None, in_words(_FORM)]
Keys: TypeAlias = dict[str, Any]
_Name: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
CORPUS_KEYS = ("src", "tgt", "data", "segment")
"""Recipe keys that an entry of ``corpora`` may set."""


class Paper(ConfigBase):
    """What a paper prints for a variant."""

    dev: Figure = key(None, "T tables 2, 4, 5")
    """score on dev, of the metric score.select_by"""
    test: Figure = key(None, "T tables 3, 6, 7")
    """tokenized BLEU on test"""
    ppl: Figure = key(None, "N")
    """perplexity on dev"""


class VariantKeys(ConfigBase):
    """Keys of a variant besides the recipe keys that it changes."""

    model_config = ConfigDict(extra="ignore")  # recipe keys

    about: str = key(..., "O", min_length=1)
    """description of the variant in one line"""
    paper: Paper | None = key(None, "O")
    """figures that a paper prints for the variant: dev, test, ppl"""


class Budget(ConfigBase):
    """What each run of a sweep may use; with both keys, training ends at the first limit."""

    hours: float | None = key(None, "O", gt=0)
    """hours of training; sets time_limit, which ends a run and does not change its schedule"""
    tokens: float | None = key(None, "O", gt=0)
    """tokens of training: updates x data.batch_tokens x optim.accumulate; sets
    schedule.total_updates of a linear schedule, which the recipe may then omit, and
    train.max_validations with other schedules"""

    def _broken_rules(self) -> Iterator[str]:
        if self.hours is self.tokens is None:
            yield "budget: set hours, tokens or both"

    def updates(self, recipe: Recipe) -> int | None:
        """Convert ``tokens`` to updates of full batches; None if they have no limit."""
        if self.tokens is None:
            return None
        return max(1, round(self.tokens / (recipe.data.batch_tokens * recipe.optim.accumulate)))


class VariantsKeys(ConfigBase):
    """Top level of a file of variants."""

    base: Annotated[
        list[str],
        Field(min_length=1),
        list_of(str, "the path of a recipe, or a list of them", 1),
    ] = key(..., "O")
    """recipe or recipes that the variants change; paths are relative to the file"""
    common: Keys = key({}, "O")
    """recipe keys that every variant changes"""
    corpora: dict[_Name, Keys] = key({}, "O")
    """corpora by name, each with the keys of src, tgt, data and segment that it changes; each
    variant is trained on each corpus"""
    variants: Annotated[dict[_Name, Keys], Field(min_length=1)] = key(..., "O")
    """variants by name: about, paper, and the recipe keys that the variant changes"""
    seeds: list[Annotated[int, Field(ge=0, le=2**32 - 1)]] = key([], "O")
    """seeds that nmt-sweep trains each variant with; empty = the seed of the recipe"""
    baseline: str | None = key(None, "O", form="the name of a variant")
    """variant that nmt-sweep compares the others with; none = the first"""
    budget: Budget | None = key(None, "O")
    """limits of each run of nmt-sweep: hours, tokens"""


@dataclass(frozen=True)
class Variant:
    """A variant of a recipe, from a file of variants."""

    name: str  # as --variant takes it
    group: str  # base and corpus, the part of the name before the variant's own, or empty
    about: str
    paper: dict[str, float | str]  # dev, test, ppl -> the figure that a paper prints, or "fails"
    recipe: Recipe
    tree: Group  # its base with the changes of the variant
    budget: Budget | None  # of the file; sets the updates of a linear schedule that names none

    @property
    def own_name(self) -> str:
        """The name without base and corpus."""
        return self.name.removeprefix(f"{self.group}/") if self.group else self.name


@dataclass(frozen=True)
class Sweep:
    """A file of variants, as nmt-sweep trains it."""

    variants: list[Variant]  # in the order of the file, by base and corpus
    seeds: list[int]  # of each variant; empty = the seed of its recipe
    baseline: str  # name of the variant that the others are compared with
    budget: Budget | None  # limits of each run


def load_sweep(path: str | Path, overrides: Sequence[str] = ()) -> Sweep:
    """Read a file of variants with the keys that nmt-sweep uses; overrides are applied last."""
    problems: list[Problem] = []
    tree = read_file(Path(path), problems)
    if not is_variants_file(tree):
        raise UserError(
            "this is a recipe; a sweep needs a file of variants",
            at=str(path),
            fix=f"write a file with base: {Path(path).name} and variants, as those in "
            "recipes/sweeps/",
        )
    file, variants = _read(tree, problems)
    if overrides:
        variants = [replace(v, recipe=variant_recipe(v, overrides)) for v in variants]
    baseline = file.baseline or next(iter(file.variants))
    return Sweep(variants, file.seeds, baseline, file.budget)


def choose_variant(
    tree: Group, name: str | None, overrides: Sequence[str], problems: list[Problem]
) -> Recipe:
    """Return the recipe of a variant; the error for a missing or unknown name lists all.

    Args:
        problems: found in the tree already.
    """
    variants = {variant.name: variant for variant in _read(tree, problems)[1]}
    if name in variants:
        return variant_recipe(variants[name], overrides)
    what = f"lists {len(variants)} variant{'s' * (len(variants) != 1)} of a recipe"
    if name is not None:
        what = f'has no variant "{name}"{did_you_mean(name, variants)}'
    width = max(map(len, variants))
    lines = [f"{v.name:<{width}}  {v.about}" for v in variants.values()]
    fix = "choose one with --variant:\n     " + "\n     ".join(lines)
    raise UserError(what, at=tree.file, fix=fix)


def variant_recipe(variant: Variant, overrides: Sequence[str]) -> Recipe:
    """Return the recipe of a variant, with overrides that are applied last."""
    if not overrides:
        return variant.recipe
    problems: list[Problem] = []
    tree = apply_overrides(variant.tree, overrides, problems)
    recipe = _check_recipe(tree, variant.budget, problems)
    if recipe is None or problems:
        raise recipe_error(problems, tree.file)
    return with_run_folder(recipe, Path(variant.recipe.out))


def _read(tree: Group, problems: list[Problem]) -> tuple[VariantsKeys, list[Variant]]:
    """Check the recipes of all variants, before one of them trains for days."""
    path = Path(tree.file)
    folder = path.resolve().parent
    file = check(VariantsKeys, tree, problems)
    if file is None:
        raise recipe_error(problems, tree.file)
    _check_sweep_keys(file, tree, problems)
    bases = _bases(file, tree, problems)
    common = _part_of_recipe(tree, ("common",))
    corpora = {name: _part_of_recipe(tree, ("corpora", name)) for name in file.corpora}
    corpora = corpora or {"": Group({}, tree.place)}
    groups_of_file = {
        "/".join(filter(None, (base if len(bases) > 1 else "", corpus))): (base, corpus)
        for base in bases
        for corpus in corpora
    }
    labels = [label for label in groups_of_file if label]
    keys = {name: check(VariantKeys, tree, problems, ("variants", name)) for name in file.variants}
    variants: list[Variant] = []
    names: dict[tuple[str, str], str] = {}  # a recipe -> the first variant that gives it
    for label, (base, corpus) in groups_of_file.items():
        for name, about in keys.items():
            start = bases[base]
            if about is None or start is None:
                continue
            own = _part_of_recipe(tree, ("variants", name), omit=keys_of(VariantKeys))
            for changes in (common, corpora[corpus], own):
                start = merge(start, absolute_paths(changes, folder))
            recipe = _check_recipe(start, file.budget, problems)
            if recipe is None:
                continue
            full = f"{label}/{name}" if label else name
            same = names.setdefault((base, repr(recipe.model_copy(update={"out": ""}))), full)
            if same != full:
                other = tree.place_of(("variants", same.rpartition("/")[2])).key
                what = f'variant "{full}" gives the same recipe as "{same}" at {other}'
                problems.append(Problem(tree.place_of(("variants", name)).key, what))
            figures = _figures(about.paper, label, labels, tree, name, problems)
            recipe = with_run_folder(recipe, Path("runs") / path.stem / full)
            variants.append(Variant(full, label, about.about, figures, recipe, start, file.budget))
    if problems:
        raise recipe_error(problems, tree.file)
    return file, variants


def _bases(file: VariantsKeys, tree: Group, problems: list[Problem]) -> dict[str, Group | None]:
    """Read the recipes that the variants change, by name, without their run folders."""
    bases: dict[str, Group | None] = {}
    for i, name in enumerate(file.base):
        path, place = Path(tree.file).parent / name, tree.place_of(("base", i)).value
        if path.stem in bases:
            problems.append(Problem(place, f'base: two recipes are called "{path.stem}"'))
            continue
        bases[path.stem] = None
        require_usable(str(path), str(place))
        if not path.is_file():
            near = did_you_mean(path.name, [p.name for p in path.parent.glob("*.yaml")])
            problems.append(Problem(place, f"base: there is no file {path}{near}"))
            continue
        base = read_file(path, problems)
        if is_variants_file(base):
            what = f"base: {path} is a file of variants; a base must be a recipe"
            problems.append(Problem(place, what))
            continue
        base.pop("out", None)
        bases[path.stem] = absolute_paths(base, path.resolve().parent)
    return bases


def _check_sweep_keys(file: VariantsKeys, tree: Group, problems: list[Problem]) -> None:
    def wrong(path: KeyPath, text: str) -> None:
        problems.append(Problem(tree.place_of(path).value, text))

    for name in file.corpora:
        for group in tree.at(("corpora", name)):
            if group not in CORPUS_KEYS:
                text = f'corpora.{name}: a corpus sets {", ".join(CORPUS_KEYS)}, but not "{group}"'
                place = tree.place_of(("corpora", name, str(group))).key
                problems.append(Problem(place, f"{text}; set it in common or in a variant"))
    seeds = file.seeds
    if twice := [seed for i, seed in enumerate(seeds) if seed in seeds[:i]]:
        wrong(("seeds",), f"seeds: {twice[0]} is listed twice")
    baseline, names = file.baseline, file.variants.keys()
    if baseline is not None and baseline not in names:
        hint = did_you_mean(baseline, names) or f"; the variants are {', '.join(names)}"
        wrong(("baseline",), f'baseline: there is no variant "{baseline}"{hint}')


def _check_recipe(tree: Group, budget: Budget | None, problems: list[Problem]) -> Recipe | None:
    """Return the recipe of a tree, or None after appending what is wrong with it."""
    key = ("schedule", "total_updates")
    linear = kind_of("schedule", tree) == "linear"
    if budget and budget.tokens and linear and tree.at(key) is None:
        place = tree.place_of(key)
        # any number of updates gives the recipe whose batches decide the number of the budget
        anything = check(Recipe, merge(tree, nest(key, Text(str(MAX_UPDATES), place))), problems)
        if anything is None:
            return None
        tree = merge(tree, nest(key, Text(str(budget.updates(anything)), place)))
    return check(Recipe, tree, problems)


def _part_of_recipe(tree: Group, path: KeyPath, omit: Collection[str] = ()) -> Group:
    """Return the recipe keys of a part of the file; an empty group changes nothing."""
    part = tree.at(path) or Group({}, tree.place)
    values = {
        key: value
        for key, value in part.items()
        if key not in omit and not (key in groups() and is_none(value))
    }
    return Group(values, part.place)


def _figures(
    paper: Paper | None,
    label: str,
    labels: list[str],
    tree: Group,
    variant: str,
    problems: list[Problem],
) -> dict[str, float | str]:
    """Return the figures printed for one base and corpus; of several, a figure must name each."""
    figures: dict[str, float | str] = {}
    for name, figure in paper or ():
        path = ("variants", variant, "paper", name)
        if isinstance(figure, dict):
            for other in [other for other in figure if other not in labels]:
                text = f'{".".join(path)}: "{other}" is not a base or corpus of this file'
                text += did_you_mean(other, labels) or f"; {', '.join(labels) or 'it has only one'}"
                problems.append(Problem(tree.place_of((*path, str(other))).key, text))
            figure = figure.get(label)
        elif figure is not None and labels:
            example = f"{{{labels[0]}: {format_value(figure)}}}"
            text = f"{'.'.join(path)}: name the base or corpus of each figure: {example}"
            problems.append(Problem(tree.place_of(path).value, text))
        if figure is not None:
            figures[name] = figure
    return figures
