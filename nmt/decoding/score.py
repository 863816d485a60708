"""Given translations scored: their log-probability as the search would have had it."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch

from nmt.data.text import clean_line, is_blank
from nmt.decoding.ensemble import Ensemble
from nmt.decoding.examine import links, word_ends
from nmt.decoding.forced import Forced, Pairs, force
from nmt.decoding.options import SearchOptions
from nmt.decoding.search import length_penalty
from nmt.decoding.sentences import BLANK, Hypothesis, Sentences
from nmt.decoding.windows import windows
from nmt.errors import UserError
from nmt.model.transformer import Transformer

LONGEST = 4096  # pieces of a side; attention of longer ones would not fit in memory


def score_lines(
    model: Transformer | Ensemble,
    sentences: Sentences,
    sources: Iterable[str],
    targets: Iterable[str],
    options: SearchOptions,
    window: int,
    skip: int,
    device: torch.device,
    progress: Callable[[int], None],
    ready: Callable[[], bool],
) -> Iterator[Hypothesis]:
    """Score each target line as the translation of its source line.

    A pair of blank lines has log-probability 0: a blank line is always translated by one. Where
    one side alone is blank it is minus infinity: no search says so; and for a pair that is too
    long, with a note on standard error.

    Args:
        window: pairs that are read ahead and sorted by length.
        skip: pairs passed over.
        ready: whether the next line can be read without waiting for it.

    Raises:
        UserError: one side has more lines than the other.
    """
    pairs_of_lines = enumerate(itertools.zip_longest(sources, targets), 1)
    numbered = itertools.islice(pairs_of_lines, skip, None)
    for pairs in windows(
        numbered, window, lambda pair: sum(len(side or "") for side in pair[1]), ready
    ):
        encoded = [_encode(sentences, number, *pair) for number, pair in pairs]
        usable = [pieces for pieces in encoded if pieces is not None and all(pieces)]
        ids = [
            [np.array(sentences.vocab.ids(side), dtype=np.int64) for side in pieces]
            for pieces in usable
        ]
        progress(len(pairs) - len(usable))
        forced = iter(
            force(
                model, Pairs([s for s, _ in ids], [t for _, t in ids]),
                options.batch_tokens, device, options.align, progress,
            )
        )  # fmt: skip
        for (_, (_, target)), pieces in zip(pairs, encoded, strict=True):
            if pieces is None or any(pieces) != all(pieces):
                yield Hypothesis([], target, -math.inf, -math.inf, True)
            elif not any(pieces):
                yield BLANK
            else:
                yield _scored(sentences, target, *pieces, next(forced), options)


def _encode(
    sentences: Sentences, number: int, source: str | None, target: str | None
) -> tuple[list[str], list[str]] | None:
    """Pieces of both sides, none of a blank one; None if a side is too long."""
    if source is None or target is None:
        side = "source" if source is None else "target"
        raise UserError(
            f"the {side} ends before line {number}, the other side goes on",
            fix="give two texts of as many lines",
        )
    segmenter, langs = sentences.segmenter, (sentences.src, sentences.tgt)
    lines = [clean_line(line) for line in (source, target)]
    src, tgt = (
        [] if is_blank(line) else segmenter.encode(line, lang)
        for line, lang in zip(lines, langs, strict=True)
    )
    if (longest := max(len(src), len(tgt))) > LONGEST:
        print(
            f"note: line {number} has {longest} pieces, over {LONGEST}; it is not scored",
            file=sys.stderr,
        )
        return None
    return src, tgt


def _scored(
    sentences: Sentences,
    text: str,
    src: Sequence[str],
    tgt: list[str],
    forced: Forced,
    options: SearchOptions,
) -> Hypothesis:
    log_prob = sum(forced.log_probs)
    penalty = length_penalty(len(forced.log_probs), options.length_alpha)
    return Hypothesis(
        tgt,
        text,
        log_prob / float(penalty),
        log_prob,
        True,
        forced.log_probs,
        links(forced.sources, word_ends(sentences, src), word_ends(sentences, tgt)),
    )
