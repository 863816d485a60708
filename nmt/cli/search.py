"""The options of a search as flags: one for each, named and explained by nmt.decoding.options."""

from __future__ import annotations

import argparse
from typing import Any, get_args

from nmt.decoding.options import SearchOptions


def add_search_flags(p: argparse.ArgumentParser) -> None:
    """``--beam N``, ``--sample``, ...; what is not given is None."""
    group = p.add_argument_group(
        "search", "defaults: the recipe's keys of decode, and plain search"
    )
    for name, field in SearchOptions.model_fields.items():
        kinds = get_args(field.annotation) or (field.annotation,)
        kind: dict[str, Any] = (
            {"action": "store_true"}
            if bool in kinds
            else {"type": float, "metavar": "X"}
            if float in kinds
            else {"type": int, "metavar": "N"}
        )
        flag = f"--{name.replace('_', '-')}"
        group.add_argument(flag, default=None, help=field.description, **kind)


def search_flags(args: argparse.Namespace) -> dict[str, Any]:
    """What was given, as arguments of ``Translator.stream``."""
    return {name: getattr(args, name) for name in SearchOptions.model_fields}
