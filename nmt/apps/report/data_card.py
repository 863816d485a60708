"""The data card of a report: the origin of the corpora, and the findings of the checks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from nmt.apps.report.runs import ReportedRun
from nmt.data.corpus_manifest import licenses_of
from nmt.data.report import CorpusReport
from nmt.runtime.words import quantity

NOT_RECORDED = "not recorded"


@dataclass(frozen=True)
class DataCard:
    """The corpora of a run."""

    labels: list[str]  # of the runs with these corpora
    report: CorpusReport
    licenses: dict[str, str]  # folder of a corpus -> its licenses, or NOT_RECORDED
    langs: dict[str, str]  # side -> language; monolingual text has only src

    @property
    def findings(self) -> list[tuple[str, str, str]]:
        """Return the place, a sentence and the first example of what the checks found."""
        rows = []
        for split, report in self.report.splits.items():
            rows += [
                (split, f"{places.count:,} dropped: {name}", next(iter(places.lines), ""))
                for name, places in report.dropped.items()
            ]
            rows += [
                (split, f"{name} in {quantity(count, 'line')}", "")
                for name, count in report.normalized.items()
            ]
        rows += [
            (found.at, found.text, next(iter(found.examples), "")) for found in self.report.findings
        ]
        return rows


def data_cards(runs: Iterable[ReportedRun]) -> list[DataCard]:
    """Return the corpora of some runs; runs with the same report share a card."""
    cards: dict[str, DataCard] = {}
    for run in runs:
        if run.corpora is None:
            continue
        key = run.corpora.to_json()
        if key in cards:
            cards[key].labels.append(run.label)
            continue
        folders = dict.fromkeys(Path(file).parent for file in run.corpora.inputs)
        licenses = {str(f): "; ".join(licenses_of(f)) or NOT_RECORDED for f in folders}
        langs = {"src": run.recipe.src, "tgt": run.recipe.tgt}
        langs = {side: lang for side, lang in langs.items() if lang}
        cards[key] = DataCard([run.label], run.corpora, licenses, langs)
    return list(cards.values())
