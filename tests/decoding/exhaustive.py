"""Hand-made scores, all possible outputs, and a slow beam search, to compare with.

Only ``search`` runs code of nmt.decoding. A model is a function from (sentence, prefix) to
log-probabilities of the next token, a hypothesis is a tuple of tokens, and sums are computed in
double precision, one sentence at a time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nmt.decoding.engine import Hypothesis
from nmt.decoding.options import SearchOptions
from nmt.decoding.search import beam_search

EOS = 2
Prefix = tuple[int, ...]
Scores = Callable[[int, Prefix], np.ndarray]  # (sentence, prefix) -> logits [V]
Output = tuple[Prefix, float, float, bool]  # tokens without EOS, log_prob, score, finished


def random_scores(seed: int, types: int = 5, spread: float = 2.0) -> Scores:
    """Return logits that differ for each sentence and prefix, and are equal at each call."""

    @functools.cache
    def logits(sentence: int, prefix: Prefix) -> np.ndarray:
        return spread * np.random.default_rng([seed, sentence, *prefix]).standard_normal(types)

    return logits


def ending_after(lengths: Sequence[int], types: int = 5) -> Scores:
    """Return logits with which each sentence ends after exactly ``lengths`` tokens."""

    def logits(sentence: int, prefix: Prefix) -> np.ndarray:
        row = np.linspace(0.0, 1.0, types)
        row[EOS] = 30.0 if len(prefix) >= lengths[sentence] else -30.0
        return row

    return logits


def penalty(length: int, alpha: float) -> float:
    return ((5 + length) / 6) ** alpha


def next_tokens(
    scores: Scores, sentence: int, prefix: Prefix, forbidden: Sequence[int]
) -> list[tuple[int, float]]:
    """Return (token, log-probability) of all tokens that may follow."""
    logits = scores(sentence, prefix)
    log_probs = logits - np.logaddexp.reduce(logits)
    banned = {*forbidden, EOS} if not prefix else set(forbidden)
    return [(token, float(p)) for token, p in enumerate(log_probs) if token not in banned]


def outputs(
    scores: Scores, sentence: int, max_len: int, alpha: float, forbidden: Sequence[int]
) -> list[Output]:
    """Return all outputs of one sentence, finished or cut at the limit, best first."""

    def grow(prefix: Prefix, log_prob: float) -> Iterator[Output]:
        length = len(prefix) + 1
        for token, p in next_tokens(scores, sentence, prefix, forbidden):
            total = log_prob + p
            if token == EOS:
                yield prefix, total, total / penalty(length, alpha), True
            elif length == max_len:
                yield (*prefix, token), total, total / penalty(length, alpha), False
            else:
                yield from grow((*prefix, token), total)

    return sorted(grow((), 0.0), key=lambda output: -output[2])


def slow_beam_search(
    scores: Scores, sentence: int, beam: int, max_len: int, alpha: float, forbidden: Sequence[int]
) -> list[Output]:
    """Beam search without early stop: until all beams are finished, or the length limit."""
    beams: list[Output] = [((), 0.0, 0.0, False)]
    for length in range(1, max_len + 1):
        candidates: list[Output] = []
        for ids, log_prob, score, finished in beams:
            if finished:
                candidates.append((ids, log_prob, score, True))
                continue
            for token, p in next_tokens(scores, sentence, ids, forbidden):
                total = log_prob + p
                longer = ids if token == EOS else (*ids, token)
                candidates.append((longer, total, total / penalty(length, alpha), token == EOS))
        beams = sorted(candidates, key=lambda output: -output[2])[:beam]
        if all(finished for *_, finished in beams):
            break
    return beams


def slow_search_by_count(
    scores: Scores, sentence: int, beam: int, max_len: int, alpha: float, forbidden: Sequence[int]
) -> list[Output]:
    """Beam search that ends when ``beam`` hypotheses have finished, or at the length limit."""
    running: list[tuple[Prefix, float]] = [((), 0.0)]
    finished: list[Output] = []
    for length in range(1, max_len + 1):
        candidates = [
            (ids if token == EOS else (*ids, token), log_prob + p, token == EOS)
            for ids, log_prob in running
            for token, p in next_tokens(scores, sentence, ids, forbidden)
        ]
        candidates.sort(key=lambda candidate: -candidate[1])
        finished += [
            (ids, log_prob, log_prob / penalty(length, alpha), ended)
            for ids, log_prob, ended in candidates[:beam]
            if ended or length == max_len
        ]
        running = [(ids, log_prob) for ids, log_prob, ended in candidates if not ended][:beam]
        if len(finished) >= beam:
            break
    return sorted(finished, key=lambda output: -output[2])


class StubState:
    """A decoding state over hand-made scores that counts its calls.

    Attributes:
        steps: number of calls of ``advance``.
        rows: number of hypotheses in all calls.
    """

    def __init__(self, scores: Scores, sentences: Sequence[int], beam: int) -> None:
        self.scores = scores
        self.sentences = list(sentences)
        self.prefixes: list[list[Prefix]] = [[()] * beam for _ in sentences]
        self.steps = self.rows = 0

    def advance(self, tokens: Tensor) -> Tensor:
        assert tokens.shape == (len(self.sentences), len(self.prefixes[0]))
        self.steps += 1
        self.rows += tokens.numel()
        if self.steps > 1:
            self.prefixes = [
                [(*prefix, token) for prefix, token in zip(prefixes, row, strict=True)]
                for prefixes, row in zip(self.prefixes, tokens.tolist(), strict=True)
            ]
        scores = [
            self.scores(sentence, prefix)
            for sentence, prefixes in zip(self.sentences, self.prefixes, strict=True)
            for prefix in prefixes
        ]
        return torch.tensor(np.stack(scores), dtype=torch.float32)

    def select(self, parents: Tensor) -> None:
        self.prefixes = [
            [prefixes[parent] for parent in row]
            for prefixes, row in zip(self.prefixes, parents.tolist(), strict=True)
        ]

    def keep(self, sentences: Tensor) -> None:
        self.sentences = [self.sentences[row] for row in sentences.tolist()]
        self.prefixes = [self.prefixes[row] for row in sentences.tolist()]


def search(
    scores: Scores,
    beam: int,
    max_len: Sequence[int],
    alpha: float = 0.6,
    n_best: int = 1,
    forbidden: Sequence[int] = (0, 1),
    sentences: Sequence[int] | None = None,
    **others: Any,
) -> tuple[list[list[Hypothesis]], StubState]:
    """Run ``beam_search``; PAD and BOS are forbidden, UNK (3) is not, for more outputs."""
    state = StubState(scores, range(len(max_len)) if sentences is None else sentences, beam)
    limits, banned = torch.tensor(max_len), torch.tensor(forbidden)
    penalty = SearchOptions(length_alpha=alpha).penalty
    return beam_search(state, beam, limits, penalty, banned, n_best, **others), state
