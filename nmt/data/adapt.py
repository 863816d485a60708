"""Adapt the segmentation and the vocabulary of a parent to the corpora of a recipe.

``init.vocab: extend`` adds pieces for text that they do not fit, ``init.trim`` removes pieces that
the corpora do not need. The result is what ``prepare`` takes as given, so a resumed run, which has
stored it, does not repeat this.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeAlias

from nmt.config.recipe import Recipe
from nmt.data.bitext import Chunk, RecipeFiles, TrainingText
from nmt.data.prepare import read_mixture
from nmt.data.scan import read_to_learn_from
from nmt.data.segmenters import Segmenter
from nmt.data.text import SIDES
from nmt.data.vocab import SPECIALS, TAG_MARK, UNK, Vocab
from nmt.data.workers import map_chunks

Text: TypeAlias = tuple[Segmenter, Vocab]
SHOWN = 8  # new pieces that a line names


@dataclass(frozen=True)
class Adaptation:
    """How a segmentation and a vocabulary differ from those of the parent.

    Attributes:
        parts: new piece -> the pieces of the parent that it replaces; none = they are unknown.
        record: numbers for init.json.
        lines: the same for a reader.
    """

    parts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)
    lines: Sequence[str] = ()


def adapt(
    recipe: Recipe, segmenter: Segmenter, vocab: Vocab, progress: bool
) -> tuple[Segmenter, Vocab, Adaptation]:
    """Extend and trim the segmentation and the vocabulary of a parent as ``init`` says.

    Args:
        progress: show progress bars on a terminal.

    Returns:
        The segmenter, the vocabulary with the counts of the parent, of which new pieces have none,
        and what changed.

    Raises:
        UserError: the corpora cannot be read or have no text, or the segmenter is of a kind that
            cannot be extended or trimmed.
    """
    init, data = recipe.init, recipe.data
    files = RecipeFiles.of(recipe, adapting=True)
    train = read_to_learn_from(files.train, data, progress, "data.train")
    learn = read_to_learn_from(files.learn, data, progress) if files.learn else train
    own_segmenter, own, parts = segmenter, vocab, dict[str, list[str]]()
    if init.vocab == "extend":
        chunks = read_mixture(learn, 1.0 if files.learn else data.temperature)
        own_segmenter, parts = segmenter.extended(set(vocab.types), chunks, init.new_pieces)
        own = vocab.with_counts(Counter(), Counter(), parts)
    if init.trim:
        held_out = read_to_learn_from([*files.held_out.values()], data, progress, "data.dev")
        texts = [train, held_out, *([learn] if files.learn else [])]
        wanted = {*_pieces(own_segmenter, texts), *parts}
        frequent = [piece for piece in vocab.most_frequent if not piece.startswith(TAG_MARK)]
        wanted.update(frequent[: init.keep_pieces])
        own_segmenter, kept = own_segmenter.trimmed(set(own.types), wanted)
        own = own.with_types({*kept, *(t for t in own.types if t.startswith(TAG_MARK))})
    change = _change(train, (segmenter, vocab), (own_segmenter, own))
    types = [len(vocab) - len(SPECIALS), len(own) - len(SPECIALS)]
    record = {"types": types, "new_pieces": len(parts), "training_text": change}
    return own_segmenter, own, Adaptation(parts, record, _lines(recipe, change, types, parts))


def _encode(segmenter: Segmenter, chunk: Chunk) -> Iterator[list[str]]:
    for side, lines, lang in zip(SIDES, chunk.sides(), chunk.corpus.langs, strict=True):
        for line in lines:
            yield segmenter.encode(line, lang, side)


def _pieces_of(segmenter: Segmenter, chunk: Chunk) -> set[str]:
    return set(chain.from_iterable(_encode(segmenter, chunk)))


def _pieces(segmenter: Segmenter, texts: Sequence[TrainingText]) -> set[str]:
    chunks = chain.from_iterable(text.read("finding subwords") for text in texts)
    return set().union(*map_chunks(functools.partial(_pieces_of, segmenter), chunks))


def _compare(before: Text, after: Text, chunk: Chunk) -> Counter[str]:
    counts: Counter[str] = Counter()
    for old, new in zip(_encode(before[0], chunk), _encode(after[0], chunk), strict=True):
        counts["lines"] += bool(old)
        counts["changed"] += old != new
        for when, pieces, (_, vocab) in (("before", old, before), ("after", new, after)):
            counts[f"pieces {when}"] += len(pieces)
            counts[f"unknown {when}"] += vocab.ids(pieces).count(UNK)
    return counts


def _change(text: TrainingText, before: Text, after: Text) -> dict[str, Any]:
    """Count the sides of lines with text and those with other pieces; pieces before and after."""
    counts: Counter[str] = Counter()
    for part in map_chunks(functools.partial(_compare, before, after), text.read("comparing")):
        counts.update(part)
    change: dict[str, Any] = {key: counts[key] for key in ("lines", "changed")}
    for key in ("pieces", "unknown"):
        change[key] = [counts[f"{key} before"], counts[f"{key} after"]]
    return change


def _lines(
    recipe: Recipe, change: Mapping[str, Any], types: list[int], parts: Collection[str]
) -> list[str]:
    lines = []
    if recipe.init.vocab == "extend":
        shown = ", ".join(itertools.islice(parts, SHOWN)) + (", ..." if len(parts) > SHOWN else "")
        lines.append(
            f"  new subwords: {len(parts):,}"
            + (f" ({shown})" if parts else "; the subwords of the parent fit this text")
        )
    lines.append(f"  subwords: {types[0]:,} in the parent, {types[1]:,} here")
    (before, after), (unknown, still_unknown) = change["pieces"], change["unknown"]
    lines.append(
        f"  training text: {before:,} -> {after:,} subwords, {unknown / max(1, before):.2%} -> "
        f"{still_unknown / max(1, after):.2%} of them unknown; "
        f"{change['changed'] / max(1, change['lines']):.1%} of {change['lines']:,} sentences have "
        "other subwords"
    )
    return lines
