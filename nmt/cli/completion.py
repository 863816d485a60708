"""nmt-completion: shell completion of the commands and their options for bash or zsh."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from nmt.cli.common import run_command
from nmt.cli.parsers import command_parser

EXAMPLES = """\
examples:
  eval "$(%(prog)s bash)"            # in ~/.bashrc
  %(prog)s bash > /etc/bash_completion.d/nmt
  %(prog)s zsh > ~/.zfunc/_nmt       # with fpath+=~/.zfunc"""
FOLDERS = ("RUN", "DIR")  # what the values of arguments are, by metavar
FILES = ("FILE", "F", "RECIPE", "PREFIX", "CATALOG", "LOCAL")


def parser() -> argparse.ArgumentParser:
    """Return the command line of nmt-completion."""
    p = command_parser(
        "nmt-completion",
        description="Print the completion of nmt and its commands for a shell.",
        epilog=EXAMPLES,
    )
    p.add_argument("shell", choices=["bash", "zsh"], help="the shell")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return run_command(body, parser, argv)


def body(args: argparse.Namespace) -> None:
    """Print the script of shtab."""
    import shtab

    print(shtab.complete(whole_parser(), args.shell))


def whole_parser() -> argparse.ArgumentParser:
    """Return one parser with all commands."""
    from data_prep.formats import CORPORA, IMPORTERS, first_line
    from nmt.cli.import_corpus import format_parser
    from nmt.cli.main import COMMANDS, commands, program

    root = argparse.ArgumentParser(prog="nmt", allow_abbrev=False)
    root.add_argument("--version", action="store_true", help="show the version")
    parsers = root.add_subparsers()
    for name, module in commands().items():
        meaning = COMMANDS[name]
        if name == "import":
            formats = parsers.add_parser(name, help=meaning, allow_abbrev=False).add_subparsers()
            for short in (*IMPORTERS, *CORPORA):
                _add(formats, short, format_parser(short), first_line(short))
        else:
            _add(parsers, name, program(module).parser(), meaning)
    return root


def _add(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    parser: argparse.ArgumentParser,
    help: str,
) -> None:
    """Add a command, and say which of its arguments are files or folders."""
    import shtab

    for action in parser._actions:
        if action.metavar in (*FOLDERS, *FILES):
            is_folder = action.metavar in FOLDERS
            action.complete = shtab.DIRECTORY if is_folder else shtab.FILE  # type: ignore[attr-defined]
    commands.add_parser(name, parents=[parser], add_help=False, allow_abbrev=False, help=help)


if __name__ == "__main__":
    sys.exit(main())
