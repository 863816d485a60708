"""Show the results of a sweep: for terminals, as Markdown, LaTeX, CSV and JSON."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from nmt.apps.sweep.results import (
    SIGNIFICANT,
    Statistics,
    SweepResult,
    SystemResult,
    problems,
)
from nmt.scoring.metrics import RESAMPLES
from nmt.scoring.results import NOTHING, Table, shown
from nmt.store.results import LOWER_IS_BETTER, format_number


def tables(result: SweepResult) -> list[Table]:
    """Return one table for each base and corpus; of several, first one that compares them."""
    groups = result.groups
    shown = [_overview(result)] if len(groups) > 1 else []
    shown += [_details(result, group, systems) for group, systems in groups.items()]
    remarks = [*result.notes, *problems(result.systems)]
    shown[-1] = dataclasses.replace(shown[-1], notes=_legend(result), remarks=remarks)
    return shown


def as_csv(result: SweepResult) -> str:
    """Return a line for each variant, base and corpus; numbers in full precision."""
    rows = [_record(system) for system in result.systems]
    stream = io.StringIO()
    columns = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(stream, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def as_json(result: SweepResult) -> str:
    """Return everything, runs included, as a JSON object."""
    return json.dumps(dataclasses.asdict(result), indent=1, ensure_ascii=False) + "\n"


def _overview(result: SweepResult) -> Table:
    """Return variants as rows, bases and corpora as columns, as T table 3 has them."""
    groups = result.groups
    names = list(dict.fromkeys(system.variant for system in result.systems))
    by_place = {(system.group, system.variant): system for system in result.systems}
    rows = []
    for name in names:
        systems = [by_place[group, name] for group in groups]
        gains = [s.to_baseline.value for s in systems if s.to_baseline is not None]
        complete = len(gains) == len(systems)
        gain = f"{sum(gains) / len(gains):+.2f}" if complete else NOTHING
        rows.append([name, *map(_main_cell, systems), gain])
    title = f"{result.file}: {result.split} {result.metric}"
    return Table(title, ["variant", *groups, "mean difference"], rows)


def _details(result: SweepResult, group: str, systems: Sequence[SystemResult]) -> Table:
    """Return a row for each variant of one base and corpus; empty columns are left out."""
    gains = [system.to_baseline for system in systems]
    printed = {("test", "tokenized_bleu"): "test", ("dev", result.dev_metric): "dev"}
    key = "ppl" if result.metric == "ppl" else printed.get((result.split, result.metric), "")
    columns: dict[str, list[str]] = {
        "variant": [system.variant for system in systems],
        "runs": [_runs_cell(system) for system in systems],
        f"dev {result.dev_metric}": [_spread(system.dev) for system in systems],
        "dev ppl": [_spread(system.ppl) for system in systems],
        f"test {result.metric}": [_spread(system.test) for system in systems],
        "best": [shown(getattr(system.score, "best", None)) for system in systems],
        "difference": [shown(getattr(gain, "value", None), "+.2f") for gain in gains],
        "p bootstrap": [shown(getattr(gain, "bootstrap", None), ".3f") for gain in gains],
        "p two-sided": [shown(getattr(gain, "two_sided", None), ".3f") for gain in gains],
        "p randomization": [shown(getattr(gain, "randomization", None), ".3f") for gain in gains],
        "printed": [shown(system.paper.get(key)) for system in systems],
        "updates": [_updates(system) for system in systems],
        "hours": [shown(system.hours or None) for system in systems],
    }
    compared = f"{result.split} {result.metric}"
    if compared in columns:
        pairs = zip(columns[compared], systems, strict=True)
        columns[compared] = [cell + _marks(system) for cell, system in pairs]
    if len(set(columns["updates"])) == 1:
        del columns["updates"]
    kept = {name: cells for name, cells in columns.items() if set(cells) - {NOTHING}}
    rows = [list(row) for row in zip(*kept.values(), strict=True)]
    title = " ".join(filter(None, (f"{result.file}:", group or result.split)))
    return Table(title, list(kept), rows)


def _legend(result: SweepResult) -> list[str]:
    lines = ["mean ± standard deviation over the seeds that finished"]
    if any(system.score for system in result.systems):
        lines.append("best: the seed that is best on dev")
    differences = [system.to_baseline for system in result.systems if system.to_baseline]
    if differences:
        what = f"difference to {result.baseline} on {result.split}"
        lower = "; lower is better" if result.metric in LOWER_IS_BETTER else ""
        lines.append(what + lower)
    if any(difference.bootstrap is not None for difference in differences):
        lines.append(
            f"* differs from {result.baseline}, † from the row above: two-sided p < {SIGNIFICANT} "
            f"by paired bootstrap with {RESAMPLES:,} resamples, over the seeds of both"
        )
    return lines


def _main_cell(system: SystemResult) -> str:
    done = _finished(system)
    if not done:
        return _state(system)
    partial = "" if done == len(system.runs) else f" ({done} of {len(system.runs)})"
    return _spread(system.score) + _marks(system) + partial


def _runs_cell(system: SystemResult) -> str:
    done, total = _finished(system), len(system.runs)
    return str(total) if done == total else f"{done} of {total}, {_state(system)}"


def _finished(system: SystemResult) -> int:
    return sum(run.finished for run in system.runs)


def _state(system: SystemResult) -> str:
    """Return the states of the runs that did not finish."""
    return ", ".join(dict.fromkeys(run.status for run in system.runs if not run.finished))


def _spread(scores: Statistics | None) -> str:
    if scores is None:
        return NOTHING
    mean = format_number(scores.mean)
    return mean if scores.deviation is None else f"{mean} ± {format_number(scores.deviation)}"


def _marks(system: SystemResult) -> str:
    differences = (("*", system.to_baseline), ("†", system.to_above))
    return "".join(mark for mark, gain in differences if gain and gain.significant)


def _updates(system: SystemResult) -> str:
    """Return the mean updates of the runs that finished, as early stopping and ramps differ."""
    done = [run.updates for run in system.runs if run.finished]
    return f"{statistics.fmean(done):,.0f}" if done else NOTHING


def _record(system: SystemResult) -> dict[str, Any]:
    record: dict[str, Any] = {
        "group": system.group,
        "variant": system.variant,
        "runs": len(system.runs),
        "finished": _finished(system),
        "states": _state(system),
    }
    for names, parts in (
        (("dev", "ppl", "test"), ("mean", "deviation", "best")),
        (
            ("to_baseline", "to_above"),
            ("versus", "value", "bootstrap", "two_sided", "randomization"),
        ),
    ):
        for name in names:
            for part in parts:
                record[f"{name}_{part}"] = getattr(getattr(system, name), part, None)
    return {**record, "hours": system.hours}


def _each_table(render: Callable[[Table], str]) -> Callable[[SweepResult], str]:
    return lambda result: "\n\n".join(map(render, tables(result))) + "\n"


FORMATS: dict[str, tuple[str, Callable[[SweepResult], str]]] = {
    "text": ("txt", _each_table(Table.text)),
    "markdown": ("md", _each_table(Table.markdown)),
    "latex": ("tex", _each_table(Table.latex)),
    "csv": ("csv", as_csv),
    "json": ("json", as_json),
}
"""Name of ``--format`` -> ending of the file, and the function that renders it."""
