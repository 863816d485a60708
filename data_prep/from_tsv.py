"""A corpus from tab-separated files with one pair per line, plain, .gz, .xz or .bz2.

``python -m data_prep.from_tsv pairs.tsv --src-lang sw --tgt-lang en --columns 1,2 -o data/sw-en``
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from data_prep.command import own_corpus_command
from data_prep.pairs import Drops, Pair, one_line
from nmt.data.text import read_lines, require_line_feeds
from nmt.errors import UserError


def _column(text: str) -> int:
    if text.strip().isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(
        f"{text!r} is not the number of a column; write 2 for the second one"
    )


def _columns(text: str) -> tuple[int, int]:
    parts = text.split(",")
    if len(parts) != 2:
        raise argparse.ArgumentTypeError(
            f"{text!r} does not name two columns; write 1,2 for the first two"
        )
    return _column(parts[0]), _column(parts[1])


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="tab-separated file")
    parser.add_argument(
        "--columns",
        type=_columns,
        default=(1, 2),
        metavar="S,T",
        help="columns of source and target, counted from 1; default: 1,2",
    )
    parser.add_argument(
        "--group-column",
        type=_column,
        metavar="N",
        help="column with the group of each pair, for --split group; default: a file is a group",
    )
    parser.add_argument("--header", action="store_true", help="skip the first line of each file")


def read(args: argparse.Namespace, drops: Drops) -> Iterator[Pair]:
    """Yield the pairs of all files; a row with too few columns is dropped and listed.

    Raises:
        UserError: no row of a file has the columns of the options, or its lines end with CR.
    """
    src, tgt = args.columns
    needed = max(src, tgt, args.group_column or 0)
    for path in args.files:
        good = widest = number = 0
        for number, line in enumerate(read_lines(path, clean=False), 1):
            if number == 1 and args.header:
                continue
            cells = line.split("\t")
            widest = max(widest, len(cells))
            place = f"{path.name}:{number}"
            if len(cells) < needed:
                drops.add(f"fewer than {needed} columns", place)
                continue
            good += 1
            group = cells[args.group_column - 1] if args.group_column else str(path)
            yield Pair(one_line(cells[src - 1]), one_line(cells[tgt - 1]), place, group)
        if number == 1:
            require_line_feeds(path)
        if not good:
            option = "--columns" if widest < max(src, tgt) else "--group-column"
            raise UserError(
                f"no line has {needed} tab-separated columns (at most {widest})",
                at=str(path),
                fix=f"check {option}, and that the columns are separated by tabs",
            )


main = own_corpus_command(read, __doc__, _add_options)

if __name__ == "__main__":
    sys.exit(main())
