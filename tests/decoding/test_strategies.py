"""Sampling, no-repeat and prefix on hand-made scores."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from nmt.decoding.engine import Hypothesis
from nmt.decoding.logits_processors import NoRepeat, Prefix
from nmt.decoding.search import Beams
from nmt.decoding.strategies import Sampling, uniform
from tests.decoding.exhaustive import EOS, Scores, outputs, random_scores, search
from tests.decoding.exhaustive import Prefix as Ids


def sample(
    scores: Scores,
    sentences: int,
    draws: int,
    limit: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    ids: list[tuple[int, ...]] | None = None,
) -> list[list[Hypothesis]]:
    ids = ids or [(row, 0) for row in range(sentences)]
    strategy = Sampling(uniform(7, ids, draws, limit), temperature, top_k, top_p)
    rows, limits = [one[0] for one in ids], [limit] * len(ids)
    others = {"sentences": rows, "strategy": strategy, "independent": True}
    return search(scores, draws, limits, 0.0, draws, **others)[0]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_samples_have_the_frequencies_of_the_softmax(temperature):
    """The frequency of each output is within four standard errors of its probability."""
    scores, draws = random_scores(20, types=5, spread=1.0), 4000
    counts = Counter(
        (tuple(f.ids), f.finished) for f in sample(scores, 1, draws, 2, temperature)[0]
    )

    def probability(prefix: Ids, token: int) -> float:
        banned = [0, 1] if prefix else [0, 1, EOS]
        row = np.exp(scores(0, prefix) / temperature)
        row[banned] = 0.0
        return float(row[token] / row.sum())

    for ids, log_prob, _, finished in outputs(scores, 0, 2, 0.0, [0, 1]):
        first, second = ids[0], EOS if finished else ids[1]
        p = probability((), first) * probability((first,), second)
        error = (p * (1 - p) / draws) ** 0.5
        assert abs(counts[ids, finished] / draws - p) < 4 * error, (ids, log_prob)
    assert sum(counts.values()) == draws


def test_a_sample_has_the_models_own_log_probability():
    """Before temperature and truncation."""
    scores = random_scores(21)
    expected = {(o[0], o[3]): o[1] for o in outputs(scores, 0, 3, 0.0, [0, 1])}
    for f in sample(scores, 1, 50, 3, temperature=1.7, top_k=2, top_p=0.9)[0]:
        assert f.log_prob == pytest.approx(expected[tuple(f.ids), f.finished], rel=1e-5)


def kept(probs: list[float], top_k: int | None, top_p: float | None) -> list[bool]:
    strategy = Sampling(torch.zeros(1, 1, 1), 1.0, top_k, top_p)
    return (strategy.probabilities(torch.tensor([[probs]]).log())[0, 0] > 0).tolist()


def test_top_k_and_top_p_keep_the_most_likely_tokens():
    probs = [0.1, 0.4, 0.2, 0.3]
    assert kept(probs, None, None) == [True] * 4
    assert kept(probs, 1, None) == [False, True, False, False]
    assert kept(probs, 3, None) == [False, True, True, True]
    assert kept(probs, 9, None) == [True] * 4
    assert kept(probs, None, 0.39) == [False, True, False, False]
    assert kept(probs, None, 0.41) == [False, True, False, True]
    assert kept(probs, None, 0.75) == [False, True, True, True]
    assert kept(probs, None, 1.0) == [True] * 4
    # p applies to the tokens that k keeps: 0.4 / 0.7 = 0.57
    assert kept(probs, 2, 0.55) == [False, True, False, False]
    assert kept(probs, 2, 0.6) == [False, True, False, True]
    # of equal ones, the first
    assert kept([0.25] * 4, None, 0.5) == [True, True, False, False]


def test_a_token_of_probability_zero_is_never_drawn():
    """For any random number, including 0 and nearly 1."""
    logits = torch.tensor([[[-torch.inf, 1.0, -torch.inf, 2.0, -torch.inf]]])
    for number in (0.0, 1.0 - 2**-53, 1.0 - 2**-24):
        beams = Beams(
            torch.empty(1, 1, 0, dtype=torch.int64),
            torch.zeros(1, 1),
            torch.zeros(1, 1),
            torch.zeros(1, 1, dtype=torch.bool),
            torch.zeros(1, dtype=torch.int64),
        )
        strategy = Sampling(torch.full((1, 1, 1), number, dtype=torch.float64), 1.0, None, None)
        drawn, _ = strategy(beams, logits, logits.logsumexp(-1, keepdim=True), float)
        assert int(drawn.ids) in (1, 3)


def test_a_draw_depends_only_on_sentence_and_draw():
    scores = random_scores(22, types=9)
    every = sample(scores, 6, 5, 8)
    assert len({tuple(f.ids) for f in every[0]}) > 1
    for row in (4, 0):
        assert sample(scores, 1, 5, 8, ids=[(row, 0)])[0] == every[row]
    fewer = sample(scores, 6, 2, 8)
    assert fewer == [of_sentence[:2] for of_sentence in every]
    reversed_order = sample(scores, 6, 5, 8, ids=[(row, 0) for row in range(5, -1, -1)])
    assert reversed_order[::-1] == every


# ---------------------------------------------------------------- logits processors


def repeats(ids: Ids, n: int) -> bool:
    grams = [ids[i : i + n] for i in range(len(ids) - n + 1)]
    return len(set(grams)) < len(grams)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_no_repeat_finds_every_output_without_a_repeat(n):
    scores = random_scores(50)
    (found,), _ = search(scores, 400, [5], n_best=400, processors=[NoRepeat(n)])
    expected = [o for o in outputs(scores, 0, 5, 0.6, [0, 1]) if not repeats(o[0], n)]
    assert [(tuple(f.ids), f.finished) for f in found] == [(o[0], o[3]) for o in expected]
    assert found
    np.testing.assert_allclose([f.score for f in found], [o[2] for o in expected], rtol=1e-5)


def test_a_prefix_is_produced_and_scored_even_if_it_is_forbidden():
    """And its last word is not continued."""
    scores, prefixes = random_scores(51), [(3, 1, 3), (), (4,)]
    continues = [token == 3 for token in range(5)]
    forced = Prefix(prefixes, torch.device("cpu"), [False, False, True], continues)
    found, _ = search(scores, 200, [5] * 3, n_best=200, processors=[forced])
    for sentence, (prefix, of_sentence) in enumerate(zip(prefixes, found, strict=True)):
        allowed = outputs(scores, sentence, 5, 0.6, [0])
        expected = [
            o
            for o in allowed
            if o[0][: len(prefix)] == prefix
            and 1 not in o[0][len(prefix) :]
            and not (sentence == 2 and o[0][1:2] == (3,))
        ][:200]
        assert [(tuple(f.ids), f.finished) for f in of_sentence] == [(o[0], o[3]) for o in expected]
        np.testing.assert_allclose(
            [f.log_prob for f in of_sentence], [o[1] for o in expected], rtol=1e-5
        )
