"""Files of corrections: translations that people corrected, to train on.

``nmt-serve --corrections FILE`` appends to such a file, and an entry of ``data.train`` may name it.
It is a table with tabs between the columns and a header, so a spreadsheet program can open it, sort
it and save it again. A row ends with its time, so an incomplete row is detected.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from nmt.data.lines import Texts, clean_line, read_lines
from nmt.errors import UserError

COLUMNS = ("source", "shown", "corrected", "src", "tgt", "model", "time")


def write_row(values: Sequence[str]) -> str:
    """Return a row without its line end; control characters, such as tabs, become spaces."""
    text = io.StringIO()
    csv.writer(text, delimiter="\t", lineterminator="").writerow(map(clean_line, values))
    return text.getvalue()


def read_corrections(path: Path, langs: tuple[str, str]) -> Iterator[Texts]:
    """Yield the source and the corrected translation of each row in two languages.

    Rows of the other direction are read with their sides exchanged. Rows in other languages belong
    to other models.

    Raises:
        UserError: a column is missing, or a row is not complete.
    """
    rows = csv.reader(read_lines(path, clean=False), delimiter="\t", strict=True)
    header: list[str] | None = None
    try:
        for row in rows:
            if header is None:
                header = row
                if missing := [name for name in COLUMNS if name not in row]:
                    raise UserError(
                        f"the first line has no column {', '.join(missing)}",
                        at=f"{path}:1",
                        fix="use a file of nmt-serve --corrections; nmt-import tsv reads others",
                    )
            elif any(row):
                if len(row) != len(header):
                    raise UserError(
                        f"this row has {len(row)} columns, and the first line {len(header)}",
                        at=f"{path}:{rows.line_num}",
                        fix="complete the row, or delete it",
                    )
                values = dict(zip(header, map(clean_line, row), strict=True))
                pair = values["source"], values["corrected"]
                if (values["src"], values["tgt"]) == langs:
                    yield pair
                elif (values["tgt"], values["src"]) == langs:
                    yield pair[::-1]
    except csv.Error as error:
        raise UserError(
            f"the quotes of this row are not those of a table: {error}",
            at=f"{path}:{rows.line_num}",
            fix="write each quote in a cell that begins with one twice, or save the table again",
        ) from error
