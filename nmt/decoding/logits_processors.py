"""Logits processors: which tokens may follow a hypothesis.

A forced prefix, and no repeated n-grams. To add one: a class with the ``LogitsProcessor`` protocol,
a line in ``logits_processors``, and its option in ``nmt.decoding.options``.

Legend: S sentences of the batch as it began, B those still searched, K beams, V types, T positions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nmt.decoding.codec import TextCodec
from nmt.decoding.engine import SearchInput
from nmt.decoding.options import SearchOptions
from nmt.decoding.search import Beams, LogitsProcessor


def logits_processors(
    inputs: Sequence[SearchInput], options: SearchOptions, codec: TextCodec, device: torch.device
) -> list[LogitsProcessor]:
    """Make the processors that the options and the constraints of a batch need, in order."""
    processors: list[LogitsProcessor] = []
    if options.no_repeat_ngram:
        processors.append(NoRepeat(options.no_repeat_ngram))
    if any(part.prefix.ids for part in inputs):
        ends = [codec.strings.ends_in_word(part.prefix.pieces) for part in inputs]
        ids = [part.prefix.ids for part in inputs]
        processors.append(Prefix(ids, device, ends, codec.strings.continues))
    return processors


class Prefix:
    """Forces each hypothesis to begin with a prefix of complete words, even if tokens are banned.

    The tokens are scored like others. An empty prefix leaves a sentence free from the start.

    Args:
        prefixes: [S].
        in_word: [S], whether a type of ``continues`` would continue the last word.
        continues: [V].
    """

    def __init__(
        self,
        prefixes: Sequence[Sequence[int]],
        device: torch.device,
        in_word: Sequence[bool],
        continues: Sequence[bool],
    ) -> None:
        longest = max(map(len, prefixes))
        rows = [[*prefix, *[-1] * (longest - len(prefix))] for prefix in prefixes]
        self.tokens = torch.tensor(rows, dtype=torch.int64, device=device)  # [S, longest]
        self.length = torch.tensor(list(map(len, prefixes)), device=device)
        self.in_word = torch.tensor(in_word, device=device)
        self.continues = torch.tensor(continues, device=device)

    def __call__(self, beams: Beams, logits: Tensor, allowed: Tensor) -> Tensor:
        """Allow only the prefix's token at its positions, and then no token of the same word."""
        position, sentence = beams.ids.shape[-1], beams.sentence
        if position > self.tokens.shape[1]:
            return allowed
        ends = (self.length[sentence] == position) & self.in_word[sentence]
        allowed = allowed.masked_fill(ends[:, None, None] & self.continues, -torch.inf)
        if position == self.tokens.shape[1]:
            return allowed
        token = self.tokens[sentence, position][:, None, None]  # [B, 1, 1]
        at = token.clamp(min=0).expand(-1, logits.shape[1], 1)
        only = torch.full_like(allowed, -torch.inf).scatter(-1, at, logits.gather(-1, at))
        return torch.where(token >= 0, only, allowed)


class NoRepeat:
    """Bans tokens that would repeat an n-gram of the hypothesis (Paulus et al. 2018, sec. 2.5)."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __call__(self, beams: Beams, logits: Tensor, allowed: Tensor) -> Tensor:
        """Ban the tokens that would complete an n-gram for the second time."""
        if beams.ids.shape[-1] < self.n:
            return allowed
        grams = beams.ids.unfold(-1, self.n, 1)  # [B, K, T - n + 1, n]
        last = beams.ids[..., beams.ids.shape[-1] - self.n + 1 :]  # [B, K, n - 1]
        same = (grams[..., :-1] == last[:, :, None]).all(-1)
        banned = torch.zeros_like(same, dtype=allowed.dtype).masked_fill(same, -torch.inf)
        return allowed.scatter_add(-1, grams[..., -1], banned)
