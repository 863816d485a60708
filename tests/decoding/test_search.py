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
    next_tokens,
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


def test_a_beam_of_one_is_greedy_search():
    scores, limit = random_scores(2), 8
    found, _ = search(scores, 1, [limit] * 20)
    for sentence, of_sentence in enumerate(found):
        prefix: Prefix = ()
        while len(prefix) < limit:
            token, _ = max(
                next_tokens(scores, sentence, prefix, FORBIDDEN), key=lambda pair: pair[1]
            )
            if token == EOS:
                break
            prefix = (*prefix, token)
        assert tuple(of_sentence[0].ids) == prefix
        assert of_sentence[0].finished == (len(prefix) < limit)


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5])
@pytest.mark.parametrize(("beam", "n_best"), [(1, 1), (2, 1), (3, 3), (4, 2), (5, 1)])
def test_the_early_stop_changes_no_result(alpha, beam, n_best):
    scores = random_scores(3, types=7)
    limits = np.random.default_rng(4).integers(1, 12, size=40).tolist()
    found, _ = search(scores, beam, limits, alpha, n_best)
    for sentence, (limit, of_sentence) in enumerate(zip(limits, found, strict=True)):
        expected = slow_beam_search(scores, sentence, beam, limit, alpha, FORBIDDEN)
        assert_same(of_sentence, expected[:n_best])


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5])
@pytest.mark.parametrize(("beam", "n_best"), [(1, 1), (2, 1), (3, 3), (4, 2), (5, 1), (30, 30)])
def test_the_search_ends_when_as_many_hypotheses_as_beams_have_finished(alpha, beam, n_best):
    scores = random_scores(3, types=7)
    limits = np.random.default_rng(4).integers(1, 12, size=40).tolist()
    found, _ = search(scores, beam, limits, alpha, n_best, stop_rule="count")
    for sentence, (limit, of_sentence) in enumerate(zip(limits, found, strict=True)):
        expected = slow_search_by_count(scores, sentence, beam, limit, alpha, FORBIDDEN)
        assert_same(of_sentence, expected[:n_best])


def test_by_count_a_beam_ends_although_another_could_become_better():
    """After one piece, two hypotheses have ended; the third gets better with each piece."""

    def scores(sentence: int, prefix: Prefix) -> np.ndarray:
        first = [0.0, 0.0, 0.0, 3.0, 2.9, 2.8]
        if not prefix:
            return np.array(first)
        return np.array([0.0, 0.0, -9.0 if prefix[0] == 5 else 19.0, 0.0, 0.0, 9.0])

    by_bound, _ = search(scores, 3, [30], alpha=2.0)
    assert by_bound[0][0].ids[0] == 5
    by_count, state = search(scores, 2, [30], alpha=2.0, stop_rule="count")
    assert by_count[0][0].ids == [3]
    assert state.steps == 2


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


def test_a_high_penalty_prefers_the_longer_output():
    """Log-probabilities -1 at length 2 and -1.1 at length 4: the ratio of penalties decides."""

    def scores(sentence: int, prefix: Prefix) -> np.ndarray:
        probs = {
            (): {3: np.exp(-1.0), 4: 1 - np.exp(-1.0)},
            (3,): {EOS: 1.0},
            (4,): {4: np.exp(-1.1) / (1 - np.exp(-1.0)), 0: 1.0},
            (4, 4): {4: 1.0},
            (4, 4, 4): {EOS: 1.0},
        }.get(prefix, {0: 1.0})
        row = np.full(5, -60.0)
        for token, p in probs.items():
            row[token] = np.log(p)
        if prefix == (4,):
            row[0] = np.log(1 - np.exp(row[4]))
        return row

    short, _ = search(scores, 2, [6], alpha=0.0)
    long, _ = search(scores, 2, [6], alpha=1.0)
    assert (short[0][0].ids, long[0][0].ids) == ([3], [4, 4, 4])
    assert short[0][0].log_prob == pytest.approx(-1.0, abs=1e-5)
    assert long[0][0].score == pytest.approx(-1.1 / 1.5, abs=1e-5)


def test_a_finished_hypothesis_keeps_its_place_and_its_score():
    """Token 3 ends with probability 0.4; token 4 has 0.6 and is repeated with probability 1."""

    def scores(sentence: int, prefix: Prefix) -> np.ndarray:
        row = np.full(5, -60.0)
        if not prefix:
            row[3:] = np.log([0.4, 0.6])
        else:
            row[EOS if prefix == (3,) else 4] = 0.0
        return row

    for limit in (2, 3, 9):
        found, _ = search(scores, 2, [limit], alpha=0.6, n_best=2)
        ((running, other),) = found
        assert (running.ids, running.finished) == ([4] * limit, False)
        assert running.score == pytest.approx(np.log(0.6) / ((5 + limit) / 6) ** 0.6)
        assert (other.ids, other.finished) == ([3], True)
        assert other.log_prob == pytest.approx(np.log(0.4))
        assert other.score == pytest.approx(np.log(0.4) / (7 / 6) ** 0.6)


# ---------------------------------------------------------------- limits


def test_eos_is_never_first():
    found, _ = search(ending_after([0] * 4), 3, [1, 2, 5, 5], n_best=3)
    assert all(f.ids for of_sentence in found for f in of_sentence)
    assert [of_sentence[0].finished for of_sentence in found] == [False, True, True, True]


def test_outputs_at_the_length_limit_are_not_finished():
    limits = [1, 2, 5, 9]
    found, state = search(ending_after([99] * 4), 3, limits, n_best=3)
    for limit, of_sentence in zip(limits, found, strict=True):
        assert all(len(f.ids) == limit and not f.finished for f in of_sentence)
    assert state.steps == 9
    # the limit includes EOS
    ended, _ = search(ending_after([4, 4]), 2, [4, 5])
    assert [(len(f[0].ids), f[0].finished) for f in ended] == [(4, False), (4, True)]


def test_forbidden_tokens_are_not_produced_and_others_are_not_rescaled():
    """Even very likely ones; the other probabilities are not rescaled to sum to 1."""

    def scores(sentence: int, prefix: Prefix) -> np.ndarray:
        row = random_scores(8)(sentence, prefix)
        row[[0, 1, 3]] += 20.0
        return row

    found, _ = search(scores, 4, [6] * 8, n_best=4, forbidden=[0, 1, 3])
    for sentence, of_sentence in enumerate(found):
        assert of_sentence
        assert all(set(f.ids) <= {4} for f in of_sentence)
        assert_same(of_sentence, slow_beam_search(scores, sentence, 4, 6, 0.6, [0, 1, 3])[:4])
        assert of_sentence[0].log_prob < -15.0


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


def test_n_best_are_the_first_of_the_beam_in_order():
    scores = random_scores(11, types=9)
    every, _ = search(scores, 6, [9] * 12, n_best=6)
    for n_best in (1, 2, 5):
        some, _ = search(scores, 6, [9] * 12, n_best=n_best)
        assert some == [of_sentence[:n_best] for of_sentence in every]
    for of_sentence in every:
        assert len({(tuple(f.ids), f.finished) for f in of_sentence}) == 6
        ranks = [f.score for f in of_sentence]
        assert ranks == sorted(ranks, reverse=True)


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
