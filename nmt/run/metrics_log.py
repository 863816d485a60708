"""The logs of a training: lines for people, JSON records for machines, experiment trackers."""

from __future__ import annotations

import contextlib
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tqdm import tqdm

from nmt.errors import printable
from nmt.run.folder import RunFolder
from nmt.run.trackers import Tracker
from nmt.runtime.files import LARGE, append_line, disk_errors, read_text, write_atomic


class Logger(Protocol):
    """Where a training logs."""

    def text(self, line: str, on_console: bool = True) -> None:
        """Log a line for people.

        Args:
            on_console: print it too; False if a live view shows the same.
        """

    def record(self, values: dict[str, Any]) -> None:
        """Log a record for machines."""


class NullLogger:
    """A logger that does nothing, for all processes except the main one."""

    def text(self, line: str, on_console: bool = True) -> None:
        """Do nothing."""

    def record(self, values: dict[str, Any]) -> None:
        """Do nothing."""


class MetricsLog:
    """Log to train.log, metrics.jsonl and the trackers of one run.

    Call ``rewind`` once before the first record. If a tracker fails, there is one warning and
    training continues without it.

    Args:
        trackers: see ``nmt.run.trackers``.
        console: print the lines for people on standard error.
    """

    def __init__(
        self, run: RunFolder, trackers: Sequence[Tracker] = (), console: bool = True
    ) -> None:
        self._run, self._console = run, console
        self._trackers = list(trackers)
        with disk_errors(run.path):
            run.log_file.touch()
            run.metrics_file.touch()

    def text(self, line: str, on_console: bool = True) -> None:
        """Write a line on standard error, above a progress bar, and with the time to train.log."""
        line = printable(line)
        if on_console and self._console:
            with contextlib.suppress(OSError, ValueError):  # a closed terminal ends no training
                tqdm.write(line, file=sys.stderr)
        append_line(self._run.log_file, f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}")

    def record(self, values: dict[str, Any]) -> None:
        """Append a record to metrics.jsonl; NaN and infinity become null.

        Args:
            values: ``update`` is the step and ``kind`` the group of its curves in TensorBoard.
        """
        line = json.dumps(_to_json_values(values), ensure_ascii=False, allow_nan=False)
        append_line(self._run.metrics_file, line)
        self._track(values)

    def rewind(self, update: int, validated: bool = True) -> None:
        """Remove broken lines and what a resumed run writes again, and start the trackers.

        That is every record after ``update``, and the average and the test score of an earlier end.

        Args:
            update: of the checkpoint that the run continues from.
            validated: False = the run validates this update again, so its record is removed too.

        Raises:
            MachineError: a tracker does not start.
        """
        with disk_errors(self._run.metrics_file):
            text = read_text(self._run.metrics_file, LARGE, "replace")
        lines = text.split("\n")
        kept = [line for line in lines if _is_kept(line, update, validated)]
        repaired = "".join(line + "\n" for line in kept)
        if repaired != text:
            write_atomic(self._run.metrics_file, repaired)
        for tracker in self._trackers:
            tracker.begin(update)

    def close(self) -> None:
        """Write and upload what the trackers have not written yet."""
        for tracker in list(self._trackers):
            self._try(tracker, tracker.close)
        self._trackers.clear()

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _track(self, values: dict[str, Any]) -> None:
        kind, update = values.get("kind", "train"), values.get("update", 0)
        numbers = {
            f"{kind}/{name}": value
            for name, value in values.items()
            if name != "update" and isinstance(value, (int, float))
        }
        for tracker in list(self._trackers):
            self._try(tracker, tracker.log, update, numbers)

    def _try(self, tracker: Tracker, action: Callable[..., Any], *arguments: Any) -> None:
        try:
            action(*arguments)
        except Exception as error:
            self._trackers.remove(tracker)
            self.text(f"warning: {tracker.name} is off, it failed: {error}")


def _is_kept(line: str, update: int, validated: bool) -> bool:
    try:
        values = json.loads(line)
        if not isinstance(values, dict) or values.get("kind") in ("average", "test"):
            return False
        again = values.get("kind") == "dev" and not validated
        return int(values.get("update", 0)) <= update - again
    except (ValueError, TypeError, RecursionError):
        return False


def _to_json_values(value: Any) -> Any:
    """Convert numbers of NumPy and torch to Python numbers, and non-finite ones to None."""
    if isinstance(value, dict):
        return {str(name): _to_json_values(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_json_values(inner) for inner in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
