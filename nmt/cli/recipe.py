"""The arguments that select a recipe, shared by the commands that read one."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nmt.config.recipe import Recipe


def add_recipe(parser: argparse.ArgumentParser, example: str, required: bool = True) -> None:
    """Add RECIPE, ``key=value`` and --variant to a parser.

    Args:
        example: shows an override.
        required: whether RECIPE must be given.
    """
    parser.add_argument(
        "recipe",
        nargs=None if required else "?",
        metavar="RECIPE",
        help="a YAML recipe, or a file of variants",
    )
    parser.add_argument(
        "overrides",
        nargs="*",
        default=[],  # otherwise, an error without RECIPE would name this as missing too
        metavar="key=value",
        help=f"recipe keys to override, for example {example}",
    )
    parser.add_argument(
        "--variant",
        metavar="NAME",
        help="variant to use, if RECIPE is a file of variants; without it, they are listed",
    )


def recipe_of(args: argparse.Namespace) -> Recipe:
    """Return the recipe that the arguments select.

    Raises:
        UserError: all errors of the recipe.
    """
    from nmt.config.load import load_recipe

    return load_recipe(args.recipe, args.overrides, args.variant)


def recipe_words(args: argparse.Namespace) -> list[str]:
    """Return the words of the command line that select the same recipe."""
    chosen = [] if args.variant is None else ["--variant", args.variant]
    return [args.recipe, *args.overrides, *chosen]
