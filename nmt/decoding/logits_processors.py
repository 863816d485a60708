"""Logits processors: which tokens may follow a hypothesis.

A forced prefix, no repeated n-grams, and required phrases, which also select the continuations. To
add one: a class with the ``LogitsProcessor`` protocol, a line in ``logits_processors``, and its
option in ``nmt.decoding.options``.

Legend: S sentences of the batch as it began, B those still searched, K beams, V types, T positions,
C continuations of a beam.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from nmt.data.vocab import EOS, UNK
from nmt.decoding.codec import TextCodec
from nmt.decoding.constraints import (
    NO_TEXT,
    PhraseProgress,
    Requirement,
    begins_in_word,
    opens_word,
)
from nmt.decoding.engine import Penalty, SearchInput
from nmt.decoding.options import SearchOptions
from nmt.decoding.search import Beams, LogitsProcessor, expand_beams


def logits_processors(
    inputs: Sequence[SearchInput],
    options: SearchOptions,
    max_len: Tensor,
    codec: TextCodec,
) -> list[LogitsProcessor]:
    """Make the processors that the options and the constraints of a batch need, in order.

    Args:
        max_len: [S] int64, the most tokens of each output, including EOS.
        codec: of the target language; its strings are made only if phrases need them.
    """
    processors: list[LogitsProcessor] = []
    if options.no_repeat_ngram:
        processors.append(NoRepeat(options.no_repeat_ngram))
    if any(part.require for part in inputs):
        requirements = [part.requirement(codec.strings) for part in inputs]
        processors.append(RequiredPhrases(requirements, codec.strings.text, max_len))
    if any(part.prefix.ids for part in inputs):
        processors.append(Prefix([part.prefix.ids for part in inputs], max_len.device))
    return processors


class Prefix:
    """Forces each hypothesis to begin with a prefix, even if its tokens are banned.

    The tokens are scored like others. An empty prefix leaves a sentence free from the start.
    """

    def __init__(self, prefixes: Sequence[Sequence[int]], device: torch.device) -> None:
        longest = max(map(len, prefixes))
        rows = [[*prefix, *[-1] * (longest - len(prefix))] for prefix in prefixes]
        self.tokens = torch.tensor(rows, dtype=torch.int64, device=device)  # [S, longest]

    def __call__(self, beams: Beams, logits: Tensor, allowed: Tensor) -> Tensor:
        """Allow only the prefix's token at its positions."""
        position = beams.ids.shape[-1]
        if position >= self.tokens.shape[1]:
            return allowed
        token = self.tokens[beams.sentence, position][:, None, None]  # [B, 1, 1]
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


# ---------------------------------------------------------------- required phrases


class RequiredPhrases:
    """Constrained beam search with dynamic beam allocation (Post and Vilar 2018).

    A logits processor, with the matching selection strategy as ``select``. It differs from the
    paper in two ways. The slots of the beam go to the hypotheses in turn, one for each amount of
    progress, the furthest first. When the length limit leaves just enough tokens, only tokens that
    make progress are allowed, so every phrase that fits is produced.

    Args:
        requirements: [S]; without phrases = the plain search for this sentence.
        strings: [V], of the types, as ``PieceStrings.text``.
        max_len: [S] int64, the most tokens of each output, including EOS.
    """

    def __init__(
        self, requirements: Sequence[Requirement], strings: Sequence[str], max_len: Tensor
    ) -> None:
        self._requirements = requirements
        self._continues = torch.tensor(list(map(begins_in_word, strings)))
        self._opens = torch.tensor(list(map(opens_word, strings)))
        # whether ending a word, so that a phrase can begin, may take a token
        bounded = (text[:1] == " " or text[-1:] == " " for text in strings if text != NO_TEXT)
        self._word_end = int(not all(bounded))
        self._max_len = max_len.tolist()
        self._progress: dict[tuple[int, int], PhraseProgress] = {}  # (row, beam), at this position

    def __call__(self, beams: Beams, logits: Tensor, allowed: Tensor) -> Tensor:
        """Forbid EOS until all phrases are produced; near the length limit, allow only progress."""
        self._progress = {}
        alive = (~beams.finished & beams.log_prob.isfinite()).tolist()
        for row, sentence in enumerate(beams.sentence.tolist()):
            if self._requirements[sentence].phrases:
                left = self._max_len[sentence] - beams.ids.shape[-1]
                for beam, ids in enumerate(beams.ids[row].tolist()):
                    if alive[row][beam]:
                        progress = self._requirements[sentence].progress(ids)
                        self._progress[row, beam] = progress
                        self._restrict(allowed[row, beam], logits[row, beam], progress, left)
        return allowed

    def _restrict(
        self, allowed: Tensor, logits: Tensor, progress: PhraseProgress, left: int
    ) -> None:
        """Change the allowed logits [V] of a hypothesis that can have ``left`` more tokens."""
        next_tokens = progress.next_tokens
        if progress.must_continue:
            _allow_only(allowed, logits, list(progress.must_continue))
            return
        if UNK in next_tokens:  # as part of a phrase
            allowed[UNK] = logits[UNK]
        if progress.open_word:
            allowed[self._continues.to(allowed.device)] = -torch.inf
        if not progress.missing:
            return
        allowed[EOS] = -torch.inf
        if left - 1 - self._word_end >= progress.missing:  # room for any token before the rest
            return
        if next_tokens:
            least = min(next_tokens.values())
            tokens = [t for t, missing in next_tokens.items() if missing <= max(left - 1, least)]
            # only if every one of these is banned does a required token override the ban
            not_banned = [t for t in tokens if allowed[t] > -torch.inf]
            _allow_only(allowed, logits, not_banned or tokens)
        else:
            allowed[~self._opens.to(allowed.device)] = -torch.inf

    def select(
        self, beams: Beams, logits: Tensor, log_sum_exp: Tensor, penalty: Penalty
    ) -> tuple[Beams, Tensor]:
        """Select the K best; where phrases are required, one of each amount of progress in turn."""
        batch, beam, types = logits.shape
        highest, token = logits.topk(min(beam, types), dim=-1)
        own = token.shape[-1]
        most = max((len(p.next_tokens) for p in self._progress.values()), default=0)
        further = torch.zeros(batch, beam, most, dtype=torch.int64)  # tokens that make progress
        exists = torch.zeros(batch, beam, most, dtype=torch.bool)
        for (row, column), progress in self._progress.items():
            tokens = list(progress.next_tokens)
            further[row, column, : len(tokens)] = torch.tensor(tokens, dtype=torch.int64)
            exists[row, column, : len(tokens)] = True
        further, exists = further.to(token.device), exists.to(token.device)
        exists &= (further[..., None] != token[:, :, None]).all(-1)  # not among the best already
        extra = logits.gather(-1, further).masked_fill(~exists, -torch.inf)
        token = torch.cat([token, further], dim=-1)  # [B, K, C]
        log_prob = beams.log_prob[..., None] + (torch.cat([highest, extra], dim=-1) - log_sum_exp)
        # the C of a beam in order of their scores, as in a plain search
        if own < token.shape[-1]:
            log_prob, order = log_prob.sort(dim=-1, descending=True, stable=True)
            token = token.gather(-1, order)
        select = functools.partial(_allocate, self._missing(beams, token), beam)
        return expand_beams(beams, token, log_prob, penalty, select)

    def _missing(self, beams: Beams, token: Tensor) -> list[list[int] | None]:
        """Count the missing tokens of continuations [K * C]; None for sentences without phrases."""
        missing: list[list[int] | None] = []
        for row, (sentence, row_beams) in enumerate(
            zip(beams.sentence.tolist(), token.tolist(), strict=True)
        ):
            if not self._requirements[sentence].phrases:
                missing.append(None)
                continue
            row_missing: list[int] = []
            for beam, tokens in enumerate(row_beams):
                progress = self._progress.get((row, beam), PhraseProgress())
                row_missing += [progress.next_tokens.get(t, progress.missing) for t in tokens]
            missing.append(row_missing)
        return missing


def _allow_only(allowed: Tensor, logits: Tensor, tokens: list[int]) -> None:
    allowed.fill_(-torch.inf)
    allowed[tokens] = logits[tokens]


def _allocate(
    missing: Sequence[list[int] | None], beam: int, score: Tensor, order: Tensor
) -> Tensor:
    """Return the positions [B, K] in ``order`` [B, K * C] of the selected continuations.

    They are in order of their scores. ``missing``: of each continuation, None = select the K best.
    """
    selected = torch.arange(beam, device=order.device).repeat(len(order), 1)
    for row, row_missing in enumerate(missing):
        if row_missing is None:
            continue
        banks: dict[int, list[int]] = {}
        for place, (value, which) in enumerate(
            zip(score[row].tolist(), order[row].tolist(), strict=True)
        ):
            if value > -torch.inf:
                banks.setdefault(row_missing[which], []).append(place)
        # (how many of its bank are better, what is missing, place)
        queue = sorted((n, bank, p) for bank, places in banks.items() for n, p in enumerate(places))
        chosen = sorted(place for *_, place in queue[:beam])
        taken = set(chosen)
        rest = [place for place in range(order.shape[1]) if place not in taken]
        selected[row] = torch.tensor([*chosen, *rest[::-1]][:beam])
    return selected
