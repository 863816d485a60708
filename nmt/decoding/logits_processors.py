"""Rules of a search that ids alone decide: a forced prefix, and no n-gram twice.

Legend: S sentences of the batch as it began, B those still searched, K beams, V types, T positions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nmt.decoding.search import Beams


class Prefix:
    """A hypothesis begins with given tokens, whatever else is forbidden; each is scored."""

    def __init__(self, prefixes: Sequence[Sequence[int]], device: torch.device) -> None:
        """``prefixes``: [S], empty = free from the start."""
        longest = max(map(len, prefixes))
        rows = [[*prefix, *[-1] * (longest - len(prefix))] for prefix in prefixes]
        self.tokens = torch.tensor(rows, dtype=torch.int64, device=device)  # [S, longest]

    def __call__(self, beams: Beams, logits: Tensor, allowed: Tensor) -> Tensor:
        """Only the prefix's token, as long as it lasts."""
        position = beams.ids.shape[-1]
        if position >= self.tokens.shape[1]:
            return allowed
        token = self.tokens[beams.sentence, position][:, None, None]  # [B, 1, 1]
        at = token.clamp(min=0).expand(-1, logits.shape[1], 1)
        only = torch.full_like(allowed, -torch.inf).scatter(-1, at, logits.gather(-1, at))
        return torch.where(token >= 0, only, allowed)


class NoRepeat:
    """No n tokens in a row come twice in a hypothesis (Paulus et al. 2018, section 2.5)."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __call__(self, beams: Beams, logits: Tensor, allowed: Tensor) -> Tensor:
        """Without the tokens that would end an n-gram that is there already."""
        if beams.ids.shape[-1] < self.n:
            return allowed
        grams = beams.ids.unfold(-1, self.n, 1)  # [B, K, T - n + 1, n]
        last = beams.ids[..., beams.ids.shape[-1] - self.n + 1 :]  # [B, K, n - 1]
        same = (grams[..., :-1] == last[:, :, None]).all(-1)
        hidden = torch.zeros_like(same, dtype=allowed.dtype).masked_fill(same, -torch.inf)
        return allowed.scatter_add(-1, grams[..., -1], hidden)
