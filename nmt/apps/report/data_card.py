"""The data card of a report: where the corpora of a run are from, and what the checks found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from nmt.apps.report.runs import ReportedRun
from nmt.data.download import licenses_of
from nmt.data.report import CorpusReport, Lengths, Overlap, SplitReport

NOT_RECORDED = "not recorded"


@dataclass(frozen=True)
class SplitRow:
    """A split of the corpora: training, dev or test."""

    name: str
    report: SplitReport
    src: Lengths | None
    tgt: Lengths | None
    overlap: Overlap | None

    @property
    def dropped(self) -> int:
        """Return the number of pairs that the filters dropped."""
        return sum(finding.count for finding in self.report.dropped.values())


@dataclass(frozen=True)
class FindingRow:
    """A finding of the checks in a split: how often, and the first place."""

    split: str
    name: str
    count: int
    first: str


@dataclass(frozen=True)
class DataCard:
    """The corpora of a run.

    Attributes:
        labels: of the runs with these corpora.
        report: what the checks found.
        splits: a row for each split.
        licenses: folder of a corpus -> its licenses, or NOT_RECORDED.
        langs: source and target language; only the first of text of one language.
    """

    labels: list[str]
    report: CorpusReport
    splits: list[SplitRow]
    licenses: dict[str, str]
    langs: list[str]

    @property
    def findings(self) -> list[FindingRow]:
        """Return what the checks found in the lines of each split."""
        rows = []
        for split in self.splits:
            report = split.report
            named = {f"dropped: {name}": one for name, one in report.dropped.items()}
            named |= report.suspicious
            rows += [
                FindingRow(split.name, name, one.count, next(iter(one.lines), ""))
                for name, one in named.items()
            ]
            rows += [
                FindingRow(split.name, name, count, "") for name, count in report.normalized.items()
            ]
            if (trip := report.round_trip) and trip.changed:
                name = f"changed by the segmentation, of {trip.lines:,} target lines"
                rows.append(FindingRow(split.name, name, trip.changed, trip.before))
            rows += [
                FindingRow(split.name, f"{side}: {change}", count, "")
                for side, other in report.other_form.items()
                for change, count in other.changes.items()
            ]
        return rows


def data_cards(runs: Iterable[ReportedRun]) -> list[DataCard]:
    """Return the corpora of some runs; runs with the same report share a card."""
    cards: dict[str, DataCard] = {}
    for run in runs:
        report = run.corpora
        if report is None:
            continue
        key = report.to_json()
        if key in cards:
            cards[key].labels.append(run.label)
            continue
        rows = [
            SplitRow(
                name,
                split,
                report.lengths.get(name, {}).get("src"),
                report.lengths.get(name, {}).get("tgt"),
                report.overlap.get(name),
            )
            for name, split in report.splits.items()
        ]
        folders = dict.fromkeys(Path(file).parent for file in report.inputs)
        licenses = {str(f): "; ".join(licenses_of(f)) or NOT_RECORDED for f in folders}
        langs = [lang for lang in (run.recipe.src, run.recipe.tgt) if lang]
        cards[key] = DataCard([run.label], report, rows, licenses, langs)
    return list(cards.values())
