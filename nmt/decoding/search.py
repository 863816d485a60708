"""Beam search over any decoder state, independent of the model (Vaswani et al. 2017, 6.1).

Legend: B sentences still searched, K beams, V types (vocabulary entries), A of them that logits
have columns for, T positions so far, C candidates of a beam.

The score of a hypothesis is its log-probability / length penalty (``SearchOptions.penalty``), which
grows with the number of its tokens, EOS included. EOS is forbidden at the first position. Equal
scores are ordered by beam, so the order does not depend on the batch. The search of a sentence is
done at the length limit, or by one of two rules:

- bound (the code of Nguyen & Salazar 2019): a finished hypothesis keeps its place in the beam and
  its score. The search is done when no unfinished hypothesis can enter the n best, or when all
  beams are finished.
- count (fairseq, CTranslate2): a finished hypothesis leaves the beam, and the next best unfinished
  one takes its place. The search is done when K hypotheses have finished.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from nmt.data.vocab import BOS, EOS
from nmt.decoding.engine import Hypothesis, NonFiniteScores, Penalty, Stop, ignore

COMPACT_AT = 16  # sentences that are done leave the batch when they are 1 in this many


class State(Protocol):
    """What search needs of a model: nmt.model.incremental.DecodeState, or a stub in tests."""

    def advance(self, tokens: Tensor) -> Tensor:
        """Take the tokens of this position [B, K]; return logits of the next [B * K, A].

        The caller may overwrite the logits.
        """

    def select(self, parents: Tensor) -> None:
        """Replace each beam by the one that it continues: parents [B, K] int64."""

    def keep(self, sentences: Tensor) -> None:
        """Drop all sentences but these, [B'] int64."""


@dataclass
class Beams:
    """The hypotheses of the sentences still searched, in the order of their scores.

    ``nmt.decoding.strategies`` has other orders.

    Attributes:
        ids: [B, K, T] int64.
        log_prob, score: [B, K].
        finished: [B, K] bool, whether they ended with EOS.
        sentence: [B] int64, index in the batch as it began.
    """

    ids: Tensor
    log_prob: Tensor
    score: Tensor
    finished: Tensor
    sentence: Tensor

    def of_sentences(self, which: Tensor) -> Beams:
        """Keep some sentences, by index or mask."""
        return Beams(*(getattr(self, name)[which] for name in self.__dataclass_fields__))

    def of_columns(self, columns: slice) -> Beams:
        """Keep some of the K beams of each sentence."""
        return self._map(lambda tensor: tensor[:, columns])

    def in_order(self, order: Tensor) -> Beams:
        """Take the beams at these indices of each sentence: order [B, columns] int64."""
        rows = torch.arange(len(order), device=order.device)[:, None]
        return self._map(lambda tensor: tensor[rows, order])

    def _map(self, change: Callable[[Tensor], Tensor]) -> Beams:
        return Beams(
            change(self.ids),
            change(self.log_prob),
            change(self.score),
            change(self.finished),
            self.sentence,
        )


class LogitsProcessor(Protocol):
    """Decides which tokens may follow. A function of the beams, so it has no state to reorder."""

    def __call__(self, beams: Beams, logits: Tensor, allowed: Tensor) -> Tensor:
        """Return the allowed logits [B, K, V], with -inf for tokens that may not follow.

        Args:
            logits: [B, K, V], of the model; not to be changed.
            allowed: what the processors before this one allow; may be changed in place.
        """


class SelectionStrategy(Protocol):
    """Selects the continuations of each sentence, where these are not the K best."""

    def __call__(
        self, beams: Beams, logits: Tensor, log_sum_exp: Tensor, penalty: Penalty
    ) -> tuple[Beams, Tensor]:
        """Return the K continuations of each sentence, and the beams they continue [B, K].

        Args:
            logits: [B, K, V], -inf where a token is not allowed.
            log_sum_exp: [B, K, 1], of all logits.
            penalty: of a length.
        """


@torch.no_grad()
def beam_search(
    state: State,
    beam: int,
    max_len: Tensor,
    penalty: Penalty,
    forbidden: Tensor,
    n_best: int = 1,
    processors: Sequence[LogitsProcessor] = (),
    strategy: SelectionStrategy | None = None,
    independent: bool = False,
    types: Tensor | None = None,
    stop: Stop = ignore,
    stop_rule: Literal["bound", "count"] = "bound",
    start: Sequence[int] = (BOS,),
) -> list[list[Hypothesis]]:
    """Return the ``n_best`` highest-scoring hypotheses of each sentence, best first.

    Args:
        state: at the first position.
        beam: K; 1 = greedy.
        max_len: [B] int64, the most tokens of each output, including EOS.
        penalty: of a length, EOS included.
        forbidden: [F] ids that are never produced.
        n_best: at most ``beam``.
        processors: further constraints, in order; a later one can allow tokens that an earlier one
            forbids.
        strategy: selects continuations; None = the K best.
        independent: all beams start, because ``strategy`` never lets one displace another.
        types: [A] ids of the columns of the state's logits, in order; None = all. Processors and
            strategies need all.
        stop: called before each position.
        stop_rule: ends the search of a sentence; with a strategy it is always bound.
        start: tokens that the decoder reads before the first one of each output, at least one. They
            are no part of a hypothesis, its length or its score.

    Raises:
        NonFiniteScores: the logits of a searched hypothesis hold NaN or infinity; with the index of
            its sentence.
    """
    needs_all_types = bool(processors) or strategy is not None
    assert not (needs_all_types and types is not None)
    by_count = stop_rule == "count" and strategy is None
    batch, device = len(max_len), max_len.device
    first = torch.full((batch, beam), -torch.inf, device=device)
    first[:, : beam if independent else 1] = 0.0  # beams start equal: one is enough for a search
    beams = Beams(
        ids=torch.empty(batch, beam, 0, dtype=torch.int64, device=device),
        log_prob=first,
        score=first,
        finished=torch.zeros(batch, beam, dtype=torch.bool, device=device),
        sentence=torch.arange(batch, device=device),
    )
    longest_penalty = penalty(max_len)
    results: list[list[Hypothesis]] = [[] for _ in range(batch)]
    done = torch.zeros(batch, dtype=torch.bool, device=device)
    not_finite = torch.zeros(batch, dtype=torch.bool, device=device)
    ended_count = torch.zeros(batch, dtype=torch.int64, device=device)  # for the rule "count"
    tokens = torch.full((batch, beam), start[0], dtype=torch.int64, device=device)
    first_beam = (torch.arange(beam, device=device) == 0).expand(batch, beam)
    for token in start[1:]:
        state.advance(tokens)
        tokens = torch.full_like(tokens, token)
    forbidden_columns = _logit_columns(forbidden, types)
    with_eos = torch.cat([forbidden, forbidden.new_tensor([EOS])])
    forbidden_at_start = _logit_columns(with_eos, types)
    while True:
        stop()
        at_start = beams.ids.shape[-1] == 0
        # all beams are equal at the first position; continuations of finished ones are not used
        needed = (first_beam if at_start else ~beams.finished) & ~done[:, None]
        logits = state.advance(tokens).float().view(*tokens.shape, -1)
        # before tokens are forbidden: log-probabilities stay those of the model
        log_sum_exp = logits.logsumexp(-1, keepdim=True)
        not_finite[beams.sentence] |= (~log_sum_exp.isfinite()[..., 0] & needed).any(1)
        # a processor may read the original logits; a plain search saves the time of a copy
        fill = logits.index_fill if processors else logits.index_fill_
        allowed = fill(-1, forbidden_at_start if at_start else forbidden_columns, -torch.inf)
        for processor in processors:
            allowed = processor(beams, logits, allowed)
        if strategy is None:
            # a beam has one continuation that ends, so at least K of 2K go on
            width = 2 * beam if by_count else beam
            beams, parents = beam_step(beams, allowed, log_sum_exp, penalty, types, width)
        else:
            beams, parents = strategy(beams, allowed, log_sum_exp, penalty)
        length = beams.ids.shape[-1]
        done_now = length >= max_len[beams.sentence]
        if by_count:
            best, beams, parents = _split_ended(beams, parents, beam, done_now)
            ended = (best.score > -torch.inf) & ~done[:, None]  # _collect skips others too
            ended_count[beams.sentence] += ended.sum(1)
            if bool(ended.any()):
                _collect(best.of_sentences(ended.any(1)), beam, results)
            no_beams = beams.log_prob.isneginf().all(1)
            done_now = done_now | (ended_count[beams.sentence] >= beam) | no_beams
        else:
            done_now = done_now | _can_stop(beams, longest_penalty[beams.sentence], n_best)
        newly_done = done_now & ~done
        done = done | done_now
        state.select(parents)
        if bool(newly_done.any()):
            if bool(not_finite.any()):  # checked here, where a GPU synchronizes anyway
                raise NonFiniteScores(int(not_finite.nonzero()[0]))
            if not by_count:
                _collect(beams.of_sentences(newly_done), n_best, results)
            count = int(done.sum())
            if count == len(done):
                return [ranked(h, n_best) for h in results] if by_count else results
            if count * COMPACT_AT >= len(done):
                remaining = (~done).nonzero()[:, 0]
                state.keep(remaining)
                beams, done = beams.of_sentences(remaining), done[remaining]
        tokens = beams.ids[:, :, -1]


def beam_step(
    beams: Beams,
    logits: Tensor,
    log_sum_exp: Tensor,
    penalty: Penalty,
    types: Tensor | None = None,
    width: int | None = None,
) -> tuple[Beams, Tensor]:
    """Return the continuations with the highest score, and the beams they continue [B, width].

    Args:
        logits: [B, K, A].
        types: [A], the ids of the columns; None = all.
        width: how many continuations of a sentence; None = K.
    """
    width = width or beams.log_prob.shape[1]
    # the ``width`` best continuations of all beams are among the ``width`` best of each
    highest, token = logits.topk(min(width, logits.shape[-1]))
    if types is not None:
        token = types[token]
    log_prob = beams.log_prob[..., None] + (highest - log_sum_exp)
    return expand_beams(beams, token, log_prob, penalty, width=width)


def expand_beams(
    beams: Beams,
    token: Tensor,
    log_prob: Tensor,
    penalty: Penalty,
    select: Callable[[Tensor, Tensor], Tensor] | None = None,
    width: int | None = None,
) -> tuple[Beams, Tensor]:
    """Return some of the given continuations of each sentence, and the beams they continue.

    Args:
        token: [B, K, C], C continuations of each beam, the best first.
        log_prob: [B, K, C], of the continued hypotheses; -inf for no continuation.
        select: takes the scores in descending order [B, K * C] and the index of each continuation;
            returns positions in that order. None = the first ones.
        width: how many of them; None = K.
    """
    width, length = width or beams.ids.shape[1], beams.ids.shape[-1] + 1
    score = log_prob / penalty(length)
    # a finished hypothesis continues as itself, once
    finished = beams.finished[..., None]
    once = torch.arange(token.shape[-1], device=token.device) == 0
    token = token.masked_fill(finished, EOS)
    log_prob = torch.where(finished, beams.log_prob[..., None], log_prob)
    score = torch.where(finished, beams.score[..., None], score)
    score = score.masked_fill(finished & ~once, -torch.inf)
    # a stable sort: equal scores keep the order of their beams
    score, order = score.flatten(1).sort(dim=-1, descending=True, stable=True)
    if select is not None:
        selected = select(score, order)
        score, order = score.gather(1, selected), order.gather(1, selected)
    score, order = score[:, :width], order[:, :width]
    parents = order // token.shape[-1]
    token = token.flatten(1).gather(1, order)
    ids = beams.ids.gather(1, parents[..., None].expand(-1, -1, length - 1))
    expanded = Beams(
        ids=torch.cat([ids, token[..., None]], dim=-1),
        log_prob=log_prob.flatten(1).gather(1, order),
        score=score,
        finished=token == EOS,
        sentence=beams.sentence,
    )
    return expanded, parents


def _can_stop(beams: Beams, longest_penalty: Tensor, n_best: int) -> Tensor:
    """Return [B] bool: whether no unfinished hypothesis can still enter the n best.

    Log-probabilities only fall, and the longest output has the largest penalty. So
    log_prob / longest_penalty is an upper bound of the final score of a hypothesis.
    """
    bound = (beams.log_prob / longest_penalty[:, None]).masked_fill(beams.finished, -torch.inf)
    highest = bound.amax(1, keepdim=True)
    safe = (beams.finished & (beams.score > highest)).sum(1) >= n_best
    return safe | (beams.finished | beams.log_prob.isneginf()).all(1)


def _split_ended(
    beams: Beams, parents: Tensor, beam: int, at_limit: Tensor
) -> tuple[Beams, Beams, Tensor]:
    """Return the K best continuations, the K best running ones, and the beams these continue.

    Running ones among the K best get the score -inf, except at the length limit.

    Args:
        beams, parents: [B, 2K], continuations in the order of their scores.
        at_limit: [B] bool.
    """
    best = beams.of_columns(slice(beam))
    ended = best.finished | at_limit[:, None]
    best.score = best.score.masked_fill(~ended, -torch.inf)
    order = beams.finished.sort(dim=1, stable=True).indices[:, :beam]
    running = beams.in_order(order)
    # with few types, there can be fewer than K
    running.log_prob = running.log_prob.masked_fill(running.finished, -torch.inf)
    running.finished = torch.zeros_like(running.finished)
    return best, running, parents.gather(1, order)


def _collect(beams: Beams, n_best: int, results: list[list[Hypothesis]]) -> None:
    tensors = (beams.sentence, beams.ids, beams.log_prob, beams.score, beams.finished)
    for sentence, *values in zip(*(tensor.tolist() for tensor in tensors), strict=True):
        for ids, log_prob, score, finished in list(zip(*values, strict=True))[:n_best]:
            if score > -torch.inf:
                without_eos = ids[: ids.index(EOS)] if finished else ids
                results[sentence].append(Hypothesis(without_eos, log_prob, score, finished))


def ranked(hypotheses: list[Hypothesis], count: int) -> list[Hypothesis]:
    """Return the hypotheses with the highest score, best first."""
    return sorted(hypotheses, key=lambda h: -h.score)[:count]


def _logit_columns(ids: Tensor, types: Tensor | None) -> Tensor:
    """Return the columns of the logits that stand for some ids [F], where these have a column."""
    return ids if types is None else torch.isin(types, ids).nonzero()[:, 0]
