"""Rows of tables: text with tabs, semicolons or commas, quoted as CSV or not, and Excel workbooks.

Programs quote cells in two ways: all of them, or those that need it (with a quote, a line break or
a delimiter inside). Other quotes are part of the text: sentences often begin or end with one.
"""

from __future__ import annotations

import csv
import itertools
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from data_prep.languages import check_choice
from data_prep.pairs import require_file
from nmt.data.lines import check_only_line, read_lines
from nmt.errors import UserError, install_fix
from nmt.runtime.files import require_unpackable

Row: TypeAlias = tuple[int, list[str]]  # the number of its first line, and its cells

DELIMITERS = {"\t": "tabs", ";": "semicolons", ",": "commas"}
WORKBOOKS = (".xlsx", ".xlsm")
SAMPLE = 1000  # lines that decide the delimiter
CLEAR = 3  # cells in quotes with nothing but a comma inside, which only Excel quotes
SAME_COLUMNS = 0.9  # share of the lines
_SPACE = str.maketrans("\0\r", "  ")  # which the csv module refuses


@dataclass(frozen=True)
class TableFormat:
    """How a table is written.

    Attributes:
        delimiter: character between cells; None = decided for each file.
        quotes: csv = quotes around a cell are not part of it, text = they are, auto = decided for
            each file.
        sheet: of a workbook; None = the only one.
    """

    delimiter: str | None = None
    quotes: str = "auto"
    sheet: str | None = None


def read_rows(path: Path, form: TableFormat) -> Iterator[Row]:
    """Yield the rows of a table, and print how a file other than plain TSV is read.

    Raises:
        UserError: the file cannot be read, or its delimiter or quotes cannot be decided.
    """
    require_file(path)
    if path.suffix.lower() in WORKBOOKS:
        return _workbook_rows(path, form.sheet)
    head = list(itertools.islice(read_lines(path, clean=False), SAMPLE))
    if len(head) == 1:
        check_only_line(head[0], str(path))
    excel = re.fullmatch(r'"?sep=(.)"?', head[0]) if head else None  # which Excel reads
    delimiter = form.delimiter or (excel[1] if excel else _delimiter(head, path))
    quoted = delimiter != "\t" if form.quotes == "auto" else form.quotes == "csv"
    if form.quotes == "auto" and delimiter == "\t":
        quoted = _cells_are_quoted(path)
    if quoted or delimiter != "\t":
        name = DELIMITERS.get(delimiter, repr(delimiter))
        cells = "quoted as in CSV" if quoted else "not quoted"
        print(f"{path}: cells are separated by {name} and {cells}", file=sys.stderr)
    rows = _quoted_rows(path, delimiter) if quoted else _plain_rows(path, delimiter)
    return itertools.islice(rows, bool(excel), None)


def _plain_rows(path: Path, delimiter: str) -> Iterator[Row]:
    for number, line in enumerate(read_lines(path, clean=False), 1):
        yield number, line.split(delimiter)


def _quoted_rows(path: Path, delimiter: str) -> Iterator[Row]:
    lines = (f"{line}\n".translate(_SPACE) for line in read_lines(path, clean=False))
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        number = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise UserError(
                f"the quotes of the row that begins here are not those of CSV: {error}",
                at=f"{path}:{number}",
                fix="correct them, or pass --quotes text if quotes are part of the text",
            ) from error
        yield number, cells


def _delimiter(head: Iterable[str], path: Path) -> str:
    """Return the delimiter that gives most lines the same number of cells."""
    lines = [line.translate(_SPACE) for line in head if line.strip()]
    if sum("\t" in line for line in lines) * 2 > len(lines):
        return "\t"
    shares = {}
    for delimiter in ("\t", ";", ","):  # a tab for the lines within a quoted cell
        try:
            rows = list(csv.reader((f"{line}\n" for line in lines), delimiter=delimiter))
        except csv.Error:
            continue
        widths = Counter(len(row) for row in rows)
        width, count = widths.most_common(1)[0] if widths else (1, 0)
        if width > 1 and count >= SAME_COLUMNS * len(rows):
            shares[delimiter] = count / len(rows)
    if not shares:
        raise UserError(
            "no tab, semicolon or comma divides its lines into the same number of columns",
            at=str(path),
            fix="name the character with --delimiter, or save the table as TSV, CSV or .xlsx",
        )
    return max(shares, key=lambda delimiter: shares[delimiter])


@dataclass
class _Column:
    """Evidence about quotes from the cells of a column.

    Attributes:
        quoted: cells in quotes.
        needless: those of them in which nothing requires quotes.
        bare: cells without quotes that are neither empty nor a number.
    """

    quoted: int = 0
    needless: int = 0
    bare: int = 0


@dataclass
class _Quotes:
    """Counts for a table with tabs, which decide whether its quotes are those of CSV."""

    columns: dict[int, _Column] = field(default_factory=lambda: defaultdict(_Column))
    required: bool = False  # a cell has a quote, a line break or a tab inside its quotes
    bare_comma: bool = False  # a cell with a comma is not quoted, which Excel would do

    def add(self, column: int, cell: str, header: bool) -> bool:
        """Count a cell as it is written; return False if it contradicts CSV.

        Args:
            header: the cell may be a name, which programs write without quotes.
        """
        counts = self.columns[column]
        if not cell.startswith('"'):
            counts.bare += not header and bool(re.search(r"[^\d\s.,-]", cell))
            self.bare_comma |= "," in cell
            return '"' not in cell
        inside = cell[1:-1]
        if "\n" in inside and "\t" in inside:
            return False  # an opening quote in one line of text, and a closing one in a later line
        required = any(char in inside for char in '"\n\t')
        self.required |= required
        counts.quoted += 1
        counts.needless += not required and "," not in inside
        return True

    def decide(self) -> bool | None:
        """Return whether the table is quoted; None = it has signs for both."""
        columns = list(self.columns.values())
        if all(not c.needless or not c.bare for c in columns) and any(c.quoted for c in columns):
            if self.required or all(not c.bare for c in columns):
                return True
            if self.bare_comma:
                return False
            return True if sum(c.quoted for c in columns) >= CLEAR else None
        return None if self.required else False


def _cells_are_quoted(path: Path) -> bool:
    """Return whether the quotes of a table with tabs are those of CSV.

    Raises:
        UserError: most lines begin and end with quotes, or some cells do as in CSV, but others
            contradict CSV.
    """
    cell = re.compile(r'(?:"(?:[^"]|"")*"|[^"\t\n][^\t\n]*|)(?=[\t\n])')
    quotes = _Quotes()
    decided: bool | None = None
    record, ends, count, in_quotes = "", 0, 0, False
    for count, line in enumerate(read_lines(path, clean=False), 1):
        ends += len(line) > 1 and line[0] == line[-1] == '"'
        if decided is False or (not in_quotes and '"' not in line and count > SAMPLE):
            continue
        record += f"{line}\n"
        in_quotes ^= line.count('"') % 2 == 1
        if in_quotes and len(record) < csv.field_size_limit():
            continue
        place = column = 0
        while place < len(record):
            match = cell.match(record, place)
            if match is None or not quotes.add(column, match[0], count == 1):
                decided = False
                break
            place, column = match.end() + 1, column + 1
        record, in_quotes = "", False
    if record:
        decided = False
    elif decided is None:
        decided = quotes.decide()
    if decided is None or (not decided and ends * 2 > count):
        raise UserError(
            "cells begin and end with quotes, but not as in CSV, so it is not clear whether quotes "
            "are part of the text",
            at=str(path),
            fix="pass --quotes text to keep all quotes, or --quotes csv to be shown the line that "
            "is not CSV",
        )
    return decided


def _workbook_rows(path: Path, sheet: str | None) -> Iterator[Row]:
    try:
        import openpyxl
    except ImportError as error:
        raise UserError(
            "Excel workbooks need the package openpyxl",
            at=str(path),
            fix=f"{install_fix('xlsx')}; or save the sheet as CSV",
        ) from error
    try:
        require_unpackable(path)
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        names = [page.title for page in book.worksheets]
        if sheet is not None:
            check_choice(sheet, names, "sheet", str(path))
        elif len(names) != 1:
            raise UserError(
                f"has {len(names)} sheets: {', '.join(names)}",
                at=str(path),
                fix="choose one with --sheet NAME",
            )
        page = book[sheet or names[0]]
        page.reset_dimensions()  # some programs store wrong ones
        for number, row in enumerate(page.iter_rows(values_only=True), 1):
            yield number, ["" if value is None else str(value) for value in row]
    except UserError:
        raise
    except Exception as error:  # openpyxl raises whatever the damage causes
        raise UserError(
            f"cannot be read as an Excel workbook: {error}",
            at=str(path),
            fix="open it in a spreadsheet program and save it again as .xlsx or CSV",
        ) from error
