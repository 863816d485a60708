"""Analyze judgements: means, differences, preferences, and agreement of the judges.

Intervals and paired tests are those of nmt-score, on resamples of documents (or of lines, if there
are no documents). A z-score is a judge's number minus the mean of the judge's numbers, divided by
their standard deviation, so that strict and mild judges count alike (Graham et al. 2013,
https://aclanthology.org/W13-2305).
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from nmt.apps.judge.key import HIGHEST, LOWEST, Key
from nmt.apps.judge.sheet import SCORE, Judgement
from nmt.runtime.words import quantity
from nmt.scoring.results import Cell, Score, tsv
from nmt.scoring.significance import interval, mean_scores, paired_tests

COLUMNS = (
    "measure", "system", "baseline", "value", "low", "high", "p_value", "p_two_sided", "count",
)  # fmt: skip
Z = "z"
WINS, TIES, LOSSES = "wins", "ties", "losses"
AGREEMENT = "agreement_"
PREFERENCE = "preference"


def analyze(key: Key, judgements: Sequence[Judgement], resamples: int) -> list[Score]:
    """Return all findings.

    Args:
        judgements: at least one.
    """
    values = np.array([judgement.values for judgement in judgements])  # [judgements, systems]
    numbers = {SCORE: values, Z: z_scores([judgement.judge for judgement in judgements], values)}
    findings: list[Score] = []
    for measure, matrix in numbers.items():
        findings += _means(key, measure, judgements, matrix, resamples)
    for first, second in _pairs(key):
        findings += _preferences(key, judgements, values, first, second)
    return findings + list(_agreement(key, judgements, numbers))


def z_scores(judges: Sequence[str], values: np.ndarray) -> np.ndarray:
    """Return the values [judgements, systems], standardized for each judge.

    A judge who always gives the same number has z-scores of 0.
    """
    scores = np.zeros_like(values)
    for judge in set(judges):
        own = np.array([name == judge for name in judges])
        spread = values[own].std()
        if spread > 0:
            scores[own] = (values[own] - values[own].mean()) / spread
    return scores


def sign_test(wins: int, losses: int) -> float:
    """Return the two-sided p-value of the sign test (Dixon and Mood 1946); ties do not count."""
    lines, fewer = wins + losses, min(wins, losses)
    tail = sum(math.comb(lines, count) for count in range(fewer + 1))
    return min(1.0, 2 * tail / 2**lines)


def krippendorff_alpha(items: Iterable[Sequence[float]]) -> float:
    """Return Krippendorff's alpha for intervals: 1 = the judges agree, 0 = as by chance.

    "Computing Krippendorff's Alpha-Reliability" (Krippendorff 2011,
    https://repository.upenn.edu/asc_papers/43). Items may have other judges each.

    Args:
        items: the numbers that judges gave each item; those with fewer than two do not count.

    Returns:
        Not a number if there are no such items, or all numbers are equal.
    """
    pairable = [np.asarray(item, dtype=float) for item in items if len(item) > 1]
    if not pairable:
        return math.nan
    everything = np.concatenate(pairable)
    observed = sum(_squared_differences(item) / (len(item) - 1) for item in pairable)
    expected = _squared_differences(everything) / (len(everything) - 1)
    return 1 - observed / expected if expected > 0 else math.nan


def _squared_differences(values: np.ndarray) -> float:
    """Return the sum of squared differences over all ordered pairs of values."""
    centered = values - values.mean()
    return float(2 * len(values) * (centered**2).sum())


def _pairs(key: Key) -> Iterator[tuple[int, int]]:
    return itertools.combinations(range(len(key.systems)), 2)


def _means(
    key: Key, measure: str, judgements: Sequence[Judgement], matrix: np.ndarray, resamples: int
) -> Iterator[Score]:
    names = [judgement.row.unit for judgement in judgements]
    units = {name: place for place, name in enumerate(dict.fromkeys(names))}
    sums = np.zeros((len(key.systems), len(units), 2))  # value and number of judgements
    for name, values in zip(names, matrix, strict=True):
        sums[:, units[name]] += np.stack([values, np.ones_like(values)], 1)
    for system, name in enumerate(key.systems):
        low, high = interval(mean_scores, [[sums[system]]], resamples)
        mean = float(matrix[:, system].mean())
        yield Score(measure, mean, "", low, high, system=name, count=len(judgements))
    lines = len({judgement.row.id for judgement in judgements})
    for first, second in _pairs(key):
        tests = paired_tests(mean_scores, [[sums[first]]], [[sums[second]]], resamples)
        score = Score(
            measure,
            tests.difference,
            p_value=tests.bootstrap,
            p_two_sided=tests.two_sided,
            count=lines,
        )
        yield replace(score, system=key.systems[second], baseline=key.systems[first])


def _preferences(
    key: Key, judgements: Sequence[Judgement], values: np.ndarray, first: int, second: int
) -> Iterator[Score]:
    """Count the lines on which more judges prefer the second system, or the first."""
    votes: dict[str, float] = defaultdict(float)
    for judgement, sign in zip(judgements, _signs(values, first, second), strict=True):
        votes[judgement.row.id] += float(sign)
    wins = sum(vote > 0 for vote in votes.values())
    losses = sum(vote < 0 for vote in votes.values())
    p_value = sign_test(wins, losses)
    ties = len(votes) - wins - losses
    for name, count, p in ((WINS, wins, p_value), (TIES, ties, None), (LOSSES, losses, None)):
        score = Score(name, count, p_value=p, p_two_sided=p, count=len(votes))
        yield replace(score, system=key.systems[second], baseline=key.systems[first])


def _signs(values: np.ndarray, first: int, second: int) -> np.ndarray:
    """Return 1 for each judgement that prefers the second system, -1 for the first, 0 for none."""
    return np.asarray(np.sign(values[:, second] - values[:, first]))


def _agreement(
    key: Key, judgements: Sequence[Judgement], numbers: dict[str, np.ndarray]
) -> Iterator[Score]:
    pairs = [_signs(numbers[SCORE], *pair) for pair in _pairs(key)]
    for measure, matrix in {**numbers, PREFERENCE: np.stack(pairs, 1)}.items():
        items: dict[tuple[str, int], list[float]] = defaultdict(list)
        for judgement, values in zip(judgements, matrix, strict=True):
            for column, value in enumerate(values):
                items[judgement.row.id, column].append(float(value))
        count = sum(len(item) > 1 for item in items.values())
        if count:
            alpha = krippendorff_alpha(items.values())
            yield Score(f"{AGREEMENT}{measure}", alpha, count=count)


def results_tsv(findings: Sequence[Score]) -> str:
    """Return a header and a row for each finding, separated by tabs, for cut and awk."""
    names = ("name", *COLUMNS[1:])
    return tsv([COLUMNS, *([getattr(found, name) for name in names] for found in findings)])


def table(key: Key, findings: Sequence[Score]) -> str:
    """Return the findings as a table for people."""
    width = max(map(len, key.systems))
    titles = {SCORE: f"score, {LOWEST} to {HIGHEST}", Z: "z-score of each judge"}
    lines = []
    for measure, title in titles.items():
        means = [x for x in findings if x.name == measure and not x.baseline]
        if means:
            lines += [f"{title}, {quantity(means[0].count, 'judgement')}"]
        for mean in means:
            lines.append(f"  {mean.system:<{width}}  {mean.cells()}")
    for first, second in _pairs(key):
        names = (key.systems[second], key.systems[first])
        found = {x.name: x for x in findings if (x.system, x.baseline) == names}
        lines.append(f"{names[0]}, compared with {names[1]}, {quantity(found[WINS].count, 'line')}")
        for measure in filter(found.__contains__, titles):
            difference = found[measure]
            lines.append(f"  {measure:<11}{difference.value:+6.2f}  {difference.p}")
        counts = (f"{int(found[name].value)} {name}" for name in (WINS, TIES, LOSSES))
        lines.append(f"  preference  {', '.join(counts)}  {found[WINS].p}")
    agreements = [x for x in findings if x.name.startswith(AGREEMENT)]
    if agreements:
        lines.append("agreement of the judges, Krippendorff's alpha")
    for x in agreements:
        name = x.name.removeprefix(AGREEMENT)
        lines.append(f"  {name:<11}{x.value:6.2f}  {quantity(x.count, 'item')}")
    lines += ["", "[low, high]: 95 % bootstrap interval; * where the two-sided p < 0.05"]
    return "\n".join(lines)


def judgement_table(key: Key, judgements: Sequence[Judgement]) -> str:
    """Return each judgement as tab-separated lines, with the texts that were judged."""
    values = np.array([judgement.values for judgement in judgements])
    standard = z_scores([judgement.judge for judgement in judgements], values)
    texts = ["comment", "source", "translation"]
    rows: list[Sequence[Cell]] = [["judge", "line", "document", "system", SCORE, Z, *texts]]
    for judgement, row_z in zip(judgements, standard, strict=True):
        for place, name in enumerate(key.systems):
            numbers = f"{judgement.values[place]:g}", f"{row_z[place]:.4f}"
            read = judgement.comment, judgement.source, judgement.translations[place]
            row = judgement.row
            rows.append((judgement.judge, row.line, row.document, name, *numbers, *read))
    return tsv(rows) + "\n"
