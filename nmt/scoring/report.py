"""Scores of one or several systems on one reference, as a table, tab-separated lines or JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nmt.errors import UserError
from nmt.scoring.metrics import name_words, score
from nmt.scoring.significance import LEVEL, Compared, paired_bootstrap
from nmt.scoring.systems import Systems

LABELS = {"bleu": "BLEU", "chrf": "chrF2", "ter": "TER", "tokenized_bleu": "tokenized BLEU"}
_REMARKS = {
    "ter": "lower is better",
    "tokenized_bleu": "tokenized BLEU as multi-bleu.perl gives it; not comparable with BLEU",
}
COLUMNS = ("system", "metric", "score", "low", "high", "difference", "p_value", "signature")

_RESAMPLED_LINE_BYTES = 18 * 4 + 8  # chrF's float32 statistics of a line, and its int64 index
_MEMORY_LIMIT = 4 * 2**30


@dataclass(frozen=True)
class Report:
    """What nmt-score found.

    Attributes:
        inputs: what was scored.
        scores: system name -> one entry per metric; the first system is the baseline.
    """

    inputs: Systems
    scores: dict[str, list[Compared]]

    @property
    def baseline(self) -> str | None:
        """The system that the others are compared with; None if there is only one."""
        return next(iter(self.scores)) if len(self.scores) > 1 else None

    def table(self) -> str:
        """For people: one block per metric, at most about 100 columns wide."""
        inputs = self.inputs
        lines = [f"reference {inputs.ref_name}, {len(inputs.refs):,} lines"]
        width = max(map(len, self.scores))
        for entries in zip(*self.scores.values(), strict=True):
            name = entries[0].score.name
            remark = f"  ({_REMARKS[name]})" if name in _REMARKS else ""
            lines += ["", f"{LABELS[name]}{remark}", f"  {entries[0].score.signature}"]
            for system, entry in zip(self.scores, entries, strict=True):
                lines.append(f"  {system:<{width}}  {_cells(entry)}".rstrip())
        lines.append("")
        if self.scores and next(iter(self.scores.values()))[0].score.low is not None:
            lines.append("[low, high]: 95 % bootstrap interval")
        if self.baseline:
            lines.append(
                f"difference to {self.baseline}; p by paired bootstrap, * where p < {LEVEL}"
            )
        return "\n".join(lines)

    def tsv(self) -> str:
        """For cut and awk: a header, then one line per system and metric."""
        rows = ["\t".join(COLUMNS)]
        rows += [
            "\t".join("" if value is None else _plain(value) for value in record.values())
            for record in self._records()
        ]
        return "\n".join(rows)

    def json(self) -> str:
        """For programs: one object, full precision."""
        found = {
            "reference": self.inputs.ref_name,
            "lines": len(self.inputs.refs),
            "baseline": self.baseline,
            "notes": self.inputs.notes(),
            "systems": [
                {"name": name, "empty": self.inputs.empty(name)} for name in self.inputs.systems
            ],
            "scores": list(self._records()),
        }
        return json.dumps(found, indent=1, ensure_ascii=False)

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


def report(inputs: Systems, metrics: Sequence[str], resamples: int) -> Report:
    """Scores every system of ``inputs``; several are compared by paired bootstrap.

    Args:
        inputs: systems and their reference.
        metrics: keys of METRICS.
        resamples: bootstrap resamples; 0 leaves intervals out (for one system only).

    Raises:
        UserError: the resamples do not fit into memory, or several systems without resamples.
    """
    _check_resamples(inputs, resamples)
    on_text = [metric for metric in metrics if metric != "tokenized_bleu"]
    scores = _compare(inputs.systems, inputs.refs, on_text, inputs.tgt_lang, resamples)
    if "tokenized_bleu" in metrics:
        on_words = _compare(
            inputs.words, inputs.ref_words, ["tokenized_bleu"], inputs.tgt_lang, resamples
        )
        for system, entries in on_words.items():
            scores[system] += [
                dataclasses.replace(entry, score=name_words(entry.score, inputs.tokenizer))
                for entry in entries
            ]
    return Report(inputs, scores)


def _check_resamples(inputs: Systems, resamples: int) -> None:
    """sacreBLEU draws all resamples at once: refuse before the machine runs out of memory."""
    several = len(inputs.systems) > 1
    if several and not resamples:
        raise UserError(
            "several systems cannot be compared without resamples",
            at="--resamples 0",
            fix="take --resamples 1000, or score each system by itself",
        )
    needed = resamples * len(inputs.refs) * _RESAMPLED_LINE_BYTES
    if needed > _MEMORY_LIMIT:
        most = _MEMORY_LIMIT // (len(inputs.refs) * _RESAMPLED_LINE_BYTES)
        raise UserError(
            f"{resamples:,} resamples of {len(inputs.refs):,} lines take {needed / 2**30:.0f} GiB",
            at=inputs.ref_name,
            fix=f"take --resamples {most}" if several else "take --resamples 0: no intervals",
        )


def _compare(
    systems: dict[str, list[str]],
    refs: list[str],
    metrics: Sequence[str],
    tgt_lang: str,
    resamples: int,
) -> dict[str, list[Compared]]:
    if len(systems) > 1:
        return paired_bootstrap(systems, refs, metrics, tgt_lang, resamples)
    return {
        name: [
            Compared(result)
            for result in score(hyps, refs, metrics, tgt_lang, resamples > 0, resamples)
        ]
        for name, hyps in systems.items()
    }


def _cells(entry: Compared) -> str:
    cells = f"{entry.score.value:6.2f}"
    if entry.score.low is not None and entry.score.high is not None:
        cells += f"  [{entry.score.low:.2f}, {entry.score.high:.2f}]"
    if entry.p_value is not None:
        star = " *" if entry.p_value < LEVEL else ""
        cells += f"  {entry.difference:+.2f}  p = {entry.p_value:.3f}{star}"
    return cells


def _plain(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.4f}"
