"""Score systems, and report the scores as a table, as tab-separated lines or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from nmt.apps.evaluate.external import ExternalMetric
from nmt.errors import UserError
from nmt.runtime.progress import progress_bar
from nmt.runtime.words import quantity
from nmt.scoring.metrics import (
    METRICS,
    paired_bootstrap,
    score,
    sentence_scores,
    with_tokenizer,
)
from nmt.scoring.results import SIGNIFICANCE_LEVEL, Cell, Score, tsv
from nmt.scoring.significance import interval, mean_scores, mean_statistics, paired_tests
from nmt.scoring.systems import Systems

COLUMNS = (
    "system",
    "metric",
    "score",
    "low",
    "high",
    "difference",
    "p_value",
    "p_two_sided",
    "signature",
)

_RESAMPLED_LINE_BYTES = 24 * 4 + 8  # chrF++'s float32 statistics of a line, and its int64 index
_MEMORY_LIMIT = 4 * 2**30


@dataclass(frozen=True)
class Report:
    """The scores of one or several systems, by their names; the first is the baseline."""

    systems: Systems
    # keys of METRICS, then external metrics
    scores: dict[str, list[Score]]
    # external metric -> system -> score of each line, if the command printed them
    segments: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    @property
    def baseline(self) -> str | None:
        """The system that the others are compared with; None if there is only one."""
        return next(iter(self.scores)) if len(self.scores) > 1 else None

    def with_external(
        self, metric: ExternalMetric, resamples: int, progress: bool = False
    ) -> Report:
        """Add the scores of a command, such as COMET; raise RunError if it failed.

        The command gets the first reference. The score of a system is the mean of its lines. If
        the command prints a score for each line, there are intervals and paired tests, on the same
        resamples as those of the other metrics.
        """
        systems, segments = self.systems, {}
        total = len(systems.texts)
        with progress_bar(f"computing {metric.name}", "systems", total, progress, slow=True) as bar:
            for system, hyps in systems.texts.items():
                segments[system] = metric.score(systems.sources, hyps, systems.refs)
                bar.update()
        by_line = resamples > 1 and all(len(x) == len(systems.refs) for x in segments.values())
        runs = {system: [[mean_statistics(values)]] for system, values in segments.items()}
        baseline = next(iter(segments))
        scores: dict[str, list[Score]] = {}
        for system, values in segments.items():
            result = Score(metric.name, sum(values) / len(values), metric.command)
            if by_line:
                low, high = interval(mean_scores, runs[system], resamples)
                result = replace(result, low=low, high=high)
            if system != baseline:
                difference = result.value - scores[baseline][-1].value
                result = replace(result, difference=difference)
                if by_line:
                    tests = paired_tests(mean_scores, runs[baseline], runs[system], resamples)
                    result = replace(result, p_value=tests.bootstrap, p_two_sided=tests.two_sided)
            scores[system] = [*self.scores[system], result]
        kept = {metric.name: segments} if by_line or len(systems.refs) == 1 else {}
        return replace(self, scores=scores, segments={**self.segments, **kept})

    def table(self) -> str:
        """Return a table for people: one block per metric, at most about 100 columns wide."""
        kind = "references" if self.systems.other_refs else "reference"
        lines = [f"{kind} {self.systems.ref_name}, {quantity(len(self.systems.refs), 'line')}"]
        width = max(map(len, self.scores))
        for entries in zip(*self.scores.values(), strict=True):
            lines += ["", _title(entries[0].name), f"  {entries[0].signature}"]
            # COMET's scores are about 0 to 1
            digits = 2 if entries[0].name in METRICS else 4
            for system, entry in zip(self.scores, entries, strict=True):
                lines.append(f"  {system:<{width}}  {entry.cells(digits)}")
        lines.append("")
        if any(entry.low is not None for entries in self.scores.values() for entry in entries):
            lines.append("[low, high]: 95 % bootstrap interval")
        if self.baseline:
            lines.append(
                f"difference to {self.baseline}; p by paired bootstrap, "
                f"* where the two-sided p < {SIGNIFICANCE_LEVEL}"
            )
        return "\n".join(lines)

    def tsv(self) -> str:
        """Return tab-separated lines for cut and awk: a header, then one per system and metric."""
        return tsv([COLUMNS, *self._rows()])

    def json(self) -> str:
        """Return a JSON object for programs, in full precision."""
        systems = self.systems
        content = {
            "reference": systems.ref_name,
            "references": 1 + len(systems.other_refs),
            "lines": len(systems.refs),
            "baseline": self.baseline,
            "notes": systems.notes(),
            "systems": [
                {"name": name, "empty": systems.count_empty(name)} for name in systems.texts
            ],
            "scores": [dict(zip(COLUMNS, row, strict=True)) for row in self._rows()],
        }
        return json.dumps(content, indent=1, ensure_ascii=False)

    def _rows(self) -> Iterator[tuple[Cell, ...]]:
        for system, entries in self.scores.items():
            for x in entries:
                results = x.value, x.low, x.high, x.difference, x.p_value, x.p_two_sided
                yield system, x.name, *results, x.signature


def report(
    systems: Systems,
    metrics: Sequence[str],
    resamples: int,
    *,
    progress: bool = False,
) -> Report:
    """Score every system; compare several with the first by paired bootstrap.

    Args:
        metrics: keys of METRICS. Those on words come last in the report.
        resamples: of the bootstrap; 0 = no intervals, for one system only.

    Raises:
        UserError: the resamples do not fit in memory, or several systems without resamples.
    """
    _check_resamples(systems, resamples)
    on_text = [name for name in metrics if not METRICS[name].on_words]
    on_words = [name for name in metrics if METRICS[name].on_words]
    texts = systems.texts
    refs = [systems.refs, *systems.other_refs]
    ref_words = [systems.ref_words, *systems.other_ref_words]
    scores = _compare(texts, refs, on_text, systems.tgt_lang, resamples, progress)
    by_words = _compare(systems.words, ref_words, on_words, systems.words_lang, resamples, progress)
    for system, entries in by_words.items():
        scores[system] += [with_tokenizer(entry, systems.tokenizer) for entry in entries]
    return Report(systems, scores)


def _check_resamples(systems: Systems, resamples: int) -> None:
    lines, several = len(systems.refs), len(systems.texts) > 1
    if several and not resamples:
        raise UserError(
            "several systems cannot be compared without resamples",
            at="--resamples 0",
            fix="use --resamples 1000, or score each system by itself",
        )
    needed = resamples * lines * _RESAMPLED_LINE_BYTES  # sacreBLEU allocates it at once
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
    refs: list[list[str]],
    metrics: Sequence[str],
    tgt_lang: str,
    resamples: int,
    progress: bool,
) -> dict[str, list[Score]]:
    first, *others = refs
    if len(texts) > 1:
        return paired_bootstrap(texts, first, metrics, tgt_lang, resamples, others, progress)
    return {
        name: score(hyps, first, metrics, tgt_lang, resamples, others, progress)
        for name, hyps in texts.items()
    }


def sentence_table(
    systems: Systems,
    metrics: Sequence[str],
    external: Mapping[str, Mapping[str, Sequence[float]]] = {},
) -> str:
    """Return a header and a row for each line and system, with their texts, as TSV.

    The columns are system, line (from 1), one for each metric, source (if known), reference and
    hypothesis. With several references, scores count all of them, and the column has the first.

    Args:
        metrics: keys of METRICS; those on words are left out, as tokenized BLEU is not smoothed.
        external: further metric -> system -> score of each line.
    """
    on_text = [name for name in metrics if not METRICS[name].on_words]
    sources = [systems.sources] if systems.sources else []
    names = [*on_text, *external, *["source"] * len(sources)]
    rows: list[Sequence[Cell]] = [["system", "line", *names, "reference", "hypothesis"]]
    for system, hyps in systems.texts.items():
        scores = sentence_scores(hyps, systems.refs, on_text, systems.tgt_lang, systems.other_refs)
        found = [
            *(result.values for result in scores),
            *(each[system] for each in external.values()),
        ]
        columns = [*found, *sources, systems.refs, hyps]
        cells = enumerate(zip(*columns, strict=True), 1)
        rows += [(system, number, *row) for number, row in cells]
    return tsv(rows) + "\n"


def _title(name: str) -> str:
    metric = METRICS.get(name)
    if metric is None:
        return f"{name}, by an external command"
    return f"{metric.label}, {metric.remark}" if metric.remark else metric.label
