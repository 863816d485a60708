"""nmt-calibrate: learn on dev to predict the sentence chrF of a translation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nmt.data.bitext import held_out_entries
from nmt.data.lines import is_blank
from nmt.decoding.confidence import LIMITS, Calibration, search_settings
from nmt.decoding.translator import Translator
from nmt.errors import UserError
from nmt.runtime.files import AGAIN, write_atomic
from nmt.runtime.progress import progress_bar
from nmt.runtime.words import quantity
from nmt.scoring.metrics import sentence_scores
from nmt.scoring.results import tsv
from nmt.scoring.systems import from_runs
from nmt.store.folder import RunFolder

GOOD = (30, 50, 70)  # chrF thresholds of a good line
FEW = 500  # lines of dev; with fewer, a note says so
_LEAST = 4  # lines: two of each half
_BINS = 10


@dataclass(frozen=True)
class Row:
    """The lines with at least a certain expected chrF."""

    expected: int  # at least this chrF
    lines: int
    share: float  # of all lines
    chrf: float | None  # mean of these lines; None if there are none
    reached: dict[str, float | None]  # for each of GOOD: the share with at least this chrF


@dataclass(frozen=True)
class Quality:
    """How well expected chrF fits, measured on lines that the calibration has not seen."""

    lines: int
    correlation: float | None  # Pearson's; None if the expected or the actual chrF is constant
    # expected calibration error: of ten groups of lines with similar expectations, the mean of the
    # absolute differences between mean expected and mean actual chrF
    error: float
    rows: list[Row]  # by expected chrF

    @classmethod
    def of(cls, expected: np.ndarray, chrf: np.ndarray) -> Quality:
        """Compare the expected with the actual chrF of some lines, at least one."""
        varies = expected.std() > 0 and chrf.std() > 0
        correlation = float(np.corrcoef(expected, chrf)[0, 1]) if varies else None
        groups = np.array_split(np.argsort(expected, kind="stable"), min(_BINS, len(chrf)))
        errors = [len(g) * abs(expected[g].mean() - chrf[g].mean()) for g in groups]
        rows = []
        for limit in LIMITS:
            actual_scores = chrf[expected >= limit]
            reached = {
                str(x): float((actual_scores >= x).mean()) if len(actual_scores) else None
                for x in GOOD
            }
            mean = float(actual_scores.mean()) if len(actual_scores) else None
            rows.append(
                Row(limit, len(actual_scores), len(actual_scores) / len(chrf), mean, reached)
            )
        return cls(len(chrf), correlation, float(sum(errors) / len(chrf)), rows)

    def tsv(self) -> str:
        """Return tab-separated lines for cut and awk: a header, then one for each row."""
        header = ["expected", "lines", "share", "chrf", *(f"chrf>={x}" for x in GOOD)]
        rows = ([r.expected, r.lines, r.share, r.chrf, *r.reached.values()] for r in self.rows)
        return tsv([header, *rows])

    def table(self) -> str:
        """Return a table for people."""
        titles = "".join(f"  chrF >= {x}" for x in GOOD)
        lines = [f"expected chrF     lines  mean chrF{titles}"]
        for row in self.rows:
            cells = ["-" if row.chrf is None else f"{row.chrf:.1f}"]
            cells += ["-" if x is None else f"{x:.0%}" for x in row.reached.values()]
            shares = f"{cells[0]:>9}" + "".join(f"  {cell:>10}" for cell in cells[1:])
            lines.append(f"at least {row.expected:>4}  {row.share:>8.1%}  {shares}")
        return "\n".join(lines)


def calibrate(folder: str, split: str) -> tuple[Path, Calibration, Quality]:
    """Translate dev with the best model, fit a calibration, and write it to the run folder.

    The quality is measured on every second line, with a calibration of the others. The one that is
    written is fitted on all lines.

    Args:
        folder: run folder.
        split: dev, or ``dev.NAME`` of several sets.

    Raises:
        UserError: the run has no such set, or it has too few lines.
    """
    systems = from_runs([folder], split, sources=True)
    recipe = RunFolder(folder).recipe()
    entry = held_out_entries(recipe, "dev")[split]
    lines = [n for n, source in enumerate(systems.sources) if not is_blank(source)]
    if len(lines) < _LEAST:
        raise UserError(
            f"{quantity(len(lines), 'line')}, but a calibration needs at least {_LEAST}",
            at=systems.ref_name,
            fix="train with a larger dev set; some hundred lines are needed for a good fit",
        )
    translator = Translator.load(folder)
    options = translator.check_options(recipe.options_for(entry))
    sources = [systems.sources[n] for n in lines]
    with progress_bar("translating", "lines", len(lines)) as bar:
        arguments: dict[str, Any] = {"progress": bar.update, "checked": options}
        results = translator.stream(sources, **arguments)
        translations = [best for best, *_ in results]
    refs = [[side[n] for n in lines] for side in (systems.refs, *systems.other_refs)]
    texts = [translation.text for translation in translations]
    (scores,) = sentence_scores(texts, refs[0], ["chrf"], systems.tgt_lang, refs[1:])
    half = Calibration.fit(translations[::2], scores.values[::2])
    expected = np.array([half.expect(translation) for translation in translations[1::2]])
    quality = Quality.of(expected, np.array(scores.values[1::2]))
    settings = search_settings(options, translator.engine_for(options).precision)
    fitted = Calibration.fit(translations, scores.values, translator.info.weights_hash, settings)
    file = RunFolder(folder).confidence_file
    write_atomic(file, fitted.text(), "make room for it", AGAIN)
    return file, fitted, quality


def notes(file: Path, calibration: Calibration, quality: Quality) -> Iterator[str]:
    """Yield what was written, and how well it fits."""
    correlation = "undefined" if quality.correlation is None else f"{quality.correlation:.2f}"
    yield f"wrote {file}, from {quantity(calibration.lines, 'line')} of dev"
    yield (
        f"{quantity(quality.lines, 'line')} of dev, with a calibration on the others: correlation "
        f"of expected and actual chrF {correlation}, calibration error {quality.error:.1f} chrF"
    )
    if calibration.lines < FEW:
        yield f"few lines: with fewer than {FEW}, expectations are coarse"
