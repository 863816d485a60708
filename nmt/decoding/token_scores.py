"""Translations with log-probabilities by token, and with word alignment.

An engine scores given targets. They are translations that a search found or that a user gives.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import sys
from collections.abc import Sequence

import numpy as np

from nmt.data.lines import too_long
from nmt.decoding.codec import BLANK, MAX_SOURCE_PIECES, TextCodec, Translation
from nmt.decoding.engine import (
    EncodedPair,
    Engine,
    Hypothesis,
    Progress,
    SearchInput,
    Stop,
    TokenScores,
    ignore,
)
from nmt.decoding.options import SearchOptions
from nmt.errors import UserError

# ---------------------------------------------------------------- translations that a search found


def add_scores_and_alignment(
    engine: Engine,
    codec: TextCodec,
    parts: Sequence[Sequence[SearchInput]],
    hypotheses: Sequence[Sequence[list[Hypothesis]]],
    options: SearchOptions,
    stop: Stop,
) -> list[list[Translation]]:
    """Decode the hypotheses of some lines, with log-probabilities by token and alignment.

    Args:
        parts: of each line, none for a blank one.
        hypotheses: of each line and part, best first.
    """
    pairs = [
        (part.ids, np.array(hypothesis.ids, dtype=np.int64), part.line)
        for pair in zip(parts, hypotheses, strict=True)
        for part, ranks in zip(*pair, strict=True)
        for hypothesis in ranks
    ]
    scores = iter(engine.score(pairs, options, stop, ignore))
    results = []
    for line_parts, ranks_of_parts in zip(parts, hypotheses, strict=True):
        scored = [[(hypothesis, next(scores)) for hypothesis in ranks] for ranks in ranks_of_parts]
        translations = codec.decode_line(ranks_of_parts, line_parts)
        if line_parts:
            translations = [
                _with_scores(translation, rank, line_parts, codec, options)
                for translation, rank in zip(translations, zip(*scored, strict=False), strict=True)
            ]
        results.append(translations)
    return results


def _with_scores(
    translation: Translation,
    rank: Sequence[tuple[Hypothesis, TokenScores]],
    parts: Sequence[SearchInput],
    codec: TextCodec,
    options: SearchOptions,
) -> Translation:
    """Add the scores and the alignment of the parts; one cut at the length limit has no EOS.

    With ``token_scores``, the log-probability is their sum: CTranslate2's search gives the share of
    forbidden tokens to the others.
    """
    aligned: list[int] = []
    source: list[str] = []
    log_probs: list[float] = []
    score, eos = 0.0, []
    for part, (hypothesis, scores) in zip(parts, rank, strict=True):
        aligned += [len(source) + index for index in scores.aligned]
        source += part.pieces
        of_part = scores.log_probs[: len(hypothesis.ids) + hypothesis.finished]
        score += sum(of_part) / options.penalty(len(of_part))
        log_probs += of_part
        if hypothesis.finished:
            eos.append(len(log_probs) - 1)
    links = word_alignment(aligned, codec.word_ends(source), codec.word_ends(translation.pieces))
    if options.token_scores:
        translation = dataclasses.replace(translation, log_prob=sum(log_probs), score=score)
    return dataclasses.replace(translation, token_log_probs=log_probs, eos=eos, alignment=links)


# ---------------------------------------------------------------- translations that a user gives


def score_pairs(
    engine: Engine,
    codec: TextCodec,
    pairs: Sequence[tuple[int, tuple[str | None, str | None]]],
    options: SearchOptions,
    progress: Progress,
) -> list[Translation]:
    """Score each target as the translation of its source.

    Two blank lines have log-probability 0, because a blank line always has a blank translation. If
    only one side is blank it is minus infinity, because a search never returns that. It is also
    minus infinity, with a note on standard error, for a pair that is too long: a search would
    translate the source in parts, and the parts of the target are not known.

    Args:
        pairs: line number, and source and target; None = this side has ended.

    Raises:
        UserError: one side has more lines than the other.
    """
    tag = codec.tag_ids(options.tag)
    results: list[Translation] = []
    usable: list[EncodedPair] = []
    segmented: dict[int, tuple[list[str], list[str]]] = {}  # index of a result -> source, target
    for number, (source, target) in pairs:
        if source is None or target is None:
            ended, other = ("source", "target") if source is None else ("target", "source")
            raise UserError(
                f"the {ended} ends before line {number}, but the {other} does not",
                fix="give source and target the same number of lines",
            )
        pieces = _segment_pair(codec, number, source, target, options.src, engine.longest_target)
        result = Translation([], target, -math.inf, -math.inf, True)
        if pieces is not None:
            src_ids = codec.source_ids(number, pieces[0])
            if all(pieces):
                segmented[len(results)] = pieces
                tgt_ids = np.array(codec.vocab.ids(pieces[1]), dtype=np.int64)
                usable.append((np.concatenate([tag, src_ids]), tgt_ids, number))
            elif not any(pieces):
                result = BLANK
        results.append(result)
    progress(len(pairs) - len(usable))
    scores = engine.score(usable, options, ignore, progress)
    for (index, (src, tgt)), pair_scores in zip(segmented.items(), scores, strict=True):
        log_probs = pair_scores.log_probs
        log_prob = sum(log_probs)
        results[index] = Translation(
            tgt,
            results[index].text,
            log_prob / options.penalty(len(log_probs)),
            log_prob,
            finished=True,
            token_log_probs=log_probs,
            alignment=word_alignment(
                pair_scores.aligned, codec.word_ends(src), codec.word_ends(tgt)
            ),
            short=codec.is_short(len(src), len(tgt)),
            eos=[len(tgt)],
        )
    return results


def _segment_pair(
    codec: TextCodec,
    number: int,
    source: str,
    target: str,
    src: str | None,
    longest_target: int,
) -> tuple[list[str], list[str]] | None:
    """Return the pieces of both sides, none of a blank one; None if a side is too long."""
    sides = []
    for side, line, segment, limit in (
        ("source", source, functools.partial(codec.source_pieces, src=src), MAX_SOURCE_PIECES),
        ("target", target, codec.target_pieces, longest_target),
    ):
        problem = too_long(line)
        pieces = [] if problem else segment(line)
        if len(pieces) > limit:
            problem = f"{len(pieces):,} subwords, at most {limit:,} are allowed"
        if problem:
            print(f"note: line {number} is not scored: its {side} has {problem}", file=sys.stderr)
            return None
        sides.append(pieces)
    source_pieces, target_pieces = sides
    return source_pieces, target_pieces


# ---------------------------------------------------------------- alignment


def word_alignment(
    aligned: Sequence[int], source_ends: Sequence[bool], target_ends: Sequence[bool]
) -> list[tuple[int, int]]:
    """Return pairs (source word, target word) in order, from 0.

    Two words are linked if any of their pieces are.

    Args:
        aligned: the source piece of each target piece; empty = no alignment.
        source_ends, target_ends: whether each piece ends a word.
    """
    if not aligned:
        return []
    source_words, target_words = (
        list(itertools.accumulate(ends[:-1], initial=0)) for ends in (source_ends, target_ends)
    )
    return sorted({(source_words[i], target_words[j]) for j, i in enumerate(aligned)})
