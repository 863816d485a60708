"""The command lines of all commands: one place builds them, so that all follow the same rules.

An option has one name in all commands. A part of a name is not accepted: ``--max-len`` would be
taken as another option than the user means.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Sequence
from typing import Any

import nmt

# options of version 0.1 -> their names now
RENAMED = {"--out": "--output", "--src": "--src-lang", "--tgt": "--tgt-lang"}


def command_parser(prog: str | None, **options: Any) -> argparse.ArgumentParser:
    """Return a parser with the options that all commands have.

    Args:
        prog: name of the command, None = that of the program.
        options: of ``argparse.ArgumentParser``.
    """
    p = argparse.ArgumentParser(prog=prog, allow_abbrev=False, **options)
    p.add_argument("--debug", action="store_true", help="show the traceback of an error")
    p.add_argument("--version", action="version", version=f"%(prog)s {nmt.__version__}")
    return p


def parse(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the arguments; end the process with exit code 2 and a hint if they are wrong.

    Args:
        argv: arguments, None = those of the process.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    for word in words:
        name = word.partition("=")[0]
        if new := _new_name(parser, name):
            parser.error(f"{name} is now {new}")
    args, unknown = parser.parse_known_intermixed_args(words)
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{_hint(parser, unknown)}")
    return args


def _new_name(parser: argparse.ArgumentParser, name: str) -> str | None:
    """Return the name that an option has now; None if it is an option, or never was one."""
    known = {option for action in parser._actions for option in action.option_strings}
    new = RENAMED.get(name)
    if name == "--out" and "--suggest" in known:
        return None  # of a training, it is the recipe key out=PATH
    return new if name not in known and new in known else None


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
