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
``out`` of a base does not count. ``seeds``, ``baseline``, ``budget`` and ``search`` are for
nmt-sweep, which trains all variants; nmt-train ignores them. This module reads such a file;
``nmt.config.load`` merges base and changes.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, ValidationError, model_validator

from nmt.config.errors import allowed, did_you_mean, format_value, quote_value
from nmt.config.recipe import Recipe, groups
from nmt.config.schema import ConfigBase, as_list, check_rules, item_or_list, keys_of, option
from nmt.config.yaml import KeyPath, Location, Node, Problem, is_none

Printed: TypeAlias = Annotated[float, Field(ge=0)] | Literal["fails"]
_FORM = "a number or fails; for several bases, one for each: {gl-en: 18.47, sk-en: fails}"
Figure: TypeAlias = Annotated[
    Printed | dict[str, Printed] | None, Field(json_schema_extra={"form": _FORM})
]
Group: TypeAlias = dict[str, Any]
_MODEL = TypeVar("_MODEL", bound=BaseModel)
_Name: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
CORPUS_KEYS = ("src", "tgt", "data", "segment")
"""Recipe keys that an entry of ``corpora`` may set."""


class Paper(ConfigBase):
    """What a paper prints for a variant."""

    dev: Figure = option(None, "score on dev, of the metric score.select_by", "T tables 2, 4, 5")
    test: Figure = option(None, "tokenized BLEU on test", "T tables 3, 6, 7")
    ppl: Figure = option(None, "perplexity on dev", "N")


class VariantKeys(ConfigBase):
    """Keys of a variant besides the recipe keys that it changes."""

    about: str = option(..., "description of the variant in one line", "O", min_length=1)
    paper: Paper | None = option(
        None, "figures that a paper prints for the variant: dev, test, ppl", "O"
    )


class Budget(ConfigBase):
    """What each run of a sweep may use; with both keys, training ends at the first limit."""

    hours: float | None = option(
        None,
        "hours of training; sets time_limit, which ends a run and does not change its schedule",
        "O",
        gt=0,
    )
    tokens: float | None = option(
        None,
        "tokens of training: updates x data.batch_tokens x optim.accumulate; sets "
        "schedule.total_updates of a linear schedule, which the recipe may then omit, and "
        "train.max_validations with other schedules",
        "O",
        gt=0,
    )

    @model_validator(mode="after")
    def _not_empty(self) -> Budget:
        check_rules((self.hours is self.tokens is None, "set hours, tokens or both"))
        return self

    def updates(self, recipe: Recipe) -> int | None:
        """Return how many updates of full batches have ``tokens``; None if these have no limit."""
        if self.tokens is None:
            return None
        return max(1, round(self.tokens / (recipe.data.batch_tokens * recipe.optim.accumulate)))


class Range(ConfigBase):
    """The values that a search tries for a key."""

    low: float = option(..., "lowest value", "O")
    high: float = option(..., "highest value", "O")
    log: bool = option(False, "true = uniform in the logarithm, for learning rates", "O")
    integer: bool = option(False, "true = whole numbers only", "O", alias="int")

    @model_validator(mode="after")
    def _consistent(self) -> Range:
        whole = self.low == int(self.low) and self.high == int(self.high)
        check_rules(
            (self.low >= self.high, f"low ({self.low:g}) must be below high ({self.high:g})"),
            (self.log and self.low <= 0, f"log: true requires low ({self.low:g}) above 0"),
            (self.integer and not whole, "int: true requires whole numbers as low and high"),
        )
        return self


class Search(ConfigBase):
    """A search over recipe keys with optuna; nmt-sweep runs one for each variant."""

    trials: int = option(20, "number of trainings of each variant", "O", ge=1)
    prune: bool = option(
        True,
        "true = end a trial whose best dev score is below the median of the earlier trials at the "
        "same number of updates, once five trials are complete",
        "O",
    )
    space: Annotated[dict[str, Any], Field(min_length=1)] = option(
        ...,
        "recipe keys to search, such as schedule.lr, each with a list of values or a range (low, "
        "high, log, int)",
        "O",
    )


class VariantsKeys(ConfigBase):
    """Top level of a file of variants."""

    base: Annotated[
        list[str],
        Field(min_length=1),
        BeforeValidator(as_list),
        item_or_list({"type": "string"}, "the path of a recipe, or a list of them", minItems=1),
    ] = option(
        ..., "recipe or recipes that the variants change; paths are relative to the file", "O"
    )
    common: Group = option({}, "recipe keys that every variant changes", "O")
    corpora: dict[_Name, Group] = option(
        {},
        "corpora by name, each with the keys of src, tgt, data and segment that it changes; each "
        "variant is trained on each corpus",
        "O",
    )
    variants: Annotated[dict[_Name, Group], Field(min_length=1)] = option(
        ..., "variants by name: about, paper, and the recipe keys that the variant changes", "O"
    )
    seeds: list[Annotated[int, Field(ge=0, le=2**32 - 1)]] = option(
        [], "seeds that nmt-sweep trains each variant with; empty = the seed of the recipe", "O"
    )
    baseline: str | None = option(
        None,
        "variant that nmt-sweep compares the others with; none = the first",
        "O",
        form="the name of a variant",
    )
    budget: Budget | None = option(None, "limits of each run of nmt-sweep: hours, tokens", "O")
    search: Search | None = option(
        None, "search of nmt-sweep over recipe keys: space, trials, prune", "O"
    )


_NESTED: dict[str, type[BaseModel]] = {"paper": Paper, "budget": Budget, "search": Search}


class VariantSpec(NamedTuple):
    """A variant of one base, before it is merged into a recipe.

    Attributes:
        name: as ``--variant`` takes it.
        group: base and corpus, the part of the name before the variant's own; empty if the file
            has one base and no corpora.
        about: a description in one line.
        paper: figures that a paper prints for this group.
        base: path of the recipe.
        base_at: where the file names the base.
        changes: parts of a recipe, to merge in this order.
        at: where the variant begins.
    """

    name: str
    group: str
    about: str
    paper: dict[str, float | str]
    base: Path
    base_at: Location
    changes: list[Node]
    at: Location


def is_variants_file(document: Node) -> bool:
    """Return whether a file lists variants; a recipe has neither of these keys."""
    return not document.group.keys().isdisjoint(("base", "variants"))


def read_variants(
    document: Node, problems: list[Problem]
) -> tuple[VariantsKeys | None, list[VariantSpec]]:
    """Return the top level of a file, and its variants for each base and corpus, in this order.

    Args:
        document: a file of variants.
        problems: everything wrong with it is appended.
    """
    file = _check(VariantsKeys, (), document, problems)
    if file is None:
        return None, []
    base_node, listed = document.group["base"], document.group["variants"]
    paths = [Path(document.at.file).parent / base for base in file.base]
    names = [path.stem for path in paths]
    if twice := [name for i, name in enumerate(names) if name in names[:i]]:
        problems.append(Problem(base_node.at, f'base: two recipes are called "{twice[0]}"'))
        return file, []
    _check_sweep_keys(file, document, problems)
    corpora = _corpora(document, problems)
    # for each base and corpus: its label, the base, where it is named, the changes of the corpus
    groups_of_file = [
        ("/".join(filter(None, (name if len(paths) > 1 else "", corpus))), path, at, changes)
        for path, name, at in zip(paths, names, _places(base_node, len(paths)), strict=True)
        for corpus, changes in corpora.items()
    ]
    labels = [label for label, *_ in groups_of_file if label]
    common = document.find(("common",))
    of_all = [_part_of_recipe(common)] if common else []
    own = keys_of(VariantKeys)
    checked = [
        (name, node, _check(VariantKeys, ("variants", name), document, problems, only=own))
        for name, node in listed.group.items()
    ]
    return file, [
        VariantSpec(
            name=f"{label}/{name}" if label else name,
            group=label,
            about=variant.about,
            paper=_figures(variant.paper, label, labels, node, name, problems),
            base=path,
            base_at=at,
            changes=[*of_all, *of_corpus, _part_of_recipe(node, omit=own)],
            at=node.key_at,
        )
        for label, path, at, of_corpus in groups_of_file
        for name, node, variant in checked
        if variant is not None
    ]


def check_baseline(name: str, variants: Collection[str]) -> str | None:
    """Return what is wrong with the name of a baseline, or None.

    Args:
        variants: the names of the file's variants, without base and corpus.
    """
    if name in variants:
        return None
    hint = did_you_mean(name, variants) or f"; the variants are {', '.join(variants)}"
    return f'baseline: there is no variant "{name}"{hint}'


def read_range(node: Node, name: str, document: Node, problems: list[Problem]) -> Range | None:
    """Return a range of ``search.space``, or None after appending what is wrong with it."""
    return _check(Range, ("search", "space", name), document, problems) if node.group else None


def _places(base: Node, count: int) -> list[Location]:
    """Return where a file names each of its bases."""
    return [item.at for item in base.value] if isinstance(base.value, list) else [base.at] * count


def _corpora(document: Node, problems: list[Problem]) -> dict[str, list[Node]]:
    """Return the changes of each corpus by its name; one without a name and changes if none."""
    listed = document.group.get("corpora")
    if listed is None or not listed.group:
        return {"": []}
    for name, corpus in listed.group.items():
        for key, node in corpus.group.items():
            if key not in CORPUS_KEYS:
                text = f'corpora.{name}: a corpus sets {", ".join(CORPUS_KEYS)}, but not "{key}"'
                problems.append(Problem(node.key_at, f"{text}; set it in common or in a variant"))
    return {name: [_part_of_recipe(corpus)] for name, corpus in listed.group.items()}


def _check_sweep_keys(file: VariantsKeys, document: Node, problems: list[Problem]) -> None:
    """Append what is wrong with the keys of a file that are for nmt-sweep."""
    seeds = file.seeds
    if twice := [seed for i, seed in enumerate(seeds) if seed in seeds[:i]]:
        at = document.group["seeds"].at
        problems.append(Problem(at, f"seeds: {twice[0]} is listed twice"))
    if file.baseline is not None and (wrong := check_baseline(file.baseline, file.variants)):
        problems.append(Problem(document.group["baseline"].at, wrong))
    if file.search is None:
        return
    if len(seeds) > 1:
        text = "seeds: a search trains with one seed; remove the others, or remove search"
        problems.append(Problem(document.group["seeds"].at, text))
    space = document.find(("search", "space"))
    for name, node in space.group.items() if space else ():
        items = node.value if isinstance(node.value, list) else []
        if node.group:
            read_range(node, name, document, problems)
        elif not items:
            text = f"search.space.{name}: {quote_value(node.plain())} is not a list of values"
            problems.append(Problem(node.at, f"{text}, or a range {{low: 1e-4, high: 1e-2}}"))


def _part_of_recipe(node: Node, omit: Collection[str] = ()) -> Node:
    """Return the recipe keys of a variant; an empty group changes nothing."""
    keys = {
        key: inner
        for key, inner in node.group.items()
        if key not in omit and not (key in groups() and is_none(inner.value))
    }
    return Node(keys, node.at, node.key_at)


def _figures(
    paper: Paper | None,
    group: str,
    names: list[str],
    variant: Node,
    variant_name: str,
    problems: list[Problem],
) -> dict[str, float | str]:
    """Return the figures printed for one base and corpus; of several, a figure must name each."""
    figures: dict[str, float | str] = {}
    for name in Paper.model_fields if paper else ():
        figure, node = getattr(paper, name), variant.find(("paper", name))
        full = f"variants.{variant_name}.paper.{name}"
        if isinstance(figure, dict) and node:
            for other in [other for other in figure if other not in names]:
                text = f'{full}: "{other}" is not a base or corpus of this file'
                text += did_you_mean(other, names) or f"; {', '.join(names) or 'it has only one'}"
                problems.append(Problem(node.group[other].key_at, text))
            figure = figure.get(group)
        elif figure is not None and names and node:
            example = f"{{{names[0]}: {format_value(figure)}}}"
            text = f"{full}: name the base or corpus of each figure: {example}"
            problems.append(Problem(node.at, text))
        if figure is not None:
            figures[name] = figure
    return figures


def _check(
    model: type[_MODEL],
    above: tuple[str, ...],
    document: Node,
    problems: list[Problem],
    only: Collection[str] | None = None,
) -> _MODEL | None:
    """Return the group at ``above`` as ``model``, or None after appending what is wrong with it.

    Args:
        only: the keys to check; None = all.
    """
    node = document.find(above)
    assert node is not None
    values = {k: inner.plain() for k, inner in node.group.items() if only is None or k in only}
    try:
        return model.model_validate(values)
    except ValidationError as failure:
        for error in failure.errors(include_url=False, include_context=False):
            kind, path = error["type"], (*above, *map(str, error["loc"]))
            if kind == "value_error":  # a rule between keys; its message names them
                place = document.find(path)
                assert place is not None
                for text in error["msg"].removeprefix("Value error, ").splitlines():
                    problems.append(Problem(place.at, f"{'.'.join(path)}: {text}"))
                continue
            while kind != "missing" and document.find(path) is None:  # tags of unions
                path = path[:-1]
            wrong = document.find(path) or document.find(path[:-1]) or document
            problems.append(Problem(wrong.key_at, _message(model, above, path, kind, wrong)))
        return None


def _message(
    model: type[BaseModel], above: KeyPath, path: tuple[str, ...], kind: str, node: Node
) -> str:
    name, inner = ".".join(path), path[len(above) :]
    if inner[0] in _NESTED and len(inner) > 1:
        model, inner = _NESTED[inner[0]], inner[1:]
    if kind == "missing":
        return f'required key "{name}" is missing: {keys_of(model)[inner[-1]].description}'
    options = keys_of(model)
    if kind == "extra_forbidden":
        hint = did_you_mean(inner[-1], options) or f"; there is {', '.join(options)}"
        return f'unknown key "{name}"{hint}'
    if kind == "string_pattern_mismatch" and inner[0] in ("variants", "corpora"):
        what = "variant" if inner[0] == "variants" else "corpus"
        return (
            f'"{path[1]}" is not a valid {what} name; a name has letters, digits, ".", "_" and '
            '"-", and begins with a letter or digit'
        )
    if kind == "too_short":
        return f"{name}: at least one is needed"
    what = (
        "a group of keys"
        if inner[0] in ("variants", "common", "corpora")
        else allowed(model, inner[0])
    )
    return f"{name}: {quote_value(node.plain())} is not {what}"
