"""From options and sentences to the arguments of one search."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from nmt.data.vocab import BOS, PAD, UNK
from nmt.decoding.codec import SearchInput
from nmt.decoding.constraints import RequiredPhrases
from nmt.decoding.logits_processors import NoRepeat, Prefix
from nmt.decoding.options import SearchOptions
from nmt.decoding.phrases import BannedPhrases, Phrases, phrases_for_all
from nmt.decoding.search import Choose, Hypothesis, Rule, State, beam_search
from nmt.decoding.strategies import Diverse, Sampling, uniform
from nmt.decoding.surfaces import PieceStrings


class Plan:
    """How a batch of sentences is searched.

    Attributes:
        max_len: [S] int64, tokens incl. EOS that each output may have.
        rules: what is not allowed, the last word last; empty for a plain search.
        choose: how continuations are chosen; None = the K best.
    """

    def __init__(
        self,
        sentences: Sequence[SearchInput],
        options: SearchOptions,
        lengths: Tensor,
        surfaces: Callable[[], PieceStrings],
    ) -> None:
        """``lengths``: [S], source tokens incl. EOS; ``surfaces``: asked for if phrases need it."""
        self.options, self.device = options, lengths.device
        # what is given fits, a word may end before each phrase, and the sentence after all
        given = [
            len(s.prefix.ids) + sum(len(phrase.ids) + 1 for phrase in s.require) + 1
            for s in sentences
        ]
        self.max_len = (lengths + options.max_len_offset).maximum(
            torch.tensor(given, device=self.device)
        )
        self.rules: list[Rule] = []
        self.choose: Choose | None = None
        if options.no_repeat_ngram:
            self.rules.append(NoRepeat(options.no_repeat_ngram))
        if options.forbid_all or any(s.forbid for s in sentences):
            for_all = options.forbid_all
            shared = [phrases_for_all(surfaces(), for_all)] if for_all else []
            phrases = [
                [*shared, Phrases(surfaces(), s.forbid)] if s.forbid else shared for s in sentences
            ]
            self.rules.append(BannedPhrases(surfaces(), phrases, self.max_len))
        if any(s.require for s in sentences):
            required = RequiredPhrases(
                [s.requirement(surfaces()) for s in sentences],
                surfaces().text,
                self.max_len,
            )
            self.rules.append(required)
            self.choose = required.choose
        if any(s.prefix.ids for s in sentences):
            self.rules.append(Prefix([s.prefix.ids for s in sentences], self.device))
        if options.groups > 1:
            self.choose = Diverse(options.groups, options.diversity)
        elif options.sample:
            numbers = uniform(
                options.seed,
                [sentence.place for sentence in sentences],
                options.wanted,
                int(self.max_len.max()),
            )
            self.choose = Sampling(
                numbers.to(self.device), options.temperature, options.top_k, options.top_p
            )

    def types(self, allowed: Tensor) -> Tensor | None:
        """The types to make logits of: ``allowed`` [A], what the model produces; None = all V.

        The others have no probability, so a plain search needs no logits of them. Rules and other
        choices may name any.
        """
        return None if self.rules or self.choose is not None else allowed

    def search(self, state: State, types: Tensor | None) -> list[list[Hypothesis]]:
        """The n best of each sentence, best first; samples in the order of their draws."""
        options = self.options
        forbidden = [PAD, BOS] if options.allow_unk else [PAD, BOS, UNK]
        diverse = options.groups > 1  # the best of a group may be the second of all
        found = beam_search(
            state,
            options.beam,
            self.max_len,
            options.length_alpha,
            torch.tensor(forbidden, device=self.device),
            options.beam if diverse else options.wanted,
            self.rules,
            self.choose,
            # a sample is a group of its own: all begin, none displaces another
            options.beam if options.sample else options.groups,
            types,
        )
        if not diverse:
            return found
        return [sorted(f, key=lambda one: -one.score)[: options.wanted] for f in found]
