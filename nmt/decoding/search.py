"""Beam search over any state that advances: it knows nothing of the model (V 6.1; W; A's code).

Legend: B sentences still searched, K beams, R rows of B * K that are computed, V types, A of them
that logits have columns for, T positions so far, C candidates of a beam.

The score of a hypothesis is its log-probability / ((5 + n) / 6)^alpha, n tokens incl. EOS
(W equation 14). EOS is forbidden at the first position; a finished hypothesis keeps its place in
the beam with its score frozen; a sentence ends when all its beams ended, when the length limit is
reached, or when no unfinished hypothesis can enter the n best any more, which changes no result.
Equal scores are ordered by beam, so the order does not depend on the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from nmt.data.vocab import BOS, EOS
from nmt.decoding.found import Hypothesis, NonFiniteScores, length_penalty
from nmt.model.cpu import kernels
from nmt.model.cpu.active_rows import ALL_ROWS, ActiveRows

COMPACT_AT = 16  # finished sentences leave the batch when they are 1 in this many


class State(Protocol):
    """What search needs of a model: nmt.model.incremental.DecodeState, or a stub in tests."""

    def advance(self, tokens: Tensor, rows: ActiveRows) -> Tensor:
        """Tokens of this position [B, K] -> logits of the next [R, A], to overwrite.

        For a plain search they may have more columns, of -inf.
        """

    def select(self, parents: Tensor) -> None:
        """The beam that each new beam continues, [B, K]."""

    def keep(self, sentences: Tensor) -> None:
        """Drop all sentences but these, [B']."""


@dataclass
class Beams:
    """The hypotheses of the sentences still searched, best first.

    Attributes:
        ids: [B, K, T]; log_prob, score, ended: [B, K]; sentence: [B], place in the input.
    """

    ids: Tensor
    log_prob: Tensor
    score: Tensor
    ended: Tensor
    sentence: Tensor

    def rows(self, which: Tensor) -> Beams:
        """The beams of some sentences, by index or mask."""
        return Beams(*(getattr(self, name)[which] for name in self.__dataclass_fields__))


# (beams, logits [B, K, V], the same with -inf where a token is not allowed) -> fewer or others
# allowed; a function of what the beams hold, so rules need no state that follows the beams
Rule = Callable[[Beams, Tensor, Tensor], Tensor]
# (beams, allowed logits [B, K, V], log-sum-exp of all [B, K, 1], alpha) -> the K continuations
# of each sentence, and the beams they continue [B, K]
Choose = Callable[[Beams, Tensor, Tensor, float], tuple[Beams, Tensor]]


def beam_step(
    beams: Beams,
    logits: Tensor,
    total: Tensor,
    alpha: float,
    rows: ActiveRows = ALL_ROWS,
    types: Tensor | None = None,
) -> tuple[Beams, Tensor]:
    """The K continuations with the highest score, from logits [B, K, V] or of some rows [R, A]."""
    # the K best of K beams are among the K best of each
    highest, token = kernels.top_k(logits, min(beams.log_prob.shape[1], logits.shape[-1]))
    token = token if types is None else types[token]
    token, log_prob = (
        rows.expand(x).view(*beams.log_prob.shape, -1) for x in (token, highest - total)
    )
    return expand_beams(beams, token, beams.log_prob[..., None] + log_prob, alpha)


@torch.no_grad()
def beam_search(
    state: State,
    beam: int,
    max_len: Tensor,
    alpha: float,
    forbidden: Tensor,
    n_best: int = 1,
    rules: Sequence[Rule] = (),
    choose: Choose | None = None,
    groups: int = 1,
    types: Tensor | None = None,
) -> list[list[Hypothesis]]:
    """The ``n_best`` highest-scoring hypotheses of each sentence, best first.

    Args:
        state: at the first position.
        beam: K; 1 = greedy.
        max_len: [B] int64, tokens incl. EOS that each output may have.
        alpha: exponent of the length penalty, 0 = none.
        forbidden: [F] ids that are never produced.
        n_best: at most ``beam``.
        rules: what else is not allowed, in order; a later rule has the last word.
        choose: how continuations are chosen, if not the K best.
        groups: beams that start apart: ``choose`` never lets a group displace another.
        types: [A] ids of the columns of the state's logits, in order; None = all. Rules and
            ``choose`` need all.

    Raises:
        NonFiniteScores: NaN or infinity among the logits of a hypothesis that is searched; with
            the place of the sentence.
    """
    whole = bool(rules) or choose is not None
    assert not (whole and types is not None)
    batch, device = len(max_len), max_len.device
    first = torch.full((batch, beam), -torch.inf, device=device)
    first[:, :: beam // groups] = 0.0  # the beams of a group start equal: one is enough
    beams = Beams(
        ids=torch.empty(batch, beam, 0, dtype=torch.int64, device=device),
        log_prob=first,
        score=first,
        ended=torch.zeros(batch, beam, dtype=torch.bool, device=device),
        sentence=torch.arange(batch, device=device),
    )
    longest_penalty = length_penalty(max_len, alpha)
    results: list[list[Hypothesis]] = [[] for _ in range(batch)]
    over = torch.zeros(batch, dtype=torch.bool, device=device)
    broken = torch.zeros(batch, dtype=torch.bool, device=device)
    tokens = torch.full((batch, beam), BOS, dtype=torch.int64, device=device)
    never = _columns(forbidden, types)
    at_first = torch.cat([never, _columns(forbidden.new_tensor([EOS]), types)])
    while True:
        begins = beams.ids.shape[-1] == 0
        # the beams of the first position are alike; what follows an end is never looked at
        needed = torch.arange(beam, device=device) == 0 if begins else ~beams.ended
        needed = needed & ~over[:, None]
        rows = ActiveRows.from_mask(needed)
        logits = state.advance(tokens, rows)
        if whole:
            logits, rows = rows.expand(logits.float()).unflatten(0, tokens.shape), ALL_ROWS
        total = kernels.log_sum_exp(logits)
        infinite = rows.expand(~total.isfinite()).view(tokens.shape)
        broken[beams.sentence] |= (infinite & needed).any(1)
        # a rule may ask for the logits as they were, and only then is a copy worth its time
        fill = logits.index_fill if rules else logits.index_fill_
        allowed = fill(-1, at_first if begins else never, -torch.inf)
        for rule in rules:
            allowed = rule(beams, logits, allowed)
        if choose is None:
            beams, parents = beam_step(beams, allowed, total, alpha, rows, types)
        else:
            beams, parents = choose(beams, allowed, total, alpha)
        length = beams.ids.shape[-1]
        limit, penalty = max_len[beams.sentence], longest_penalty[beams.sentence]  # type: ignore[index]
        now_over = (length >= limit) | _settled(beams, penalty, n_best)
        fresh = now_over & ~over
        over = over | now_over
        if bool(fresh.any()):
            if bool(broken.any()):  # asked here, as a GPU is waited for here anyway
                raise NonFiniteScores(int(broken.nonzero()[0]))
            _collect(beams.rows(fresh), n_best, results)
            count = int(over.sum())
            if count == len(over):
                return results
            if count * COMPACT_AT >= len(over):
                kept = (~over).nonzero()[:, 0]
                state.select(parents)
                state.keep(kept)
                beams, over = beams.rows(kept), over[kept]
                tokens = beams.ids[:, :, -1]
                continue
        state.select(parents)
        tokens = beams.ids[:, :, -1]


def _columns(ids: Tensor, types: Tensor | None) -> Tensor:
    """Where some ids [F] have their logits; those without a column are left out."""
    return ids if types is None else torch.isin(types, ids).nonzero()[:, 0]


def expand_beams(
    beams: Beams,
    token: Tensor,
    log_prob: Tensor,
    alpha: float,
    pick: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> tuple[Beams, Tensor]:
    """The K best of some continuations of each sentence, and the beams they continue [B, K].

    Args:
        token: [B, K, C], C continuations of each beam, the best first.
        log_prob: [B, K, C], of the hypotheses so continued; -inf where there is none.
        pick: (scores in order [B, K * C], which they are) -> K places in that order, instead of the
            first K.
    """
    beam, length = beams.ids.shape[1], beams.ids.shape[-1] + 1
    score = log_prob / length_penalty(length, alpha)
    # an ended hypothesis continues as itself, once
    ended = beams.ended[..., None]
    once = torch.arange(token.shape[-1], device=token.device) == 0
    token = token.masked_fill(ended, EOS)
    log_prob = torch.where(ended, beams.log_prob[..., None], log_prob)
    score = torch.where(ended, beams.score[..., None], score).masked_fill(ended & ~once, -torch.inf)
    # a stable sort: equal scores keep the order of their beams
    score, order = score.flatten(1).sort(dim=-1, descending=True, stable=True)
    if pick is not None:
        kept = pick(score, order)
        score, order = score.gather(1, kept), order.gather(1, kept)
    score, order = score[:, :beam], order[:, :beam]
    parents = order // token.shape[-1]
    token = token.flatten(1).gather(1, order)
    ids = beams.ids.gather(1, parents[..., None].expand(-1, -1, length - 1))
    extended = Beams(
        ids=torch.cat([ids, token[..., None]], dim=-1),
        log_prob=log_prob.flatten(1).gather(1, order),
        score=score,
        ended=token == EOS,
        sentence=beams.sentence,
    )
    return extended, parents


def _settled(beams: Beams, longest_penalty: Tensor, n_best: int) -> Tensor:
    """[B]: no unfinished hypothesis can still enter the n best.

    Log-probabilities only fall, and no penalty is larger than that of the longest output, so
    log_prob / longest_penalty bounds whatever a hypothesis can become.
    """
    bound = (beams.log_prob / longest_penalty[:, None]).masked_fill(beams.ended, -torch.inf)
    highest = bound.amax(1, keepdim=True)
    safe = (beams.ended & (beams.score > highest)).sum(1) >= n_best
    return safe | (beams.ended | beams.log_prob.isneginf()).all(1)


def _collect(beams: Beams, n_best: int, results: list[list[Hypothesis]]) -> None:
    columns = (beams.ids, beams.log_prob, beams.score, beams.ended)
    for sentence, *parts in zip(
        beams.sentence.tolist(), *(column.tolist() for column in columns), strict=True
    ):
        for ids, log_prob, score, ended in list(zip(*parts, strict=True))[:n_best]:
            if score > -torch.inf:
                text = ids[: ids.index(EOS)] if ended else ids
                results[sentence].append(Hypothesis(text, log_prob, score, ended))
