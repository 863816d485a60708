"""Encoded corpora: pairs as ids in flat memory-mapped files, written and read in chunks.

A folder has ``src.ids`` and ``tgt.ids`` (uint16 or int32), ``src.len`` and ``tgt.len`` (int32), and
``corpus.json`` with the type and the number of values in each file, and the number of pairs of each
entry of the training corpus. Training text with noise (``segment.dropout``, ``sampling_alpha``,
``data.augment``) has several versions of each pair, one after the other. All versions are random,
so that the rates hold on average; none is the clean text.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain, compress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from nmt.data.augment import Augmenter, Draws
from nmt.data.bitext import Bitext, Chunk, TrainingText
from nmt.data.lines import SIDES, Side, Texts, is_blank
from nmt.data.mixture import copy_numbers
from nmt.data.report import Coverage, Places
from nmt.data.segmenters import Segmenter
from nmt.data.segmenters.noise import Noise
from nmt.data.vocab import MAX_TYPES, UNK, Vocab, tag_piece
from nmt.data.workers import map_chunks
from nmt.errors import MachineError, UserError
from nmt.runtime.files import json_object, read_text

PiecesOfPair: TypeAlias = tuple[list[str], list[str]]

SHOWN_PIECES = 10  # pieces in a report
VERSIONS = 4  # a separate random stream for these draws


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
    """n pairs of id sequences without EOS, memory-mapped, in one or several versions each.

    Version v of pair r is row r * draws + v.

    Attributes:
        src_len, tgt_len: [n * draws] int32, pieces of each row.
        sizes: pairs of each entry of a training corpus, in order; they add up to n.
        draws: versions of each pair.
    """

    def __init__(self, folder: Path) -> None:
        """Open what ``write_corpus`` wrote.

        Raises:
            MachineError: a file is missing or does not have the size that was written.
        """
        try:
            metadata = json_object(read_text(folder / "corpus.json"))
            arrays = {
                f"{side}.{part}": _map(folder / f"{side}.{part}", *metadata[f"{side}.{part}"])
                for side in SIDES
                for part in ("ids", "len")
            }
            count = len(arrays["src.len"])
            self.draws: int = metadata.get("draws", 1)
            self.sizes: list[int] = metadata.get("sizes", [count])
            if sum(self.sizes) * self.draws != count:
                raise ValueError(f"it has {count} rows, not {sum(self.sizes)} x {self.draws}")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise MachineError(f"the encoded corpus is damaged: {error}", at=str(folder)) from error
        self.src_len, self.tgt_len = (np.asarray(arrays[f"{side}.len"]) for side in SIDES)
        # plain arrays on the same memory: slicing a memmap takes several times as long
        self._ids = {side: np.asarray(arrays[f"{side}.ids"]) for side in SIDES}
        self._starts = {  # [rows + 1]: where each sentence begins, and where the last one ends
            side: np.concatenate([[0], np.cumsum(arrays[f"{side}.len"], dtype=np.int64)])
            for side in SIDES
        }

    def __len__(self) -> int:
        return sum(self.sizes)

    def src(self, row: int) -> np.ndarray:
        """Return the source ids of a row."""
        return self.ids("src", row, row + 1)

    def tgt(self, row: int) -> np.ndarray:
        """Return the target ids of a row."""
        return self.ids("tgt", row, row + 1)

    def ids(self, side: Side, first: int = 0, last: int | None = None) -> np.ndarray:
        """Return the concatenated ids of rows ``first`` to ``last`` (exclusive)."""
        starts = self._starts[side]
        return self._ids[side][starts[first] : starts[-1 if last is None else last]]

    def longest(self) -> np.ndarray:
        """Return the pieces of the longer side of each version, [n, draws] int32."""
        return np.maximum(self.src_len, self.tgt_len).reshape(-1, self.draws)


class EpochPairs:
    """The m pairs of one epoch, by their index in the epoch: a version of each of them.

    Each pair begins with a version that the seed draws. The next copy of it in an epoch, and the
    next epoch, have the next version, so that all versions are used equally often. A version that
    does not fit into a batch is replaced by the shortest of its pair.

    Args:
        corpus: the pairs of all epochs.
        pairs: [m] the pair in the corpus, sorted; None = each one once.
        batch_tokens: longest side of a version, EOS included.

    Attributes:
        pairs: as given.
        src_len, tgt_len: [m] int32, pieces of each pair.
    """

    def __init__(
        self,
        corpus: EncodedCorpus,
        pairs: np.ndarray | None,
        seed: int,
        epoch: int,
        batch_tokens: int,
    ) -> None:
        self._corpus, self.pairs = corpus, pairs
        chosen = np.arange(len(corpus)) if pairs is None else pairs
        if (draws := corpus.draws) > 1:
            first = np.random.default_rng([seed, 0, VERSIONS]).integers(draws, size=len(corpus))
            version = (first[chosen] + copy_numbers(chosen) + epoch) % draws
            longest = corpus.longest()
            too_long = longest[chosen, version] >= batch_tokens
            version[too_long] = longest[chosen[too_long]].argmin(1)
            chosen = chosen * draws + version
        self._rows = chosen
        self.src_len, self.tgt_len = corpus.src_len[chosen], corpus.tgt_len[chosen]

    def pairs_of(self, indices: np.ndarray) -> np.ndarray:
        """Return the indices of these pairs in the corpus."""
        return indices if self.pairs is None else self.pairs[indices]

    def src(self, index: int) -> np.ndarray:
        """Return the source ids of a pair."""
        return self._corpus.src(self._rows[index])

    def tgt(self, index: int) -> np.ndarray:
        """Return the target ids of a pair."""
        return self._corpus.tgt(self._rows[index])


def write_corpus(
    folder: Path,
    types: int,
    chunks: Iterable[tuple[Ragged, Ragged]],
    sizes: Sequence[int] | None = None,
    draws: int = 1,
) -> None:
    """Write an encoded corpus, corpus.json last.

    Args:
        types: size of the vocabulary, which decides the bytes per id.
        chunks: ids of the sources and of the targets of some rows.
        sizes: pairs of each entry of a training corpus.
        draws: rows of each pair.
    """
    folder.mkdir(parents=True, exist_ok=True)
    id_type = np.dtype(np.uint16 if types <= 1 << 16 else np.int32)
    parts = {"ids": id_type.name, "len": "int32"}
    metadata: dict[str, Any] = {
        f"{side}.{part}": (kind, 0) for side in SIDES for part, kind in parts.items()
    }
    with ExitStack() as stack:
        files = {name: stack.enter_context(open(folder / name, "wb")) for name in metadata}
        for chunk in chunks:
            for side, rows in zip(SIDES, chunk, strict=True):
                for part, array in {"ids": rows.ids.astype(id_type), "len": rows.lengths}.items():
                    kind, count = metadata[name := f"{side}.{part}"]
                    files[name].write(array.tobytes())
                    metadata[name] = kind, count + len(array)
        for file in files.values():
            file.flush()
            os.fsync(file.fileno())  # the sizes in corpus.json must hold after a power cut
    if sizes is not None:
        metadata |= {"sizes": list(sizes), "draws": draws}
    (folder / "corpus.json").write_text(json.dumps(metadata), encoding="utf-8")


class Pieces(NamedTuple):
    """One side of a chunk of pairs.

    Attributes:
        types: its distinct pieces.
        counts: [types] int64, how often the text without noise has each of them.
        rows: the sentences of all versions as indices into ``types``.
    """

    types: list[str]
    counts: np.ndarray
    rows: Ragged

    @classmethod
    def of(cls, plain: Sequence[list[str]], versions: Sequence[list[str]]) -> Pieces:
        """Index lists of pieces."""
        indices: defaultdict[str, int] = defaultdict()
        indices.default_factory = indices.__len__  # a new piece gets the next index

        def indexed(sentences: Sequence[list[str]]) -> Ragged:
            ids = np.fromiter(map(indices.__getitem__, chain.from_iterable(sentences)), np.int32)
            return Ragged(ids, np.fromiter(map(len, sentences), np.int32, len(sentences)))

        counted = indexed(plain)
        rows = counted if versions is plain else indexed(versions)
        return cls(list(indices), np.bincount(counted.ids, minlength=len(indices)), rows)


class EncodeChunk:
    """Segment a chunk of training pairs, with noise in several versions of each.

    The versions of a pair are a function of its text and of the number of its line. All runs of a
    recipe, with any seed, have the same ones, and so the same vocabulary.

    Args:
        max_pieces: longest side of a pair, without tags; longer pairs are left out.
        draws: versions of each pair; 1 without noise.
        noise: segments each version at random.
        augmenter: changes the text of each version.
        known: the types of a vocabulary that is given; a version has no other pieces than these
            and those of the pair without noise. None = any.
    """

    def __init__(
        self,
        segmenter: Segmenter,
        max_pieces: int,
        draws: int = 1,
        noise: Noise | None = None,
        augmenter: Augmenter | None = None,
        known: Collection[str] | None = None,
    ) -> None:
        self.segmenter, self.draws, self._max_pieces = segmenter, draws, max_pieces
        self._noise, self._augmenter = noise, augmenter
        self._known = None if known is None else frozenset(known)

    def __call__(self, chunk: Chunk) -> tuple[dict[Side, Pieces], list[int]]:
        """Return the pieces of the pairs by side, and the positions of pairs that are left out."""
        lines, corpus = list(chunk.pairs()), chunk.corpus
        plain = [self._encode(pair, corpus.langs) for pair in lines]
        left_out = [i for i, pair in enumerate(plain) if not self._fits(pair)]
        versions = plain
        if self._noise or self._augmenter:
            versions = [
                version
                for i, pair in enumerate(plain)
                if self._fits(pair)
                for version in self._versions(chunk, lines, i, pair)
            ]
        for i in reversed(left_out):
            del plain[i]
        pieces: dict[Side, Pieces] = {}
        for i, side in enumerate(SIDES):
            first = tag_piece(corpus.direction.tags[i])
            tagged = [first + pair[i] for pair in plain]
            drawn = tagged if versions is plain else [first + pair[i] for pair in versions]
            pieces[side] = Pieces.of(tagged, drawn)
        return pieces, left_out

    def _encode(self, pair: Texts, langs: tuple[str, str]) -> PiecesOfPair:
        (src, tgt), encode = pair, self.segmenter.encode
        return encode(src, langs[0], "src"), encode(tgt, langs[1], "tgt")

    def _fits(self, pair: PiecesOfPair) -> bool:
        return max(map(len, pair)) <= self._max_pieces

    def _versions(
        self, chunk: Chunk, lines: Sequence[Texts], i: int, plain: PiecesOfPair
    ) -> Iterator[PiecesOfPair]:
        """Yield the versions of a pair; a change that makes it too long or unknown is not
        applied."""
        noise, augmenter, langs = self._noise, self._augmenter, chunk.corpus.langs
        draws = Draws(int(chunk.numbers[i]))
        words = tuple(map(noise.words, plain)) if noise else ()
        for _ in range(self.draws):
            version, its_words = plain, words
            if augmenter and (kinds := augmenter.kinds(draws)):
                changed = self._encode(augmenter.change(lines, i, kinds, draws, langs), langs)
                known = self._known is None or self._known.issuperset(chain(*changed))
                if known and all(changed) and self._fits(changed):
                    version = changed
                    its_words = tuple(map(noise.words, changed)) if noise else ()
            if noise:
                src, tgt = (noise.draw(side, draws.random) for side in its_words)
                if self._fits((src, tgt)):
                    version = src, tgt
            yield version


class CountedSide:
    """The pieces of one side of the training text, as numbers until their ids are known.

    Args:
        numbers: of the pieces of both sides, in order of appearance.
        folder: for a file with the numbers of the text, which no other process sees.
    """

    def __init__(self, numbers: dict[str, int], folder: Path) -> None:
        self._numbers = numbers
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  it lives as long as this
        self._lengths: list[np.ndarray] = []
        self.counts: Counter[str] = Counter()  # 0 = only noise makes this piece

    def add(self, pieces: Pieces) -> None:
        """Count the pieces of a chunk, and store their numbers."""
        self.counts.update(dict(zip(pieces.types, pieces.counts.tolist(), strict=True)))
        numbers = [self._numbers.setdefault(p, len(self._numbers)) for p in pieces.types]
        self._file.write(np.array(numbers, np.int32)[pieces.rows.ids].tobytes())
        self._lengths.append(pieces.rows.lengths)

    def encoded(self, ids: np.ndarray) -> Iterator[Ragged]:
        """Yield each chunk with ``ids[n]`` in place of the number n, once."""
        self._file.seek(0)
        with self._file:
            for lengths in self._lengths:
                numbers = np.frombuffer(self._file.read(4 * int(lengths.sum())), np.int32)
                yield Ragged(ids[numbers], lengths)


def encode_training(
    encode_chunk: EncodeChunk,
    text: TrainingText,
    min_count: int,
    folder: Path,
    fixed: Vocab | None,
    new: Sequence[str],
) -> tuple[Vocab, Places, dict[str, Coverage]]:
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
    folder.mkdir(parents=True, exist_ok=True)
    numbers: dict[str, int] = {}
    sides = {side: CountedSide(numbers, folder) for side in SIDES}
    left_out, sizes = Places(), [0] * len(text.chunks)
    encoded = map_chunks(encode_chunk, text.read("encoding"))
    chunks = [(entry, chunk) for entry, chunks in enumerate(text.chunks) for chunk in chunks]
    for (entry, chunk), (pieces, too_long) in zip(chunks, encoded, strict=True):
        sizes[entry] += len(chunk) - len(too_long)
        for i in too_long:
            left_out.add(f"{chunk.corpus.name}:{chunk.numbers[i]}")
        for side in SIDES:
            sides[side].add(pieces[side])
    for corpus in text.corpora:
        new = [*new, *chain.from_iterable(map(tag_piece, corpus.direction.tags))]
    src, tgt = (Counter({p: n or 1 for p, n in sides[side].counts.items()}) for side in SIDES)
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
    ids = np.array(vocab.ids(numbers), np.int32)
    rows = zip(sides["src"].encoded(ids), sides["tgt"].encoded(ids), strict=True)
    write_corpus(folder, len(vocab), rows, sizes, encode_chunk.draws)
    unknown: dict[str, Coverage] = {}
    if fixed is not None:
        unknown = {side: _unknown(vocab, counted.counts) for side, counted in sides.items()}
    return vocab, left_out, unknown


def _unknown(vocab: Vocab, counts: Counter[str]) -> Coverage:
    """Return the pieces of a text that are not in a vocabulary, and their share."""
    lacking = Counter({piece: n for piece, n in counts.items() if vocab.ids([piece]) == [UNK]})
    share = lacking.total() / max(1, counts.total())
    return Coverage(share, share, [piece for piece, _ in lacking.most_common(SHOWN_PIECES)])


def encode_held_out(
    pairs: Sequence[Texts], segmenter: Segmenter, vocab: Vocab, corpus: Bitext, folder: Path
) -> dict[str, Coverage]:
    """Write every line of a dev or test set, and return its coverage by side.

    A blank side has no ids.
    """
    encoded: list[Ragged] = []
    coverage: dict[str, Coverage] = {}
    tags = map(tag_piece, corpus.direction.tags)
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
    write_corpus(folder, len(vocab), [(encoded[0], encoded[1])])
    return coverage


def _map(path: Path, kind: str, count: int) -> np.ndarray:
    size, width = path.stat().st_size, np.dtype(kind).itemsize
    if size != count * width:
        raise ValueError(f"{path.name} has {size} bytes, {count * width} were written")
    return np.memmap(path, kind, "r") if count else np.empty(0, kind)
