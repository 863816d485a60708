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

With a list of bases, each variant exists for each of them, under the name BASE/NAME. A variant has
a run folder of its own: ``out`` of a base does not count. This module reads such a file;
``nmt.config.load`` merges base and changes.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from nmt.config.errors import allowed, did_you_mean, format_value, quote_value
from nmt.config.recipe import ConfigBase, as_list, groups, item_or_list, keys_of, option
from nmt.config.yaml import KeyPath, Location, Node, Problem, is_none

Printed: TypeAlias = Annotated[float, Field(ge=0)] | Literal["fails"]
_FORM = "a number or fails; for several bases, one for each: {gl-en: 18.47, sk-en: fails}"
Figure: TypeAlias = Annotated[
    Printed | dict[str, Printed] | None, Field(json_schema_extra={"form": _FORM})
]
Group: TypeAlias = dict[str, Any]
_MODEL = TypeVar("_MODEL", bound=BaseModel)


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


class VariantsKeys(ConfigBase):
    """Top level of a file of variants."""

    base: Annotated[
        list[str],
        Field(min_length=1),
        BeforeValidator(as_list),
        item_or_list({"type": "string"}, "the path of a recipe, or a list of them"),
    ] = option(
        ..., "recipe or recipes that the variants change; paths are relative to the file", "O"
    )
    common: Group = option({}, "recipe keys that every variant changes", "O")
    variants: Annotated[
        dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")], Group],
        Field(min_length=1),
    ] = option(
        ..., "variants by name: about, paper, and the recipe keys that the variant changes", "O"
    )


class VariantSpec(NamedTuple):
    """A variant of one base, before it is merged into a recipe.

    Attributes:
        name: as ``--variant`` takes it.
        about: a description in one line.
        paper: figures that a paper prints for this base.
        base: path of the recipe.
        base_at: where the file names the base.
        changes: parts of a recipe, to merge in this order.
        at: where the variant begins.
    """

    name: str
    about: str
    paper: dict[str, float | str]
    base: Path
    base_at: Location
    changes: list[Node]
    at: Location


def is_variants_file(document: Node) -> bool:
    """Return whether a file lists variants; a recipe has neither of these keys."""
    return not document.group.keys().isdisjoint(("base", "variants"))


def read_variants(document: Node, problems: list[Problem]) -> list[VariantSpec]:
    """Return the variants of a file, for each base, ordered by base.

    Args:
        document: a file of variants.
        problems: everything wrong with it is appended.
    """
    file = _check(VariantsKeys, (), document, problems)
    if file is None:
        return []
    base_node, listed = document.group["base"], document.group["variants"]
    paths = [Path(document.at.file).parent / base for base in file.base]
    names = [path.stem for path in paths]
    if twice := [name for i, name in enumerate(names) if name in names[:i]]:
        problems.append(Problem(base_node.at, f'base: two recipes are called "{twice[0]}"'))
        return []
    several = len(paths) > 1
    common = [_part_of_recipe(node) for key, node in document.group.items() if key == "common"]
    specs = []
    for name, node in listed.group.items():
        own = {key: inner for key, inner in node.group.items() if key in keys_of(VariantKeys)}
        above = ("variants", name)
        variant = _check(VariantKeys, above, document, problems, only=own)
        if variant is None:
            continue
        changes = [*common, _part_of_recipe(node, omit=own)]
        for i, (path, base) in enumerate(zip(paths, names, strict=True)):
            base_at = base_node.value[i].at if isinstance(base_node.value, list) else base_node.at
            paper = _figures(variant.paper, base, names if several else [], node, above, problems)
            full_name = f"{base}/{name}" if several else name
            specs.append(
                VariantSpec(full_name, variant.about, paper, path, base_at, changes, node.key_at)
            )
    return sorted(specs, key=lambda spec: paths.index(spec.base))


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
    base: str,
    names: list[str],
    variant: Node,
    above: KeyPath,
    problems: list[Problem],
) -> dict[str, float | str]:
    """Return the figures printed for one base; of several bases, a figure must name each."""
    figures: dict[str, float | str] = {}
    for name in Paper.model_fields if paper else ():
        figure, node = getattr(paper, name), variant.find(("paper", name))
        full = ".".join((*above, "paper", name))
        if isinstance(figure, dict) and node:
            for other in [other for other in figure if other not in names]:
                text = f'{full}: "{other}" is not a base of this file'
                text += did_you_mean(other, names) or f"; {', '.join(names) or 'it has only one'}"
                problems.append(Problem(node.group[other].key_at, text))
            figure = figure.get(base)
        elif figure is not None and names and node:
            text = f"{full}: name the base of each figure: {{{names[0]}: {format_value(figure)}}}"
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
            while kind != "missing" and document.find(path) is None:  # tags of unions
                path = path[:-1]
            wrong = document.find(path) or document.find(path[:-1]) or document
            problem = Problem(wrong.key_at, _message(model, above, path, kind, wrong))
            if problem not in problems:
                problems.append(problem)
        return None


def _message(
    model: type[BaseModel], above: KeyPath, path: tuple[str, ...], kind: str, node: Node
) -> str:
    name, inner = ".".join(path), path[len(above) :]
    if kind == "missing":
        return f'required key "{name}" is missing: {keys_of(model)[inner[-1]].description}'
    if inner[0] == "paper" and len(inner) > 1:
        model, inner = Paper, inner[1:]
    options = keys_of(model)
    if kind == "extra_forbidden":
        hint = did_you_mean(inner[-1], options) or f"; there is {', '.join(options)}"
        return f'unknown key "{name}"{hint}'
    if kind == "string_pattern_mismatch" and inner[0] == "variants":
        return (
            f'"{path[1]}" is not a valid variant name; a name has letters, digits, ".", "_" and '
            '"-", and begins with a letter or digit'
        )
    if kind == "too_short":
        return f"{name}: at least one is needed"
    what = "a group of keys" if inner[0] in ("variants", "common") else allowed(model, inner[0])
    return f"{name}: {quote_value(node.plain())} is not {what}"
