"""Paired tests of systems with several seeds: sacreBLEU's with one, closed forms with several."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

from nmt.scoring.significance import (
    PairedTests,
    SentenceScorer,
    mean_scores,
    mean_statistics,
    paired_tests,
)

WORDS = [
    "the",
    "of",
    "a",
    "cat",
    "dog",
    "house",
    "is",
    "was",
    "in",
    "on",
    "tree",
    "green",
    "red",
    "runs",
]


def numbers(*values: float) -> np.ndarray:
    return mean_statistics(values)


def sentences(seed: int, noise: float, count: int = 60) -> tuple[list[str], list[str]]:
    """Return references, and hypotheses with this share of wrong words."""
    refs_rng, rng = Random(0), Random(seed)
    refs = [" ".join(refs_rng.choices(WORDS, k=refs_rng.randint(5, 12))) for _ in range(count)]
    hyps = [
        " ".join(rng.choice(WORDS) if rng.random() < noise else word for word in ref.split())
        for ref in refs
    ]
    return hyps, refs


@pytest.mark.parametrize("noise", [0.31, 0.4])
def test_with_one_run_of_each_the_p_values_are_those_of_sacrebleu(noise):
    (first, refs), (second, _) = sentences(1, 0.3), sentences(2, noise)
    scorer = SentenceScorer("bleu", "en")
    baseline, system = ([[scorer.statistics(hyps, [refs])]] for hyps in (first, second))
    ours = paired_tests(scorer.scores, baseline, system, 200)
    expected = {}
    for kind in ("bs", "ar"):
        systems = [("first", first), ("second", second)]
        _, table = PairedTest(systems, {"bleu": BLEU(force=True)}, [refs], kind, 200)()
        expected[kind] = table["BLEU"][1].p_value
    difference = (
        BLEU().corpus_score(second, [refs]).score - BLEU().corpus_score(first, [refs]).score
    )
    assert ours.difference == pytest.approx(difference)
    assert (ours.bootstrap, ours.randomization) == (expected["bs"], expected["ar"])


def test_equal_systems_do_not_differ():
    runs = [[numbers(1, 2, 3), numbers(2, 2, 2)]]
    assert paired_tests(mean_scores, runs, runs, 50) == PairedTests(0.0, 1.0, 1.0, 1.0)


def test_the_difference_is_that_of_the_means_over_runs_and_sets():
    baseline = [[numbers(0, 2), numbers(4, 4)], [numbers(1), numbers(3)]]  # 1, 4; 1, 3
    system = [[numbers(3, 3), numbers(6, 6)], [numbers(2), numbers(8)]]  # 3, 6; 2, 8
    assert paired_tests(mean_scores, baseline, system, 10).difference == pytest.approx(2.5)


def test_randomization_of_two_sentences_has_a_closed_form():
    """Swapping both or none of two sentences keeps the difference 1; swapping one makes it 0.

    No trial exceeds 1, so p is 1 / (trials + 1).
    """
    tests = paired_tests(mean_scores, [[numbers(0, 0)]], [[numbers(1, 1)]], 99)
    assert tests == PairedTests(1.0, *[pytest.approx(0.01)] * 3)


def test_randomization_equals_all_swaps_counted():
    """The p-value approaches the share of the 2^6 swaps with a larger difference."""
    baseline, system = numbers(0, 3, 1, 4, 2, 0), numbers(2, 2, 3, 4, 5, 1)
    gains = system[:, 0] - baseline[:, 0]
    observed = abs(gains.mean())
    signs = 1 - 2 * (np.arange(64)[:, None] >> np.arange(6) & 1)
    exact = np.mean(np.abs((signs * gains).mean(1)) > observed + 1e-9)
    tests = paired_tests(mean_scores, [[baseline]], [[system]], 20_000)
    # the standard deviation of a share of 20,000 trials is below 0.0036
    assert tests.randomization == pytest.approx(exact, abs=0.015)


def test_more_seeds_of_the_same_difference_are_more_certain_to_a_randomization():
    """Swaps are independent for each seed, so the mean of shuffled differences is smaller."""
    rng = np.random.default_rng(3)
    draws = [rng.normal(0, 1, 40) for _ in range(5)]
    baseline = [numbers(*draw) for draw in draws]
    system = [numbers(*(draw[::-1] * 0.1 + draw.mean() * 0.9 + 0.3)) for draw in draws]
    one = paired_tests(mean_scores, [baseline[:1]], [system[:1]], 500)
    five = paired_tests(mean_scores, [baseline], [system], 500)
    assert one.difference == pytest.approx(five.difference)
    assert five.randomization < one.randomization


def test_memory_is_limited_without_a_change_of_the_bootstrap(monkeypatch):
    baseline, system = [[numbers(*range(30))]], [[numbers(*range(1, 30), 3)]]
    at_once = paired_tests(mean_scores, baseline, system, 64)
    monkeypatch.setattr("nmt.scoring.significance._CHUNK", 30 * 7)
    in_parts = paired_tests(mean_scores, baseline, system, 64)
    assert in_parts.bootstrap == at_once.bootstrap


def test_the_two_sided_p_value_ignores_a_difference_within_the_noise():
    """sacreBLEU's does not: it counts resamples from the mean of their absolute values on."""
    rng = np.random.default_rng(1)
    gains = rng.normal(0, 1, 200)
    gains += 0.003 / math.sqrt(200) - gains.mean()  # of a standard error of 1
    tests = paired_tests(mean_scores, [[numbers(*[0] * 200)]], [[numbers(*gains)]], 1000)
    assert tests.two_sided > 0.98
    assert 0.3 < tests.bootstrap < 0.5


@pytest.mark.slow
def test_the_two_sided_p_value_is_uniform_without_a_difference():
    """Systems drawn from one distribution: a share of a of them has p < a, for each a.

    The standard error of a share of 1,000 draws is at most 0.016; for 0.05 it is 0.007.
    """
    rng = np.random.default_rng(5)
    two_sided, half = [], []
    for _ in range(1000):
        before, after = ([[numbers(*rng.exponential(1, 100))]] for _ in range(2))
        tests = paired_tests(mean_scores, before, after, 200)
        two_sided.append(tests.two_sided)
        half.append(tests.bootstrap)
    for level, tolerance in ((0.05, 0.022), (0.2, 0.04), (0.5, 0.05)):
        assert np.mean(np.array(two_sided) < level) == pytest.approx(level, abs=tolerance)
    assert np.mean(np.array(half) < 0.05) > 0.08  # what a reader takes for 0.05
