"""Write the report of one or several runs as one HTML file that needs no other file."""

from __future__ import annotations

import itertools
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from nmt.apps.evaluate.report import report as compare_systems
from nmt.apps.plot.figures import STYLE, metric_label, require_matplotlib
from nmt.apps.report import figures
from nmt.apps.report.data_card import NOT_RECORDED, data_cards
from nmt.apps.report.outputs import Outputs, splits_of, text_direction
from nmt.apps.report.recipes import key_rows
from nmt.apps.report.runs import ReportedRun
from nmt.errors import NmtError
from nmt.runtime.files import AGAIN, replace_surrogates, write_atomic
from nmt.runtime.progress import counted
from nmt.runtime.words import quantity
from nmt.scoring.metrics import METRICS, RESAMPLES
from nmt.scoring.results import SIGNIFICANCE_LEVEL, Score
from nmt.store.model import read_provenance
from nmt.store.predictions import different_predictions, not_comparable
from nmt.version import __version__

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"
PATH_CHARACTER = r"[\w.~/-]"  # next to a folder, it makes the folder a part of a longer name
NOTHING = "\N{EN DASH}"  # where there is no value
COMPARED = ("bleu", "chrf")  # metrics that compare several runs, with those of their recipes
LISTED = 5_000  # lines in the list of all translations
MAX_SETS = 4  # of several test sets that have a section; each takes seconds


@dataclass(frozen=True)
class ScoreTable:
    """The scores of all runs on one set, in one metric."""

    title: str  # the set and the metric
    remark: str  # what a reader should know about the metric
    signature: str  # the settings of the metric; of the first run
    rows: list[tuple[str, Score | None]]  # label of each run; None = it has no score

    @property
    def compared(self) -> bool:
        """Whether a run was compared with the first."""
        return any(entry is not None and entry.p_value is not None for _, entry in self.rows)


def write_report(runs: Sequence[ReportedRun], output: Path, progress: bool = False) -> int:
    """Write the report of runs in any state, compared with the first; return its size in bytes."""
    page = render(runs, progress).encode("utf-8")
    write_atomic(output, page, "choose another --output", AGAIN)
    return len(page)


def page_environment(templates: Path) -> Environment:
    """Return the environment of pages with these templates; it escapes values."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(templates),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(runs: Sequence[ReportedRun], progress: bool = False) -> str:
    """Return the report of some runs as HTML; ``progress`` shows bars on a terminal."""
    environment = page_environment(TEMPLATES)
    environment.filters.update(
        number=number,
        thousands=thousands,
        plain=plain,
        quantity=quantity,
        local=lambda text: relative_paths(str(text), runs[0].folder.path),
    )
    with require_matplotlib().rc_context(STYLE):
        context = _context(runs, progress)
    style = Markup((TEMPLATES / "report.css").read_text(encoding="utf-8"))
    page = environment.get_template("report.html").render(style=style, **context)
    return replace_surrogates(page)  # a path of a run may have bytes that are not UTF-8


def relative_paths(text: str, run: Path) -> str:
    """Replace the absolute paths in a text by paths relative to a run folder.

    A report is sent to others. A path that shares no folder with the run stays as it is.
    """
    for folder in dict.fromkeys([run.absolute(), run.resolve()]):
        for depth, parent in enumerate([folder, *folder.parents[:-1]]):
            name = re.escape(str(parent))
            text = re.sub(rf"(?<!{PATH_CHARACTER}){name}/(?=\S)", "../" * depth, text)
            alone = "/".join([".."] * depth) or "."
            text = re.sub(rf"(?<!{PATH_CHARACTER}){name}(?!{PATH_CHARACTER})", alone, text)
    return text


def _context(runs: Sequence[ReportedRun], progress: bool) -> dict[str, Any]:
    several = len(runs) > 1
    outputs, notes = _outputs(runs)
    tables, score_notes = _scores(runs, outputs, progress)
    if differ := different_predictions([run.name for run in runs if run.result.ppl is not None]):
        note = not_comparable("runs", differ)
        score_notes = [*score_notes, f"{note[0].upper()}{note[1:]}."]
    shown = counted(outputs, "reading the translations", "sets", len(outputs), progress, slow=True)
    sections = [_output_section(number, held_out) for number, held_out in enumerate(shown, 1)]
    facts = _rows([_facts(run) for run in runs], NOTHING)
    run_notes = [f"{run.label}: {note}." for run in runs for note in run.summary.get("notes", ())]
    return {
        "title": _title(runs),
        "runs": runs,
        "several": several,
        "keys": [figures.key(number) for number in range(len(runs))],
        "facts": {name: row for name, row in facts.items() if {*row} != {NOTHING}},
        "score_tables": tables,
        "notes": [*run_notes, *score_notes, *notes],
        "significance": SIGNIFICANCE_LEVEL,
        "resamples": RESAMPLES,
        "curves": figures.learning_curves(runs),
        "sections": sections,
        "recipe_rows": key_rows([run.recipe for run in runs]),
        "cards": data_cards(runs),
        "environment": _rows([_environment(run) for run in runs], NOT_RECORDED),
        "version": __version__,
        "written": time.strftime("%Y-%m-%d %H:%M"),
    }


def _title(runs: Sequence[ReportedRun]) -> str:
    names = (filter(None, (run.recipe.src, run.recipe.tgt)) for run in runs)
    languages = ", ".join(dict.fromkeys(map(" → ".join, names)))
    if len(runs) > 1:
        return f"{languages}: comparison of {len(runs)} runs"
    return f"{languages}: {runs[0].label}"


def _rows(columns: Sequence[Mapping[str, object]], missing: str) -> dict[str, list[str]]:
    """Turn columns, one for each run, into rows by name."""
    names = dict.fromkeys(itertools.chain.from_iterable(columns))
    values = {name: [column.get(name) for column in columns] for name in names}
    return {
        name: [missing if value is None else str(value) for value in row]
        for name, row in values.items()
    }


def _facts(run: ReportedRun) -> dict[str, str | None]:
    recipe, summary = run.recipe, run.summary
    select_by = recipe.score.select_by
    _, origin = read_provenance(run.folder)
    test_sets = summary.get("test_sets") or {"Test": summary.get("test")}
    test_set, scores = next(iter(test_sets.items()))  # the first one
    values = {score["name"]: score["value"] for score in scores or ()}
    metrics = dict.fromkeys([select_by, "bleu", "chrf"])
    return {
        "Status": run.status,
        "Reason": summary.get("reason") or None,
        "Weights from": origin.describe() if origin else None,
        "Task": None if recipe.translates else recipe.task,
        **{
            f"{test_set} {figures.short_label(metric)}": number(values[metric])
            for metric in metrics
            if metric in values
        },
        "Best checkpoint": summary.get("best") or None,
        f"Dev {figures.short_label(select_by)}": number(run.result.dev),
        "Dev perplexity": None if select_by == "ppl" else number(run.result.ppl),
        "Updates": thousands(summary.get("updates", run.result.updates)),
        "Training time": hours(summary.get("hours")),
        "Target tokens": thousands(summary.get("target_tokens")),
        "Skipped updates": thousands(summary.get("skipped_updates") or None),
        "Parameters": thousands(summary.get("parameters")),
        "Seed": str(recipe.seed),
    }


def _environment(run: ReportedRun) -> dict[str, object]:
    summary, texts = run.summary, run.corpora.versions if run.corpora else {}
    versions = summary.get("versions") or {}
    first, last = run.times() or (None, None)
    speed = run.metrics.curve("train", "tokens_per_second").values
    recorded = ("Device", "Processor", "Threads", "Processes", "Precision")
    return {
        "Started": first,
        "Last log line": last,
        "Training time": hours(summary.get("hours")),
        "Target tokens/s": f"{np.median(speed):,.0f}" if len(speed) else None,
        **{name: summary.get(name.lower()) for name in recorded},
        "Seed": run.recipe.seed,
        "Commit": versions.get("commit"),
        **{name: value for name, value in versions.items() if name != "commit"},
        **{name: value for name, value in texts.items() if name not in versions},
    }


def _scores(
    runs: Sequence[ReportedRun], outputs: Sequence[Outputs], progress: bool
) -> tuple[list[ScoreTable], list[str]]:
    """Score the runs again, to compare them, or return the scores that they logged."""
    if len(runs) == 1 or not outputs:
        return _logged_scores(runs)
    tables = []
    own = (name for run in runs for name in run.recipe.score.metrics)
    metrics = [*dict.fromkeys([*COMPARED, *own]), "tokenized_bleu"]
    for held_out in outputs:
        try:
            compared = compare_systems(held_out.systems, metrics, RESAMPLES, progress=progress)
        except NmtError as error:
            logged, notes = _logged_scores(runs)
            return logged, [*notes, str(error.what)]
        labels = [run.label for run in runs]
        tables += [
            _score_table(held_out.split, list(zip(labels, entries, strict=True)))
            for entries in zip(*(compared.scores[run.name] for run in runs), strict=True)
        ]
    return tables, []


def _score_table(split: str, rows: list[tuple[str, Score | None]]) -> ScoreTable:
    first = next(entry for _, entry in rows if entry is not None)
    metric = METRICS.get(first.name)
    return ScoreTable(
        f"{split if '.' in split else split.capitalize()} {metric_label(first.name)}",
        metric.remark if metric else "lower is better",  # a perplexity
        first.signature,
        rows,
    )


def _logged_scores(runs: Sequence[ReportedRun]) -> tuple[list[ScoreTable], list[str]]:
    """Return the scores that the runs wrote at their end, or else those of the last validation."""
    by_metric: dict[tuple[str, str], dict[str, Score]] = {}  # set and metric -> run -> score
    notes = []
    for run in runs:
        logged = {"test": run.summary.get("test"), **(run.summary.get("test_sets") or {})}
        sets = {name: [Score(**s) for s in scores] for name, scores in logged.items() if scores}
        last = run.metrics.last("dev")
        names = dict.fromkeys([*run.recipe.score.metrics, "tokenized_bleu", "ppl", "word_ppl"])
        dev_scores = [Score(name, last[name], "") for name in names if name in last]
        if not sets and dev_scores:
            place = f"dev, update {last['update']:,}"
            notes.append(f"{run.label} has no test scores; those of {place} are shown.")
            sets = {"dev": dev_scores}
        for set_name, scores in sets.items():
            for score in scores:
                by_metric.setdefault((set_name, score.name), {})[run.label] = score
    tables = [
        _score_table(set_name, [(run.label, scores.get(run.label)) for run in runs])
        for (set_name, _), scores in by_metric.items()
    ]
    return tables, notes


def _outputs(runs: Sequence[ReportedRun]) -> tuple[list[Outputs], list[str]]:
    """Read the outputs on each set, and why some cannot be shown."""
    if not all(run.recipe.translates for run in runs):
        return [], []
    splits = splits_of(runs)
    if not splits:
        return [], ["Translations are not shown: a run has none of its best checkpoint yet."]
    outputs, notes = [], []
    for split in splits[:MAX_SETS]:
        try:
            outputs.append(Outputs(runs, split))
        except NmtError as error:
            suffix = f" of {split}" if len(splits) > 1 else ""
            apart = " and scores are not compared" if len(runs) > 1 else ""
            notes.append(f"Translations{suffix} are not shown{apart}: {error.summary}")
    if rest := splits[MAX_SETS:]:
        notes.append(f"Translations of {', '.join(rest)} are not shown: the report has {MAX_SETS}.")
    return outputs, notes


def _output_section(number: int, outputs: Outputs) -> dict[str, Any]:
    """Collect the part of the page about one set; a note replaces a failed part."""
    notes, examples, rows = [], {}, []
    try:
        examples, rows = outputs.examples(), outputs.rows()
    except NmtError as error:
        notes.append(f"Examples are not shown: {error.summary}")
    return {
        "number": number,
        "split": outputs.split,
        "src": outputs.src_lang,
        "tgt": outputs.tgt_lang,
        "src_direction": text_direction(outputs.sources) if examples else "auto",
        "tgt_direction": text_direction(outputs.systems.refs),
        "lines": len(outputs.systems.refs),
        "faults": outputs.faults(),
        "rows": rows[:LISTED],
        "examples": examples,
        "notes": notes,
    }


def number(value: float | None, digits: int = 2) -> str:
    """Format ``12.34``; a dash if there is no value."""
    if value is None or not math.isfinite(value):
        return NOTHING
    return f"{value:,.{digits}f}" if abs(value) < 1e6 else f"{value:.1e}"


def thousands(value: int | None) -> str:
    """Format ``12,345``; a dash if there is no value."""
    return NOTHING if value is None else f"{value:,}"


def hours(value: float | None) -> str | None:
    """Format hours as ``2 h 05 min``, ``12 min`` or ``40 s``; None if there is no value."""
    if value is None:
        return None
    seconds = round(value * 3600)
    if seconds < 120:
        return f"{seconds} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min"


def plain(value: float) -> str:
    """Format as few digits as needed: ``12.5``, ``3``."""
    return f"{value:,.1f}".removesuffix(".0")
