"""From pairs of lines to ids on disk, in worker processes, without holding a corpus."""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nmt.data import workers
from nmt.data.encoded import (
    DRAFT_TYPES,
    SIDES,
    CorpusWriter,
    Ragged,
    remap_ids,
)
from nmt.data.segment import Segmenter
from nmt.data.text import is_blank
from nmt.data.vocab import LARGEST, UNK, Vocab
from nmt.data.workers import Pair, on_all_cores
from nmt.errors import UserError

SHOWN = 10  # unknown pieces in the report


class Pieces(NamedTuple):
    """One side of a chunk.

    Attributes:
        types: its distinct pieces.
        flat: the sentences as indices into ``types``.
    """

    types: list[str]
    flat: Ragged

    @classmethod
    def of(cls, sentences: list[list[str]]) -> Pieces:
        """From lists of pieces."""
        places: defaultdict[str, int] = defaultdict()
        places.default_factory = places.__len__  # a piece that is new gets the next place
        ids = np.fromiter(map(places.__getitem__, chain.from_iterable(sentences)), np.int32)
        lengths = np.fromiter(map(len, sentences), np.int32, len(sentences))
        return cls(list(places), Ragged(ids, lengths))


class EncodeChunk:
    """Chunk of training pairs -> pieces; BPE-dropout draws from the seed and the chunk's number.

    Args:
        longest: pieces that a side may have; longer pairs are left out.
    """

    def __init__(self, segmenter: Segmenter, src: str, tgt: str, seed: int, longest: int) -> None:
        self.segmenter, self._langs = segmenter, (src, tgt)
        self._seed, self._longest = seed, longest

    def __call__(self, number: int, pairs: list[Pair]) -> tuple[tuple[Pieces, Pieces], list[int]]:
        """Return the pieces of both sides, and the places in the chunk of the pairs left out."""
        encode = self.segmenter.training_encoder([self._seed, number])
        src, tgt = (
            [encode(pair[side], lang) for pair in pairs] for side, lang in enumerate(self._langs)
        )
        longest = map(max, map(len, src), map(len, tgt))
        over = [place for place, length in enumerate(longest) if length > self._longest]
        for place in reversed(over):
            del src[place], tgt[place]
        return (Pieces.of(src), Pieces.of(tgt)), over


def encode_training(
    work: EncodeChunk, pairs: Iterator[Pair], min_count: int, folder: Path
) -> tuple[Vocab, list[int]]:
    """Write a training corpus and find its vocabulary in one pass over the text.

    The vocabulary is known at the end alone: ids are given in order of appearance first, and
    changed to the vocabulary's in a second pass over the ids.

    Returns:
        The vocabulary, and the places in ``pairs`` of the pairs with too many pieces.

    Raises:
        UserError: more types than a vocabulary may have.
    """
    appeared: dict[str, int] = {}
    counts: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    draft = folder.with_name(f"{folder.name}.draft")
    writer = CorpusWriter(draft, DRAFT_TYPES)
    left_out: list[int] = []
    for number, (chunk, over) in enumerate(on_all_cores(work, pairs)):
        left_out += [number * workers.CHUNK + place for place in over]
        sides = []
        for (types, flat), count in zip(chunk, counts, strict=True):
            seen = np.bincount(flat.ids, minlength=len(types))
            count.update(dict(zip(types, seen.tolist(), strict=True)))
            ids = np.array([appeared.setdefault(t, len(appeared)) for t in types], np.int32)
            sides.append(Ragged(ids[flat.ids], flat.lengths))
        writer.add_flat(*sides)
    writer.finish()
    vocab = Vocab.build(*counts, min_count=min_count, alphabet=work.segmenter.alphabet())
    if len(vocab) > LARGEST:
        raise UserError(
            f"the training text has {len(vocab):,} types; at most {LARGEST:,} are allowed",
            at="segment.kind",
            fix="use fastbpe or sentencepiece, or raise segment.min_count",
        )
    final = np.array(vocab.ids(appeared), np.int32)
    remap_ids(draft, final, folder, len(vocab))
    shutil.rmtree(draft)
    return vocab, left_out


def encode_held_out(
    pairs: Iterator[Pair], segmenter: Segmenter, vocab: Vocab, src: str, tgt: str, folder: Path
) -> dict[str, Any]:
    """Write a tuning or test set, every line of it; a blank side has no ids.

    Returns:
        Of each side, the share of pieces that are UNK and that this side of the training text never
        has; and the most frequent ones that it lacks.
    """
    writer = CorpusWriter(folder, len(vocab))
    masks = [vocab.types_of(side) for side in SIDES]
    for mask in masks:
        mask[UNK] = False
    lacking: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for pair in pairs:
        ids = []
        for line, lang, mask, count in zip(pair, (src, tgt), masks, lacking, strict=True):
            pieces = [] if is_blank(line) else segmenter.encode(line, lang)
            ids.append(vocab.ids(pieces))
            count.update(piece for piece, i in zip(pieces, ids[-1], strict=True) if not mask[i])
        writer.add([ids[0]], [ids[1]])
    corpus = writer.close()
    return {
        side: {
            "unknown": float((ids == UNK).mean()),
            "lacking": float((~own[ids]).mean()),
            "pieces": [piece for piece, _ in count.most_common(SHOWN)],
        }
        for side, own, count in zip(SIDES, masks, lacking, strict=True)
        for ids in [corpus.ids(side)]
    }
