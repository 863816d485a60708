"""A measured value as a record, and tables of results: as text, TSV, Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from nmt.store.results import format_number

Cell: TypeAlias = str | int | float | None
NOTHING = "-"
SIGNIFICANCE_LEVEL = 0.05  # a difference with a smaller two-sided p-value is called significant

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "±": r"$\pm$", "†": r"$^{\dagger}$", "*": r"$^{*}$", "<": "$<$", ">": "$>$",
}  # fmt: skip


@dataclass(frozen=True)
class Score:
    """The value of one metric on one set.

    Attributes:
        name: key of METRICS, such as ``bleu``, or another measure.
        value: 0 to 100. TER may exceed 100, and lower is better.
        signature: sacreBLEU's settings and version, which a comparable score needs.
        low, high: ends of the 95 % bootstrap interval; None if none was computed.
        difference: value minus the baseline's; None for the baseline itself.
        p_value: of paired bootstrap resampling, as sacreBLEU computes it; None for the baseline.
        p_two_sided: probability of a difference at least this large, in either direction, by
            chance; a difference is significant if it is below SIGNIFICANCE_LEVEL.
        system, baseline: their names; empty if there is only one.
        count: of what was counted, such as judgements.
    """

    name: str
    value: float
    signature: str = ""
    low: float | None = None
    high: float | None = None
    difference: float | None = None
    p_value: float | None = None
    p_two_sided: float | None = None
    system: str = ""
    baseline: str = ""
    count: int = 0

    def stored(self) -> dict[str, Any]:
        """Return what summary.json has of it."""
        return {key: getattr(self, key) for key in ("name", "value", "signature", "low", "high")}

    def cells(self, digits: int = 2) -> str:
        """Return value, interval, difference and p-value for people."""
        cells = f"{self.value:6.{digits}f}"
        if self.low is not None and self.high is not None:
            cells += f"  [{self.low:.{digits}f}, {self.high:.{digits}f}]"
        if self.difference is not None:
            cells += f"  {self.difference:+.{digits}f}"
        return cells if self.p_value is None else f"{cells}  {self.p}"

    @property
    def p(self) -> str:
        """The p-values for people, with a star if the difference is significant."""
        if self.p_value is None:
            return NOTHING
        text = f"p = {self.p_value:.3f}"
        if self.p_two_sided not in (None, self.p_value):
            text += f" (two-sided {self.p_two_sided:.3f})"
        return f"{text} *" if self.significant else text

    @property
    def significant(self) -> bool:
        """Whether the difference to the baseline is significant, by the two-sided p-value."""
        return self.p_two_sided is not None and self.p_two_sided < SIGNIFICANCE_LEVEL


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
    """Return a line for each row, with tabs between the cells, for cut and awk.

    None is empty, and a float has four decimals. White space inside a text becomes spaces.
    """

    def text(cell: Cell) -> str:
        if isinstance(cell, float):
            return f"{cell:.4f}"
        return "" if cell is None else " ".join(str(cell).split())

    return "\n".join("\t".join(map(text, row)) for row in rows)


@dataclass(frozen=True)
class Table:
    """Cells as text."""

    title: str
    header: list[str]
    rows: list[list[str]]  # the first cell is the name of the row
    notes: list[str] = field(default_factory=list)  # below the table, a line each
    remarks: list[str] = field(default_factory=list)  # about single rows; comments in LaTeX

    def text(self) -> str:
        """Return the table for a terminal."""
        below = [*self.notes, *self.remarks]
        lines = aligned([self.header, *self.rows])
        return "\n".join([self.title, "", *lines, *([""] if below else []), *below])

    def markdown(self) -> str:
        """Return the table as Markdown."""
        rule = f"|---|{'---:|' * (len(self.header) - 1)}"
        notes = [f"- {_escape_markdown(note)}" for note in (*self.notes, *self.remarks)]
        header, *rows = (
            f"| {' | '.join(map(_escape_markdown, row))} |" for row in (self.header, *self.rows)
        )
        lines = [f"**{self.title}**", "", header, rule, *rows]
        return "\n".join([*lines, *([""] if notes else []), *notes])

    def latex(self) -> str:
        """Return the table as LaTeX, with the package booktabs."""
        notes = "; ".join(map(_escape_latex, self.notes))
        header, *rows = (
            " & ".join(map(_escape_latex, row)) + r" \\" for row in (self.header, *self.rows)
        )
        return "\n".join(
            [
                *(f"% {remark}" for remark in self.remarks),
                "% needs \\usepackage{booktabs}",
                r"\begin{table}",
                r"\centering",
                rf"\begin{{tabular}}{{l{'r' * (len(self.header) - 1)}}}",
                r"\toprule",
                header,
                r"\midrule",
                *rows,
                r"\bottomrule",
                r"\end{tabular}",
                rf"\caption{{{_escape_latex(self.title)}{'. ' if notes else ''}{notes}}}",
                r"\end{table}",
            ]
        )


def _escape_markdown(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")


def _escape_latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
