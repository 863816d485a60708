"""The options of a search as flags: one for each, named and explained by nmt.decoding.options."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from nmt.cli.io import read_beside
from nmt.data.text import read_lines
from nmt.decoding.options import SearchOptions

if TYPE_CHECKING:
    from nmt.decoding.codec import Unknown

TOLERATED = 0.05  # share of unknown pieces in a source
WISHES = {
    "prefix": "start of each line's translation, one a line, blank = none",
    "require": "phrases of each line's translation, tab-separated, blank = none",
    "forbid": "phrases that each line's translation does not have, tab-separated, blank = none",
}


def add_search_flags(p: argparse.ArgumentParser) -> None:
    """``--beam N``, ``--sample``, ...; what is not given is None."""
    group = p.add_argument_group("search", "by default as the recipe's decode says")
    for name, field in SearchOptions.model_fields.items():
        kinds = get_args(field.annotation) or (field.annotation,)
        kind: dict[str, Any] = {"type": int, "metavar": "N"}
        choices = [k for k in kinds if get_origin(k) is Literal]
        if bool in kinds:
            kind = {"action": "store_true"}
        elif choices:
            kind = {"choices": get_args(choices[0])}
        elif float in kinds:
            kind = {"type": float, "metavar": "X"}
        elif str in kinds:
            kind = {"metavar": "F"}
        flag = f"--{name.replace('_', '-')}"
        meaning = field.description or ""
        if str in kinds:
            meaning = f"file of {meaning}, one a line"
        group.add_argument(flag, default=None, help=meaning, **kind)
    for name, meaning in WISHES.items():
        group.add_argument(f"--{name}", metavar="F", help=f"file of the {meaning}")


def search_flags(args: argparse.Namespace, total: int | None) -> dict[str, Any]:
    """What was given, as arguments of ``Translator.stream``.

    Args:
        total: lines of the input, None = not known.

    Raises:
        UserError: a file cannot be read, or has another number of lines than the input.
    """
    flags = {name: getattr(args, name) for name in SearchOptions.model_fields}
    if args.forbid_all is not None:
        flags["forbid_all"] = tuple(
            phrase for phrase in read_lines(Path(args.forbid_all)) if phrase.strip()
        )
    for name in WISHES:
        if (file := getattr(args, name)) is not None:
            lines = read_beside(file, total, f"--{name} a line, blank for none,")
            flags[name] = lines if name == "prefix" else _phrases(lines)
    return flags


def note_unknown(unknown: Unknown) -> None:
    """Say on standard error how much of the source the model does not know."""
    if unknown.share > TOLERATED:
        print(
            f"note: {unknown.share:.1%} of the source's pieces are unknown to the model, in "
            f"{unknown.lines_with:,} of {unknown.lines:,} lines; check its language and script",
            file=sys.stderr,
        )
    if unknown.lines_only:
        more = unknown.lines_only - len(unknown.first)
        named = ", ".join(map(str, unknown.first)) + (f" and {more:,} more" if more else "")
        lines = "line" if unknown.lines_only == 1 else "lines"
        print(
            f"note: the model knows no piece of {lines} {named}; do not rely on the translation",
            file=sys.stderr,
        )


def _phrases(lines: Iterator[str]) -> Iterator[list[str]]:
    for line in lines:
        yield [phrase for phrase in line.split("\t") if phrase.strip()]
