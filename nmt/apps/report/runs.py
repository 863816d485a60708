"""Read the runs of a report, in any state: finished, stopped, diverged or in progress."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from nmt.apps.plot.curves import RunMetrics, short_labels
from nmt.data.report import CorpusReport
from nmt.errors import UserError
from nmt.runtime.files import LARGE, read_text
from nmt.store.folder import RunFolder
from nmt.store.results import read_result, read_summary

TIMESTAMP = len("2026-01-31 12:00:00")  # at the start of each line of train.log


class ReportedRun:
    """A run of a report, with a label that differs from those of the other runs.

    Raises:
        UserError: this is not a run folder.
    """

    def __init__(self, path: Path, label: str) -> None:
        self.name, self.label, self.folder = str(path), label, RunFolder(path)
        self.metrics = RunMetrics(path)
        self.recipe = self.metrics.recipe
        self.summary = read_summary(self.folder)  # empty if the training has not ended
        self.result = read_result(path)
        self.corpora: CorpusReport | None = None  # the file is missing or of an old version
        with contextlib.suppress(OSError, ValueError):
            self.corpora = CorpusReport.from_json(read_text(self.folder.data_report_file))

    @property
    def status(self) -> str:
        """Finished, stopped, diverged or training.

        A training that has written its summary is over, also while it still holds the lock.
        """
        return str(self.summary.get("status") or self.result.status)

    def times(self) -> tuple[str, str] | None:
        """Return when train.log begins and ends, in the time of the machine; None without it."""
        with contextlib.suppress(OSError):
            lines = read_text(self.folder.log_file, LARGE, "replace").splitlines()
            if lines:
                return lines[0][:TIMESTAMP], lines[-1][:TIMESTAMP]
        return None


def read_runs(folders: Sequence[str | Path]) -> list[ReportedRun]:
    """Read some run folders, each given once."""
    paths = [Path(folder) for folder in folders]
    for i, path in enumerate(paths):
        if path.is_file():
            raise UserError(
                "this is a file, not a run folder",
                at=str(path),
                fix=f"for the results of a file of variants: nmt-sweep {path} --results",
            )
        if path.resolve() in [other.resolve() for other in paths[:i]]:
            raise UserError("this run folder is given twice", at=str(path), fix="give it once")
    labels = short_labels(paths)
    return [ReportedRun(path, label) for path, label in zip(paths, labels, strict=True)]
