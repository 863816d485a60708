"""Report the scores of systems on one reference as a table, tab-separated lines or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from nmt.errors import UserError
from nmt.scoring.metrics import (
    METRICS,
    SIGNIFICANCE_LEVEL,
    Comparison,
    paired_bootstrap,
    score,
    with_tokenizer,
)
from nmt.scoring.systems import Systems

COLUMNS = ("system", "metric", "score", "low", "high", "difference", "p_value", "signature")

_RESAMPLED_LINE_BYTES = 24 * 4 + 8  # chrF++'s float32 statistics of a line, and its int64 index
_MEMORY_LIMIT = 4 * 2**30


@dataclass(frozen=True)
class Report:
    """The scores of one or several systems.

    Attributes:
        systems: what was scored.
        scores: system name -> one entry per metric; the first system is the baseline.
    """

    systems: Systems
    scores: dict[str, list[Comparison]]

    @property
    def baseline(self) -> str | None:
        """The system that the others are compared with; None if there is only one."""
        return next(iter(self.scores)) if len(self.scores) > 1 else None

    def table(self) -> str:
        """Return a table for people: one block per metric, at most about 100 columns wide."""
        lines = [f"reference {self.systems.ref_name}, {len(self.systems.refs):,} lines"]
        width = max(map(len, self.scores))
        for entries in zip(*self.scores.values(), strict=True):
            metric = METRICS[entries[0].score.name]
            remark = f", {metric.remark}" if metric.remark else ""
            lines += ["", f"{metric.label}{remark}", f"  {entries[0].score.signature}"]
            for system, entry in zip(self.scores, entries, strict=True):
                lines.append(f"  {system:<{width}}  {_cells(entry)}".rstrip())
        lines.append("")
        if self.scores and next(iter(self.scores.values()))[0].score.low is not None:
            lines.append("[low, high]: 95 % bootstrap interval")
        if self.baseline:
            lines.append(
                f"difference to {self.baseline}; p by paired bootstrap, "
                f"* where p < {SIGNIFICANCE_LEVEL}"
            )
        return "\n".join(lines)

    def tsv(self) -> str:
        """Return tab-separated lines for cut and awk: a header, then one per system and metric."""
        rows = ["\t".join(COLUMNS)]
        rows += [
            "\t".join("" if value is None else _tsv_cell(value) for value in record.values())
            for record in self._records()
        ]
        return "\n".join(rows)

    def json(self) -> str:
        """Return a JSON object for programs, in full precision."""
        systems = self.systems
        content = {
            "reference": systems.ref_name,
            "lines": len(systems.refs),
            "baseline": self.baseline,
            "notes": systems.notes(),
            "systems": [
                {"name": name, "empty": systems.count_empty(name)} for name in systems.texts
            ],
            "scores": list(self._records()),
        }
        return json.dumps(content, indent=1, ensure_ascii=False)

    def _records(self) -> Iterator[dict[str, str | float | None]]:
        for system, entries in self.scores.items():
            for entry in entries:
                result = entry.score
                values = (
                    system,
                    result.name,
                    result.value,
                    result.low,
                    result.high,
                    entry.difference,
                    entry.p_value,
                    result.signature,
                )
                yield dict(zip(COLUMNS, values, strict=True))


def report(systems: Systems, metrics: Sequence[str], resamples: int) -> Report:
    """Score every system; compare several with the first by paired bootstrap.

    Args:
        systems: the systems and their reference.
        metrics: keys of METRICS. Those on words come last in the report.
        resamples: bootstrap resamples; 0 = no intervals, for one system only.

    Raises:
        UserError: the resamples do not fit in memory, or several systems without resamples.
    """
    _check_resamples(systems, resamples)
    on_text = [name for name in metrics if not METRICS[name].on_words]
    on_words = [name for name in metrics if METRICS[name].on_words]
    lang = systems.tgt_lang
    scores = _compare(systems.texts, systems.refs, on_text, lang, resamples)
    of_words = _compare(systems.words, systems.ref_words, on_words, lang, resamples)
    for system, entries in of_words.items():
        scores[system] += [
            replace(entry, score=with_tokenizer(entry.score, systems.tokenizer))
            for entry in entries
        ]
    return Report(systems, scores)


def _check_resamples(systems: Systems, resamples: int) -> None:
    """Check the memory that resamples take before sacreBLEU allocates all of it at once."""
    lines, several = len(systems.refs), len(systems.texts) > 1
    if several and not resamples:
        raise UserError(
            "several systems cannot be compared without resamples",
            at="--resamples 0",
            fix="use --resamples 1000, or score each system by itself",
        )
    needed = resamples * lines * _RESAMPLED_LINE_BYTES
    if needed > _MEMORY_LIMIT:
        most = _MEMORY_LIMIT // (lines * _RESAMPLED_LINE_BYTES)
        raise UserError(
            f"{resamples:,} resamples of {lines:,} lines take {needed / 2**30:.0f} GiB of memory, "
            f"at most {_MEMORY_LIMIT >> 30} GiB are allowed",
            at=systems.ref_name,
            fix=f"use --resamples {most}"
            if several
            else "use --resamples 0, which leaves the intervals out",
        )


def _compare(
    texts: dict[str, list[str]],
    refs: list[str],
    metrics: Sequence[str],
    tgt_lang: str,
    resamples: int,
) -> dict[str, list[Comparison]]:
    if len(texts) > 1:
        return paired_bootstrap(texts, refs, metrics, tgt_lang, resamples)
    return {
        name: [Comparison(result) for result in score(hyps, refs, metrics, tgt_lang, resamples)]
        for name, hyps in texts.items()
    }


def _cells(entry: Comparison) -> str:
    cells = f"{entry.score.value:6.2f}"
    if entry.score.low is not None and entry.score.high is not None:
        cells += f"  [{entry.score.low:.2f}, {entry.score.high:.2f}]"
    if entry.p_value is not None:
        star = " *" if entry.p_value < SIGNIFICANCE_LEVEL else ""
        cells += f"  {entry.difference:+.2f}  p = {entry.p_value:.3f}{star}"
    return cells


def _tsv_cell(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.4f}"
