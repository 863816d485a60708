"""The logs of a training: lines for people, JSON records for machines, TensorBoard."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

from nmt.run.folder import RunFolder
from nmt.runtime.files import append_line, disk_errors, write_atomic


class Logger(Protocol):
    """Where a training logs."""

    def text(self, line: str) -> None:
        """Log a line for people."""

    def record(self, values: dict[str, Any]) -> None:
        """Log a record for machines."""


class NullLogger:
    """A logger that does nothing, for all processes except the main one."""

    def text(self, line: str) -> None:
        """Do nothing."""

    def record(self, values: dict[str, Any]) -> None:
        """Do nothing."""


class MetricsLog:
    """Log to train.log, metrics.jsonl and TensorBoard of one run.

    Call ``rewind`` once before the first record. TensorBoard is used if it is installed; if it
    fails, there is one warning and training continues.
    """

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._board: Any = None
        self._board_wanted = importlib.util.find_spec("tensorboard") is not None
        self._update = 0
        with disk_errors(run.path):
            run.log_file.touch()
            run.metrics_file.touch()

    def text(self, line: str) -> None:
        """Write a line on standard error, and with the time to train.log."""
        with contextlib.suppress(OSError, ValueError):  # a closed terminal does not end a training
            print(line, file=sys.stderr, flush=True)
        append_line(self._run.log_file, f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}")

    def record(self, values: dict[str, Any]) -> None:
        """Append a record to metrics.jsonl; NaN and infinity become null.

        Args:
            values: ``update`` is the step and ``kind`` the group of its curves in TensorBoard.
        """
        line = json.dumps(_to_json_values(values), ensure_ascii=False, allow_nan=False)
        append_line(self._run.metrics_file, line)
        self._draw(values)

    def rewind(self, update: int) -> None:
        """Remove broken lines and what a resumed run writes again.

        That is every record after ``update``, and the test score of an earlier end.
        """
        with disk_errors(self._run.metrics_file):
            text = self._run.metrics_file.read_text(encoding="utf-8", errors="replace")
        lines = text.split("\n")
        kept = [line for line in lines if _is_kept(line, update)]
        repaired = "".join(line + "\n" for line in kept)
        if repaired != text:
            write_atomic(self._run.metrics_file, repaired)
        self._update = update

    def close(self) -> None:
        """Flush TensorBoard's file."""
        if self._board is not None:
            self._try_board(self._board.close)
            self._board = None

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _draw(self, values: dict[str, Any]) -> None:
        if not self._board_wanted:
            return
        if self._board is None:
            self._try_board(self._open_board)
        kind = values.get("kind", "train")
        for name, value in values.items():
            if self._board is None or name == "update" or not isinstance(value, (int, float)):
                continue
            self._try_board(
                self._board.add_scalar, f"{kind}/{name}", value, values.get("update", self._update)
            )

    def _open_board(self) -> None:
        from torch.utils.tensorboard import SummaryWriter

        folder = str(self._run.path / "tensorboard")
        # purge_step hides the curves of updates that a resumed run makes again
        self._board = SummaryWriter(folder, purge_step=self._update + 1)

    def _try_board(self, action: Callable[..., Any], *arguments: Any) -> None:
        try:
            action(*arguments)
        except Exception as error:
            self._board_wanted, self._board = False, None
            self.text(f"warning: TensorBoard is off, it failed: {error}")


def _is_kept(line: str, update: int) -> bool:
    try:
        values = json.loads(line)
        old = isinstance(values, dict) and int(values.get("update", 0)) <= update
        return old and values.get("kind") != "test"
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
