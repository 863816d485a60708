"""What is found out about translations after a search: log-probabilities by token, alignments."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from nmt.decoding.codec import TextCodec, Translation
from nmt.decoding.ensemble import Ensemble
from nmt.decoding.forced import TokenScores, forced_decode
from nmt.decoding.memory import Memory
from nmt.decoding.options import SearchOptions
from nmt.decoding.search import Hypothesis
from nmt.decoding.searched import Searched
from nmt.model.transformer import Transformer


def add_scores_and_alignment(
    model: Transformer | Ensemble,
    sentences: TextCodec,
    searched: Searched,
    options: SearchOptions,
    memory: Memory,
) -> list[list[Translation]]:
    """Return the hypotheses of some lines, with what one parallel pass over them tells.

    Args:
        model: in eval mode.
        memory: of the device that computes.
    """
    pairs = searched.pairs()
    forced = iter(forced_decode(model, pairs, options.batch_tokens, memory, options.align))
    results = []
    for line, of_parts, of_line in zip(searched.lines, searched.parts, searched.found, strict=True):
        told = [[next(forced) for _ in ranks] for ranks in of_line]
        hypotheses = sentences.join(of_line, of_parts)
        if of_parts:
            ends = word_ends(sentences, sentences.source_pieces(line))
            lengths = [len(part.ids) for part in of_parts]
            hypotheses = [
                _with(hypothesis, [r[rank] for r in of_line], [t[rank] for t in told],
                      lengths, ends, sentences)
                for rank, hypothesis in enumerate(hypotheses)
            ]  # fmt: skip
        results.append(hypotheses)
    return results


def _with(
    hypothesis: Translation,
    found: Sequence[Hypothesis],
    forced: Sequence[TokenScores],
    lengths: Sequence[int],
    source_ends: Sequence[bool],
    sentences: TextCodec,
) -> Translation:
    """A line's hypothesis of one rank with what was told of its parts; one that was cut has no EOS.

    ``lengths``: source pieces of each part.
    """
    starts = itertools.accumulate(lengths[:-1], initial=0)
    sources = [start + i for start, one in zip(starts, forced, strict=True) for i in one.sources]
    return dataclasses.replace(
        hypothesis,
        token_log_probs=[
            log_prob
            for one, told in zip(found, forced, strict=True)
            for log_prob in told.log_probs[: len(one.ids) + one.finished]
        ],
        alignment=word_alignment(sources, source_ends, word_ends(sentences, hypothesis.pieces)),
    )


def word_ends(sentences: TextCodec, pieces: Sequence[str]) -> list[bool]:
    """Whether each piece ends a word: of tokenized text, or of plain text without a tokenizer."""
    surfaces = [sentences.segmenter.surface(piece) for piece in pieces]
    return [
        one.endswith(" ") or after.startswith(" ")
        for one, after in zip(surfaces, [*surfaces[1:], " "], strict=True)
    ]


def word_alignment(
    sources: Sequence[int], source_ends: Sequence[bool], target_ends: Sequence[bool]
) -> list[tuple[int, int]]:
    """Pairs (source word, target word) in order; words are linked if any of their pieces are.

    Args:
        sources: the source piece of each target piece; empty = no alignment.
        source_ends, target_ends: whether each piece ends a word.
    """
    if not sources:
        return []
    source_words, target_words = _words(source_ends), _words(target_ends)
    return sorted({(source_words[i], target_words[j]) for j, i in enumerate(sources)})


def _words(ends: Sequence[bool]) -> list[int]:
    """The word of each piece."""
    return list(itertools.accumulate(ends[:-1], initial=0)) if ends else []
