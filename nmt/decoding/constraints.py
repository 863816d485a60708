"""Phrases that must be said: constrained beam search with dynamic beam allocation.

Post and Vilar 2018, with two differences: the slots of the beam go to the hypotheses in turn, one
of each amount of progress, the furthest first; and when the room left is just enough, only what
makes progress is allowed, so every phrase is said if it fits into the length limit.

A phrase is met where its tokens stand in a row as words of their own. Phrases may share tokens.
Pieces that the model does not know are all UNK to it; here each is a symbol of its own, so one UNK
does not count for two different ones.

Legend: S sentences of the batch as it began, B those still searched, K beams, V types, C
continuations of a beam.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor

from nmt.data.vocab import EOS, UNK
from nmt.decoding.search import Beams, expand_beams
from nmt.decoding.surfaces import NEVER

Symbol: TypeAlias = int | str  # the id of a token, or the piece that an UNK stands for
Symbols: TypeAlias = Sequence[Symbol]


@dataclass
class Progress:
    """How far a hypothesis has come.

    Attributes:
        missing: tokens of the phrases that are not met.
        steps: the tokens that begin or continue one -> what is missing after them.
        bound: tokens of which one has to follow: a phrase that has begun with an UNK is completed.
        open_word: the last phrase is met only if no word goes on after it.
    """

    missing: int = 0
    steps: dict[int, int] = field(default_factory=dict)
    bound: set[int] = field(default_factory=set)
    open_word: bool = False


class Requirement:
    """What one sentence must say.

    Args:
        prefix: what every hypothesis begins with.
        phrases: what it says.
        spell: what a symbol adds to tokenized text.
    """

    def __init__(
        self, prefix: Symbols, phrases: Sequence[Symbols], spell: Callable[[Symbol], str]
    ) -> None:
        self.prefix, self.phrases = list(prefix), [list(phrase) for phrase in phrases]
        self._unknown = [p for p in self.phrases if any(isinstance(s, str) for s in p)]
        self._spell = spell

    def symbols(self, ids: Sequence[int]) -> list[Symbol]:
        """Return what the tokens of a hypothesis stand for.

        An UNK continues the phrase that is furthest along, the first of several; it stays UNK if
        no phrase needs one. So it depends on the tokens before it alone.
        """
        known = len(self.prefix)
        symbols: list[Symbol] = [*self.prefix[: len(ids)], *ids[known:]]
        for place in range(known, len(ids)):
            if ids[place] == UNK:
                before = symbols[:place]
                left = [phrase for phrase in self._unknown if not any(self._met(before, phrase))]
                if not left:
                    break
                ways = [
                    (part, phrase[part])
                    for phrase in left
                    for part in self._begun(before, phrase)
                    if isinstance(phrase[part], str)
                ]
                if ways:
                    symbols[place] = max(ways, key=lambda way: way[0])[1]
        return symbols

    def progress(self, ids: Sequence[int]) -> Progress:
        """Return how far a hypothesis has come."""
        symbols, found = self.symbols(ids), Progress()
        parts = []  # (phrase that is not met, how much of it the last tokens are), every way
        for phrase in self.phrases:
            places = list(self._met(symbols, phrase))
            if not places:
                found.missing += len(phrase)
                parts += [(phrase, part) for part in self._begun(symbols, phrase)]
            elif places == [len(ids) - len(phrase)] and not self._ends_word(symbols[-1]):
                found.open_word = True
        furthest = max((part for _, part in parts), default=0)
        for phrase, part in parts:
            missing = found.missing - part - 1
            token = _token(phrase[part])
            found.steps[token] = min(missing, found.steps.get(token, missing))
            if part == furthest and any(isinstance(symbol, str) for symbol in phrase[:part]):
                found.bound.add(token)
        return found

    def _met(self, said: Symbols, phrase: Symbols) -> Iterator[int]:
        """Places where a phrase stands as words of its own."""
        for place in range(len(said) - len(phrase) + 1):
            end = place + len(phrase)
            if (
                said[place:end] == phrase
                and self._boundary(said, place, phrase[0])
                and (end == len(said) or self._boundary(said, end, said[end]))
            ):
                yield place

    def _begun(self, said: Symbols, phrase: Symbols) -> list[int]:
        """How many of its first tokens a hypothesis ends with: 0 if the phrase may begin now."""
        return [
            part
            for part in range(min(len(phrase) - 1, len(said)) + 1)
            if said[len(said) - part :] == phrase[:part]
            and self._boundary(said, len(said) - part, phrase[0])
        ]

    def _boundary(self, said: Symbols, place: int, symbol: Symbol) -> bool:
        """Whether a word begins if ``symbol`` comes at a place."""
        return place == 0 or self._ends_word(said[place - 1]) or self._spell(symbol).startswith(" ")

    def _ends_word(self, symbol: Symbol) -> bool:
        return self._spell(symbol).endswith(" ")


def _token(symbol: Symbol) -> int:
    return UNK if isinstance(symbol, str) else symbol


class RequiredPhrases:
    """A rule and a choice of the search, for sentences of which some must say phrases."""

    def __init__(
        self, sentences: Sequence[Requirement], surfaces: Sequence[str], max_len: Tensor
    ) -> None:
        """``sentences``, ``max_len``: [S]; ``surfaces``: what each type spells [V]."""
        self._sentences = sentences
        self._begins = torch.tensor([text.startswith(" ") for text in surfaces])
        self._ends = torch.tensor([text.endswith(" ") for text in surfaces])
        # tokens that it may take to end a word before a phrase can begin
        whole = (text[:1] == " " or text[-1:] == " " for text in surfaces if text != NEVER)
        self._word_end = int(not all(whole))
        self._max_len = max_len.tolist()
        self._progress: dict[tuple[int, int], Progress] = {}  # (row, beam), of this position

    # ------------------------------------------------------------ the rule

    def __call__(self, beams: Beams, logits: Tensor, allowed: Tensor) -> Tensor:
        """No end before all is said, and nothing but progress when there is room for no more."""
        self._progress = {}
        alive = (~beams.ended & beams.log_prob.isfinite()).tolist()
        for row, sentence in enumerate(beams.sentence.tolist()):
            if self._sentences[sentence].phrases:
                left = self._max_len[sentence] - beams.ids.shape[-1]
                for beam, ids in enumerate(beams.ids[row].tolist()):
                    if alive[row][beam]:
                        progress = self._sentences[sentence].progress(ids)
                        self._progress[row, beam] = progress
                        self._hide(allowed[row, beam], logits[row, beam], progress, left)
        return allowed

    def _hide(self, allowed: Tensor, logits: Tensor, progress: Progress, left: int) -> None:
        """Change the allowed logits [V] of a hypothesis that has ``left`` tokens to say."""
        steps = progress.steps
        if progress.bound:
            _only(allowed, logits, list(progress.bound))
            return
        if UNK in steps:  # as part of a phrase
            allowed[UNK] = logits[UNK]
        if progress.open_word:
            allowed[~self._begins.to(allowed.device)] = -torch.inf
        if not progress.missing:
            return
        allowed[EOS] = -torch.inf
        if left - 1 - self._word_end >= progress.missing:  # room for any token before the rest
            return
        if steps:
            least = min(steps.values())
            tokens = [t for t, missing in steps.items() if missing <= max(left - 1, least)]
            # what is required comes before what is forbidden, but only then
            open_to = [t for t in tokens if allowed[t] > -torch.inf]
            _only(allowed, logits, open_to or tokens)
        else:
            allowed[~self._ends.to(allowed.device)] = -torch.inf

    # ------------------------------------------------------------ the choice

    def choose(
        self, beams: Beams, logits: Tensor, total: Tensor, alpha: float
    ) -> tuple[Beams, Tensor]:
        """The K best, and for a sentence with phrases one of each amount of progress in turn."""
        batch, beam, types = logits.shape
        highest, token = logits.topk(min(beam, types), dim=-1)
        own = token.shape[-1]
        most = max((len(p.steps) for p in self._progress.values()), default=0)
        steps = torch.zeros(batch, beam, most, dtype=torch.int64)
        there = torch.zeros(batch, beam, most, dtype=torch.bool)
        for (row, column), progress in self._progress.items():
            count = len(progress.steps)
            steps[row, column, :count] = torch.tensor(list(progress.steps), dtype=torch.int64)
            there[row, column, :count] = True
        steps, there = steps.to(token.device), there.to(token.device)
        there &= (steps[..., None] != token[:, :, None]).all(-1)  # not among the best anyway
        extra = logits.gather(-1, steps).masked_fill(~there, -torch.inf)
        token = torch.cat([token, steps], dim=-1)  # [B, K, C]
        log_prob = beams.log_prob[..., None] + (torch.cat([highest, extra], dim=-1) - total)
        # the C of a beam in order of their scores, as a plain search has them
        if own < token.shape[-1]:
            log_prob, order = log_prob.sort(dim=-1, descending=True, stable=True)
            token = token.gather(-1, order)
        pick = functools.partial(_in_turn, self._missing(beams, token), beam)
        return expand_beams(beams, token, log_prob, alpha, pick)

    def _missing(self, beams: Beams, token: Tensor) -> list[list[int] | None]:
        """What each continuation [K * C] of each sentence lacks; None for a sentence without."""
        missing: list[list[int] | None] = []
        for row, (sentence, of_row) in enumerate(
            zip(beams.sentence.tolist(), token.tolist(), strict=True)
        ):
            if not self._sentences[sentence].phrases:
                missing.append(None)
                continue
            of_beams = [self._progress.get((row, beam), Progress()) for beam in range(len(of_row))]
            missing.append(
                [
                    progress.steps.get(token, progress.missing)
                    for progress, tokens in zip(of_beams, of_row, strict=True)
                    for token in tokens
                ]
            )
        return missing


def _only(allowed: Tensor, logits: Tensor, tokens: list[int]) -> None:
    allowed.fill_(-torch.inf)
    allowed[tokens] = logits[tokens]


def _in_turn(
    missing: Sequence[list[int] | None], beam: int, score: Tensor, order: Tensor
) -> Tensor:
    """Places [B, K] in ``order`` [B, K * C] of the continuations to keep, best first."""
    kept = torch.arange(beam, device=order.device).repeat(len(order), 1)
    for row, of_row in enumerate(missing):
        if of_row is None:
            continue
        banks: dict[int, list[int]] = {}
        for place, (value, which) in enumerate(
            zip(score[row].tolist(), order[row].tolist(), strict=True)
        ):
            if value > -torch.inf:
                banks.setdefault(of_row[which], []).append(place)
        # (how many of its bank are better, what is missing, place)
        queue = sorted((n, bank, p) for bank, places in banks.items() for n, p in enumerate(places))
        chosen = sorted(place for *_, place in queue[:beam])
        dead = [place for place in range(order.shape[1]) if place not in set(chosen)]
        kept[row] = torch.tensor([*chosen, *dead[::-1]][:beam])
    return kept
