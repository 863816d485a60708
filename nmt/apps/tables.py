"""Tables as text, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from nmt.store.results import format_number

Cell: TypeAlias = str | int | float | None
NOTHING = "-"


def shown(cell: Cell, form: str = "") -> str:
    """Format a cell for people: a dash if it is empty, and a float by default as ``12.34``."""
    if cell is None or isinstance(cell, str):
        return cell or NOTHING
    if isinstance(cell, float) and not form:
        return format_number(cell)
    return format(cell, form or ",")


def aligned(rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Align the columns of rows: the first ``left`` ones at their left end, the others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def tsv(rows: Iterable[Iterable[Cell]]) -> str:
    """Separate cells by tabs, for cut and awk; None is empty, and a float has four decimals."""

    def text(cell: Cell) -> str:
        return "" if cell is None else f"{cell:.4f}" if isinstance(cell, float) else str(cell)

    return "\n".join("\t".join(map(text, row)) for row in rows)
