"""The command lines of all commands: one place builds them, so that all follow the same rules.

An option has one name in all commands. Options cannot be shortened: ``--max-len`` could be read as
the wrong option. ``--help`` ends with examples; a command with many options shows the most used
ones there, and all of them with ``--help-all``.
"""

from __future__ import annotations

import argparse
import difflib
import os
import stat
import sys
import textwrap
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from nmt.errors import UserError
from nmt.version import __version__

if TYPE_CHECKING:
    from nmt.config.recipe import Recipe

GENERAL = "general"  # title of the options that all commands have
# command, its option or action in an earlier version -> the command that does it now
MOVED = {
    ("nmt-train", "--suggest"): "nmt-suggest PREFIX",
    ("nmt-train", "--verify-resume"): "nmt-train RECIPE --resume, which continues after any kill",
    ("nmt-translate", "--to"): "nmt-documents RUN FILE -o DIR",
    ("nmt-translate", "--pairs"): "nmt-synthesize RUN --input FILE -o PREFIX",
    ("nmt-score", "--calibrate"): "nmt-calibrate RUN",
    ("nmt-judge", "sheet"): "nmt-sheet SRC SYSTEM SYSTEM -o SHEET.xlsx",
    ("nmt-judge", "read"): "nmt-judge SHEET.xlsx --key SHEET.key.json",
}


class _Format(argparse.HelpFormatter):
    """Wraps paragraphs; one with indented lines, such as examples, stays as it is written."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(
            paragraph if "\n  " in paragraph else textwrap.fill(paragraph, width)
            for paragraph in text.strip().split("\n\n")
        )


class _Help(argparse.Action):
    """Print the help and end the process."""

    shown: Collection[str] = ()  # names of the arguments in --help; empty = all

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: object, values: object, flag: Any = None
    ) -> None:
        groups = parser._action_groups
        groups.sort(key=lambda group: group.title == GENERAL)
        if self.shown and flag != "--help-all":
            for action in parser._actions:
                if action.dest not in self.shown:
                    action.help = argparse.SUPPRESS
            for group in groups:
                group.description = None
        parser.print_help()
        parser.exit()


def command_parser(prog: str | None, **options: Any) -> argparse.ArgumentParser:
    """Return a parser with the options that all commands have.

    Called as ``nmt NAME``, a command has this name in its messages.

    Args:
        prog: name of the command, None = that of the program.
        options: of ``argparse.ArgumentParser``; ``epilog`` has examples.
    """
    if sys.argv[0].startswith("nmt "):  # see nmt.cli.main
        prog = sys.argv[0]
    p = argparse.ArgumentParser(
        prog=prog, allow_abbrev=False, add_help=False, formatter_class=_Format, **options
    )
    general = p.add_argument_group(GENERAL)
    general.add_argument("-h", "--help", action=_Help, nargs=0, help="show this help")
    general.add_argument(
        "--version", action="version", version=f"%(prog)s {__version__}", help="show the version"
    )
    general.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return p


def add_recipe(parser: argparse.ArgumentParser, example: str) -> None:
    """Add RECIPE, ``key=value`` (``example`` is one) and --variant."""
    parser.add_argument("recipe", metavar="RECIPE", help="a YAML recipe, or a file of variants")
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


def add_output(
    parser: argparse._ActionsContainer,
    metavar: str,
    text: str,
    replaces: str,
    required: bool = False,
    resume: str = "",
) -> None:
    """Add --output with a help text, --force, which replaces ``replaces``, and perhaps --resume."""
    parser.add_argument("-o", "--output", metavar=metavar, required=required, help=text)
    existing = parser.add_mutually_exclusive_group()
    existing.add_argument("--force", action="store_true", help=f"replace {replaces}")
    if resume:
        existing.add_argument("--resume", action="store_true", help=resume)


def recipe_of(args: argparse.Namespace) -> Recipe:
    """Return the recipe that the arguments select, or raise UserError with all of its errors."""
    from nmt.config.load import load_recipe

    return load_recipe(args.recipe, args.overrides, args.variant)


def recipe_words(args: argparse.Namespace) -> list[str]:
    """Return the words of the command line that select the same recipe."""
    chosen = [] if args.variant is None else ["--variant", args.variant]
    return [args.recipe, *args.overrides, *chosen]


def shorten_help(parser: argparse.ArgumentParser, *shown: str) -> None:
    """Let --help show the arguments with these names (``dest``), and --help-all the others too."""
    (general,) = (group for group in parser._action_groups if group.title == GENERAL)
    general.add_argument("--help-all", action=_Help, nargs=0, help="show all options")
    for action in parser._actions:
        if isinstance(action, _Help):
            action.shown = {*shown, *(each.dest for each in general._group_actions)}


def table(rows: dict[str, str]) -> str:
    """Return names and their meanings as lines of at most 80 characters."""
    width = max(map(len, rows)) + 4
    return "\n".join(
        textwrap.fill(
            meaning, 79, initial_indent=f"  {name}".ljust(width), subsequent_indent=" " * width
        )
        for name, meaning in rows.items()
    )


def parse(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the arguments; end the process with exit code 2 and a hint if they are wrong."""
    words = sys.argv[1:] if argv is None else list(argv)
    for word in words:
        option = word.partition("=")[0]
        if command := MOVED.get((parser.prog.replace(" ", "-"), option)):
            parser.error(f"there is no {option} any more; use {command}")
    args, unknown = parser.parse_known_intermixed_args(words)
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{_hint(parser, unknown)}")
    _require_one_reader(parser, args)
    return args


def _require_one_reader(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Raise UserError if two arguments name the same pipe, such as /dev/stdin."""
    named = [
        (action.option_strings[-1] if action.option_strings else action.dest, value)
        for action in parser._actions
        for argument in [getattr(args, action.dest, None)]
        for value in (argument if isinstance(argument, list) else [argument])
    ]
    if "input" in args and args.input is None:  # of nmt-translate
        named.append(("standard input", "/dev/stdin"))
    readers: dict[tuple[int, int], str] = {}
    for name, value in named:
        try:
            info = os.stat(value) if isinstance(value, str) else None
        except (OSError, ValueError):  # not a path
            continue
        if info is None or not stat.S_ISFIFO(info.st_mode):
            continue
        pipe = info.st_dev, info.st_ino
        if pipe in readers:
            raise UserError(
                f"{value} is a pipe, which can be read only once",
                at=" and ".join(dict.fromkeys([readers[pipe], name])),
                fix="write its text to a file first, and name that file",
            )
        readers[pipe] = name


def _hint(parser: argparse.ArgumentParser, unknown: Sequence[str]) -> str:
    """Return what the first unknown option may mean; empty if nothing is close to it."""
    first = next((word for word in unknown if word.startswith("--")), None)
    if first is None:
        return ""
    name, _, value = first.partition("=")
    if any(action.dest == "overrides" for action in parser._actions):
        from nmt.config.recipe import Recipe

        key = name.removeprefix("--")
        if key.partition(".")[0] in Recipe.model_fields:
            return f"\n  -> recipe keys have no dashes: {key}={value or 'VALUE'}"
    options = [option for action in parser._actions for option in action.option_strings]
    longer = [option for option in options if option.startswith(name)]
    close = longer or difflib.get_close_matches(name, options, n=1)
    return f"; did you mean {' or '.join(close)}?" if close else ""
