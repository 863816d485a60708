"""Adapt the segmentation and the vocabulary of a parent to the corpora of a recipe.

``init.vocab: extend`` adds pieces for text that they do not fit, ``init.trim`` removes pieces that
the corpora do not need. ``prepare`` uses the result unchanged. A resumed run has stored it and does
not repeat this.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any, TypeAlias

from nmt.config.recipe import Recipe
from nmt.data.bitext import Chunk, RecipeFiles, TrainingText
from nmt.data.lines import SIDES
from nmt.data.prepare import GivenText, read_mixture
from nmt.data.scan import read_to_learn_from
from nmt.data.segmenters import Segmenter
from nmt.data.vocab import SPECIALS, TAG_MARK, UNK, Vocab
from nmt.data.workers import map_chunks

_Text: TypeAlias = tuple[Segmenter, Vocab]
SHOWN = 8  # new pieces that a line names


def adapt(recipe: Recipe, parent: GivenText, progress: bool) -> GivenText:
    """Extend and trim the segmentation and the vocabulary of a parent as ``init`` says.

    The vocabulary has the counts of the parent, of which new pieces have none.

    Args:
        progress: show progress bars on a terminal.

    Raises:
        UserError: the corpora cannot be read or have no text, or the segmenter is of a kind that
            cannot be extended or trimmed.
    """
    init, data, vocab = recipe.init, recipe.data, parent.vocab
    files = RecipeFiles.of(recipe, adapting=True)
    train = read_to_learn_from(files.train, data, progress, "data.train")
    learn = read_to_learn_from(files.learn, data, progress) if files.learn else train
    segmenter, own, parts = parent.segmenter, vocab, dict[str, list[str]]()
    if init.vocab == "extend":
        chunks = read_mixture(learn, 1.0 if files.learn else data.temperature)
        segmenter, parts = segmenter.extended(set(vocab.types), chunks, init.new_pieces)
        own = vocab.with_counts(Counter(), Counter(), parts)
    if init.trim:
        held_out = read_to_learn_from([*files.held_out.values()], data, progress, "data.dev")
        texts = [train, held_out, *([learn] if files.learn else [])]
        chunks = chain.from_iterable(text.read("finding subwords") for text in texts)
        pieces = map_chunks(functools.partial(_pieces_of, segmenter), chunks)
        needed = set(parts).union(*pieces)
        frequent = [piece for piece in vocab.most_frequent if not piece.startswith(TAG_MARK)]
        needed.update(frequent[: init.keep_pieces])
        segmenter, kept = segmenter.trimmed(set(own.types), needed)
        own = own.with_types({*kept, *(t for t in own.types if t.startswith(TAG_MARK))})
    both = (parent.segmenter, vocab), (segmenter, own)
    change = {
        "types": [len(text) - len(SPECIALS) for _, text in both],
        "new_pieces": len(parts),
        "training_text": _change(train, *both),
    }
    return GivenText(segmenter, own, parts, change)


def describe_change(text: GivenText) -> list[str]:
    """Describe in lines how a text differs from that of the parent; none if it is the same."""
    if not text.change:
        return []
    types, change = text.change["types"], text.change["training_text"]
    (before, after), (unknown, still_unknown) = change["pieces"], change["unknown"]
    shown = ", ".join(itertools.islice(text.parts, SHOWN)) + ", ..." * (len(text.parts) > SHOWN)
    return [
        f"  new subwords: {len(text.parts):,}" + f" ({shown})" * bool(text.parts),
        f"  subwords: {types[0]:,} in the parent, {types[1]:,} here",
        f"  training text: {before:,} -> {after:,} subwords, {unknown / max(1, before):.2%} -> "
        f"{still_unknown / max(1, after):.2%} of them unknown; "
        f"{change['changed'] / max(1, change['lines']):.1%} of {change['lines']:,} sentences have "
        "other subwords",
    ]


def _encode(segmenter: Segmenter, chunk: Chunk) -> Iterator[list[str]]:
    for side, lines, lang in zip(SIDES, chunk.sides(), chunk.corpus.langs, strict=True):
        for line in lines:
            yield segmenter.encode(line, lang, side)


def _pieces_of(segmenter: Segmenter, chunk: Chunk) -> set[str]:
    return set(chain.from_iterable(_encode(segmenter, chunk)))


def _compare(before: _Text, after: _Text, chunk: Chunk) -> Counter[str]:
    counts: Counter[str] = Counter()
    for old, new in zip(_encode(before[0], chunk), _encode(after[0], chunk), strict=True):
        counts["lines"] += bool(old)
        counts["changed"] += old != new
        for when, pieces, (_, vocab) in (("before", old, before), ("after", new, after)):
            counts[f"pieces {when}"] += len(pieces)
            counts[f"unknown {when}"] += vocab.ids(pieces).count(UNK)
    return counts


def _change(text: TrainingText, before: _Text, after: _Text) -> dict[str, Any]:
    """Count the sides of lines with text and those with other pieces; pieces before and after."""
    counts: Counter[str] = Counter()
    for part in map_chunks(functools.partial(_compare, before, after), text.read("comparing")):
        counts.update(part)
    change: dict[str, Any] = {key: counts[key] for key in ("lines", "changed")}
    for key in ("pieces", "unknown"):
        change[key] = [counts[f"{key} before"], counts[f"{key} after"]]
    return change
