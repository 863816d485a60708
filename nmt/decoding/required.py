"""Required phrases: where a translation lacks one, search again with the phrase forced.

Such a search begins with the translation up to some place, and the phrase after it. It is tried at
the places where the phrase is most likely, and the best translation counts. So a translation that
has its phrases stays as it is, and an engine only needs to force a prefix.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from nmt.decoding.codec import TextCodec
from nmt.decoding.constraints import TargetPieces
from nmt.decoding.engine import Engine, Hypothesis, SearchInput, Stop, ignore
from nmt.decoding.options import SearchOptions

# for each input: how many places are scored, and how many searches begin there; a round forces one
# phrase, and the last one all that are still missing
SCORED, TRIED, ROUNDS = 48, 4, 5


def search_again(
    engine: Engine,
    inputs: Sequence[SearchInput],
    results: list[list[Hypothesis]],
    codec: TextCodec,
    options: SearchOptions,
    stop: Stop,
) -> None:
    """Replace the hypotheses of inputs that lack required phrases; others stay as they are.

    Args:
        results: of a search without the phrases, best first; changed in place.
    """

    def complete(row: int, hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
        require = inputs[row].require
        return [h for h in hypotheses if not list(_missing(require, codec.pieces(h), codec))]

    open_rows: dict[int, list[Hypothesis]] = {}
    for row, part in enumerate(inputs):
        if part.require and results[row]:
            done = complete(row, results[row])
            if not done:
                open_rows[row] = results[row][:1]
            results[row] = done or results[row]
    for number in range(1, ROUNDS + 1):
        if not open_rows:
            return
        if number < ROUNDS:
            places = [
                (row, prefix, size)
                for row, hypotheses in open_rows.items()
                for prefix, size in _places(inputs[row], hypotheses, codec, engine.longest_target)
            ]
            prefixes = _most_likely(engine, inputs, places, options, stop)
        else:
            prefixes = [(row, _at_end(inputs[row], h[0], codec)) for row, h in open_rows.items()]
        forced = [replace(inputs[row], prefix=prefix) for row, prefix in prefixes]
        found: dict[int, dict[tuple[int, ...], Hypothesis]] = defaultdict(dict)
        searched = engine.search(forced, options, stop, ignore)
        for (row, prefix), hypotheses in zip(prefixes, searched, strict=True):
            found[row] |= {tuple(h.ids): replace(h, forced=prefix) for h in hypotheses}
        for row, unique in found.items():
            del open_rows[row]
            best = sorted(unique.values(), key=lambda h: -h.score)
            done = complete(row, best)
            if not done:
                open_rows[row] = best[:TRIED]
            results[row] = (done or best)[: options.wanted]


def _missing(
    require: Sequence[tuple[TargetPieces, ...]], pieces: Sequence[str], codec: TextCodec
) -> Iterator[tuple[TargetPieces, ...]]:
    for forms in require:
        if not any(codec.strings.contains(pieces, form.pieces) for form in forms):
            yield forms


def _places(
    part: SearchInput, hypotheses: Sequence[Hypothesis], codec: TextCodec, longest: int
) -> list[tuple[TargetPieces, int]]:
    """List beginnings of hypotheses with a missing phrase after them, and the phrase's length.

    A beginning is at least what is forced already. A form with a capital letter, of which another
    form has none, begins the translation. Of many places, some at equal distances are listed.
    """
    places = []
    for hypothesis in hypotheses:
        pieces, forced = codec.pieces(hypothesis), len(hypothesis.forced.ids)
        for forms in _missing(part.require, pieces, codec):
            texts = {codec.strings.join(form.pieces) for form in forms}
            for form in forms:
                text = codec.strings.join(form.pieces)
                word = text.lstrip(" ")
                small = text.replace(word[:1], word[:1].lower(), 1)
                at_start = small != text and small in texts
                for end in codec.strings.places(pieces, form.pieces):
                    fits = end == forced or end + len(form.ids) < longest
                    if end >= forced and fits and not (at_start and end):
                        places.append((hypothesis, end, form))
    chosen = []
    for hypothesis, end, form in places[:: max(1, math.ceil(len(places) / SCORED))]:
        before = codec.pieces(hypothesis)[:end]
        ids = (*hypothesis.ids[:end], *form.ids)
        chosen.append((TargetPieces((*before, *form.pieces), ids), len(form.ids)))
    return chosen


def _at_end(part: SearchInput, hypothesis: Hypothesis, codec: TextCodec) -> TargetPieces:
    """Put all missing phrases after a hypothesis."""
    prefix = TargetPieces(tuple(codec.pieces(hypothesis)), tuple(hypothesis.ids))
    for forms in _missing(part.require, prefix.pieces, codec):
        count = len(prefix.pieces)
        fitting = (f for f in forms if count in codec.strings.places(prefix.pieces, f.pieces))
        form = next(fitting, forms[0])
        prefix = TargetPieces((*prefix.pieces, *form.pieces), (*prefix.ids, *form.ids))
    return prefix


def _most_likely(
    engine: Engine,
    inputs: Sequence[SearchInput],
    places: Sequence[tuple[int, TargetPieces, int]],
    options: SearchOptions,
    stop: Stop,
) -> list[tuple[int, TargetPieces]]:
    """Choose for each row the places where the phrase is most likely after what precedes it."""
    pairs = [(inputs[row].ids, np.array(p.ids), inputs[row].line) for row, p, _ in places]
    scores = engine.score(pairs, options.model_copy(update={"align": False}), stop, ignore)
    of_row: dict[int, dict[TargetPieces, float]] = defaultdict(dict)
    for (row, prefix, size), score in zip(places, scores, strict=True):
        end = len(prefix.ids)
        of_row[row][prefix] = sum(score.log_probs[end - size : end])
    return [
        (row, prefix)
        for row, values in of_row.items()
        for prefix in sorted(values, key=values.__getitem__, reverse=True)[:TRIED]
    ]
