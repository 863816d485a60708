"""Read and write the measurements of a run: metrics.jsonl and summary.json."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nmt.runtime.files import LARGE, json_object, read_json, read_text, write_atomic
from nmt.store.folder import RunFolder, is_average
from nmt.store.manifest import seal, unseal

LOWER_IS_BETTER = ("ppl", "word_ppl", "ter")
_Count: TypeAlias = Annotated[int, Field(ge=0, lt=1 << 63)]


@dataclass(frozen=True)
class RunResult:
    """The results of a run; None = not known yet.

    Attributes:
        status: not started, training, stopped, diverged or finished.
        updates: optimizer updates that the log records.
        hours: training time of all starts, known when the run ends.
        dev: best score on dev, of the metric that selects the best checkpoint.
        ppl: perplexity on dev of the same checkpoint.
    """

    status: str
    updates: int = 0
    hours: float | None = None
    dev: float | None = None
    ppl: float | None = None


def read_result(folder: str | Path) -> RunResult:
    """Read a run folder in any state; UserError if its config.yaml is damaged."""
    run = RunFolder(folder)
    if not run.config_file.is_file():
        return RunResult("not started")
    select_by = run.recipe().score.select_by
    metrics, summary = list(read_metrics(run)), read_summary(run)
    devs = [r for r in metrics if r.get("kind") == "dev" and _number(r.get(select_by)) is not None]
    chosen = str(summary.get("best"))
    best: dict[str, Any] = max(
        devs, key=lambda r: rank(r["update"], as_score(select_by, r[select_by])), default={}
    )
    if is_average(chosen):
        best = next((r for r in reversed(metrics) if r.get("kind") == "average"), {})
    return RunResult(
        status="training" if run.lock.in_use() else str(summary.get("status", "stopped")),
        updates=max((r["update"] for r in metrics), default=0),
        hours=_number(summary.get("hours")),
        dev=_number(summary.get("dev")) or _number(best.get(select_by)),
        ppl=_number(best.get("ppl")),
    )


def read_metrics(run: RunFolder) -> Iterator[dict[str, Any]]:
    """Yield the complete lines of metrics.jsonl; a running process may be writing the last one."""
    if not run.metrics_file.is_file():
        return
    for line in read_text(run.metrics_file, LARGE, "replace").splitlines():
        try:
            record = json_object(line)
        except ValueError:
            continue
        values = {
            name: value
            for name, value in record.items()
            if value is None or isinstance(value, str) or _number(value) is not None
        }
        if isinstance(values.get("update"), int):
            yield values


def read_summary(run: RunFolder) -> dict[str, Any]:
    """Return summary.json; empty if the run has not ended, or if the file is damaged."""
    summary = read_json(run.summary_file)
    try:
        _Summary.model_validate(summary)
    except ValidationError:
        return {}
    return summary if unseal(summary) else {}


class _TestScore(BaseModel):
    model_config = ConfigDict(strict=True)

    name: str
    value: float | None = None
    signature: str = ""
    low: float | None = None
    high: float | None = None


class _Summary(BaseModel):
    """The types of the values of summary.json; each may be missing, and others may be there."""

    model_config = ConfigDict(strict=True)

    status: str = ""
    reason: str = ""
    notes: list[str] = []
    best: str = ""
    dev: float | None = None
    select_by: str = ""
    updates: _Count = 0
    hours: float = 0.0
    target_tokens: _Count = 0
    skipped_updates: _Count = 0
    parameters: _Count = 0
    threads: _Count = 0
    processes: _Count = 0
    device: str = ""
    processor: str = ""
    precision: str = ""
    versions: dict[str, str | None] = {}
    test: list[_TestScore] | None = None
    test_sets: dict[str, list[_TestScore]] = {}
    files: dict[str, str] = {}


def write_summary(run: RunFolder, values: dict[str, Any]) -> None:
    """Write summary.json; its ``status`` is finished (by its own rules), stopped or diverged."""
    write_atomic(run.summary_file, json.dumps(seal(values), indent=2, ensure_ascii=False) + "\n")


def as_score(metric: str, value: float) -> float:
    """Return a value of a metric as a score, where higher is better: a perplexity is negated.

    The history of a run has scores. Applied to a score, this returns the value.
    """
    return -value if metric in LOWER_IS_BETTER else value


def rank(update: int, score: float) -> tuple[float, bool, int]:
    """Return the sort key of a validation: the highest is the best.

    Of equal scores the later is the best, but none replaces an equal one of update 0: the initial
        model stays the best until a validation is better.
    """
    return score, update == 0, update


def format_number(value: float, digits: int = 2) -> str:
    """Format as ``12.34``, or as ``1.9e+11`` instead of a dozen digits of an exploding loss."""
    return f"{value:.{digits}f}" if abs(value) < 1e6 else f"{value:.1e}"


def clock(seconds: float) -> str:
    """Format seconds as ``1:02:03`` or ``2:03``."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _number(value: Any) -> float | None:
    try:
        usable = isinstance(value, (int, float)) and math.isfinite(value)
    except OverflowError:  # an integer of hundreds of digits
        return None
    return float(value) if usable else None
