"""Selection strategies other than the K best: sampling.

To add one: a class with the ``SelectionStrategy`` protocol, a branch in ``selection_strategy``, and
its options in ``nmt.decoding.options``.

Legend: S sentences of the batch as it began, B those still searched, K beams, V types.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from nmt.data.vocab import EOS
from nmt.decoding.engine import Penalty, SearchInput
from nmt.decoding.options import SearchOptions
from nmt.decoding.search import Beams, SelectionStrategy


def selection_strategy(
    inputs: Sequence[SearchInput], options: SearchOptions, max_len: Tensor
) -> SelectionStrategy | None:
    """Choose the strategy that the options need; None = K best.

    Args:
        max_len: [S] int64, the most tokens of each output, including EOS.
    """
    if options.sample:
        ids = [(part.line, part.part) for part in inputs]
        numbers = uniform(options.seed, ids, options.wanted, int(max_len.max()))
        numbers = numbers.to(max_len.device)
        return Sampling(numbers, options.temperature, options.top_k, options.top_p)
    return None


def uniform(seed: int, ids: Sequence[tuple[int, ...]], draws: int, length: int) -> Tensor:
    """Draw random numbers in [0, 1), [S, draws, length] float64.

    Each is a function of seed, the sentence's id, draw and position. It does not depend on the
    batch or the number of draws.
    """
    numbers = np.empty((len(ids), draws, length))
    for row, sentence in enumerate(ids):
        for draw in range(draws):
            numbers[row, draw] = np.random.default_rng([seed, *sentence, draw]).random(length)
    return torch.from_numpy(numbers)


class Sampling:
    """Draws each beam independently from softmax(logits / temperature), truncated.

    ``top_k`` keeps the k most likely tokens (Fan et al. 2018), ``top_p`` the most likely ones whose
    probabilities reach p (nucleus sampling, Holtzman et al. 2020). With both, top-k comes first.
    log_prob is the model's own, before temperature and truncation.
    """

    def __init__(
        self, numbers: Tensor, temperature: float, top_k: int | None, top_p: float | None
    ) -> None:
        """``numbers``: [S, K, positions], of ``uniform``."""
        self.numbers, self.temperature = numbers, temperature
        self.top_k, self.top_p = top_k, top_p

    def __call__(
        self, beams: Beams, logits: Tensor, log_sum_exp: Tensor, penalty: Penalty
    ) -> tuple[Beams, Tensor]:
        """Continue every beam by one drawn token."""
        length = beams.ids.shape[-1] + 1
        numbers = self.numbers[beams.sentence, :, length - 1, None]  # [B, K, 1]
        cumulative = self.probabilities(logits).cumsum(-1)
        total = cumulative[..., -1:]
        # below the total despite rounding, so that a token of probability 0 is never drawn
        target = torch.minimum(numbers * total, total.nextafter(torch.zeros_like(total)))
        token = torch.searchsorted(cumulative, target, right=True)
        token = token.clamp(max=logits.shape[-1] - 1)
        log_prob = beams.log_prob + (logits.gather(-1, token) - log_sum_exp)[..., 0]
        finished = beams.finished
        token = token[..., 0].masked_fill(finished, EOS)
        log_prob = torch.where(finished, beams.log_prob, log_prob)
        score = torch.where(finished, beams.score, log_prob / penalty(length))
        drawn = Beams(
            ids=torch.cat([beams.ids, token[..., None]], dim=-1),
            log_prob=log_prob,
            score=score,
            finished=token == EOS,
            sentence=beams.sentence,
        )
        return drawn, torch.arange(token.shape[1], device=token.device).expand_as(token)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return [B, K, V] float64: 0 for truncated tokens, the rest not rescaled to sum to 1."""
        if self.top_k is not None and self.top_k < logits.shape[-1]:
            kept, token = logits.topk(self.top_k, dim=-1)
            logits = torch.full_like(logits, -torch.inf).scatter(-1, token, kept)
        probs = (logits.double() / self.temperature).softmax(-1).nan_to_num(0.0)
        if self.top_p is not None:
            ordered, token = probs.sort(dim=-1, descending=True, stable=True)
            before = ordered.cumsum(-1) - ordered  # sum of the more likely tokens
            probs = probs.masked_fill((before >= self.top_p).gather(-1, token.argsort(-1)), 0.0)
        return probs
