"""Given translations scored: their log-probability as the search would have had it."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from nmt.decoding import codec as sentences_module
from nmt.decoding.codec import BLANK, TextCodec, Translation
from nmt.decoding.ensemble import Ensemble
from nmt.decoding.examine import word_alignment, word_ends
from nmt.decoding.forced import Pairs, TokenScores, forced_decode
from nmt.decoding.memory import Memory
from nmt.decoding.options import SearchOptions
from nmt.decoding.search import length_penalty
from nmt.decoding.windows import read_chunks
from nmt.errors import UserError
from nmt.model.transformer import Transformer

LONGEST = 4096  # pieces of a target; attention of longer ones would not fit in memory


def score_lines(
    model: Transformer | Ensemble,
    sentences: TextCodec,
    sources: Iterable[str],
    targets: Iterable[str],
    options: SearchOptions,
    window: int,
    skip: int,
    memory: Memory,
    progress: Callable[[int], None],
    ready: Callable[[], bool],
) -> Iterator[Translation]:
    """Score each target line as the translation of its source line.

    A pair of blank lines has log-probability 0: a blank line is always translated by one. Where
    one side alone is blank it is minus infinity: no search says so; and for a pair that is too
    long, with a note on standard error. A source line that a search translates in parts is too
    long: which part of the target belongs to which is not known.

    Args:
        window: pairs that are read ahead and sorted by length.
        memory: of the device that computes.
        skip: pairs passed over.
        ready: whether the next line can be read without waiting for it.

    Raises:
        UserError: one side has more lines than the other.
    """
    pairs_of_lines = enumerate(itertools.zip_longest(sources, targets), 1)
    numbered = itertools.islice(pairs_of_lines, skip, None)
    for pairs in read_chunks(
        numbered, window, lambda pair: sum(len(side or "") for side in pair[1]), ready
    ):
        encoded = [_encode(sentences, number, *pair) for number, pair in pairs]
        usable = [
            (number, *(np.array(sentences.vocab.ids(side), dtype=np.int64) for side in pieces))
            for (number, _), pieces in zip(pairs, encoded, strict=True)
            if pieces is not None and all(pieces)
        ]
        progress(len(pairs) - len(usable))
        lines, src, tgt = zip(*usable, strict=True) if usable else ((), (), ())
        given = Pairs(src, tgt, lines)
        forced = iter(
            forced_decode(model, given, options.batch_tokens, memory, options.align, progress)
        )
        for (_, (_, target)), pieces in zip(pairs, encoded, strict=True):
            if pieces is None or any(pieces) != all(pieces):
                yield Translation([], target, -math.inf, -math.inf, True)
            elif not any(pieces):
                yield BLANK
            else:
                yield _scored(sentences, target, *pieces, next(forced), options)


def _encode(
    sentences: TextCodec, number: int, source: str | None, target: str | None
) -> tuple[list[str], list[str]] | None:
    """Pieces of both sides, none of a blank one; None if a side is too long."""
    if source is None or target is None:
        side = "source" if source is None else "target"
        raise UserError(
            f"the {side} ends before line {number}, the other side goes on",
            fix="give two texts of as many lines",
        )
    encoded = []
    for side, line, encode, most in (
        ("source", source, sentences.source_pieces, sentences_module.LONGEST),
        ("target", target, sentences.target_pieces, LONGEST),
    ):
        what = sentences.too_long(line)
        pieces = [] if what else encode(line)
        if len(pieces) > most:
            what = f"{len(pieces):,} pieces, at most {most:,} are allowed"
        if what:
            print(f"note: line {number} is not scored: its {side} has {what}", file=sys.stderr)
            return None
        encoded.append(pieces)
    src, tgt = encoded
    sentences.source_ids(number, src)
    return src, tgt


def _scored(
    sentences: TextCodec,
    text: str,
    src: Sequence[str],
    tgt: list[str],
    forced: TokenScores,
    options: SearchOptions,
) -> Translation:
    log_prob = sum(forced.log_probs)
    penalty = length_penalty(len(forced.log_probs), options.length_alpha)
    return Translation(
        tgt,
        text,
        log_prob / float(penalty),
        log_prob,
        True,
        forced.log_probs,
        word_alignment(forced.sources, word_ends(sentences, src), word_ends(sentences, tgt)),
    )
