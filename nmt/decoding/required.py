"""Required phrases: where a translation lacks one, search again with the phrase forced.

Such a search begins with the translation up to some place, and the phrase after it. It is tried at
the places where the phrase is most likely, and the best translation counts. So a translation that
has its phrases stays as it is, and an engine only needs to force a prefix.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from nmt.decoding.codec import TextCodec
from nmt.decoding.constraints import TargetPieces
from nmt.decoding.engine import Engine, Hypothesis, Scorer, SearchInput, Stop, ignore
from nmt.decoding.options import SearchOptions

PLACES = 5  # that are tried for the phrases of a line


def search_again(
    engine: Engine,
    scorer: Scorer,
    inputs: Sequence[SearchInput],
    results: list[list[Hypothesis]],
    codec: TextCodec,
    options: SearchOptions,
    stop: Stop,
) -> None:
    """Replace the hypotheses of inputs that lack required phrases; others stay as they are.

    Each round forces one more phrase, so the rounds are at most as many as the phrases.

    Args:
        results: of a search without the phrases, best first; changed in place.
    """

    def complete(row: int, hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
        require = inputs[row].require
        return [h for h in hypotheses if not list(_missing(require, codec.pieces(h), codec))]

    open_rows: dict[int, list[Hypothesis]] = {}
    for row, hypotheses in enumerate(results):
        results[row] = complete(row, hypotheses)
        if not results[row]:
            open_rows[row] = hypotheses[:1]
    while open_rows:
        tried = [
            (row, prefix, size)
            for row, hypotheses in open_rows.items()
            for prefix, size in _places(inputs[row], hypotheses, codec, scorer.longest_target)
        ]
        chosen = _most_likely(scorer, inputs, tried, options, stop)
        forced = [replace(inputs[row], prefix=prefix) for row, prefix in chosen]
        found: dict[int, list[Hypothesis]] = defaultdict(list)
        searched = engine.search(forced, options, stop, ignore)
        for (row, prefix), hypotheses in zip(chosen, searched, strict=True):
            found[row] += [replace(h, forced=prefix) for h in hypotheses]
        open_rows = {}
        for row, hypotheses in found.items():
            hypotheses.sort(key=lambda h: -h.score)
            unique = {tuple(h.ids): h for h in reversed(hypotheses)}
            results[row] = complete(row, list(reversed(unique.values())))[: options.wanted]
            if not results[row]:
                open_rows[row] = hypotheses[:PLACES]


def _missing(
    require: Sequence[tuple[TargetPieces, ...]], pieces: Sequence[str], codec: TextCodec
) -> Iterator[tuple[TargetPieces, ...]]:
    for forms in require:
        if not any(codec.strings.contains(pieces, form.pieces) for form in forms):
            yield forms


def _places(
    part: SearchInput, hypotheses: Sequence[Hypothesis], codec: TextCodec, longest: int
) -> Iterator[tuple[TargetPieces, int]]:
    """Yield each beginning of hypotheses with a missing phrase after it, and the phrase's length.

    A beginning is at least what is forced already.
    """
    for hypothesis in hypotheses:
        pieces, forced = codec.pieces(hypothesis), len(hypothesis.forced.ids)
        for forms in _missing(part.require, pieces, codec):
            for form in forms:
                for end in codec.strings.places(pieces, form.pieces):
                    fits = end == forced or end + len(form.ids) < longest
                    if end >= forced and fits:
                        ids = (*hypothesis.ids[:end], *form.ids)
                        yield TargetPieces((*pieces[:end], *form.pieces), ids), len(form.ids)


def _most_likely(
    scorer: Scorer,
    inputs: Sequence[SearchInput],
    tried: Sequence[tuple[int, TargetPieces, int]],
    options: SearchOptions,
    stop: Stop,
) -> list[tuple[int, TargetPieces]]:
    """Choose for each row the places where the phrase is most likely after what precedes it."""
    pairs = [(inputs[row].ids, np.array(p.ids), inputs[row].line) for row, p, _ in tried]
    scores = scorer.score(pairs, options.model_copy(update={"align": False}), stop, ignore)
    of_row: dict[int, dict[TargetPieces, float]] = defaultdict(dict)
    for (row, prefix, size), score in zip(tried, scores, strict=True):
        end = len(prefix.ids)
        of_row[row][prefix] = sum(score.log_probs[end - size : end])
    return [
        (row, prefix)
        for row, places in of_row.items()
        for prefix in sorted(places, key=places.__getitem__, reverse=True)[:PLACES]
    ]
