"""Compare two systems that were each trained with several seeds.

A test on one run of each system answers whether the test set separates two models. With several
seeds the systems themselves are compared: the score of a system is the mean over its runs, and
both tests are about the difference of these means (Clark et al. 2011,
https://aclanthology.org/P11-2031). With one run of each, ``bootstrap`` and ``randomization`` are
the p-values of ``sacrebleu --paired-bs`` and ``--paired-ar``. Scores of segments, such as those of
COMET or of people, are tested in the same way: the score of a system is their mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from sacrebleu.significance import estimate_ci

from nmt.scoring.metrics import METRICS, two_sided_p

SEED = 12345  # of the resamples; sacreBLEU's
_CHUNK = 1 << 24  # numbers that a step of resampling holds in memory

# sentence statistics [N, K] of a system, by test set and then by run
Runs: TypeAlias = Sequence[Sequence[np.ndarray]]
# the corpus score of each row of summed statistics: [R, K] -> [R]
Scores: TypeAlias = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class PairedTests:
    """The difference of two systems, and how likely one of its size is by chance.

    Attributes:
        difference: mean score of the system minus that of the baseline.
        bootstrap: p-value of paired bootstrap resampling (Koehn 2004), as sacreBLEU computes it.
        two_sided: p-value of the same resamples, see ``two_sided_p``.
        randomization: p-value of approximate randomization (Riezler and Maxwell 2005).
    """

    difference: float
    bootstrap: float
    two_sided: float
    randomization: float


@dataclass(frozen=True)
class SentenceScorer:
    """A metric of METRICS as sums over sentences; the language decides BLEU's tokenizer."""

    metric: str
    tgt_lang: str

    def statistics(self, hyps: Sequence[str], refs: Sequence[Sequence[str]]) -> np.ndarray:
        """Count what the metric needs of each of N sentences, with one or several refs: [N, K]."""
        metric = METRICS[self.metric].create(self.tgt_lang)
        counts = metric._extract_corpus_statistics(list(hyps), [list(lines) for lines in refs])
        return np.array(counts, dtype=np.float64)

    def scores(self, sums: np.ndarray) -> np.ndarray:
        """Compute the corpus score of each row of sums: [R, K] -> [R]."""
        metric = METRICS[self.metric].create(self.tgt_lang)
        return np.array([metric._compute_score_from_stats(list(row)).score for row in sums])


def mean_statistics(values: Sequence[float]) -> np.ndarray:
    """Pair the value of each segment with the count 1, for ``mean_scores``: [N, 2]."""
    return np.array([[value, 1.0] for value in values])


def mean_scores(sums: np.ndarray) -> np.ndarray:
    """Compute the mean of each row of summed values and counts: [R, 2] -> [R]."""
    return sums[:, 0] / sums[:, 1]


def interval(scores: Scores, runs: Runs, resamples: int) -> tuple[float, float]:
    """Estimate the ends of the 95 % bootstrap interval, as sacreBLEU does."""
    mean, half = estimate_ci(_bootstrap(scores, runs, resamples))
    return float(mean - half), float(mean + half)


def paired_tests(scores: Scores, baseline: Runs, system: Runs, resamples: int) -> PairedTests:
    """Test the difference of two systems in both ways.

    Args:
        baseline: statistics by test set and run; all runs of a set have the same sentences.
        system: the same sets, and as many runs; run i of both has the same seed.
        resamples: bootstrap resamples, and trials of the randomization.
    """
    difference = _mean_score(scores, system) - _mean_score(scores, baseline)
    if difference == 0:
        return PairedTests(0.0, 1.0, 1.0, 1.0)
    baseline_scores, system_scores = (
        _bootstrap(scores, runs, resamples) for runs in (baseline, system)
    )
    signed = system_scores - baseline_scores
    differences = np.abs(signed)
    shuffled = np.abs(_shuffled_differences(scores, baseline, system, resamples))
    return PairedTests(
        float(difference),
        _p_value(differences - differences.mean(), abs(difference)),
        two_sided_p(signed, difference),
        _p_value(shuffled, abs(difference)),
    )


def _p_value(sampled: np.ndarray, observed: float) -> float:
    """Return the share of samples above the observed difference, with 1 added to both counts."""
    return float((np.sum(sampled > observed) + 1) / (len(sampled) + 1))


def _mean_score(scores: Scores, runs: Runs) -> float:
    sums = [stats.sum(0) for set_stats in runs for stats in set_stats]
    return float(np.mean([scores(each[None])[0] for each in sums]))


def _bootstrap(scores: Scores, runs: Runs, resamples: int) -> np.ndarray:
    """Return the mean score of each resample of the sentences; all runs have the same resamples."""
    rng = np.random.default_rng(SEED)
    set_scores = []
    for set_stats in runs:
        count = len(set_stats[0])
        sums: list[list[np.ndarray]] = [[] for _ in set_stats]
        for size in _chunks(resamples, count):
            chosen = rng.choice(count, size=(size, count), replace=True)
            rows = np.arange(size)[:, None]
            times = np.bincount((rows * count + chosen).ravel(), minlength=size * count)
            for kept, stats in zip(sums, set_stats, strict=True):
                kept.append(times.reshape(size, count) @ stats)
        set_scores += [scores(np.concatenate(kept)) for kept in sums]
    return np.mean(set_scores, axis=0)


def _shuffled_differences(scores: Scores, baseline: Runs, system: Runs, trials: int) -> np.ndarray:
    """Return the mean difference after swapping sentences of run i of both at random, per trial."""
    rng = np.random.default_rng(SEED)
    differences = []
    for before, after in zip(baseline, system, strict=True):
        for old, new in zip(before, after, strict=True):
            parts, both = [], old.sum(0) + new.sum(0)
            for size in _chunks(trials, len(old)):
                kept = rng.integers(2, size=(size, len(old)), dtype=bool)
                parts.append(kept @ old + ~kept @ new)
            mixed = np.concatenate(parts)
            differences.append(scores(mixed) - scores(both - mixed))
    return np.mean(differences, axis=0)


def _chunks(total: int, sentences: int) -> Iterator[int]:
    """Yield parts of ``total`` resamples that fit in memory."""
    most = max(1, _CHUNK // max(1, sentences))
    for start in range(0, total, most):
        yield min(most, total - start)
