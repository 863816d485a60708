"""Variants files: a base recipe, and named variants of it with what each changes.

A variant is a piece of a recipe, in a recipe's own words, with a line that says what it is and the
figures that a paper prints for it::

    base: ../en-vi.yaml
    common:
      model: {norm: layernorm}
    variants:
      post-8k:
        about: PostNorm with 8k updates of warm-up
        paper: {dev: 28.20}
        model: {norm_place: post}

With a list of base recipes each variant exists for each of them, and is called BASE/NAME. A base's
run folder (``out``) is not its variants'. This file says what a variants file is; ``config_loader``
makes recipes of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, ValidationError, WithJsonSchema

from nmt.config.errors import did_you_mean
from nmt.config.recipe import groups
from nmt.config.resolve import Change, kinds_first
from nmt.config.schema import ConfigBase, allowed, format_value, keys_of, option
from nmt.config.yaml import NONE, KeyPath, Location, Problem, YamlDocument

Printed: TypeAlias = Annotated[float, Field(ge=0)] | Literal["fails"]
_FORM = "a number or fails; for several bases, one for each: {gl-en: 18.47, sk-en: fails}"
Figure: TypeAlias = Annotated[
    Printed | dict[str, Printed] | None, Field(json_schema_extra={"form": _FORM})
]
Group: TypeAlias = dict[str, Any]
_SHAPE = TypeVar("_SHAPE", bound=BaseModel)


def _one_or_many(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class Paper(ConfigBase):
    """What a paper prints for a variant."""

    dev: Figure = option(None, "score on dev, by score.select_by", "T tables 2, 4, 5")
    test: Figure = option(None, "tokenized BLEU on test, as tokenized_bleu", "T tables 3, 6, 7")
    ppl: Figure = option(None, "perplexity on dev", "N")


class VariantKeys(ConfigBase):
    """What a variant has beside the keys of a recipe that it changes."""

    about: str = option(..., "what the variant is, in one line", "O", min_length=1)
    paper: Paper | None = option(None, "figures that a paper prints: dev, test, ppl", "O")


class VariantsKeys(ConfigBase):
    """A variants file."""

    base: Annotated[
        list[str],
        Field(min_length=1),
        BeforeValidator(_one_or_many),
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "string"},
                    {"type": "array", "minItems": 1, "items": {"type": "string"}},
                ],
                "form": "the path of a recipe, or a list of them",
            }
        ),
    ] = option(..., "recipe(s) that the variants change; relative to the file", "O")
    common: Group = option({}, "recipe keys that every variant changes", "O")
    variants: Annotated[
        dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")], Group],
        Field(min_length=1),
    ] = option(..., "name -> about, paper, and the recipe keys it changes", "O")


class VariantSpec(NamedTuple):
    """A variant of one base as it was written, before it is a recipe."""

    name: str
    about: str
    paper: dict[str, float | str]
    base: Path
    changes: list[Change]
    place: Location
    base_place: Location


def is_variants_file(source: YamlDocument) -> bool:
    """Whether a file lists variants; a recipe has neither of these keys."""
    return not source.values.keys().isdisjoint(("base", "variants"))


def read_variants(source: YamlDocument) -> list[VariantSpec]:
    """The variants of a file, for each base; what is wrong goes to ``source.problems``."""
    file = _check(VariantsKeys, source.values, (), source)
    if file is None:
        return []
    paths = [Path(source.file).parent / base for base in file.base]
    names = [path.stem for path in paths]
    if twice := [name for i, name in enumerate(names) if name in names[:i]]:
        text = f'base: two recipes are called "{twice[0]}"'
        source.problems.append(Problem(source.places[("base",)], text))
        return []
    several = len(paths) > 1
    common = kinds_first(_changes(source, ("common",)))
    drafts = []
    for name, values in file.variants.items():
        above = ("variants", name)
        own = {k: v for k, v in values.items() if k in keys_of(VariantKeys)}
        variant = _check(VariantKeys, own, above, source)
        if variant is None:
            continue
        changes = [*common, *kinds_first(_changes(source, above, leave_out=own))]
        for i, (path, base) in enumerate(zip(paths, names, strict=True)):
            drafts.append(
                VariantSpec(
                    name=f"{base}/{name}" if several else name,
                    about=variant.about,
                    paper=_figures(variant.paper, base, names if several else [], above, source),
                    base=path,
                    changes=changes,
                    place=source.keys[above],
                    base_place=source.places.get(("base", str(i)), source.places[("base",)]),
                )
            )
    return sorted(drafts, key=lambda draft: paths.index(draft.base))


def _changes(
    source: YamlDocument, above: KeyPath, leave_out: Group | None = None
) -> Iterator[Change]:
    """The keys below ``above``, as keys of a recipe."""
    group: Any = source.values
    for part in above:
        group = group.get(part, {})
    for path, value in _leaves({k: v for k, v in group.items() if k not in (leave_out or {})}):
        full = (*above, *path)
        inside = {p: at for p, at in source.places.items() if p[: len(full)] == full}
        places = {p[len(above) :]: at for p, at in inside.items()}
        yield Change(path, value, source.keys[full], places)


def _leaves(values: Group) -> Iterator[tuple[KeyPath, Any]]:
    for name, value in values.items():
        if name not in groups():
            yield (name,), value
        elif isinstance(value, dict):
            yield from (((name, inner), below) for inner, below in value.items())
        elif value not in NONE:  # an empty group changes nothing
            yield (name,), value


def _figures(
    paper: Paper | None, base: str, names: list[str], above: KeyPath, source: YamlDocument
) -> dict[str, float | str]:
    """The figures printed for one base; with several, each figure must say for which it is."""
    figures: dict[str, float | str] = {}
    for name in Paper.model_fields if paper else ():
        figure, at = getattr(paper, name), (*above, "paper", name)
        if isinstance(figure, dict):
            for other in [other for other in figure if other not in names]:
                text = f'{".".join(at)}: "{other}" is no base of this file'
                text += did_you_mean(other, names) or f"; {', '.join(names) or 'it has but one'}"
                source.problems.append(Problem(source.keys[(*at, other)], text))
            figure = figure.get(base)
        elif figure is not None and names:
            text = f"{'.'.join(at)}: for which base? write {{{names[0]}: {format_value(figure)}}}"
            source.problems.append(Problem(source.places[at], text))
        if figure is not None:
            figures[name] = figure
    return figures


def _check(
    model: type[_SHAPE], values: Group, above: KeyPath, source: YamlDocument
) -> _SHAPE | None:
    """``values``, which stand at ``above``, as ``model``; None when something is wrong."""
    try:
        return model.model_validate(values)
    except ValidationError as failure:
        for error in failure.errors(include_url=False, include_context=False):
            kind, path = error["type"], (*above, *map(str, error["loc"]))
            while path not in source.places and kind != "missing":  # tags of unions
                path = path[:-1]
            place = source.keys.get(path) or source.places.get(path) or _around(path, source)
            problem = Problem(place, _said(model, above, path, kind, source))
            if problem not in source.problems:
                source.problems.append(problem)
        return None


def _around(path: KeyPath, source: YamlDocument) -> Location:
    """The key around one that is missing."""
    return source.keys.get(path[:-1], Location(source.file))


def _said(
    model: type[BaseModel], above: KeyPath, path: KeyPath, kind: str, source: YamlDocument
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
        return f'"{path[1]}" is no name of a variant: letters, digits, ".", "_" and "-"'
    if kind == "too_short":
        return f"{name}: at least one is needed"
    value: Any = source.values
    for part in path:
        value = value[int(part)] if isinstance(value, list) else value[part]
    written = "a group of keys" if isinstance(value, dict) else f'"{format_value(value)}"'
    what = "a group of keys" if inner[0] in ("variants", "common") else allowed(model, inner[0])
    return f"{name}: {written} is not {what}"
