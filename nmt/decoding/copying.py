"""Unknown words of a translation, replaced by the source words they look at (Luong et al. 2015).

The alignment is that of ``nmt.decoding.forced``: the most cross-attention, in a parallel pass over
the hypotheses that have an UNK.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence

import torch

from nmt.data.vocab import SPECIALS, UNK
from nmt.decoding.ensemble import Ensemble
from nmt.decoding.examine import word_ends
from nmt.decoding.forced import force
from nmt.decoding.options import SearchOptions
from nmt.decoding.searched import Searched
from nmt.decoding.sentences import Hypothesis, Sentences
from nmt.model.transformer import Transformer


def copy_unknown(
    model: Transformer | Ensemble,
    sentences: Sentences,
    searched: Searched,
    hypotheses: Iterable[list[Hypothesis]],
    options: SearchOptions,
    device: torch.device,
) -> Iterator[list[Hypothesis]]:
    """The hypotheses of some lines, without UNK wherever their line has a word.

    Args:
        model: in eval mode.
        hypotheses: of each line, made of what was found.
    """
    pairs = searched.pairs(lambda one: UNK in one.ids)
    looks = iter(force(model, pairs, options.batch_tokens, device, align=True))
    for line, of_parts, of_line, made in zip(
        searched.lines, searched.parts, searched.found, hypotheses, strict=True
    ):
        pieces = iter(sentences.source_pieces(line))
        words = [_words(sentences, list(itertools.islice(pieces, len(p.ids)))) for p in of_parts]
        # in the order of the pass: part by part, rank by rank
        sources = [
            [next(looks).sources if UNK in one.ids else [] for one in ranks] for ranks in of_line
        ]
        yield [
            hypothesis
            if SPECIALS[UNK] not in hypothesis.pieces
            else _copied(
                sentences,
                hypothesis,
                [len(ranks[rank].ids) for ranks in of_line],
                [of_part[rank] for of_part in sources],
                words,
            )
            for rank, hypothesis in enumerate(made)
        ]


def _words(sentences: Sentences, pieces: Sequence[str]) -> list[str]:
    """The word that each source piece is part of, as one piece."""
    groups: list[list[str]] = [[]]
    for piece, ends in zip(pieces, word_ends(sentences, pieces), strict=True):
        groups[-1].append(piece)
        if ends:
            groups.append([])
    words = []
    for group in groups:
        text = sentences.surfaces.spelled(group)
        # where a space begins a word its pieces, joined, are a piece
        words += [text[:-1] if text.endswith(" ") else "".join(group)] * len(group)
    return words


def _copied(
    sentences: Sentences,
    hypothesis: Hypothesis,
    lengths: Sequence[int],
    sources: Sequence[Sequence[int]],
    words: Sequence[Sequence[str]],
) -> Hypothesis:
    """A hypothesis of parts with so many pieces, which look at these pieces of their sources."""
    rest = iter(hypothesis.pieces)
    parts = []
    for length, looks, of_part in zip(lengths, sources, words, strict=True):
        pieces = list(itertools.islice(rest, length))
        for place, look in enumerate(looks):
            if pieces[place] == SPECIALS[UNK]:
                pieces[place] = of_part[look]
        parts.append(pieces)
    decode = sentences.segmenter.decode
    return dataclasses.replace(
        hypothesis,
        pieces=list(itertools.chain.from_iterable(parts)),
        text=" ".join(decode(pieces, sentences.tgt) for pieces in parts),
    )
