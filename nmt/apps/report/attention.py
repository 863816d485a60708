"""Heat maps of cross-attention for chosen sentences, drawn as SVG by the template of the page."""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from nmt.apps.report.outputs import Example, Outputs
from nmt.apps.report.runs import ReportedRun
from nmt.data.text import is_blank
from nmt.decoding.translator import Translator
from nmt.errors import NmtError

SENTENCES = 3
MAX_PIECES = 40  # of a side that a heat map can show
CELL = 17  # size of a cell
CHARACTER = 7.0  # width of most characters of a label, at most
WIDE = frozenset("@%&mwMW—…")  # these are up to 1.7 times as wide
LONGEST_LABEL = 14  # characters; longer pieces are cut
VISIBLE = 0.02  # smaller weights are not drawn


@dataclass(frozen=True)
class HeatMap:
    """The cross-attention of a run for a line, in the units of its SVG."""

    label: str  # of the run
    line: int  # its number in the set
    columns: list[tuple[float, str]]  # x and text of each source piece
    rows: list[tuple[float, str]]  # y and text of each piece of the translation
    cells: list[tuple[float, float, float, str]]  # x, y, weight, and a description
    left: float  # where the cells begin
    top: float
    width: float  # of the drawing
    height: float


def load_translators(runs: Sequence[ReportedRun]) -> dict[str, Translator | str]:
    """Return the translator of the model of each run by its name, or why it has none."""
    loaded: dict[str, Translator | str] = {}
    for run in runs:
        try:
            loaded[run.name] = Translator.load(run.folder.path, "cpu", engine="torch")
        except NmtError as error:
            loaded[run.name] = error.summary
    return loaded


def heat_maps(
    run: ReportedRun, translator: Translator, outputs: Outputs, examples: Sequence[Example]
) -> tuple[list[HeatMap], str | None]:
    """Draw the first examples that are short enough, as the run's best checkpoint reads them.

    Returns:
        The heat maps, and why there are none.
    """
    from nmt.decoding.forced import attention_maps

    direction = outputs.direction(run)
    codec = translator.codec.for_target(direction.tgt)
    try:
        chosen, pairs = [], []
        for example in examples:
            row = example.line - 1
            source, target = outputs.source_lines(run)[row], outputs.output_line(run, row)
            pieces = codec.source_pieces(source, direction.src), codec.target_pieces(target)
            blank = is_blank(source) or is_blank(target)
            if not blank and all(0 < len(side) <= MAX_PIECES for side in pieces):
                chosen.append(example)
                pairs.append((source, target))
        maps = attention_maps(translator.transformer, codec, pairs[:SENTENCES], direction)
    except NmtError as error:
        return [], error.summary
    if not maps:
        return [], f"no example has at most {MAX_PIECES} subwords"
    return [
        _draw(run.label, example.line, drawn.source, drawn.target, drawn.weights.tolist())
        for example, drawn in zip(chosen, maps, strict=False)
    ], None


def _draw(
    label: str,
    line: int,
    source: Sequence[str],
    target: Sequence[str],
    weights: Sequence[Sequence[float]],
) -> HeatMap:
    src, tgt = ([_display(piece) for piece in side] for side in (source, target))
    left = max(map(_width, tgt)) + 8
    top = max(map(_width, src)) * 0.87 + 12  # labels are turned by 60 degrees
    cells = [
        (
            left + column * CELL,
            top + row * CELL,
            round(weight, 3),
            f"{_isolated(tgt[row])} ← {_isolated(src[column])}",
        )
        for row, row_weights in enumerate(weights)
        for column, weight in enumerate(row_weights)
        if weight >= VISIBLE
    ]
    return HeatMap(
        label,
        line,
        [(left + (i + 0.5) * CELL, piece) for i, piece in enumerate(src)],
        [(top + (i + 0.5) * CELL, piece) for i, piece in enumerate(tgt)],
        cells,
        left,
        top,
        left + len(src) * CELL + _width(src[-1]) * 0.5 + 4,
        top + len(tgt) * CELL + 2,
    )


def _width(label: str) -> float:
    wide = sum(c in WIDE or unicodedata.east_asian_width(c) in "WF" for c in label)
    return CHARACTER * (len(label) + 0.7 * wide)


def _isolated(label: str) -> str:
    return f"\u2068{label}\u2069"  # it does not change the direction of the text around it


def _display(piece: str) -> str:
    piece = html.unescape(piece)  # tokenized text has escapes
    return piece if len(piece) <= LONGEST_LABEL else f"{piece[: LONGEST_LABEL - 1]}…"
