"""Other ways to choose continuations than the K best: sampling, and groups that differ.

Legend: S sentences of the batch as it began, B those still searched, K beams, V types.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from nmt.data.vocab import EOS
from nmt.decoding.search import Beams, beam_step, length_penalty


def uniform(seed: int, places: Sequence[tuple[int, ...]], draws: int, length: int) -> Tensor:
    """Numbers in [0, 1), [S, draws, length], each a function of seed, place, draw and position.

    Whatever else is in the batch, and however many draws there are, a draw stays the same.
    """
    return torch.from_numpy(
        np.array(
            [
                [
                    np.random.default_rng([seed, *place, draw]).random(length)
                    for draw in range(draws)
                ]
                for place in places
            ]
        )
    )


class Sampling:
    """Each beam is a draw of its own from softmax(logits / temperature), cut by top-k and top-p.

    ``top_k`` keeps the k likeliest tokens (Fan et al. 2018), ``top_p`` the likeliest whose
    probabilities reach p (nucleus sampling, Holtzman et al. 2020); both: first k, then p of what
    is left. log_prob stays the model's own, neither cut nor heated.
    """

    def __init__(
        self, numbers: Tensor, temperature: float, top_k: int | None, top_p: float | None
    ) -> None:
        """``numbers``: [S, K, positions], of ``uniform``."""
        self.numbers, self.temperature = numbers, temperature
        self.top_k, self.top_p = top_k, top_p

    def __call__(
        self, beams: Beams, logits: Tensor, total: Tensor, alpha: float
    ) -> tuple[Beams, Tensor]:
        """Every beam continued by one drawn token."""
        length = beams.ids.shape[-1] + 1
        numbers = self.numbers[beams.sentence, :, length - 1, None]  # [B, K, 1]
        cumulative = self.probabilities(logits).cumsum(-1)
        whole = cumulative[..., -1:]
        # below the whole sum whatever the rounding, so that a token of no probability is not drawn
        target = torch.minimum(numbers * whole, whole.nextafter(torch.zeros_like(whole)))
        token = torch.searchsorted(cumulative, target, right=True)
        token = token.clamp(max=logits.shape[-1] - 1)
        log_prob = beams.log_prob + (logits.gather(-1, token) - total)[..., 0]
        ended = beams.ended
        token = token[..., 0].masked_fill(ended, EOS)
        log_prob = torch.where(ended, beams.log_prob, log_prob)
        score = torch.where(ended, beams.score, log_prob / length_penalty(length, alpha))
        drawn = Beams(
            ids=torch.cat([beams.ids, token[..., None]], dim=-1),
            log_prob=log_prob,
            score=score,
            ended=token == EOS,
            sentence=beams.sentence,
        )
        return drawn, torch.arange(token.shape[1], device=token.device).expand_as(token)

    def probabilities(self, logits: Tensor) -> Tensor:
        """[B, K, V] fp64, 0 for what is cut; not scaled up to 1."""
        if self.top_k is not None and self.top_k < logits.shape[-1]:
            kept, token = logits.topk(self.top_k, dim=-1)
            logits = torch.full_like(logits, -torch.inf).scatter(-1, token, kept)
        probs = (logits.double() / self.temperature).softmax(-1).nan_to_num(0.0)
        if self.top_p is not None:
            ordered, token = probs.sort(dim=-1, descending=True, stable=True)
            before = ordered.cumsum(-1) - ordered  # what likelier tokens reach without this one
            probs = probs.masked_fill((before >= self.top_p).gather(-1, token.argsort(-1)), 0.0)
        return probs


class Diverse:
    """Diverse beam search (Vijayakumar et al. 2016, algorithm 1 with Hamming diversity).

    Each group of K / groups beams is a beam search of its own, but a token costs ``strength`` in
    log-probability for every time that earlier groups said it at this position. The cost steers
    what is chosen and is no part of a hypothesis's log_prob and score.
    """

    def __init__(self, groups: int, strength: float) -> None:
        self.groups, self.strength = groups, strength

    def __call__(
        self, beams: Beams, logits: Tensor, total: Tensor, alpha: float
    ) -> tuple[Beams, Tensor]:
        """The best continuations of each group, one group after the other."""
        size = logits.shape[1] // self.groups
        divisor = length_penalty(beams.ids.shape[-1] + 1, alpha)
        said = torch.zeros_like(logits[:, 0])  # [B, V], how often
        parts, parents = [], []
        for first in range(0, logits.shape[1], size):
            columns = slice(first, first + size)
            group = Beams(
                beams.ids[:, columns],
                beams.log_prob[:, columns],
                beams.score[:, columns],
                beams.ended[:, columns],
                beams.sentence,
            )
            cost = self.strength * said[:, None]
            grown, origin = beam_step(group, logits[:, columns] - cost, total[:, columns], alpha)
            token = grown.ids[..., -1]
            new = ~group.ended.gather(1, origin)  # an ended hypothesis says nothing more
            paid = torch.where(new, self.strength * said.gather(1, token), 0.0)
            grown.log_prob = grown.log_prob + paid
            grown.score = torch.where(new, grown.log_prob / divisor, grown.score)
            said = said.scatter_add(1, token, new.to(said.dtype))
            parts.append(grown)
            parents.append(origin + first)
        joined = Beams(
            torch.cat([part.ids for part in parts], dim=1),
            torch.cat([part.log_prob for part in parts], dim=1),
            torch.cat([part.score for part in parts], dim=1),
            torch.cat([part.ended for part in parts], dim=1),
            beams.sentence,
        )
        return joined, torch.cat(parents, dim=1)
