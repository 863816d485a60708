"""A corpus from tables: TSV, CSV and Excel workbooks (.xlsx).

Text may be compressed (.gz, .xz, .bz2). A row is a pair. Tabs, semicolons and commas between cells,
and quotes around them, are detected.

Examples:
  nmt-import tsv pairs.tsv --src-lang sw --tgt-lang en -o data/sw-en
  nmt-import tsv glossary.xlsx --columns Swahili,English --src-lang sw \\
      --tgt-lang en -o data/sw-en
  nmt-import tsv pairs.csv --columns 2,3 --header --group-column 1 --split group \\
      --src-lang sw --tgt-lang en -o data/sw-en
"""

from __future__ import annotations

import argparse
import itertools
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import regex

from data_prep.formats import Option
from data_prep.languages import check_choice, iso639_3
from data_prep.own_corpus import SPLIT_OPTIONS, file_options, write_files
from data_prep.pairs import one_line
from data_prep.tables import SAMPLE, Row, TableFormat, read_rows
from data_prep.write import Request
from nmt.data.pair import Pair
from nmt.data.report import Drops
from nmt.errors import UserError
from nmt.runtime.words import quantity
from nmt.text.languages import LETTERS, UNSPACED_CHARACTER, language_name, standard_code
from nmt.text.near_duplicates import PLACEHOLDER

Column: TypeAlias = int | str  # its number from 1, or its name in the header

SHOWN = 3  # rows or cells in a message
FEW_ROWS = 20  # rows from which the content of a column is detected
FEW_WORDS = 0.1  # share of the cells of a column; one with fewer words is no text
# these words also occur in text, so both cells of a row must consist of them
COLUMN_NAMES = (
    "source target src tgt text sentence segment string line phrase word term translation "
    "translated original reference ref lang language id"
)
_SUBTAG = regex.compile(r"(?<=[a-z])[-_](?:[A-Z][a-z]{3}|[A-Z]{2})\b")  # eng_Latn, pt-BR
_CODE = regex.compile(r"[\d_/@\\]|\w[.:]\w")


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


OPTIONS = (
    *file_options("FILE"),
    Option(
        "--columns",
        type=_columns,
        default=(1, 2),
        metavar="S,T",
        help="columns of source and target, by number from 1 or by name; default: 1,2",
    ),
    Option(
        "--group-column",
        type=_column,
        metavar="N",
        help="column with the group of each pair, for --split group; default: a file is a group",
    ),
    Option(
        "--header",
        action=argparse.BooleanOptionalAction,
        help="the first row of each file has the names of the columns, or is a pair; names of "
        "columns imply it; default: detected, with a note",
    ),
    Option(
        "--delimiter",
        type=_delimiter,
        metavar="CHAR",
        help="character between cells, or the word tab; default: detected in each file",
    ),
    Option(
        "--quotes",
        choices=("auto", "csv", "text"),
        default="auto",
        help="csv: quotes around a cell are not part of it; text: they are; default: auto, "
        "detected in each file",
    ),
    Option("--sheet", metavar="NAME", help="sheet of a workbook with several sheets"),
    *SPLIT_OPTIONS,
)


def _numbers(columns: Sequence[Column], header: Sequence[str], path: Path) -> list[int]:
    names = [one_line(name) for name in header]
    wanted = (
        column if isinstance(column, int) else check_choice(column, names, "column", f"{path}:1")
        for column in columns
    )
    return [column if isinstance(column, int) else names.index(column) + 1 for column in wanted]


def read(files: Sequence[Path], request: Request, drops: Drops) -> Iterator[Pair]:
    """Yield the pairs of all files; a row with too few columns is dropped and listed.

    Raises:
        UserError: a file cannot be read as a table, no row has the columns of the options, or a
            column has no words.
    """
    options = request.options
    columns = [*options.columns, *([options.group_column] if options.group_column else [])]
    named = any(isinstance(column, str) for column in columns)
    for path in files:
        rows = read_rows(path, TableFormat(options.delimiter, options.quotes, options.sheet))
        sample = list(itertools.islice(rows, SAMPLE))
        header = sample[0][1] if sample and (named or options.header) else []
        src, tgt, *group = numbers = _numbers(columns, header, path)
        if sample and not named and options.header is None and _is_header(sample, request, path):
            header = sample[0][1]
            drops["names of columns"].add(f"{path.name}:{sample[0][0]}")
        sample = sample[bool(header) :]
        needed, good, widest = max(numbers), 0, 0
        _check_words([cells for _, cells in sample if len(cells) >= needed], (src, tgt), path)
        narrow: list[str] = []
        for number, cells in itertools.chain(sample, rows):
            widest = max(widest, len(cells))
            place = f"{path.name}:{number}"
            if len(cells) < needed:
                narrow.append(f"{path}:{number} ({quantity(len(cells), 'column')})")
                drops[f"fewer than {needed} columns"].add(place)
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
        if narrow:
            rows_have = "row has" if len(narrow) == 1 else "rows have"
            more = ", ..." if len(narrow) > SHOWN else ""
            print(
                f"note: {len(narrow):,} {rows_have} fewer than {needed} columns and no pair: "
                f"{', '.join(narrow[:SHOWN])}{more}",
                file=sys.stderr,
            )


def _is_header(sample: Sequence[Row], request: Request, path: Path) -> bool:
    """Return whether the first row has the names of the columns, and print a note if it may.

    Text is never mistaken for names: both cells must consist of language names and words such as
        "source", or the row must have a word where all other rows have a number.
    """
    number, first = sample[0]
    cells = [first[column - 1] for column in request.options.columns if column <= len(first)]
    others = [row for _, row in sample[1:]]
    known = _names_of_columns(request.src, request.tgt)
    names = [set(LETTERS.findall(_SUBTAG.sub("", cell).lower())) for cell in cells]
    are_names = [bool(words) and words <= known for words in names]
    above_numbers = len(others) >= FEW_ROWS and any(
        _has_words(cell)
        and all(len(row) > column and row[column].strip().isdecimal() for row in others)
        for column, cell in enumerate(first)
    )
    is_header = len(cells) == 2 and (all(are_names) or above_numbers)
    shown = " and ".join(map(repr, cells))
    if is_header:
        note = f"{shown} are names of columns and no pair; if they are a pair, add --no-header"
    elif any(are_names):
        note = f"{shown} are read as a pair; if they are names of columns, add --header"
    else:
        return False
    print(f"note: {path}:{number}: {note}", file=sys.stderr)
    return is_header


def _names_of_columns(*langs: str) -> set[str]:
    """Return the lowercased words that names of columns consist of."""
    from langcodes import Language

    codes = [code for lang in langs for code in (lang, iso639_3(lang), standard_code(lang))]
    names = [language_name(lang) for lang in langs]
    for lang in langs:
        names += [Language.get(lang).autonym(), *map(Language.get(lang).display_name, langs)]
    return set(LETTERS.findall(" ".join([COLUMN_NAMES, *codes, *names]).lower()))


def _has_words(cell: str) -> bool:
    """Return whether a cell has a word that is not a part of a number, a code or an address."""
    return any(
        LETTERS.search(word) and (UNSPACED_CHARACTER.search(word) or not _CODE.search(word))
        for word in PLACEHOLDER.sub(" ", cell).split()
    )


def _check_words(rows: Sequence[Sequence[str]], columns: Sequence[int], path: Path) -> None:
    """Raise UserError if a column has no words, such as one with numbers of rows."""

    def words_of(column: int) -> str | None:
        """Return a cell with words, None if the column has no text."""
        cells = [row[column - 1] for row in rows if len(row) >= column]
        with_words = list(filter(_has_words, cells))
        always_same = len(cells) >= FEW_ROWS and len(set(cells)) == 1
        few = len(with_words) <= FEW_WORDS * len(cells)
        return None if always_same or few else shorten(with_words[0])

    def shorten(cell: str) -> str:
        return repr(textwrap.shorten(cell, 30, placeholder=" ...")) if cell.strip() else "nothing"

    for column in columns if rows else ():
        if words_of(column) is not None:
            continue
        cells = dict.fromkeys(shorten(row[column - 1]) for row in rows)
        texts = [(n, words_of(n)) for n in range(1, 1 + max(map(len, rows)))]
        found = ", ".join(f"{n} ({words})" for n, words in texts if words) or "none"
        raise UserError(
            f"column {column} has no text, but {', '.join(list(cells)[:SHOWN])}",
            at=str(path),
            fix=f"name two columns with text in --columns; these have text: {found}; if this is "
            "not so, check --delimiter and --quotes",
        )


def prepare(request: Request) -> None:
    """Write the corpus of some tables."""
    write_files(read, request, "FILE")
