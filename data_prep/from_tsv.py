"""A corpus from tables: TSV, CSV (plain, .gz, .xz or .bz2) and Excel workbooks (.xlsx).

A row is a pair. Tabs, semicolons and commas between cells, and quotes around them, are detected.

Examples:
  nmt import tsv pairs.tsv --src-lang sw --tgt-lang en -o data/sw-en
  nmt import tsv glossary.xlsx --columns Swahili,English --src-lang sw \\
      --tgt-lang en -o data/sw-en
  nmt import tsv pairs.csv --columns 2,3 --header --group-column 1 --split group \\
      --src-lang sw --tgt-lang en -o data/sw-en
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from data_prep.command import reader_command
from data_prep.languages import check_choice
from data_prep.pairs import Drops, Pair, one_line
from data_prep.tables import Format, read_rows
from nmt.errors import UserError

Column: TypeAlias = int | str  # its number from 1, or its name in the header


def _column(text: str) -> Column:
    name = text.strip()
    if name and name != "0":
        return int(name) if name.isdecimal() else name
    raise argparse.ArgumentTypeError(
        f"{text!r} is not a column; write 2 for the second one, or its name"
    )


def _columns(text: str) -> tuple[Column, Column]:
    parts = text.split(",")
    if len(parts) != 2:
        raise argparse.ArgumentTypeError(
            f"{text!r} does not name two columns; write 1,2 for the first two, or two names"
        )
    return _column(parts[0]), _column(parts[1])


def _delimiter(text: str) -> str:
    character = {"tab": "\t", "\\t": "\t"}.get(text, text)
    if len(character) == 1 and character not in '"\r\n':
        return character
    raise argparse.ArgumentTypeError(f"{text!r} is not one character, or tab")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="table")
    parser.add_argument(
        "--columns",
        type=_columns,
        default=(1, 2),
        metavar="S,T",
        help="columns of source and target, by number from 1 or by name; default: 1,2",
    )
    parser.add_argument(
        "--group-column",
        type=_column,
        metavar="N",
        help="column with the group of each pair, for --split group; default: a file is a group",
    )
    parser.add_argument(
        "--header",
        action="store_true",
        help="skip the first row of each file; names of columns imply it",
    )
    parser.add_argument(
        "--delimiter",
        type=_delimiter,
        metavar="CHAR",
        help="character between cells, or the word tab; default: detected in each file",
    )
    parser.add_argument(
        "--quotes",
        choices=("auto", "csv", "text"),
        default="auto",
        help="csv: quotes around a cell are not part of it; text: they are; default: auto, "
        "detected in each file",
    )
    parser.add_argument("--sheet", metavar="NAME", help="sheet of a workbook with several sheets")


def _numbers(columns: Sequence[Column], header: Sequence[str], path: Path) -> list[int]:
    names = [one_line(name) for name in header]
    wanted = (
        column if isinstance(column, int) else check_choice(column, names, "column", f"{path}:1")
        for column in columns
    )
    return [column if isinstance(column, int) else names.index(column) + 1 for column in wanted]


def read(args: argparse.Namespace, drops: Drops) -> Iterator[Pair]:
    """Yield the pairs of all files; a row with too few columns is dropped and listed.

    Raises:
        UserError: a file cannot be read as a table, or no row has the columns of the options.
    """
    columns = [*args.columns, *([args.group_column] if args.group_column else [])]
    header = args.header or any(isinstance(column, str) for column in columns)
    for path in args.files:
        rows = read_rows(path, Format(args.delimiter, args.quotes, args.sheet))
        _, names = next(rows, (0, [])) if header else (0, [])
        src, tgt, *group = numbers = _numbers(columns, names, path)
        needed, good, widest = max(numbers), 0, 0
        for number, cells in rows:
            widest = max(widest, len(cells))
            place = f"{path.name}:{number}"
            if len(cells) < needed:
                drops.add(f"fewer than {needed} columns", place)
                continue
            good += 1
            name = cells[group[0] - 1] if group else str(path)
            yield Pair(one_line(cells[src - 1]), one_line(cells[tgt - 1]), place, name)
        if not good:
            option = "--columns" if widest < max(src, tgt) else "--group-column"
            raise UserError(
                f"no row has {needed} columns (at most {widest})",
                at=str(path),
                fix=f"check {option}, --delimiter and --quotes",
            )


main = reader_command(read, __doc__, _add_options)

if __name__ == "__main__":
    sys.exit(main())
