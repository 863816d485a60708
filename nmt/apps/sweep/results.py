"""The results of a sweep: statistics over seeds, and tests against a baseline."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nmt.apps.sweep.plan import Outcome, PlannedRun
from nmt.config.recipe import Recipe
from nmt.data.bitext import Split, held_out_entries
from nmt.errors import UserError
from nmt.runtime.progress import counted
from nmt.store.folder import RunFolder
from nmt.store.predictions import VOCABULARY, different_predictions, not_comparable
from nmt.store.results import as_score, read_result, read_summary

ENDED = ("finished", "stopped")  # of a run with scores; stopped = at its time_limit
SIGNIFICANT = 0.01  # T table 3
PERPLEXITIES = ("ppl", "word_ppl")


@dataclass(frozen=True)
class RunScores:
    """The scores of one run."""

    folder: str
    seed: int
    status: str  # that of RunResult, failed, or changed = it was trained with another recipe
    reason: str  # why it did not finish, or the paths that differed
    updates: int
    hours: float | None
    dev: float | None  # best score, of the metric that selects the best checkpoint
    ppl: float | None  # on dev, at that validation
    test: dict[str, float]  # by metric

    @property
    def finished(self) -> bool:
        """Whether the run ended with scores."""
        return self.status == "finished"


@dataclass(frozen=True)
class Statistics:
    """A score over seeds."""

    count: int  # of runs
    mean: float
    deviation: float | None  # of a sample (divisor count - 1); None for one run
    best: float  # of the run that is best on dev


@dataclass(frozen=True)
class Difference:
    """A system compared with another one, over the seeds that finished in both."""

    versus: str  # name of the other variant
    value: float  # mean score minus that of the other
    seeds: int
    bootstrap: float | None = None  # p-values; None without output to resample (perplexities)
    two_sided: float | None = None
    randomization: float | None = None

    @property
    def significant(self) -> bool:
        """Whether the two-sided p-value of the bootstrap is below 0.01, as in T table 3."""
        return self.two_sided is not None and self.two_sided < SIGNIFICANT


@dataclass(frozen=True)
class SystemResult:
    """The result of one variant on one base and corpus.

    ``dev``, ``ppl`` and ``test`` are of the runs that finished, None if none did; ``score`` is the
    one of them that the differences are about.
    """

    name: str  # of the variant, with base and corpus
    group: str  # base and corpus, or empty
    variant: str  # the name without them
    about: str
    paper: dict[str, float | str]  # figures that a paper prints: dev, test, ppl
    runs: list[RunScores]  # one for each seed
    dev: Statistics | None
    ppl: Statistics | None
    test: Statistics | None
    score: Statistics | None
    to_baseline: Difference | None = None  # None for the baseline itself
    to_above: Difference | None = None  # to the variant before it, if that is not the baseline

    @property
    def hours(self) -> float:
        """Training time of all runs."""
        return sum(run.hours or 0.0 for run in self.runs)


@dataclass(frozen=True)
class SweepResult:
    """All results of a sweep."""

    file: str  # of variants
    metric: str  # of the test scores and differences
    dev_metric: str  # that selects the best checkpoints
    split: Split  # that the differences are measured on
    baseline: str  # variant that the others are compared with
    systems: list[SystemResult]  # by base and corpus, then in the order of the file
    notes: list[str]  # what a reader must know

    @property
    def groups(self) -> dict[str, list[SystemResult]]:
        """The systems by base and corpus."""
        groups: dict[str, list[SystemResult]] = {}
        for system in self.systems:
            groups.setdefault(system.group, []).append(system)
        return groups


def collect(
    file: str,
    runs: Sequence[PlannedRun],
    outcomes: Mapping[str, Outcome],
    baseline: str,
    metric: str | None,
) -> SweepResult:
    """Read the results of all runs and test the differences.

    Args:
        outcomes: how runs ended, by name, as far as this command knows.
        metric: of the test scores; None = the one that selects the best checkpoint.

    Raises:
        UserError: the run folder of a finished run is damaged.
    """
    recipes = {run.variant.name: run.recipe for run in runs}
    dev_metric = next(iter(recipes.values())).score.select_by
    metric = metric or dev_metric
    tested = all(
        recipe.data.test and (metric != "ppl" or not recipe.translates)
        for recipe in recipes.values()
    )
    split: Split = "test" if tested else "dev"
    by_variant: dict[str, list[PlannedRun]] = {}
    for run in runs:
        by_variant.setdefault(run.variant.name, []).append(run)
    systems = [_system(planned, outcomes, metric, split) for planned in by_variant.values()]
    notes: list[str] = []
    if any(recipe.score.select_by != dev_metric for recipe in recipes.values()):
        notes.append("the variants select their best checkpoints by different metrics")
    with_ppl = [system for system in systems if system.ppl is not None]
    firsts = ((s.group, next(run.folder for run in s.runs if run.finished)) for s in with_ppl)
    if differ := predictions_by_group(firsts):
        causal = all(recipe.task == "causal_lm" for recipe in recipes.values())
        can_use_words = causal and differ in (["segment"], [VOCABULARY]) and split == "test"
        instead = "; use --metric word_ppl" * (metric == "ppl" and can_use_words)
        notes.append(not_comparable("variants", differ) + instead)
    result = SweepResult(file, metric, dev_metric, split, baseline, systems, notes)
    shown = counted(systems, "testing the differences", "variants", len(systems), slow=True)
    compared = [_compared(result, system, recipes[system.name]) for system in shown]
    return replace(result, systems=compared)


def predictions_by_group(runs: Iterable[tuple[str, str | Path]]) -> list[str]:
    """Compare what the runs (group, folder) of each group predict; return all that differs."""
    groups: dict[str, list[str | Path]] = {}
    for group, folder in runs:
        groups.setdefault(group, []).append(folder)
    keys = (key for folders in groups.values() for key in different_predictions(folders))
    return list(dict.fromkeys(keys))


def _summarize(
    values: Sequence[float | None], dev: Sequence[float | None], dev_metric: str
) -> Statistics | None:
    """Return the statistics of a score over runs; None if a run lacks it, or there is no run.

    The dev scores decide which run is the best: the first of equal ones.
    """
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    ranks = [-math.inf if score is None else as_score(dev_metric, score) for score in dev]
    best = known[ranks.index(max(ranks))]
    deviation = statistics.stdev(known) if len(known) > 1 else None
    return Statistics(len(known), statistics.fmean(known), deviation, best)


def _system(
    planned: Sequence[PlannedRun], outcomes: Mapping[str, Outcome], metric: str, split: Split
) -> SystemResult:
    variant, dev_metric = planned[0].variant, planned[0].recipe.score.select_by
    runs = [_scores(run, outcomes.get(run.name)) for run in planned]
    done = [run for run in runs if run.finished]
    dev = [run.dev for run in done]
    return SystemResult(
        name=variant.name,
        group=variant.group,
        variant=variant.own_name,
        about=variant.about,
        paper=variant.paper,
        runs=runs,
        dev=_summarize(dev, dev, dev_metric),
        ppl=_summarize([run.ppl for run in done], dev, dev_metric),
        test=_summarize([run.test.get(metric) for run in done], dev, dev_metric),
        score=_summarize([_value(run, metric, split) for run in done], dev, dev_metric),
    )


def _scores(run: PlannedRun, outcome: Outcome | None) -> RunScores:
    result, summary = read_result(run.folder), read_summary(RunFolder(run.folder))
    status, reason = result.status, str(summary.get("reason", ""))
    others, paths = run.changes()
    if outcome is not None and outcome.status == "failed":
        status, reason = outcome.status, outcome.reason
    elif others:
        status, reason = "changed", f"trained with another recipe: {'; '.join(others)}"
    elif summary and status in ENDED:
        status = "finished"
        reason = f"trained with other paths: {'; '.join(paths)}" if paths else ""
    return RunScores(
        folder=str(run.folder),
        seed=run.recipe.seed,
        status=status,
        reason=reason,
        updates=result.updates,
        hours=result.hours,
        dev=result.dev,
        ppl=result.ppl,
        test={score["name"]: score["value"] for score in summary.get("test") or ()},
    )


def _compared(result: SweepResult, system: SystemResult, recipe: Recipe) -> SystemResult:
    group = result.groups[system.group]
    position = group.index(system)
    base = next((other for other in group if other.variant == result.baseline), system)
    above = group[position - 1] if position else system
    return replace(
        system,
        to_baseline=None if base is system else _difference(result, base, system, recipe),
        to_above=None if above in (system, base) else _difference(result, above, system, recipe),
    )


def _difference(
    result: SweepResult, before: SystemResult, after: SystemResult, recipe: Recipe
) -> Difference | None:
    """Compare systems on the seeds that both finished; ``result`` gets a note if it cannot be."""
    pairs = [
        (first, second)
        for first in before.runs
        for second in after.runs
        if first.seed == second.seed and first.finished and second.finished
    ]
    if not pairs:
        return None
    name, metric = before.variant, result.metric
    if metric in PERPLEXITIES:
        values = [[_value(run, metric, result.split) for run in pair] for pair in pairs]
        known = [b - a for a, b in values if a is not None and b is not None]
        return Difference(name, statistics.fmean(known), len(known)) if known else None
    from nmt.scoring.metrics import RESAMPLES
    from nmt.scoring.significance import paired_tests

    folders = ([first.folder for first, _ in pairs], [second.folder for _, second in pairs])
    sets = held_out_entries(recipe, result.split)
    try:
        measured = [_statistics(folders, held_out, metric) for held_out in sets]
    except UserError as error:  # another reference, or output that was deleted
        result.notes.append(f"{after.name} is not compared with {before.name}: {error.summary}")
        return None
    scorers, first_runs, second_runs = zip(*measured, strict=True)
    tests = paired_tests(scorers[0], first_runs, second_runs, RESAMPLES)
    return Difference(
        name, tests.difference, len(pairs), tests.bootstrap, tests.two_sided, tests.randomization
    )


def _statistics(folders: tuple[list[str], list[str]], split: str, metric: str) -> Any:
    """Return the scorer of a metric, and what it counts in the outputs of each system's runs."""
    from nmt.scoring.metrics import METRICS
    from nmt.scoring.significance import SentenceScorer
    from nmt.scoring.systems import from_runs

    systems = from_runs([*folders[0], *folders[1]], split)
    if METRICS[metric].on_words:
        texts, refs = systems.words, [systems.ref_words, *systems.other_ref_words]
        scorer = SentenceScorer(metric, systems.words_lang)
    else:
        texts, refs = systems.texts, [systems.refs, *systems.other_refs]
        scorer = SentenceScorer(metric, systems.tgt_lang)
    first, second = ([scorer.statistics(texts[f], refs) for f in side] for side in folders)
    return scorer.scores, first, second


def _value(run: RunScores, metric: str, split: Split) -> float | None:
    if split == "test":
        return run.test.get(metric)
    return run.ppl if metric == "ppl" else run.dev


def problems(systems: Iterable[SystemResult]) -> list[str]:
    """Describe each run without a result, and each that had other paths, in a line."""
    return [
        f"{run.folder}: {run.status}" + (f": {run.reason}" if run.reason else "")
        for system in systems
        for run in system.runs
        if run.reason or run.status in ("failed", "diverged")
    ]
