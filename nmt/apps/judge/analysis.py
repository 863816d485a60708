"""What the judgements say: means, differences, preferences, and how far the judges agree.

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
from dataclasses import dataclass

import numpy as np

from nmt.apps.judge.key import HIGHEST, LOWEST, Key
from nmt.apps.judge.sheet import SCORE, Judgement
from nmt.data.text import quantity
from nmt.scoring.metrics import SIGNIFICANCE_LEVEL
from nmt.scoring.significance import interval, mean_scores, paired_tests

COLUMNS = ("measure", "system", "baseline", "value", "low", "high", "p_value", "count")
Z = "z"
WINS, TIES, LOSSES = "wins", "ties", "losses"
AGREEMENT = "agreement_"
PREFERENCE = "preference"


@dataclass(frozen=True)
class Finding:
    """One row of the result.

    Attributes:
        measure: score, z; wins, ties, losses; agreement_score and so on.
        system: empty for agreement.
        baseline: the system that it is compared with; empty for means.
        value: mean, difference, number of lines, or Krippendorff's alpha; nan if undefined.
        low, high: ends of the 95 % bootstrap interval of a mean.
        p_value: of a difference by paired bootstrap, of wins by the sign test.
        count: judgements of a mean, lines of a difference or preference, items of agreement.
    """

    measure: str
    system: str
    baseline: str
    value: float
    count: int
    low: float | None = None
    high: float | None = None
    p_value: float | None = None


def analyze(key: Key, judgements: Sequence[Judgement], resamples: int) -> list[Finding]:
    """Return all findings.

    Args:
        judgements: at least one.
    """
    values = np.array([judgement.values for judgement in judgements])  # [judgements, systems]
    numbers = {SCORE: values, Z: z_scores([judgement.judge for judgement in judgements], values)}
    findings: list[Finding] = []
    for measure, matrix in numbers.items():
        findings += _means(key, measure, judgements, matrix, resamples)
    for first, second in _pairs(key):
        findings += _preferences(key, judgements, values, first, second)
    return findings + list(_agreement(key, judgements, numbers))


def z_scores(judges: Sequence[str], values: np.ndarray) -> np.ndarray:
    """Return the values [judgements, systems], standardized for each judge.

    A judge who gives one number only has z-scores of 0.
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
) -> Iterator[Finding]:
    names = [judgement.row.unit for judgement in judgements]
    units = {name: place for place, name in enumerate(dict.fromkeys(names))}
    sums = np.zeros((len(key.systems), len(units), 2))  # value and number of judgements
    for name, values in zip(names, matrix, strict=True):
        sums[:, units[name]] += np.stack([values, np.ones_like(values)], 1)
    for system, name in enumerate(key.systems):
        low, high = interval(mean_scores, [[sums[system]]], resamples)
        mean = float(matrix[:, system].mean())
        yield Finding(measure, name, "", mean, len(judgements), low, high)
    lines = len({judgement.row.id for judgement in judgements})
    for first, second in _pairs(key):
        tests = paired_tests(mean_scores, [[sums[first]]], [[sums[second]]], resamples)
        both = key.systems[second], key.systems[first]
        yield Finding(measure, *both, tests.difference, lines, p_value=tests.bootstrap)


def _preferences(
    key: Key, judgements: Sequence[Judgement], values: np.ndarray, first: int, second: int
) -> Iterator[Finding]:
    """Count the lines on which more judges prefer the second system, or the first."""
    votes: dict[str, float] = defaultdict(float)
    for judgement, sign in zip(judgements, _signs(values, first, second), strict=True):
        votes[judgement.row.id] += float(sign)
    wins = sum(vote > 0 for vote in votes.values())
    losses = sum(vote < 0 for vote in votes.values())
    names = key.systems[second], key.systems[first]
    p_value = sign_test(wins, losses)
    yield Finding(WINS, *names, wins, len(votes), p_value=p_value)
    yield Finding(TIES, *names, len(votes) - wins - losses, len(votes))
    yield Finding(LOSSES, *names, losses, len(votes))


def _signs(values: np.ndarray, first: int, second: int) -> np.ndarray:
    """Return 1 for each judgement that prefers the second system, -1 for the first, 0 for none."""
    return np.asarray(np.sign(values[:, second] - values[:, first]))


def _agreement(
    key: Key, judgements: Sequence[Judgement], numbers: dict[str, np.ndarray]
) -> Iterator[Finding]:
    pairs = [_signs(numbers[SCORE], *pair) for pair in _pairs(key)]
    for measure, matrix in {**numbers, PREFERENCE: np.stack(pairs, 1)}.items():
        items: dict[tuple[str, int], list[float]] = defaultdict(list)
        for judgement, values in zip(judgements, matrix, strict=True):
            for column, value in enumerate(values):
                items[judgement.row.id, column].append(float(value))
        count = sum(len(item) > 1 for item in items.values())
        if count:
            alpha = krippendorff_alpha(items.values())
            yield Finding(f"{AGREEMENT}{measure}", "", "", alpha, count)


def tsv(findings: Sequence[Finding]) -> str:
    """Return a header and a row for each finding, separated by tabs, for cut and awk."""
    rows = ["\t".join(COLUMNS)]
    for finding in findings:
        values = (getattr(finding, name) for name in COLUMNS)
        rows.append("\t".join(_cell(value) for value in values))
    return "\n".join(rows)


def _cell(value: str | float | None) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return str(value) if isinstance(value, int) else f"{value:.4f}"


def table(key: Key, findings: Sequence[Finding]) -> str:
    """Return the findings as a table for people."""
    width = max(map(len, key.systems))
    titles = {SCORE: f"score, {LOWEST} to {HIGHEST}", Z: "z-score of each judge"}
    lines = []
    for measure, title in titles.items():
        means = [x for x in findings if x.measure == measure and not x.baseline]
        if means:
            lines += [f"{title}, {quantity(means[0].count, 'judgement')}"]
        for mean in means:
            ends = f"[{mean.low:.2f}, {mean.high:.2f}]"
            lines.append(f"  {mean.system:<{width}}  {mean.value:6.2f}  {ends}")
    for first, second in _pairs(key):
        names = (key.systems[second], key.systems[first])
        found = {x.measure: x for x in findings if (x.system, x.baseline) == names}
        lines.append(f"{names[0]}, compared with {names[1]}, {quantity(found[WINS].count, 'line')}")
        for measure in filter(found.__contains__, titles):
            difference = found[measure]
            lines.append(f"  {measure:<11}{difference.value:+6.2f}  {_p(difference)}")
        counts = (f"{int(found[name].value)} {name}" for name in (WINS, TIES, LOSSES))
        lines.append(f"  preference  {', '.join(counts)}  {_p(found[WINS])}")
    agreements = [x for x in findings if x.measure.startswith(AGREEMENT)]
    if agreements:
        lines.append("agreement of the judges, Krippendorff's alpha")
    for x in agreements:
        name = x.measure.removeprefix(AGREEMENT)
        lines.append(f"  {name:<11}{x.value:6.2f}  {quantity(x.count, 'item')}")
    lines += ["", "[low, high]: 95 % bootstrap interval; * where p < 0.05"]
    return "\n".join(lines)


def _p(finding: Finding) -> str:
    assert finding.p_value is not None
    star = " *" if finding.p_value < SIGNIFICANCE_LEVEL else ""
    return f"p = {finding.p_value:.3f}{star}"


def judgement_table(key: Key, judgements: Sequence[Judgement]) -> str:
    """Return each judgement as tab-separated lines, with the texts that were judged."""
    values = np.array([judgement.values for judgement in judgements])
    standard = z_scores([judgement.judge for judgement in judgements], values)
    texts = ["comment", "source", "translation"]
    rows = ["\t".join(["judge", "line", "document", "system", SCORE, Z, *texts])]
    for judgement, row_z in zip(judgements, standard, strict=True):
        for place, name in enumerate(key.systems):
            cells = [judgement.judge, str(judgement.row.line), judgement.row.document, name]
            cells += [f"{judgement.values[place]:g}", f"{row_z[place]:.4f}"]
            cells += [judgement.comment, judgement.source, judgement.translations[place]]
            rows.append("\t".join(" ".join(cell.split()) for cell in cells))
    return "".join(f"{row}\n" for row in rows)
