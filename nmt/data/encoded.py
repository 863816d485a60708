"""Encoded corpora: pairs as ids in flat memory-mapped files, written and read in chunks.

A folder has ``src.ids`` and ``tgt.ids`` (uint16 or int32), ``src.len`` and ``tgt.len`` (int32), and
``corpus.json`` with the type and the number of values in each file, and the number of pairs of each
entry of the training corpus. If epochs change the text (``data.augment``), ``src.text`` and
``tgt.text`` have its lines (UTF-8).
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain, compress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from nmt.data.augment import Augmenter
from nmt.data.bitext import Bitext, Chunk, TrainingText
from nmt.data.report import Coverage, Finding
from nmt.data.segmenters import Segmenter
from nmt.data.segmenters.noise import Noise, ReachablePieces
from nmt.data.text import SIDES, Pair, Side, is_blank
from nmt.data.vocab import MAX_TYPES, UNK, Vocab, tag_piece
from nmt.data.workers import map_chunks
from nmt.errors import MachineError, UserError
from nmt.runtime.files import read_text

SHOWN_PIECES = 10  # pieces listed in a report
LF = 10  # byte between the lines of the text


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
        """Open what ``write_corpus`` wrote.

        Raises:
            MachineError: a file is missing or does not have the size that was written.
        """
        try:
            metadata = json.loads(read_text(folder / "corpus.json"))
            arrays = {
                f"{side}.{part}": _map(folder / f"{side}.{part}", *metadata[f"{side}.{part}"])
                for side in SIDES
                for part in ("ids", "len", "text")
                if part != "text" or f"{side}.text" in metadata
            }
            count = len(arrays["src.len"])
            self.sizes: list[int] = metadata.get("sizes", [count])
            if sum(self.sizes) != count:
                raise ValueError(f"it has {count} pairs, not {sum(self.sizes)}")
            self._text = {
                s: np.asarray(arrays[f"{s}.text"]) for s in SIDES if f"{s}.text" in arrays
            }
            self._ends = {side: np.flatnonzero(text == LF) for side, text in self._text.items()}
            if any(len(ends) != count for ends in self._ends.values()):
                raise ValueError("its text has another number of lines")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise MachineError(f"the encoded corpus is damaged: {error}", at=str(folder)) from error
        self.src_len, self.tgt_len = (np.asarray(arrays[f"{side}.len"]) for side in SIDES)
        # plain arrays on the same memory: slicing a memmap takes several times as long
        self._ids = {side: np.asarray(arrays[f"{side}.ids"]) for side in SIDES}
        self._starts = {  # [n + 1]: where each sentence begins, and where the last one ends
            side: np.concatenate([[0], np.cumsum(arrays[f"{side}.len"], dtype=np.int64)])
            for side in SIDES
        }

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

    def line(self, side: Side, row: int) -> str:
        """Return a line of the text, which only a corpus for ``data.augment`` has."""
        ends = self._ends[side]
        return self._text[side][ends[row - 1] + 1 if row else 0 : ends[row]].tobytes().decode()


# ids of the sources and of the targets of some pairs, and their lines; empty = they are not written
EncodedPairs: TypeAlias = tuple[Ragged, Ragged, Sequence[Pair]]


def write_corpus(
    folder: Path,
    types: int,
    chunks: Iterable[EncodedPairs],
    sizes: Sequence[int] | None = None,
    text: bool = False,
) -> None:
    """Write an encoded corpus, corpus.json last.

    Args:
        types: size of the vocabulary, which decides the bytes per id.
        sizes: pairs of each entry of a training corpus.
        text: write the lines too.
    """
    folder.mkdir(parents=True, exist_ok=True)
    id_type = np.dtype(np.uint16 if types <= 1 << 16 else np.int32)
    parts = {"ids": id_type.name, "len": "int32"} | ({"text": "uint8"} if text else {})
    metadata: dict[str, Any] = {
        f"{side}.{part}": (parts[part], 0) for side in SIDES for part in parts
    }
    with ExitStack() as stack:
        files = {name: stack.enter_context(open(folder / name, "wb")) for name in metadata}
        for src, tgt, pairs in chunks:
            for i, (side, rows) in enumerate(zip(SIDES, (src, tgt), strict=True)):
                arrays = {"ids": rows.ids.astype(id_type), "len": rows.lengths}
                if text:
                    lines = "".join(f"{pair[i]}\n" for pair in pairs).encode()
                    arrays["text"] = np.frombuffer(lines, np.uint8)
                for part, array in arrays.items():
                    kind, count = metadata[name := f"{side}.{part}"]
                    files[name].write(array.tobytes())
                    metadata[name] = kind, count + len(array)
        for file in files.values():
            file.flush()
            os.fsync(file.fileno())  # the sizes in corpus.json must hold after a power cut
    if sizes is not None:
        metadata["sizes"] = list(sizes)
    (folder / "corpus.json").write_text(json.dumps(metadata), encoding="utf-8")


class Pieces(NamedTuple):
    """One side of a chunk of pairs.

    Attributes:
        types: its distinct pieces.
        rows: the sentences as indices into ``types``.
        reachable: pieces that noise can make of words that are new to this process, and those of
            a sample of changed pairs.
    """

    types: list[str]
    rows: Ragged
    reachable: set[str]

    @classmethod
    def of(cls, sentences: list[list[str]], reachable: set[str]) -> Pieces:
        """Index lists of pieces."""
        indices: defaultdict[str, int] = defaultdict()
        indices.default_factory = indices.__len__  # a new piece gets the next index
        ids = np.fromiter(map(indices.__getitem__, chain.from_iterable(sentences)), np.int32)
        lengths = np.fromiter(map(len, sentences), np.int32, len(sentences))
        return cls(list(indices), Ragged(ids, lengths), reachable)


class EncodeChunk:
    """Segment a chunk of training pairs.

    Args:
        max_pieces: longest side of a pair, without tags; longer pairs are left out.
        noise, augmenter: collect the pieces that they can make of the pairs.
    """

    def __init__(
        self,
        segmenter: Segmenter,
        max_pieces: int,
        noise: Noise | None = None,
        augmenter: Augmenter | None = None,
    ) -> None:
        self.segmenter, self._max_pieces = segmenter, max_pieces
        self.augmenter = augmenter
        self._reachable = {side: ReachablePieces(noise) for side in SIDES} if noise else None

    def __call__(self, chunk: Chunk) -> tuple[dict[Side, Pieces], list[int]]:
        """Return the pieces of the pairs by side, and the positions of pairs that are left out."""
        corpus, encode = chunk.corpus, self.segmenter.encode
        src, tgt = (
            [encode(line, lang, side) for line in lines]
            for side, lang, lines in zip(SIDES, corpus.langs, chunk.sides(), strict=True)
        )
        longest = map(max, map(len, src), map(len, tgt))
        left_out = [i for i, length in enumerate(longest) if length > self._max_pieces]
        for i in reversed(left_out):
            del src[i], tgt[i]
        changed = self.augmenter.samples(chunk) if self.augmenter else []
        pieces: dict[Side, Pieces] = {}
        for i, (side, sentences, tag) in enumerate(
            zip(SIDES, (src, tgt), (corpus.tag, corpus.tgt_tag), strict=True)
        ):
            others = [encode(pair[i], corpus.langs[i], side) for pair in changed]
            reachable = set(chain.from_iterable(others))
            if self._reachable:
                reachable |= self._reachable[side]([*sentences, *others])
            if first := tag_piece(tag):
                sentences = [first + sentence for sentence in sentences]
            pieces[side] = Pieces.of(sentences, reachable)
        return pieces, left_out


class CountedSide:
    """The pieces of one side of the training text, as numbers until their ids are known.

    ``numbers`` are those of both sides, in order of appearance.
    """

    def __init__(self, numbers: dict[str, int]) -> None:
        self._numbers = numbers
        self._chunks: list[Ragged] = []
        self._reachable: set[str] = set()
        self.counts: Counter[str] = Counter()

    def add(self, pieces: Pieces) -> None:
        """Count the pieces of a chunk, and store their numbers."""
        ids, lengths = pieces.rows
        seen = np.bincount(ids, minlength=len(pieces.types))
        self.counts.update(dict(zip(pieces.types, seen.tolist(), strict=True)))
        self._reachable |= pieces.reachable
        numbers = [self._numbers.setdefault(p, len(self._numbers)) for p in pieces.types]
        small = np.array(numbers, np.min_scalar_type(len(self._numbers)))
        self._chunks.append(Ragged(small[ids], lengths))

    def counts_with_noise(self) -> Counter[str]:
        """Return the counts, and 1 for a piece that only noise can make of the text."""
        return self.counts + Counter(self._reachable - self.counts.keys())

    def encoded(self, ids: np.ndarray) -> Iterator[Ragged]:
        """Yield each chunk with ``ids[n]`` in place of the number n, and free it."""
        self._chunks.reverse()
        while self._chunks:
            numbers, lengths = self._chunks.pop()
            yield Ragged(ids[numbers], lengths)


def encode_training(
    encode_chunk: EncodeChunk,
    text: TrainingText,
    min_count: int,
    folder: Path,
    fixed: Vocab | None,
    new: Sequence[str],
) -> tuple[Vocab, Finding, dict[str, Coverage]]:
    """Segment a training corpus, build its vocabulary, and write its ids.

    A piece that only noise can make of the text of a side gets a count of 1 there, so that the
    model may predict it.

    Args:
        min_count: types that occur less often are UNK.
        fixed: use these types, and add the counts of the corpus to theirs.
        new: pieces to add to the vocabulary, although no text has them.

    Returns:
        The vocabulary, the pairs with too many pieces, and by side what a fixed vocabulary lacks.

    Raises:
        UserError: there are more types than a vocabulary may have.
    """
    numbers: dict[str, int] = {}
    sides = {side: CountedSide(numbers) for side in SIDES}
    left_out, sizes = Finding(), [0] * len(text.chunks)
    dropped: list[set[int]] = []
    encoded = map_chunks(encode_chunk, text.read("encoding"))
    chunks = [(entry, chunk) for entry, chunks in enumerate(text.chunks) for chunk in chunks]
    for (entry, chunk), (pieces, too_long) in zip(chunks, encoded, strict=True):
        sizes[entry] += len(chunk) - len(too_long)
        dropped.append({*too_long})
        for i in too_long:
            left_out.add(f"{chunk.corpus.name}:{chunk.numbers[i]}")
        for side in SIDES:
            sides[side].add(pieces[side])
    for corpus in text.corpora:
        new = [*new, *tag_piece(corpus.tag), *tag_piece(corpus.tgt_tag)]
    src, tgt = (sides[side].counts_with_noise() for side in SIDES)
    if fixed is None:
        vocab = Vocab.build(src, tgt, min_count, [*encode_chunk.segmenter.alphabet(), *new])
    else:
        vocab = fixed.with_counts(src, tgt, new)
    if len(vocab) > MAX_TYPES:
        raise UserError(
            f"the training text has {len(vocab):,} types; at most {MAX_TYPES:,} are allowed",
            at="segment.kind",
            fix="set segment.kind to fastbpe or sentencepiece, or raise segment.min_count",
        )
    text_too = encode_chunk.augmenter is not None
    ids = np.array(vocab.ids(numbers), np.int32)

    def encoded_pairs() -> Iterator[EncodedPairs]:
        rows = zip(*(side.encoded(ids) for side in sides.values()), strict=True)
        for (_, chunk), drops, (src_rows, tgt_rows) in zip(chunks, dropped, rows, strict=True):
            pairs = enumerate(chunk.pairs() if text_too else ())
            yield src_rows, tgt_rows, [pair for i, pair in pairs if i not in drops]

    write_corpus(folder, len(vocab), encoded_pairs(), sizes, text_too)
    unknown: dict[str, Coverage] = {}
    if fixed is not None:
        unknown = {side: _unknown(vocab, counted.counts) for side, counted in sides.items()}
    return vocab, left_out, unknown


def _unknown(vocab: Vocab, counts: Counter[str]) -> Coverage:
    """Return which pieces of a text a vocabulary lacks, and their share."""
    lacking = Counter({piece: n for piece, n in counts.items() if vocab.ids([piece]) == [UNK]})
    share = lacking.total() / max(1, counts.total())
    return Coverage(share, share, [piece for piece, _ in lacking.most_common(SHOWN_PIECES)])


def encode_held_out(
    pairs: Sequence[Pair], segmenter: Segmenter, vocab: Vocab, corpus: Bitext, folder: Path
) -> dict[str, Coverage]:
    """Write every line of a dev or test set, and return its coverage by side.

    A blank side has no ids.
    """
    encoded: list[Ragged] = []
    coverage: dict[str, Coverage] = {}
    tags = tag_piece(corpus.tag), tag_piece(corpus.tgt_tag)
    for side, lines, lang, tag in zip(
        SIDES, zip(*pairs, strict=True), corpus.langs, tags, strict=True
    ):
        sentences = [
            [] if is_blank(line) else [*tag, *segmenter.encode(line, lang, side)] for line in lines
        ]
        rows = Ragged.of([vocab.ids(pieces) for pieces in sentences])
        encoded.append(rows)
        if not len(rows.ids):  # monolingual text has no targets
            continue
        known = vocab.types_of(side)
        known[UNK] = False
        lacking = ~known[rows.ids]
        pieces = compress(chain.from_iterable(sentences), lacking.tolist())
        coverage[side] = Coverage(
            unknown=float((rows.ids == UNK).mean()),
            lacking=float(lacking.mean()),
            pieces=[piece for piece, _ in Counter(pieces).most_common(SHOWN_PIECES)],
        )
    write_corpus(folder, len(vocab), [(encoded[0], encoded[1], [])])
    return coverage


def _map(path: Path, kind: str, count: int) -> np.ndarray:
    size, width = path.stat().st_size, np.dtype(kind).itemsize
    if size != count * width:
        raise ValueError(f"{path.name} has {size} bytes, {count * width} were written")
    return np.memmap(path, kind, "r") if count else np.empty(0, kind)
