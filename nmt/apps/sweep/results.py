"""The results of a sweep: statistics over seeds, and tests against a baseline."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nmt.apps.sweep.plan import Outcome, PlannedRun
from nmt.config.recipe import Recipe
from nmt.data.bitext import Split, held_out_entries
from nmt.errors import UserError
from nmt.run.folder import RunFolder
from nmt.run.predictions import VOCABULARY, different_predictions, not_comparable
from nmt.run.results import as_score, read_result, read_summary
from nmt.runtime.progress import counted

ENDED = ("finished", "stopped")  # of a run with scores; stopped = at its time_limit
SIGNIFICANT = 0.01  # T table 3
PERPLEXITIES = ("ppl", "word_ppl")


@dataclass(frozen=True)
class RunScores:
    """What one run reached.

    Attributes:
        folder: the run folder.
        seed: of the recipe.
        status: finished, diverged, failed, stopped, training, "not started", or changed = it was
            trained with another recipe.
        reason: why it did not finish, or the paths that differed.
        updates: optimizer updates.
        hours: of training.
        dev: best dev score, of the metric that selects the best checkpoint.
        ppl: perplexity on dev at that validation.
        test: scores on test by metric.
    """

    folder: str
    seed: int
    status: str
    reason: str
    updates: int
    hours: float | None
    dev: float | None
    ppl: float | None
    test: dict[str, float]

    @property
    def finished(self) -> bool:
        """Return whether the run ended with scores."""
        return self.status == "finished"


@dataclass(frozen=True)
class Statistics:
    """A score over seeds.

    Attributes:
        count: number of runs.
        mean: of their scores.
        deviation: standard deviation of a sample (divisor count - 1); None for one run.
        best: score of the run that is best on dev.
    """

    count: int
    mean: float
    deviation: float | None
    best: float


@dataclass(frozen=True)
class Difference:
    """A system compared with another one, over the seeds that finished in both.

    Attributes:
        versus: name of the other variant.
        value: mean score minus that of the other.
        seeds: number of seeds.
        bootstrap, randomization: p-values; None without output to resample (perplexities).
    """

    versus: str
    value: float
    seeds: int
    bootstrap: float | None = None
    randomization: float | None = None

    @property
    def significant(self) -> bool:
        """Return whether the bootstrap's p-value is below 0.01, as in T table 3."""
        return self.bootstrap is not None and self.bootstrap < SIGNIFICANT


@dataclass(frozen=True)
class SystemResult:
    """The result of one variant on one base and corpus.

    Attributes:
        name: of the variant, with base and corpus.
        group: base and corpus, or empty.
        variant: name without them.
        about: a description in one line.
        paper: figures that a paper prints: dev, test, ppl.
        runs: one for each seed.
        dev, ppl, test: statistics of the runs that finished; None if none did.
        score: the one of these that the differences are about.
        to_baseline: the difference to the baseline; None for the baseline itself.
        to_above: the difference to the variant before it, if that is not the baseline.
    """

    name: str
    group: str
    variant: str
    about: str
    paper: dict[str, float | str]
    runs: list[RunScores]
    dev: Statistics | None
    ppl: Statistics | None
    test: Statistics | None
    score: Statistics | None
    to_baseline: Difference | None = None
    to_above: Difference | None = None

    @property
    def hours(self) -> float:
        """Return the training time of all runs."""
        return sum(run.hours or 0.0 for run in self.runs)


@dataclass(frozen=True)
class SweepResult:
    """All results of a sweep.

    Attributes:
        file: the file of variants.
        metric: of the test scores and differences.
        dev_metric: that selects the best checkpoints.
        split: what the differences are measured on: test or dev.
        baseline: variant that the others are compared with.
        resamples: of the tests; 0 = none were made.
        systems: by base and corpus, then in the order of the file.
        notes: what a reader must know.
    """

    file: str
    metric: str
    dev_metric: str
    split: Split
    baseline: str
    resamples: int
    systems: list[SystemResult]
    notes: list[str]

    @property
    def groups(self) -> dict[str, list[SystemResult]]:
        """Return the systems by base and corpus."""
        found: dict[str, list[SystemResult]] = {}
        for system in self.systems:
            found.setdefault(system.group, []).append(system)
        return found


@dataclass(frozen=True)
class TrialResult:
    """A trial of a search.

    Attributes:
        variant: that it belongs to.
        number: from 0.
        state: finished, pruned, diverged, failed or stopped.
        reason: why it did not finish.
        folder: its run folder.
        keys: the values of the recipe keys.
        dev: best dev score; None if it did not finish.
        validations: dev score of each validation by update.
    """

    variant: str
    number: int
    state: str
    reason: str
    folder: str
    keys: dict[str, Any]
    dev: float | None
    validations: dict[str, float]


@dataclass(frozen=True)
class SearchResult:
    """All trials of a search.

    Attributes:
        file: the file of variants.
        metric: of the dev scores.
        keys: the recipe keys that the search chooses.
        total: trials of each variant.
        trials: by variant and number.
    """

    file: str
    metric: str
    keys: list[str]
    total: int
    trials: list[TrialResult]

    def ranked(self, variant: str) -> list[TrialResult]:
        """Return the trials of a variant, the best one first and those without a score last."""
        trials = [trial for trial in self.trials if trial.variant == variant]

        def rank(trial: TrialResult) -> float:
            return math.inf if trial.dev is None else -as_score(self.metric, trial.dev)

        return sorted(trials, key=rank)


def collect(
    file: str,
    runs: Sequence[PlannedRun],
    outcomes: Mapping[str, Outcome],
    baseline: str,
    metric: str | None,
    resamples: int,
) -> SweepResult:
    """Read the results of all runs and test the differences.

    Args:
        file: the file of variants.
        runs: of the sweep.
        outcomes: how runs ended, by name, as far as this command knows.
        baseline: variant that the others are compared with.
        metric: of the test scores; None = the one that selects the best checkpoint.
        resamples: of the tests; 0 = no tests.

    Raises:
        UserError: the run folder of a finished run is damaged.
    """
    recipes = {run.variant.name: run.recipe for run in runs}
    dev_metric = next(iter(recipes.values())).score.select_by
    metric = metric or dev_metric
    split: Split = "test" if all(_tests(recipe, metric) for recipe in recipes.values()) else "dev"
    by_variant: dict[str, list[PlannedRun]] = {}
    for run in runs:
        by_variant.setdefault(run.variant.name, []).append(run)
    systems = [_system(planned, outcomes, metric, split) for planned in by_variant.values()]
    compare = _Compare(systems, recipes, baseline, metric, split, resamples)
    if any(recipe.score.select_by != dev_metric for recipe in recipes.values()):
        compare.notes.append("the variants select their best checkpoints by different metrics")
    if differ := _different_predictions(systems):
        causal = all(recipe.task == "causal_lm" for recipe in recipes.values())
        can_use_words = causal and differ in (["segment"], [VOCABULARY]) and split == "test"
        instead = "; use --metric word_ppl" * (metric == "ppl" and can_use_words)
        compare.notes.append(not_comparable("variants", differ) + instead)
    shown = counted(systems, "testing the differences", "variants", len(systems), slow=True)
    compared = [compare.system(system) for system in shown]
    return SweepResult(
        file, metric, dev_metric, split, baseline, resamples, compared, compare.notes
    )


def summarize(
    values: Sequence[float | None], dev: Sequence[float | None], dev_metric: str
) -> Statistics | None:
    """Return the statistics of a score over runs; None if a run lacks it, or there is no run.

    Args:
        values: the score of each run.
        dev: the dev score of each run, which decides the best one; the first of equal ones.
        dev_metric: metric of the dev scores.
    """
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    ranks = [-math.inf if score is None else as_score(dev_metric, score) for score in dev]
    best = known[ranks.index(max(ranks))]
    deviation = statistics.stdev(known) if len(known) > 1 else None
    return Statistics(len(known), statistics.fmean(known), deviation, best)


def _different_predictions(systems: Sequence[SystemResult]) -> list[str]:
    """Return in what the predictions of variants of the same base and corpus differ."""
    by_group: dict[str, list[str]] = {}
    for system in systems:
        if system.ppl is not None:  # it has a perplexity in the table
            finished = next(run.folder for run in system.runs if run.finished)
            by_group.setdefault(system.group, []).append(finished)
    found = [key for folders in by_group.values() for key in different_predictions(folders)]
    return list(dict.fromkeys(found))


def _tests(recipe: Recipe, metric: str) -> bool:
    """Return whether a run measures a metric on a test set."""
    return bool(recipe.data.test) and (metric != "ppl" or not recipe.translates)


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
        dev=summarize(dev, dev, dev_metric),
        ppl=summarize([run.ppl for run in done], dev, dev_metric),
        test=summarize([run.test.get(metric) for run in done], dev, dev_metric),
        score=summarize([_value(run, metric, split) for run in done], dev, dev_metric),
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
    test = {score["name"]: score["value"] for score in summary.get("test") or ()}
    return RunScores(
        str(run.folder),
        run.recipe.seed,
        status,
        reason,
        result.updates,
        result.hours,
        result.dev,
        result.ppl,
        test,
    )


@dataclass(frozen=True)
class _Compare:
    """Compares systems; see ``SweepResult`` for the attributes.

    Attributes:
        recipes: of each system, by name.
        notes: what could not be compared is appended.
    """

    systems: Sequence[SystemResult]
    recipes: Mapping[str, Recipe]
    baseline: str
    metric: str
    split: Split
    resamples: int
    notes: list[str] = field(default_factory=list)

    def system(self, system: SystemResult) -> SystemResult:
        """Return a system with its differences to the baseline and to the system above it."""
        group = [other for other in self.systems if other.group == system.group]
        position = group.index(system)
        base = next((other for other in group if other.variant == self.baseline), system)
        above = group[position - 1] if position else system
        return replace(
            system,
            to_baseline=None if base is system else self.difference(base, system),
            to_above=None if above in (system, base) else self.difference(above, system),
        )

    def difference(self, before: SystemResult, after: SystemResult) -> Difference | None:
        """Return how a system differs from another one on the seeds that both finished, if any."""
        pairs = [
            (one, other)
            for one in before.runs
            for other in after.runs
            if one.seed == other.seed and one.finished and other.finished
        ]
        if not pairs:
            return None
        if self.metric in PERPLEXITIES or not self.resamples:
            values = [[_value(run, self.metric, self.split) for run in pair] for pair in pairs]
            known = [b - a for a, b in values if a is not None and b is not None]
            return (
                Difference(before.variant, statistics.fmean(known), len(known)) if known else None
            )
        from nmt.scoring.significance import paired_tests

        folders = ([one.folder for one, _ in pairs], [other.folder for _, other in pairs])
        names = held_out_entries(self.recipes[after.name], self.split)
        try:
            set_statistics = [_statistics(folders, name, self.metric) for name in names]
        except UserError as error:  # another reference, or output that was deleted
            self.notes.append(f"{after.name} is not compared with {before.name}: {error.summary}")
            return None
        tests = paired_tests(
            set_statistics[0][0],
            [first for _, first, _ in set_statistics],
            [second for _, _, second in set_statistics],
            self.resamples,
        )
        return Difference(
            before.variant, tests.difference, len(pairs), tests.bootstrap, tests.randomization
        )


def _statistics(folders: tuple[list[str], list[str]], split: str, metric: str) -> Any:
    """Return the scorer of a metric, and what it counts in the outputs of both systems' runs."""
    from nmt.scoring.metrics import METRICS
    from nmt.scoring.significance import SentenceScorer
    from nmt.scoring.systems import from_runs

    systems = from_runs([*folders[0], *folders[1]], split)
    on_words = METRICS[metric].on_words
    if on_words:
        texts, refs = systems.words, [systems.ref_words, *systems.other_ref_words]
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
    """Return a line for each run without a result, and for each that had other paths."""
    return [
        f"{run.folder}: {run.status}" + (f": {run.reason}" if run.reason else "")
        for system in systems
        for run in system.runs
        if run.reason or run.status in ("failed", "diverged")
    ]
