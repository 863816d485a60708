"""From options and sentences to the arguments of one search."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nmt.data.vocab import BOS, PAD, UNK
from nmt.decoding.choices import Diverse, Sampling, uniform
from nmt.decoding.options import SearchOptions
from nmt.decoding.rules import NoRepeat
from nmt.decoding.search import Choose, Found, Rule, State, beam_search, best
from nmt.decoding.sentences import Sentence


class Plan:
    """How a batch of sentences is searched.

    Attributes:
        max_len: [S] int64, tokens incl. EOS that each output may have.
        rules: what is not allowed, the last word last; empty for a plain search.
        choose: the K best, unless the options say otherwise.
    """

    def __init__(
        self, sentences: Sequence[Sentence], options: SearchOptions, lengths: Tensor
    ) -> None:
        """``lengths``: [S], source tokens incl. EOS."""
        self.options, self.device = options, lengths.device
        self.max_len = lengths + options.max_len_offset
        self.rules: list[Rule] = []
        if options.no_repeat_ngram:
            self.rules.append(NoRepeat(options.no_repeat_ngram))
        self.choose: Choose = best
        if options.groups > 1:
            self.choose = Diverse(options.groups, options.diversity)
        elif options.sample:
            numbers = uniform(
                options.seed,
                [sentence.place for sentence in sentences],
                options.n_best,
                int(self.max_len.max()),
            )
            self.choose = Sampling(
                numbers.to(self.device), options.temperature, options.top_k, options.top_p
            )

    def search(self, state: State) -> list[list[Found]]:
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
            options.beam if diverse else options.n_best,
            self.rules,
            self.choose,
            # a sample is a group of its own: all begin, none displaces another
            options.beam if options.sample else options.groups,
        )
        if not diverse:
            return found
        return [sorted(f, key=lambda one: -one.score)[: options.n_best] for f in found]
