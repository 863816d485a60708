"""Read the runs of a report, in any state: finished, stopped, diverged or in progress."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nmt.apps.plot.curves import Curve, RunMetrics, short_labels
from nmt.config.recipe import Recipe
from nmt.data.report import CorpusReport
from nmt.errors import UserError
from nmt.run.folder import RunFolder
from nmt.run.results import RunResult, read_result, read_summary
from nmt.runtime.files import LARGE, read_text
from nmt.runtime.missing import missing_fix

TIMESTAMP = len("2026-01-31 12:00:00")  # at the start of each line of train.log


@dataclass(frozen=True)
class ReportedRun:
    """A run of a report.

    Attributes:
        folder: the run folder.
        label: the last parts of its path, as few as make the labels of all runs differ.
        metrics: what the training has logged.
        summary: how it ended; empty if it has not.
        result: its state in figures.
        corpora: what the corpus checks found; None if the file is missing or of an old version.
    """

    folder: RunFolder
    label: str
    metrics: RunMetrics
    summary: dict[str, Any]
    result: RunResult
    corpora: CorpusReport | None

    @property
    def name(self) -> str:
        """Return the path of the run folder."""
        return str(self.folder.path)

    @property
    def recipe(self) -> Recipe:
        """Return the recipe."""
        return self.metrics.recipe

    @property
    def status(self) -> str:
        """Return finished, stopped, diverged or training.

        A training that has written its summary is over, also while it still holds the lock.
        """
        return str(self.summary.get("status") or self.result.status)

    def curve(self, kind: str, name: str, by_time: bool) -> Curve:
        """Return a logged value by update, or by the seconds of training."""
        curve = self.metrics.curve(kind, name)
        if not by_time:
            return curve
        logged = self.metrics.curve(kind, "seconds")
        seconds = dict(zip(logged.updates.tolist(), logged.values.tolist(), strict=True))
        known = np.array([update in seconds for update in curve.updates.tolist()], dtype=bool)
        times = np.array([seconds[update] for update in curve.updates[known].tolist()])
        return Curve(times, curve.values[known])

    def times(self) -> tuple[str, str] | None:
        """Return when train.log begins and ends, in the time of the machine; None without it."""
        with contextlib.suppress(OSError):
            lines = read_text(self.folder.log_file, LARGE, "replace").splitlines()
            if lines:
                return lines[0][:TIMESTAMP], lines[-1][:TIMESTAMP]
        return None


def read_runs(folders: Sequence[str | Path]) -> list[ReportedRun]:
    """Read some run folders.

    Raises:
        UserError: a folder does not exist, is not a run folder or is given twice.
    """
    paths = [Path(folder) for folder in folders]
    for i, path in enumerate(paths):
        if path.is_file():
            raise UserError(
                "this is a file, not a run folder",
                at=str(path),
                fix=f"for the table of a file of variants: nmt-report --table {path}",
            )
        if not path.is_dir():
            raise UserError("no such run folder", at=str(path), fix=missing_fix(path))
        if path.resolve() in [other.resolve() for other in paths[:i]]:
            raise UserError("this run folder is given twice", at=str(path), fix="give it once")
    return [
        ReportedRun(
            RunFolder(path),
            label,
            RunMetrics(path),
            read_summary(RunFolder(path)),
            read_result(path),
            _corpora(RunFolder(path)),
        )
        for path, label in zip(paths, short_labels(paths), strict=True)
    ]


def _corpora(run: RunFolder) -> CorpusReport | None:
    with contextlib.suppress(OSError, ValueError):
        return CorpusReport.from_json(read_text(run.data_report_file))
    return None
