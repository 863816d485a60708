"""Report the scores of systems as a table, as tab-separated lines or as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from nmt.apps.evaluate.buckets import (
    FrequencyBucket,
    LengthBucket,
    frequency_buckets,
    length_buckets,
    training_counts,
)
from nmt.apps.evaluate.comet import ExternalMetric
from nmt.apps.evaluate.documents import DOCUMENT_METRICS, join_documents
from nmt.data.text import quantity
from nmt.errors import UserError
from nmt.scoring.metrics import (
    METRICS,
    SIGNIFICANCE_LEVEL,
    Comparison,
    Score,
    paired_bootstrap,
    score,
    with_tokenizer,
)
from nmt.scoring.systems import Systems

COLUMNS = ("system", "metric", "score", "low", "high", "difference", "p_value", "signature")
COMET = "comet"
DOCUMENT_PREFIX = "doc_"

Record: TypeAlias = dict[str, str | float | None]

_RESAMPLED_LINE_BYTES = 24 * 4 + 8  # chrF++'s float32 statistics of a line, and its int64 index
_MEMORY_LIMIT = 4 * 2**30


@dataclass(frozen=True)
class Report:
    """The scores of one or several systems.

    Attributes:
        systems: what was scored.
        scores: system name -> one entry per score; the first system is the baseline. The names are
            keys of METRICS, then ``doc_`` and a key for scores of documents, then ``comet``.
        lengths: system name -> scores by length of the reference; empty if not requested.
        frequencies: system name -> words by training frequency; empty if unknown.
    """

    systems: Systems
    scores: dict[str, list[Comparison]]
    lengths: dict[str, list[LengthBucket]] = field(default_factory=dict)
    frequencies: dict[str, list[FrequencyBucket]] = field(default_factory=dict)

    @property
    def baseline(self) -> str | None:
        """The system that the others are compared with; None if there is only one."""
        return next(iter(self.scores)) if len(self.scores) > 1 else None

    def with_external(self, metric: ExternalMetric) -> Report:
        """Return this report with the scores of a command, such as COMET, without intervals.

        The command gets the first reference.

        Raises:
            RunError: the command failed.
        """
        values = {
            system: metric.score(self.systems.sources, hyps, self.systems.refs)
            for system, hyps in self.systems.texts.items()
        }
        first = next(iter(values))
        scores = {}
        for system, value in values.items():
            difference = None if system == first else value - values[first]
            entry = Comparison(Score(COMET, value, metric.command), difference)
            scores[system] = [*self.scores[system], entry]
        return replace(self, scores=scores)

    def table(self) -> str:
        """Return a table for people: one block per metric, at most about 100 columns wide."""
        kind = "references" if self.systems.other_refs else "reference"
        lines = [f"{kind} {self.systems.ref_name}, {quantity(len(self.systems.refs), 'line')}"]
        width = max(map(len, self.scores))
        for entries in zip(*self.scores.values(), strict=True):
            lines += ["", _title(entries[0].score.name), f"  {entries[0].score.signature}"]
            for system, entry in zip(self.scores, entries, strict=True):
                lines.append(f"  {system:<{width}}  {_cells(entry)}".rstrip())
        lines += [*self._length_lines(), *self._frequency_lines(), ""]
        if any(
            entry.score.low is not None for entries in self.scores.values() for entry in entries
        ):
            lines.append("[low, high]: 95 % bootstrap interval")
        if self.baseline:
            lines.append(
                f"difference to {self.baseline}; p by paired bootstrap, "
                f"* where p < {SIGNIFICANCE_LEVEL}"
            )
        return "\n".join(lines)

    def _length_lines(self) -> Iterator[str]:
        """Yield a block per metric: scores by length of the reference."""
        first = next(iter(self.lengths.values()), [])
        for place, result in enumerate(first[0].scores if first else ()):
            yield from ("", f"{_title(result.name)}, by words of the reference")
            yield f"  {result.signature}"
            rows = {
                "words": [str(bucket.words) for bucket in first],
                "lines": [f"{bucket.lines:,}" for bucket in first],
            }
            for system, buckets in self.lengths.items():
                rows[system] = [f"{bucket.scores[place].value:.2f}" for bucket in buckets]
            yield from _rows(rows)

    def _frequency_lines(self) -> Iterator[str]:
        """Yield a block: the F1 of words by their count in the training text."""
        if not self.frequencies:
            return
        first = next(iter(self.frequencies.values()))
        yield from ("", "F1 of words, by their count in the training text")
        rows = {
            "count": [str(bucket.count) for bucket in first],
            "in the reference": [f"{bucket.ref_words:,}" for bucket in first],
        }
        for system, buckets in self.frequencies.items():
            rows[system] = ["-" if b.f1 is None else f"{b.f1:.3f}" for b in buckets]
        yield from _rows(rows)

    def tsv(self) -> str:
        """Return tab-separated lines for cut and awk: a header, then one per system and metric.

        A score of a part of the lines or words has the metric ``bleu:words=10-19`` or
        ``f1:count=5-9``.
        """
        rows = ["\t".join(COLUMNS)]
        rows += [
            "\t".join("" if value is None else _tsv_cell(value) for value in record.values())
            for record in (*self._records(), *self._bucket_records())
        ]
        return "\n".join(rows)

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
            "scores": list(self._records()),
            "by_length": [
                {
                    "system": system,
                    "words": [bucket.words.low, bucket.words.high],
                    "lines": bucket.lines,
                    "metric": result.name,
                    "score": result.value,
                    "signature": result.signature,
                }
                for system, buckets in self.lengths.items()
                for bucket in buckets
                for result in bucket.scores
            ],
            "by_frequency": [
                {
                    "system": system,
                    "count": [bucket.count.low, bucket.count.high],
                    "ref_words": bucket.ref_words,
                    "hyp_words": bucket.hyp_words,
                    "matches": bucket.matches,
                    "recall": bucket.recall,
                    "precision": bucket.precision,
                    "f1": bucket.f1,
                }
                for system, buckets in self.frequencies.items()
                for bucket in buckets
            ],
        }
        return json.dumps(content, indent=1, ensure_ascii=False)

    def _records(self) -> Iterator[Record]:
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

    def _bucket_records(self) -> Iterator[Record]:
        empty: Record = dict.fromkeys(COLUMNS)
        for system, lengths in self.lengths.items():
            for part in lengths:
                for result in part.scores:
                    yield empty | {
                        "system": system,
                        "metric": f"{result.name}:words={part.words}",
                        "score": result.value,
                        "signature": result.signature,
                    }
        for system, frequencies in self.frequencies.items():
            for words in frequencies:
                yield empty | {
                    "system": system,
                    "metric": f"f1:count={words.count}",
                    "score": words.f1,
                }


def report(
    systems: Systems,
    metrics: Sequence[str],
    resamples: int,
    *,
    documents: Sequence[str] = (),
    buckets: bool = False,
    progress: bool = False,
) -> Report:
    """Score every system; compare several with the first by paired bootstrap.

    Args:
        systems: the systems and their references.
        metrics: keys of METRICS. Those on words come last in the report.
        resamples: bootstrap resamples; 0 = no intervals, for one system only.
        documents: the document id of each line, to score documents too. Resamples then consist of
            documents.
        buckets: score by length too, and words by frequency if ``systems.training`` is known.
        progress: show bars on a terminal.

    Raises:
        UserError: the resamples do not fit in memory, or several systems without resamples.
    """
    _check_resamples(systems, resamples)
    on_text = [name for name in metrics if not METRICS[name].on_words]
    on_words = [name for name in metrics if METRICS[name].on_words]
    lang, texts = systems.tgt_lang, systems.texts
    compare = partial(_compare, tgt_lang=lang, resamples=resamples, progress=progress)
    scores = compare(texts, [systems.refs, *systems.other_refs], on_text)
    ref_words = [systems.ref_words, *systems.other_ref_words]
    word_scores = compare(systems.words, ref_words, on_words)
    for system, entries in word_scores.items():
        scores[system] += [
            replace(entry, score=with_tokenizer(entry.score, systems.tokenizer))
            for entry in entries
        ]
    if documents:
        for system, entries in _document_scores(systems, on_text, compare, documents).items():
            scores[system] += entries
    lengths: dict[str, list[LengthBucket]] = {}
    frequencies: dict[str, list[FrequencyBucket]] = {}
    if buckets:
        lengths = {system: length_buckets(systems, system, on_text) for system in texts}
        if systems.training:
            counts = training_counts(systems)
            frequencies = {system: frequency_buckets(systems, system, counts) for system in texts}
    return Report(systems, scores, lengths, frequencies)


def _document_scores(
    systems: Systems,
    metrics: Sequence[str],
    compare: Callable[..., dict[str, list[Comparison]]],
    documents: Sequence[str],
) -> dict[str, list[Comparison]]:
    """Return the scores of the joined lines of each document."""
    texts = {name: join_documents(hyps, documents) for name, hyps in systems.texts.items()}
    refs = [join_documents(lines, documents) for lines in (systems.refs, *systems.other_refs)]
    names = [name for name in metrics if name in DOCUMENT_METRICS]
    scores = compare(texts, refs, names)
    return {
        system: [
            replace(
                entry,
                score=replace(
                    entry.score,
                    name=DOCUMENT_PREFIX + entry.score.name,
                    signature=f"{entry.score.signature}|docs:{len(refs[0])}",
                ),
            )
            for entry in entries
        ]
        for system, entries in scores.items()
    }


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
    refs: list[list[str]],
    metrics: Sequence[str],
    tgt_lang: str,
    resamples: int,
    progress: bool,
) -> dict[str, list[Comparison]]:
    first, *others = refs
    if len(texts) > 1:
        return paired_bootstrap(texts, first, metrics, tgt_lang, resamples, others, progress)
    return {
        name: [
            Comparison(result)
            for result in score(hyps, first, metrics, tgt_lang, resamples, others, progress)
        ]
        for name, hyps in texts.items()
    }


def _title(name: str) -> str:
    """Return the title of a score in a table: its label, and what a reader should know."""
    if name == COMET:
        return "COMET, by an external command"
    metric = METRICS[name.removeprefix(DOCUMENT_PREFIX)]
    label = f"{metric.label} of documents" if name.startswith(DOCUMENT_PREFIX) else metric.label
    return f"{label}, {metric.remark}" if metric.remark else label


def _rows(rows: dict[str, list[str]]) -> Iterator[str]:
    """Yield aligned lines of a small table with row titles."""
    width = max(map(len, rows))
    widths = [max(map(len, column)) for column in zip(*rows.values(), strict=True)]
    for title, cells in rows.items():
        aligned = (f"{cell:>{size}}" for cell, size in zip(cells, widths, strict=True))
        yield f"  {title:<{width}}  {'  '.join(aligned)}"


def _cells(entry: Comparison) -> str:
    digits = 4 if entry.score.name == COMET else 2  # COMET's scores are about 0 to 1
    cells = f"{entry.score.value:6.{digits}f}"
    if entry.score.low is not None and entry.score.high is not None:
        cells += f"  [{entry.score.low:.2f}, {entry.score.high:.2f}]"
    if entry.difference is not None:
        cells += f"  {entry.difference:+.{digits}f}"
    if entry.p_value is not None:
        star = " *" if entry.p_value < SIGNIFICANCE_LEVEL else ""
        cells += f"  p = {entry.p_value:.3f}{star}"
    return cells


def _tsv_cell(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.4f}"
