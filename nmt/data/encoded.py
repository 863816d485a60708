"""Encoded corpora: pairs as ids in flat memory-mapped files, written and read in chunks.

A folder has ``src.ids`` and ``tgt.ids`` (uint16 or int32), ``src.len`` and ``tgt.len`` (int32), and
``corpus.json`` with the type and the number of values in each file, and the number of pairs of each
entry of the training corpus.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from nmt.data import workers
from nmt.data.bitext import Bitext
from nmt.data.report import Coverage
from nmt.data.segmenters import Segmenter
from nmt.data.segmenters.base import Languages, TrainingPair
from nmt.data.segmenters.noise import Noise, ReachablePieces
from nmt.data.text import Pair, is_blank
from nmt.data.vocab import MAX_TYPES, UNK, Vocab, tag_piece
from nmt.errors import MachineError, UserError
from nmt.runtime.files import read_text

Side: TypeAlias = Literal["src", "tgt"]
SIDES: tuple[Side, Side] = ("src", "tgt")
COPIED_ROWS = 10_000  # rows copied at a time
DRAFT_TYPES = 1 << 31  # of a corpus whose vocabulary is not known yet; its ids are int32
SHOWN_PIECES = 10  # pieces listed in a report


class Ragged(NamedTuple):
    """Sentences of different lengths, concatenated.

    Attributes:
        ids: [sum of lengths] ids.
        lengths: [n] int32.
    """

    ids: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, sentences: Sequence[Sequence[int]]) -> Ragged:
        """Concatenate lists of ids."""
        lengths = np.fromiter(map(len, sentences), np.int32, len(sentences))
        ids = chain.from_iterable(sentences)
        return cls(np.fromiter(ids, np.int32, int(lengths.sum())), lengths)


class EncodedCorpus:
    """Pairs of id sequences without EOS, memory-mapped.

    Attributes:
        src_len, tgt_len: [n] int32, pieces of each pair.
        sizes: pairs of each entry of a training corpus, in order; they add up to n.
    """

    def __init__(self, folder: Path) -> None:
        """Open what ``CorpusWriter`` wrote.

        Raises:
            MachineError: a file is missing or does not have the size that was written.
        """
        try:
            metadata = json.loads(read_text(folder / "corpus.json"))
            arrays = {
                f"{side}.{part}": _map(folder / f"{side}.{part}", *metadata[f"{side}.{part}"])
                for side in SIDES
                for part in ("ids", "len")
            }
            count = len(arrays["src.len"])
            self.sizes: list[int] = metadata.get("sizes", [count])
            if sum(self.sizes) != count:
                raise ValueError(f"it has {count} pairs, not {sum(self.sizes)}")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise MachineError(f"the encoded corpus is damaged: {error}", at=str(folder)) from error
        self.src_len, self.tgt_len = (np.asarray(arrays[f"{side}.len"]) for side in SIDES)
        # plain arrays on the same memory: slicing a memmap takes several times as long
        self._ids = {side: np.asarray(arrays[f"{side}.ids"]) for side in SIDES}
        self._starts = {side: _starts(arrays[f"{side}.len"]) for side in SIDES}

    def __len__(self) -> int:
        return len(self.src_len)

    def src(self, row: int) -> np.ndarray:
        """Return the source ids of a pair."""
        return self.ids("src", row, row + 1)

    def tgt(self, row: int) -> np.ndarray:
        """Return the target ids of a pair."""
        return self.ids("tgt", row, row + 1)

    def ids(self, side: Side, first: int = 0, last: int | None = None) -> np.ndarray:
        """Return the concatenated ids of rows ``first`` to ``last`` (exclusive)."""
        starts = self._starts[side]
        return self._ids[side][starts[first] : starts[len(self) if last is None else last]]


class CorpusWriter:
    """Write pairs of id sequences to a folder; ``finish`` completes it, ``close`` ends a draft."""

    def __init__(self, folder: Path, types: int) -> None:
        """``types``: size of the vocabulary, which decides the bytes per id."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._id_type = np.dtype(np.uint16 if types <= 1 << 16 else np.int32)
        self._files = {
            f"{side}.{part}": open(folder / f"{side}.{part}", "wb")  # noqa: SIM115
            for side in SIDES
            for part in ("ids", "len")
        }
        self._counts = dict.fromkeys(self._files, 0)

    def add(self, src: Ragged, tgt: Ragged) -> None:
        """Append pairs."""
        for side, rows in zip(SIDES, (src, tgt), strict=True):
            for part, array in (("ids", rows.ids.astype(self._id_type)), ("len", rows.lengths)):
                self._files[f"{side}.{part}"].write(array.tobytes())
                self._counts[f"{side}.{part}"] += len(array)

    def close(self) -> None:
        """Close the files, which a power cut may still lose."""
        for file in self._files.values():
            file.close()

    def finish(self, sizes: Sequence[int] | None = None) -> None:
        """Flush the files to the disk, and write corpus.json.

        Args:
            sizes: pairs of each entry of a training corpus.
        """
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())  # the sizes in corpus.json must hold after a power cut
        self.close()
        kinds = {"ids": self._id_type.name, "len": "int32"}
        metadata: dict[str, Any] = {
            name: (kinds[name[4:]], count) for name, count in self._counts.items()
        }
        if sizes is not None:
            metadata["sizes"] = list(sizes)
        (self._folder / "corpus.json").write_text(json.dumps(metadata), encoding="utf-8")


class Pieces(NamedTuple):
    """One side of a chunk of pairs.

    Attributes:
        types: its distinct pieces.
        rows: the sentences as indices into ``types``.
    """

    types: list[str]
    rows: Ragged

    @classmethod
    def of(cls, sentences: list[list[str]]) -> Pieces:
        """Index lists of pieces."""
        indices: defaultdict[str, int] = defaultdict()
        indices.default_factory = indices.__len__  # a new piece gets the next index
        ids = np.fromiter(map(indices.__getitem__, chain.from_iterable(sentences)), np.int32)
        lengths = np.fromiter(map(len, sentences), np.int32, len(sentences))
        return cls(list(indices), Ragged(ids, lengths))


class EncodedChunk(NamedTuple):
    """A chunk of training pairs.

    Attributes:
        sides: the pieces of source and target.
        left_out: positions in the chunk of the pairs left out.
        sizes: number of the other pairs of each corpus.
        reachable: pieces of source and target that noise can make, where earlier chunks of this
            process have not had them.
    """

    sides: tuple[Pieces, Pieces]
    left_out: list[int]
    sizes: Counter[int]
    reachable: tuple[set[str], set[str]]


class EncodeChunk:
    """Segment a chunk of training pairs.

    Args:
        langs: source and target language of each training corpus.
        tags: tag of each training corpus, None = none.
        max_pieces: longest side of a pair, without its tag; longer pairs are left out.
        noise: collect the pieces that this noise can make of the pairs.
    """

    def __init__(
        self,
        segmenter: Segmenter,
        langs: Languages,
        tags: Sequence[str | None],
        max_pieces: int,
        noise: Noise | None = None,
    ) -> None:
        self.segmenter, self._langs = segmenter, langs
        self.tags = [tag_piece(tag) for tag in tags]
        self._max_pieces = max_pieces
        self._reachable = noise and (ReachablePieces(noise), ReachablePieces(noise))

    def __call__(self, pairs: list[TrainingPair]) -> EncodedChunk:
        """Segment a chunk."""
        encode = self.segmenter.encode
        src = [encode(source, self._langs[corpus][0]) for source, _, corpus in pairs]
        tgt = [encode(target, self._langs[corpus][1]) for _, target, corpus in pairs]
        longest = map(max, map(len, src), map(len, tgt))
        too_long = [i for i, length in enumerate(longest) if length > self._max_pieces]
        corpora = [corpus for _, _, corpus in pairs]
        for i in reversed(too_long):
            del src[i], tgt[i], corpora[i]
        reachable: tuple[set[str], set[str]] = (set(), set())
        if self._reachable:
            reachable = self._reachable[0](src), self._reachable[1](tgt)
        for line, corpus in zip(src, corpora, strict=True):
            line[:0] = self.tags[corpus]
        sides = Pieces.of(src), Pieces.of(tgt)
        return EncodedChunk(sides, too_long, Counter(corpora), reachable)


def encode_training(
    work: EncodeChunk,
    pairs: Iterator[TrainingPair],
    min_count: int,
    folder: Path,
    fixed: Vocab | None,
    new: Sequence[str],
) -> tuple[Vocab, list[int], dict[str, Coverage]]:
    """Write a training corpus and build its vocabulary, in one pass over the text.

    The vocabulary is only known at the end. A draft has ids in order of appearance, and a second
    pass over the draft changes them to the ids of the vocabulary. A piece that only noise can make
    of the text of a side gets a count of 1 there, so that the model may predict it.

    Args:
        min_count: types that occur less often are UNK.
        fixed: use these types, and add the counts of the corpus to theirs.
        new: pieces that the vocabulary gets although no text has them.

    Returns:
        The vocabulary, the positions in ``pairs`` of the pairs with too many pieces, and by side
        what a fixed vocabulary lacks.

    Raises:
        UserError: there are more types than a vocabulary may have.
    """
    draft_ids: dict[str, int] = {}
    counts: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    draft = folder.with_name(f"{folder.name}.draft")
    writer = CorpusWriter(draft, DRAFT_TYPES)
    left_out: list[int] = []
    sizes = Counter(dict.fromkeys(range(len(work.tags)), 0))
    reachable: tuple[set[str], set[str]] = (set(), set())
    for number, chunk in enumerate(workers.map_chunks(work, pairs)):
        left_out += [number * workers.CHUNK + i for i in chunk.left_out]
        sizes.update(chunk.sizes)
        for pieces, more in zip(reachable, chunk.reachable, strict=True):
            pieces |= more
        sides = []
        for (types, rows), count in zip(chunk.sides, counts, strict=True):
            seen = np.bincount(rows.ids, minlength=len(types))
            count.update(dict(zip(types, seen.tolist(), strict=True)))
            ids = np.array([draft_ids.setdefault(t, len(draft_ids)) for t in types], np.int32)
            sides.append(Ragged(ids[rows.ids], rows.lengths))
        writer.add(*sides)
    writer.close()
    new = [*new, *(piece for tag in work.tags for piece in tag)]
    src, tgt = (
        count + Counter(pieces - count.keys())
        for count, pieces in zip(counts, reachable, strict=True)
    )
    if fixed is None:
        alphabet = [*work.segmenter.alphabet(), *new]
        vocab = Vocab.build(src, tgt, min_count=min_count, alphabet=alphabet)
    else:
        vocab = fixed.with_counts(src, tgt, new=new)
    if len(vocab) > MAX_TYPES:
        raise UserError(
            f"the training text has {len(vocab):,} types; at most {MAX_TYPES:,} are allowed",
            at="segment.kind",
            fix="set segment.kind to fastbpe or sentencepiece, or raise segment.min_count",
        )
    ids_of_types = np.array(vocab.ids(draft_ids), np.int32)
    remap_ids(draft, ids_of_types, folder, len(vocab), list(sizes.values()))
    shutil.rmtree(draft)
    unknown: dict[str, Coverage] = {}
    if fixed is not None:
        for side, count in zip(SIDES, counts, strict=True):
            unknown[side] = _unknown_pieces(vocab, count)
    return vocab, left_out, unknown


def _unknown_pieces(vocab: Vocab, counts: Counter[str]) -> Coverage:
    """Return the coverage of a text by a vocabulary; what is not a type is lacking and unknown."""
    lacking = Counter({piece: n for piece, n in counts.items() if vocab.ids([piece]) == [UNK]})
    share = lacking.total() / max(1, counts.total())
    return Coverage(share, share, [piece for piece, _ in lacking.most_common(SHOWN_PIECES)])


def remap_ids(draft: Path, ids: np.ndarray, folder: Path, types: int, sizes: Sequence[int]) -> None:
    """Copy a training corpus that was written with DRAFT_TYPES, with ``ids[i]`` in place of i.

    The draft is read block by block: mapped pages would count as memory of this process.
    """
    writer = CorpusWriter(folder, types)
    with ExitStack() as stack:
        files = {
            (side, part): stack.enter_context(open(draft / f"{side}.{part}", "rb"))
            for side in SIDES
            for part in ("ids", "len")
        }
        while True:
            lengths = [np.fromfile(files[side, "len"], np.int32, COPIED_ROWS) for side in SIDES]
            if not len(lengths[0]):
                break
            old = [
                np.fromfile(files[side, "ids"], np.int32, int(n.sum()))
                for side, n in zip(SIDES, lengths, strict=True)
            ]
            writer.add(Ragged(ids[old[0]], lengths[0]), Ragged(ids[old[1]], lengths[1]))
    writer.finish(sizes)


def encode_held_out(
    pairs: Iterable[Pair], segmenter: Segmenter, vocab: Vocab, corpus: Bitext, folder: Path
) -> dict[str, Coverage]:
    """Write every line of a dev or test set, and return its coverage by side.

    A blank side has no ids.

    Args:
        corpus: the set, with its languages and its tag.
    """
    tags: tuple[list[str], list[str]] = (tag_piece(corpus.tag), [])
    writer = CorpusWriter(folder, len(vocab))
    masks = [vocab.types_of(side) for side in SIDES]
    for mask in masks:
        mask[UNK] = False
    lacking: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for pair in pairs:
        rows = []
        for line, lang, tag, mask, count in zip(
            pair, corpus.langs, tags, masks, lacking, strict=True
        ):
            pieces = [] if is_blank(line) else [*tag, *segmenter.encode(line, lang)]
            ids = vocab.ids(pieces)
            count.update(piece for piece, i in zip(pieces, ids, strict=True) if not mask[i])
            rows.append(Ragged.of([ids]))
        writer.add(*rows)
    writer.finish()
    encoded = EncodedCorpus(folder)
    coverage: dict[str, Coverage] = {}
    for side, mask, count in zip(SIDES, masks, lacking, strict=True):
        ids_of_side = encoded.ids(side)
        if not len(ids_of_side):  # text of one language has no targets
            continue
        coverage[side] = Coverage(
            unknown=float((ids_of_side == UNK).mean()),
            lacking=float((~mask[ids_of_side]).mean()),
            pieces=[piece for piece, _ in count.most_common(SHOWN_PIECES)],
        )
    return coverage


def _starts(lengths: np.ndarray) -> np.ndarray:
    """Return [n + 1] int64: the start of each sentence, and the end of the last."""
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts


def _map(path: Path, kind: str, count: int) -> np.ndarray:
    size, width = path.stat().st_size, np.dtype(kind).itemsize
    if size != count * width:
        raise ValueError(f"{path.name} has {size} bytes, {count * width} were written")
    return np.memmap(path, kind, "r") if count else np.empty(0, kind)
