"""What a run has come to, read from its folder: finished, under way, stopped or diverged."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.run.folder import RunFolder


@dataclass(frozen=True)
class RunResult:
    """A run in figures; None is what it has not come to yet.

    Attributes:
        status: not started, training, stopped, diverged or finished.
        updates: optimizer updates done, as far as the log goes.
        hours: training time of all starts, known at the end.
        dev: best score on dev, of the metric that picks the best checkpoint.
        ppl: perplexity on dev at that validation.
        bleu, tokenized_bleu: on test, with the best checkpoint.
    """

    status: str
    updates: int = 0
    hours: float | None = None
    dev: float | None = None
    ppl: float | None = None
    bleu: float | None = None
    tokenized_bleu: float | None = None


def read_result(folder: str | Path) -> RunResult:
    """Read a run folder, whatever state it is in.

    Raises:
        UserError: its config.yaml is damaged.
    """
    run = RunFolder(folder)
    if not run.config_file.is_file():
        return RunResult("not started")
    select_by = run.recipe().score.select_by
    logged = list(records(run.metrics_file))
    summary = run.summary()
    devs = [r for r in logged if r.get("kind") == "dev" and _number(r.get(select_by)) is not None]
    best = max(devs, key=lambda r: float(r[select_by]), default={})  # a tie keeps the earlier
    test = {s["name"]: s["value"] for s in summary.get("test") or ()}
    return RunResult(
        status="training" if run.in_use() else str(summary.get("status", "stopped")),
        updates=max((r["update"] for r in logged if isinstance(r.get("update"), int)), default=0),
        hours=_number(summary.get("hours")),
        # averaged weights have no line in the log
        dev=_number(summary.get("dev")) or _number(best.get(select_by)),
        ppl=_number(best.get("ppl")),
        bleu=_number(test.get("bleu")),
        tokenized_bleu=_number(test.get("tokenized_bleu")),
    )


def records(path: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of a metrics.jsonl: a run under way may be writing its last."""
    if not path.is_file():
        return
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            yield record


def readable(value: float, digits: int = 2) -> str:
    """``12.34``, but ``1.9e+11`` rather than twelve digits of a loss that explodes."""
    return f"{value:.{digits}f}" if abs(value) < 1e6 else f"{value:.1e}"


def _number(value: Any) -> float | None:
    usable = isinstance(value, (int, float)) and math.isfinite(value)
    return float(value) if usable else None
