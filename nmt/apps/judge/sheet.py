"""The sheet of a judge as an Excel workbook, which LibreOffice and Google Sheets open too."""

from __future__ import annotations

import io
import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.apps.judge.key import HIGHEST, LOWEST, Key, Row, row_id
from nmt.errors import UserError, install_fix
from nmt.runtime.files import require_unpackable
from nmt.runtime.words import quantity

LETTERS = "ABC"
ROW, DOCUMENT, SOURCE, REFERENCE, TRANSLATION, SCORE, COMMENT = (
    "row", "document", "source", "reference", "translation", "score", "comment",
)  # fmt: skip
MOST_CELLS = 10_000_000  # of a page, with the empty ones
SHOWN_FAULTS = 10  # of the cells that cannot be read
_WIDTHS = {ROW: 8, DOCUMENT: 14, SOURCE: 45, REFERENCE: 45, TRANSLATION: 45, COMMENT: 30}
_LONGEST = 32_767  # characters of a cell
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f]")  # not allowed in a workbook
_YELLOW, _GRAY = "FFF7D6", "E8E8E8"
INSTRUCTIONS = """\
Read the source. Then give each translation a number from 0 to 100.
Does it say what the source says, all of it and nothing else?
100: it says everything, in good language.
66: it says most of it.
33: it says some of it.
0: it says none of it.
Any whole number between these is allowed. Equally good translations get the same number.
The letters A, B and C stand for other systems in other rows.
Write into the yellow cells only. If you cannot judge a row, leave its yellow cells empty.
Judge the rows of a document in their order: a translation may depend on the rows before it.
Save the file as .xlsx."""


@dataclass(frozen=True)
class Judgement:
    """The judgement of one judge on one row.

    Attributes:
        judge: name of the sheet.
        values: of each system, in the order of the key.
        comment: empty if the judge wrote none.
        translations: in the order of the key.
    """

    judge: str
    row: Row
    values: tuple[float, ...]
    comment: str
    source: str
    translations: tuple[str, ...]


def write_sheet(key: Key, texts: Sequence[Sequence[str]], by_document: bool, file: str) -> bytes:
    """Return the workbook of a key.

    Args:
        texts: of each row of the key: source, perhaps a reference, translations.
        by_document: show the document of each row.
        file: the name of the sheet, for messages.

    Raises:
        UserError: openpyxl is not installed, or a text does not fit in a cell.
    """
    openpyxl = _openpyxl(file)
    from openpyxl.styles import Alignment, Border, Font, PatternFill, Protection, Side
    from openpyxl.worksheet.datavalidation import DataValidation

    titles = [ROW, *[DOCUMENT] * by_document, SOURCE]
    titles += [REFERENCE] * (len(texts[0]) - len(key.systems) - 1)
    titles += [*itertools.chain(*_columns(key)), COMMENT]
    book = openpyxl.Workbook()
    help_page = book.active
    help_page.title = "Instructions"
    help_page.column_dimensions["A"].width = 110
    for line in INSTRUCTIONS.splitlines():
        help_page.append([line])
        help_page.cell(help_page.max_row, 1).alignment = Alignment(wrap_text=True)
    page = book.create_sheet("Judge")
    page.append(titles)
    for cell in page[1]:
        cell.font, cell.fill = Font(bold=True), PatternFill("solid", fgColor=_GRAY)
        width = _WIDTHS.get(str(cell.value).split(" ")[0], 10)
        page.column_dimensions[cell.column_letter].width = width
    page.freeze_panes = page.cell(2, titles.index(SOURCE) + 1)
    limits = {"type": "whole", "operator": "between", "allow_blank": True}
    allowed = DataValidation(formula1=str(LOWEST), formula2=str(HIGHEST), **limits)
    allowed.error = f"Write a whole number from {LOWEST} to {HIGHEST}."
    page.add_data_validation(allowed)
    yellow, line = PatternFill("solid", fgColor=_YELLOW), Side(style="thin")
    before = None
    for number, (row, row_texts) in enumerate(zip(key.rows, texts, strict=True), 2):
        written = iter(row_texts)
        for column, title in enumerate(titles, 1):
            cell = page.cell(number, column)
            cell.alignment = Alignment(wrap_text=True, vertical="top")
            if row.unit != before:
                cell.border = Border(top=line)
            if title in (ROW, DOCUMENT):
                _set_text(cell, row.id if title == ROW else row.document, file)
            elif title == COMMENT or title.startswith(f"{SCORE} "):
                cell.fill, cell.protection = yellow, Protection(locked=False)
                if title != COMMENT:
                    allowed.add(cell)
            else:
                _set_text(cell, next(written), file)
        before = row.unit
    page.protection.sheet = True  # without a password: against changes by accident
    page.protection.formatColumns = page.protection.formatRows = False  # these are allowed
    book.active = 1
    output = io.BytesIO()
    book.save(output)
    return output.getvalue()


def _columns(key: Key) -> list[tuple[str, str]]:
    """Return the titles of the columns of each system: its translation, and what judges give it."""
    return [(f"{TRANSLATION} {x}", f"{SCORE} {x}") for x in LETTERS[: len(key.systems)]]


def _set_text(cell: Any, text: str, file: str) -> None:
    if len(text) > _LONGEST:
        what = f"a text of {len(text):,} characters does not fit in a cell, which has {_LONGEST:,}"
        fix = "split the line, or leave it out of the files"
        raise UserError(what, at=f"{file}:{cell.coordinate}", fix=fix)
    cell.value = _CONTROL.sub(" ", text)
    cell.data_type = "s"  # also if it begins with =, which would be a formula


def read_sheets(files: Sequence[Path], key: Key) -> tuple[list[Judgement], list[str]]:
    """Read filled sheets.

    A row is found by its id. Rows may be sorted or missing, and columns may be moved.

    Args:
        files: one for each judge.

    Returns:
        The judgements of complete rows, and notes with counts of the other rows.

    Raises:
        UserError: a file is not a sheet of this key, or cells are wrong: the message names them
            all at once.
    """
    judgements: list[Judgement] = []
    notes: list[str] = []
    faults: list[str] = []
    for file in files:
        reader = _Reader(str(file), key)
        judgements += reader.judgements(_cells(file, key))
        faults += reader.faults
        notes += reader.notes()
    if faults:
        shown = [f"{quantity(len(faults), 'cell')} cannot be used:", *faults[:SHOWN_FAULTS]]
        if len(faults) > SHOWN_FAULTS:
            shown.append(f"and {len(faults) - SHOWN_FAULTS:,} more")
        fix = "correct these cells; the original sheet has the texts of each row"
        raise UserError("\n  ".join(shown), fix=fix)
    return judgements, notes


def _openpyxl(file: str) -> Any:
    try:
        import openpyxl
    except ImportError as error:
        raise UserError(
            "the sheet needs the package openpyxl", at=file, fix=install_fix("xlsx")
        ) from error
    return openpyxl


def _cells(file: Path, key: Key) -> Iterator[dict[str, Any]]:
    """Yield the cells of each row by the titles of their columns, without blank rows."""
    openpyxl = _openpyxl(str(file))
    if not file.is_file():
        raise UserError("no such file", at=str(file), fix="pass the filled sheets of the judges")
    try:
        require_unpackable(file)
        book = openpyxl.load_workbook(file, data_only=True)
        if any(page.max_row * page.max_column > MOST_CELLS for page in book.worksheets):
            raise ValueError(f"it has over {MOST_CELLS:,} cells")
    except UserError:
        raise
    except Exception as error:  # openpyxl raises whatever the damage causes
        fix = "save the sheet as .xlsx in the judge's program"
        raise UserError("is not an Excel workbook", at=str(file), fix=fix) from error
    needed = [ROW, SOURCE, *itertools.chain(*_columns(key))]
    missing = needed
    for page in book.worksheets:
        first, *rows = page.iter_rows() or [()]
        titles = [str(cell.value or "").strip() for cell in first]
        lacking = [title for title in needed if title not in titles]
        if not lacking:
            for cells in rows:
                if any(cell.value is not None for cell in cells):
                    yield dict(zip(titles, cells, strict=True))
            return
        missing = min(missing, lacking, key=len)
    raise UserError(
        f"no sheet of the workbook has the column {', '.join(map(repr, missing))} in its first row",
        at=str(file),
        fix="restore the first row as it was in the original sheet, or give the key of this sheet",
    )


class _Reader:
    """The reader of one sheet, which keeps what is wrong with its rows."""

    def __init__(self, file: str, key: Key) -> None:
        self.file, self.key = file, key
        self.rows = {row.id: row for row in key.rows}
        self.faults: list[str] = []
        self.places: dict[str, str] = {}  # id of a row -> its cell
        self.empty = self.read = 0
        self.partial: list[str] = []

    def judgements(self, rows: Iterator[dict[str, Any]]) -> Iterator[Judgement]:
        """Yield the judgement of each complete row."""
        for cells in rows:
            row = self._row(cells)
            if row is None:
                continue
            found = [self._value(cells[given]) for _, given in _columns(self.key)]
            values = [value for value in found if value is not None]
            if len(values) < len(found):
                self.empty += not values
                self.partial += [cells[ROW].coordinate] * bool(values)
                continue
            self.read += 1
            texts = [_text(cells[shown]) for shown, _ in _columns(self.key)]
            columns = [row.order.index(system) for system in range(len(texts))]
            comment = _text(cells[COMMENT]) if COMMENT in cells else ""
            yield Judgement(
                Path(self.file).stem,
                row,
                tuple(values[column] for column in columns),
                comment,
                _text(cells[SOURCE]),
                tuple(texts[column] for column in columns),
            )

    def _row(self, cells: dict[str, Any]) -> Row | None:
        cell = cells[ROW]
        name = _text(cell).strip()
        if name not in self.rows:
            what = f"{name[:40]!r} is not a row of this key" if name else "the id is missing"
            self._fault(cell, what)
            return None
        if name in self.places:
            self._fault(cell, f"row {name} stands in {self.places[name]} too")
            return None
        self.places[name] = cell.coordinate
        row = self.rows[name]
        titles = [SOURCE, *[REFERENCE] * (REFERENCE in cells)]
        titles += [shown for shown, _ in _columns(self.key)]
        texts = [_text(cells[title]) for title in titles]
        if row_id(row.line, texts) != name:
            self._fault(cell, f"the texts are not those of row {name}: moved or changed")
            return None
        return row

    def _value(self, cell: Any) -> float | None:
        text = _text(cell).strip()
        if not text:
            return None
        try:
            value = float(text.replace(",", "."))
        except ValueError:
            value = math.nan
        if not LOWEST <= value <= HIGHEST:
            self._fault(cell, f"{text[:40]!r} is not a number from {LOWEST} to {HIGHEST}")
            return None
        return value

    def _fault(self, cell: Any, what: str) -> None:
        self.faults.append(f"{self.file}:{cell.coordinate}: {what}")

    def notes(self) -> list[str]:
        """Return how many rows the sheet has, and which of them do not count."""
        notes = []
        missing = len(self.key.rows) - len(self.places)
        counts = {f"{missing:,} missing": missing > 0, f"{self.empty:,} empty": self.empty}
        if others := [text for text, count in counts.items() if count]:
            total = quantity(len(self.key.rows), "row")
            notes.append(f"{self.file}: {self.read:,} of {total} judged; {', '.join(others)}")
        if self.partial:
            first = ", ".join(self.partial[:SHOWN_FAULTS])
            some = quantity(len(self.partial), "row")
            notes.append(f"{self.file}: {some} judged in part and not counted: {first}")
        return notes


def _text(cell: Any) -> str:
    return "" if cell.value is None else str(cell.value)
