"""nmt-import: make a corpus from the user's files, or download a public one.

The first word names the format, a module of data_prep, which has the options. Each format has a
parser of its own.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Sequence
from pathlib import Path

from data_prep.formats import CORPORA, IMPORTERS, Format, add_options, first_line
from nmt.cli.common import add_languages, run_command
from nmt.cli.parsers import command_parser, table

USAGE = "%(prog)s FORMAT [arguments]"
EXAMPLES = """\
examples:
  %(prog)s tsv --help
  %(prog)s tsv pairs.tsv --src-lang gl --tgt-lang en -o corpus
  %(prog)s ted_talks --src-lang gl --tgt-lang en -o data/gl-en"""


def parser() -> argparse.ArgumentParser:
    """Return the command line without a format: its help lists all formats."""
    return command_parser(
        "nmt-import",
        usage=USAGE,
        description="Write a corpus: train, dev and test, one sentence per line, for nmt-train.\n\n"
        f"your own files:\n{_lines(IMPORTERS)}\n\npublic corpora, downloaded:\n{_lines(CORPORA)}",
        epilog=EXAMPLES,
    )


def _lines(formats: Sequence[str]) -> str:
    return table({name: first_line(name) for name in formats})


def format_parser(name: str) -> argparse.ArgumentParser:
    """Return the command line of a format.

    Raises:
        UserError: there is no such format.
    """
    from data_prep.languages import check_choice

    form = Format.load(check_choice(name, [*IMPORTERS, *CORPORA], "format", ""))
    p = command_parser(f"nmt-import {name}", description=form.description.replace("``", "`"))
    p.add_argument(
        "-o",
        "--output",
        type=Path,
        required=form.show is None,
        metavar="DIR",
        help="directory to write",
    )
    p.add_argument("--force", action="store_true", help="replace DIR if it exists")
    if form.langs:
        src, *tgt = form.langs
        p.set_defaults(src=src, tgt="".join(tgt))
    else:
        add_languages(p, required=True)
    add_options(p, form.options)
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    words = sys.argv[1:] if argv is None else [*argv]
    if not words or words[0].startswith("-"):
        return run_command(lambda args: parser().print_help(), parser, argv)
    name, *rest = words
    if argv is None:
        sys.argv = [f"{sys.argv[0]} {name}", *rest]
    body = functools.partial(write, name)
    return run_command(body, functools.partial(format_parser, name), None if argv is None else rest)


def write(name: str, args: argparse.Namespace) -> None:
    """Write the corpus."""
    from data_prep.write import Request

    form = Format.load(name)
    local = args.local if name in CORPORA else None
    request = Request(args.output, args.src, args.tgt, args.force, local, args)
    if form.show and args.output is None:
        form.show(request)
    else:
        form.write(request)


if __name__ == "__main__":
    sys.exit(main())
