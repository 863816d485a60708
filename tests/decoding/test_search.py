"""Beam search against all possible outputs, and against a slow search without early stop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from nmt.decoding.engine import Hypothesis
from nmt.decoding.options import SearchOptions
from tests.decoding.exhaustive import (
    EOS,
    Output,
    Prefix,
    ending_after,
    outputs,
    random_scores,
    search,
    slow_beam_search,
    slow_search_by_count,
)

pytestmark = pytest.mark.cpu

FORBIDDEN = (0, 1)


def assert_same(found: Sequence[Hypothesis], expected: Sequence[Output]) -> None:
    assert [(tuple(f.ids), f.finished) for f in found] == [(e[0], e[3]) for e in expected]
    np.testing.assert_allclose([f.log_prob for f in found], [e[1] for e in expected], rtol=1e-5)
    np.testing.assert_allclose([f.score for f in found], [e[2] for e in expected], rtol=1e-5)


# ---------------------------------------------------------------- hypotheses


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
@pytest.mark.parametrize("max_len", [1, 2, 4])
def test_a_beam_wide_enough_finds_every_output_in_order(alpha, max_len):
    scores = random_scores(1)
    found, _ = search(scores, 150, [max_len] * 3, alpha, n_best=150, forbidden=[0])
    for sentence, of_sentence in enumerate(found):
        expected = outputs(scores, sentence, max_len, alpha, [0])
        assert len(expected) == {1: 3, 2: 12, 4: 120}[max_len]
        assert_same(of_sentence, expected)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5])
@pytest.mark.parametrize(("beam", "n_best"), [(1, 1), (2, 1), (3, 3), (4, 2), (30, 30)])
@pytest.mark.parametrize("rule", ["bound", "count"])
def test_the_search_equals_a_slow_one_of_the_same_stop_rule(rule, alpha, beam, n_best):
    """By bound, the early stop changes no result. The slow searches have no batches."""
    scores = random_scores(3, types=7)
    limits = np.random.default_rng(4).integers(1, 12, size=40).tolist()
    found, _ = search(scores, beam, limits, alpha, n_best, stop_rule=rule)
    slow = slow_beam_search if rule == "bound" else slow_search_by_count
    for sentence, (limit, of_sentence) in enumerate(zip(limits, found, strict=True)):
        expected = slow(scores, sentence, beam, limit, alpha, FORBIDDEN)
        assert_same(of_sentence, expected[:n_best])


def test_the_search_stops_early():
    """One hypothesis ends early with nearly all the probability; the others never end."""

    def scores(sentence: int, prefix: Prefix) -> np.ndarray:
        ends = 10.0 if prefix == (4,) else -10.0
        return np.array([0.0, 0.0, ends, 0.0, 10.0 if not prefix else 0.0])

    found, state = search(scores, 3, [50])
    assert found[0][0].ids == [4]
    assert state.steps == 2
    every, slow = search(scores, 3, [50], n_best=3)
    assert slow.steps == 50
    assert every[0][0] == found[0][0]
    assert [f.finished for f in every[0]] == [True, False, False]


@pytest.mark.parametrize("end", [False, True])
def test_equal_scores_are_ordered_by_beam(end):
    """With equal scores, every continuation of beam 0 comes before any of beam 1.

    If all beams end at the second position, they keep their order.
    """
    types, beam = 40, 32

    def scores(sentence: int, prefix: Prefix) -> np.ndarray:
        row = np.zeros(types)
        row[EOS] = 40.0 if end else -40.0
        return row

    found, _ = search(scores, beam, [1, 3], alpha=0.0, n_best=beam)
    first, later = ([f.ids for f in of_sentence] for of_sentence in found)
    assert len({tuple(ids) for ids in later}) == beam
    if end:
        assert later == first
    else:
        assert later == [[*first[0], *first[0], *ids] for ids in first]


# ---------------------------------------------------------------- scores


def test_the_score_is_divided_by_the_length_penalty():
    """The penalty is ((5 + n) / 6)^alpha; n includes EOS."""
    assert SearchOptions().penalty(7) == pytest.approx(2**0.6)
    assert SearchOptions().penalty(1) == 1.0
    mean = SearchOptions(length_alpha=0.5, length_penalty="mean")
    assert mean.penalty(9) == 3
    assert mean.model_copy(update={"tgt_tag": "<es>"}).penalty(8) == 3
    scores = ending_after([6])
    for alpha in (0.0, 0.6, 1.0):
        found, _ = search(scores, 2, [20], alpha)
        best = found[0][0]
        assert (len(best.ids), best.finished) == (6, True)
        assert best.score == pytest.approx(best.log_prob / 2**alpha, rel=1e-6)


# ---------------------------------------------------------------- limits


def test_fewer_outputs_than_requested():
    """Two types and two positions allow only these outputs, with any beam."""
    found, _ = search(random_scores(9), 8, [2], n_best=8, forbidden=[0, 1, 3])
    assert sorted((f.ids, f.finished) for f in found[0]) == [([4], True), ([4, 4], False)]


@pytest.mark.parametrize("alpha", [0.0, 10.0])
def test_an_extreme_penalty_gives_finite_scores(alpha):
    found, _ = search(random_scores(10), 8, [40] * 4, alpha, n_best=8, forbidden=[0, 1, 3])
    for of_sentence in found:
        assert len(of_sentence) == 8
        assert all(np.isfinite([f.score, f.log_prob]).all() for f in of_sentence)


# ---------------------------------------------------------------- batches


def test_results_do_not_depend_on_the_batch_or_its_order():
    rng = np.random.default_rng(12)
    scores = random_scores(13, types=7, spread=1.5)
    limits = rng.integers(2, 15, size=40)
    together, _ = search(scores, 3, limits.tolist(), n_best=3)
    order = rng.permutation(40)
    for size in (1, 7, 40):
        for first in range(0, 40, size):
            rows = order[first : first + size].tolist()
            found, _ = search(scores, 3, limits[rows].tolist(), n_best=3, sentences=rows)
            for of_one, row in zip(found, rows, strict=True):
                assert [(f.ids, f.finished) for f in of_one] == [
                    (f.ids, f.finished) for f in together[row]
                ]
                for name in ("log_prob", "score"):  # sums of another shape round otherwise
                    values = [[getattr(f, name) for f in fs] for fs in (of_one, together[row])]
                    np.testing.assert_allclose(*values, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("beam", [1, 4])
def test_finished_sentences_leave_the_batch(beam):
    """At most a tenth more hypotheses are advanced than if each sentence were searched alone."""
    lengths = np.random.default_rng(14).integers(1, 25, size=32).tolist()
    scores = ending_after(lengths)
    _, state = search(scores, beam, [40] * 32)
    least = 0
    for sentence in range(32):
        _, alone = search(scores, beam, [40], sentences=[sentence])
        least += alone.rows
    assert state.rows <= 1.1 * least
    assert state.rows < 0.8 * state.steps * 32 * beam
