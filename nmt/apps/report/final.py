"""The report that is written when a run ends, from the command or from Python."""

from __future__ import annotations

import shlex

from nmt.errors import NmtError
from nmt.store.folder import RunFolder
from nmt.store.lifecycle import TrainingFolder
from nmt.store.metrics_log import Logger, MetricsLog


def write_final_report(run: RunFolder, log: Logger) -> None:
    """Write the report of a run that has ended; any failure is only a warning."""
    try:
        from nmt.apps.report.page import write_report
        from nmt.apps.report.runs import read_runs

        write_report(read_runs([run.path]), run.report_file)
    except Exception as error:  # the run is complete, whatever is wrong with its report
        what = error.what if isinstance(error, NmtError) else f"{type(error).__name__}: {error}"
        command = shlex.join(["nmt-report", str(run.path), "--force"])
        log.text(f"warning: the report was not written: {what}\n  -> to write it, run {command}")
    else:
        log.text(f"report: {run.report_file}")


def write_missing_report(run: TrainingFolder, quiet: bool = False) -> None:
    """Write the report of a finished run that was killed before it had one."""
    if not run.report_file.exists():
        with run, MetricsLog(run, console=not quiet) as log:
            write_final_report(run, log)
