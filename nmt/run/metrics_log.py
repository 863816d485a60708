"""What a training says: lines for people, one JSON object a line for machines, TensorBoard."""

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


def to_stderr(line: str) -> None:
    """A line on standard error, at once; a terminal that has gone away is no reason to stop."""
    with contextlib.suppress(OSError, ValueError):
        print(line, file=sys.stderr, flush=True)


class Logger(Protocol):
    """What a training needs to speak."""

    def text(self, line: str) -> None:
        """A line for people."""

    def record(self, values: dict[str, Any]) -> None:
        """A record for machines."""


class NullLogger:
    """The log of a process that leaves speaking to another."""

    def text(self, line: str) -> None:
        """Nothing."""

    def record(self, values: dict[str, Any]) -> None:
        """Nothing."""


class MetricsLog:
    """train.log, metrics.jsonl and TensorBoard of one run.

    Call ``rewind`` once before the first record. TensorBoard is used when it is installed; when it
    fails there is one warning and training goes on.
    """

    def __init__(self, run: RunFolder, echo: Callable[[str], None] = to_stderr) -> None:
        self._run, self._echo = run, echo
        self._board: Any = None
        self._board_wanted = importlib.util.find_spec("tensorboard") is not None
        self._update = 0
        with disk_errors(run.path):
            run.log_file.touch()
            run.metrics_file.touch()

    def text(self, line: str) -> None:
        """A line for people: on standard error, and with the time in train.log."""
        self._echo(line)
        append_line(self._run.log_file, f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}")

    def record(self, values: dict[str, Any]) -> None:
        """A record for machines; ``update`` places it, ``kind`` groups its curves.

        NaN and infinity, which JSON does not have, become null.
        """
        line = json.dumps(_plain(values), ensure_ascii=False, allow_nan=False)
        append_line(self._run.metrics_file, line)
        self._draw(values)

    def rewind(self, update: int) -> None:
        """Drops what a resumed run writes again, and broken lines.

        That is records after ``update``, and the test score of an end that was not the last.
        """
        with disk_errors(self._run.metrics_file):
            text = self._run.metrics_file.read_text(encoding="utf-8", errors="replace")
        lines = text.split("\n")
        kept = [line for line in lines if _stays(line, update)]
        repaired = "".join(line + "\n" for line in kept)
        if repaired != text:
            write_atomic(self._run.metrics_file, repaired)
        self._update = update

    def close(self) -> None:
        """Flushes TensorBoard's file."""
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


def _stays(line: str, update: int) -> bool:
    try:
        values = json.loads(line)
        old = isinstance(values, dict) and int(values.get("update", 0)) <= update
        return old and values.get("kind") != "test"
    except (ValueError, TypeError, RecursionError):
        return False


def _plain(value: Any) -> Any:
    """Numbers of NumPy and torch as Python's, non-finite ones as None."""
    if isinstance(value, dict):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
