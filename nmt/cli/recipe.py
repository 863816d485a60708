"""The arguments that name a recipe, the same for every command that reads one."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nmt.config.recipe import Recipe


def add_recipe(parser: argparse.ArgumentParser, example: str) -> None:
    """RECIPE, ``key=value`` and --variant."""
    parser.add_argument("recipe", help="YAML recipe, or a file with variants of one")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help=f"e.g. {example}")
    parser.add_argument(
        "--variant", metavar="NAME", help="which of the file's variants; without it, a list of them"
    )


def recipe_of(args: argparse.Namespace) -> Recipe:
    """Return the recipe that the arguments name."""
    from nmt.config.load import load_recipe

    return load_recipe(args.recipe, args.overrides, args.variant)


def recipe_words(args: argparse.Namespace) -> list[str]:
    """The arguments again, as one would write them."""
    chosen = [] if args.variant is None else ["--variant", args.variant]
    return [args.recipe, *args.overrides, *chosen]
