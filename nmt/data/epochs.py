"""The pairs of each epoch: drawn by weight, and segmented again at random if the recipe has noise.

The pairs of an epoch are a pure function of the encoded corpus, the seed and the epoch. They are
not stored. A thread computes their lengths, from which batches are planned, while the epoch before
trains. Pieces are computed again when a batch needs them: about ten microseconds a sentence.

Noise reads the pieces of the encoded corpus, not the text. Each copy of a pair of a weighted entry
has noise of its own. If noise would make a side of a pair longer than ``longest``, the pair keeps
the pieces of the encoded corpus. So an epoch has all pairs, and no batch exceeds its limit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from nmt.data.batches import SelectedPairs
from nmt.data.encoded import SIDES, EncodedCorpus, Side
from nmt.data.mixture import Mixture, copy_numbers
from nmt.data.segmenters.noise import Merges, Noise, Unigram
from nmt.data.vocab import SPECIALS, Vocab
from nmt.runtime.cpus import available_cpus

if TYPE_CHECKING:
    from nmt.data import noise_kernels as kernels

CHUNK = 10_000  # pairs segmented in one call
KEPT_EPOCHS = 3  # an update may need two, and the next one is made meanwhile


class EpochPairs:
    """The n pairs of one epoch, by their index in the epoch.

    Args:
        corpus: the pairs of all epochs.
        rows: [n] row of each pair in the corpus, sorted; None = each row once.

    Attributes:
        rows: as given.
        src_len, tgt_len: [n] int32, pieces of each pair.
    """

    def __init__(self, corpus: EncodedCorpus, rows: np.ndarray | None) -> None:
        self._corpus, self.rows = corpus, rows
        self.src_len, self.tgt_len = corpus.src_len, corpus.tgt_len
        if rows is not None:
            self.src_len, self.tgt_len = self.src_len[rows], self.tgt_len[rows]

    def rows_of(self, indices: np.ndarray) -> np.ndarray:
        """Return the rows of pairs in the corpus."""
        return indices if self.rows is None else self.rows[indices]

    def select(self, indices: np.ndarray) -> SelectedPairs:
        """Return pairs, by index."""
        rows = self.rows_of(indices).tolist()
        pairs = [(self._corpus.src(row), self._corpus.tgt(row)) for row in rows]
        return SelectedPairs(dict(zip(indices.tolist(), pairs, strict=True)))


class NoisyPairs(EpochPairs):
    """The pairs of one epoch, segmented at random.

    Args:
        corpus: the pairs without noise.
        rows: as in EpochPairs.
        noise: segments the sentences of each side.
        seed, epoch: decide the random draws.
        longest: maximum number of pieces of a side.
        threads: number of threads that compute the lengths.
    """

    def __init__(
        self,
        corpus: EncodedCorpus,
        rows: np.ndarray | None,
        noise: dict[Side, SideNoise],
        seed: int,
        epoch: int,
        longest: int,
        threads: int,
    ) -> None:
        super().__init__(corpus, rows)
        self._noise = noise
        self._keys = {
            side: np.random.SeedSequence([seed, epoch, i]).generate_state(1, np.uint64)[0]
            for i, side in enumerate(SIDES)
        }
        n = len(self.src_len)
        # each copy of a pair has a number of its own, from which its noise is drawn
        self._numbers = np.arange(n) if rows is None else rows + len(corpus) * copy_numbers(rows)
        self._plain_lengths = {"src": self.src_len, "tgt": self.tgt_len}
        self.src_len, self.tgt_len = self.src_len.copy(), self.tgt_len.copy()
        self._noisy = np.zeros(n, bool)

        def measure(first: int) -> None:
            chunk = np.arange(first, min(first + CHUNK, n))
            new = [self._segment(side, chunk)[1] for side in SIDES]
            noisy = np.maximum(*new) <= longest
            self._noisy[chunk] = noisy
            for kept, side_values in zip((self.src_len, self.tgt_len), new, strict=True):
                kept[chunk[noisy]] = side_values[noisy]

        chunks = range(0, n, CHUNK)
        if threads == 1:  # no pool, because a command would wait for its threads when it ends
            for first in chunks:
                measure(first)
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(measure, chunks))

    def select(self, indices: np.ndarray) -> SelectedPairs:
        """Return pairs with noise, by index."""
        plain = super().select(indices)
        noisy = indices[self._noisy[indices]]
        if not len(noisy):
            return plain
        sides = []
        for side in SIDES:
            ids, lengths = self._segment(side, noisy)
            sides.append(np.split(ids, np.cumsum(lengths)[:-1]))
        pairs = zip(*sides, strict=True)
        return SelectedPairs({**plain.pairs, **dict(zip(noisy.tolist(), pairs, strict=True))})

    def _segment(self, side: Side, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the concatenated ids of pairs with noise, and the length of each."""
        rows = self.rows_of(indices).tolist()
        ids = np.concatenate([self._corpus.ids(side, row, row + 1) for row in rows])
        lengths = self._plain_lengths[side][indices]
        return self._noise[side](ids, lengths, self._numbers[indices], self._keys[side])


class SideNoise:
    """Segment the sentences of one side at random, as ids.

    A piece is split only if its symbols are types of this side as pieces: a vocabulary that was not
    built for noise, such as that of another run, limits the noise. A symbol that is not such a type
    is split as ``Merges`` made it.

    Args:
        allowed: [V] bool, the types that may occur on this side.
    """

    def __init__(self, noise: Noise, vocab: Vocab, allowed: np.ndarray) -> None:
        from nmt.data import noise_kernels as kernels  # loads Numba

        types = vocab.pieces(range(len(vocab)))
        allowed = allowed.copy()
        allowed[: len(SPECIALS)] = False  # they have no text, and no symbol may become UNK
        allowed[vocab.reserved_ids] = False  # they are not text
        spelled = [noise.spell(t) if allowed[i] else () for i, t in enumerate(types)]
        singles = dict.fromkeys(s for symbols in spelled for s in symbols)
        ids = dict(zip(singles, vocab.ids(map(noise.name, singles)), strict=True))
        numbers = {s: n for n, s in enumerate(s for s in singles if allowed[ids[s]])}
        known = [s if numbers.keys() >= set(s) else () for s in spelled]
        self._sizes = np.maximum(1, [len(symbols) for symbols in known])
        self._words = kernels.Words(
            _ends(known),
            np.array([numbers[s] for symbols in known for s in symbols], np.int32),
            np.array([noise.begins(t) for t in types]),
            np.array([noise.ends(t) for t in types]),
        )
        self._arrays: kernels.MergeArrays | kernels.UnigramArrays
        if isinstance(noise.model, Merges):
            self._kernel = kernels.merge
            self._arrays = _merge_arrays(noise.model, noise.name, numbers, vocab, allowed)
        else:
            self._kernel = kernels.sample
            self._arrays = _unigram_arrays(noise.model, numbers, vocab, allowed)

    def __call__(
        self, ids: np.ndarray, lengths: np.ndarray, numbers: np.ndarray, key: np.uint64
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the concatenated ids of sentences and the length of each.

        Args:
            ids: [sum of lengths] without noise.
            lengths: [n] int32.
            numbers: [n] int64, number of each sentence.
            key: decides the random draws, together with the number.
        """
        out = np.empty(int(self._sizes[ids].sum()), np.int32)
        out_lengths = np.empty(len(lengths), np.int32)
        self._kernel(ids, lengths, numbers, key, self._words, self._arrays, out, out_lengths)
        return out[: int(out_lengths.sum())], out_lengths


class Epochs:
    """Make the pairs of each epoch, and those of the next one in the background.

    Args:
        corpus: the pairs without noise.
        mixture: how often an epoch has each pair; None = once.
        noise: None = every epoch has the pieces of the corpus.
        longest: maximum number of pieces of a side with noise.
    """

    def __init__(
        self,
        corpus: EncodedCorpus,
        vocab: Vocab,
        mixture: Mixture | None,
        noise: Noise | None,
        seed: int,
        longest: int,
    ) -> None:
        self._corpus, self._seed, self._longest = corpus, seed, longest
        self._vocab, self._mixture, self._noise = vocab, mixture, noise
        self._sides: dict[Side, SideNoise] = {}
        self._made: dict[int, Future[EpochPairs]] = {}
        self._lock = threading.Lock()

    def __getitem__(self, epoch: int) -> EpochPairs:
        """Return the pairs of an epoch; wait for them if they are not made yet."""
        with self._lock:
            if not self._sides and self._noise is not None:
                noise, vocab = self._noise, self._vocab
                self._sides = {s: SideNoise(noise, vocab, vocab.types_of(s)) for s in SIDES}
            made = self._made.get(epoch) or self._start(epoch, available_cpus())
            if epoch + 1 not in self._made:
                self._start(epoch + 1, 1)
            for old in sorted(self._made)[:-KEPT_EPOCHS]:
                del self._made[old]
        return made.result()

    def _start(self, epoch: int, threads: int) -> Future[EpochPairs]:
        """Make the pairs of an epoch in a thread."""
        made = self._made[epoch] = Future()

        def make() -> None:
            try:
                made.set_result(self._make(epoch, threads))
            except BaseException as error:
                made.set_exception(error)

        threading.Thread(target=make, daemon=True).start()
        return made

    def _make(self, epoch: int, threads: int) -> EpochPairs:
        rows = None if self._mixture is None else self._mixture.rows(self._seed, epoch)
        if self._noise is None:
            return EpochPairs(self._corpus, rows)
        return NoisyPairs(
            self._corpus, rows, self._sides, self._seed, epoch, self._longest, threads
        )


def _merge_arrays(
    merges: Merges,
    name: Callable[[str], str],
    numbers: dict[str, int],
    vocab: Vocab,
    allowed: np.ndarray,
) -> kernels.MergeArrays:
    """Return merges as arrays.

    Args:
        numbers: of the single symbols.
        allowed: [V] bool, types that symbols may become; other symbols are split again.
    """
    from nmt.data import noise_kernels as kernels

    results = {left + right: name(left + right) for left, right in merges.ranks}
    types = dict(zip(results, vocab.ids(results.values()), strict=True))
    singles = vocab.ids(map(name, numbers))
    ids: dict[str, list[int]] = {s: [i] for s, i in zip(numbers, singles, strict=True)}
    by_length = sorted(merges.ranks.items(), key=lambda item: (len("".join(item[0])), item[1]))
    used: list[tuple[int, str, str]] = []
    for (left, right), rank in by_length:  # the parts of a symbol are shorter than it
        if left in ids and right in ids:
            used.append((rank, left, right))
            result = left + right
            kept = allowed[types[result]]
            ids.setdefault(result, [types[result]] if kept else ids[left] + ids[right])
    number = {symbol: n for n, symbol in enumerate(ids)}
    return kernels.MergeArrays(
        _table([(number[left], number[right]) for _, left, right in used]),
        np.array([rank for rank, _, _ in used], np.int32),
        np.array([number[left + right] for _, left, right in used], np.int32),
        _ends(ids.values()),
        np.array([i for symbol_ids in ids.values() for i in symbol_ids], np.int32),
        np.uint64(round(merges.skip * 2**64)),
        merges.together,
    )


def _unigram_arrays(
    unigram: Unigram, numbers: dict[str, int], vocab: Vocab, allowed: np.ndarray
) -> kernels.UnigramArrays:
    """Return a unigram model as a prefix tree; ``numbers`` and ``allowed`` as for merges."""
    from nmt.data import noise_kernels as kernels

    nodes: dict[tuple[int, int], int] = {}
    ids, scores = [-1], [0.0]
    for piece, i in zip(unigram.scores, vocab.ids(unigram.scores), strict=True):
        if not (allowed[i] and numbers.keys() >= set(piece)):
            continue
        node = 0
        for symbol in piece:
            edge = node, numbers[symbol]
            if edge not in nodes:
                nodes[edge] = len(ids)
                ids.append(-1)
                scores.append(0.0)
            node = nodes[edge]
        ids[node], scores[node] = i, unigram.alpha * unigram.scores[piece]
    return kernels.UnigramArrays(_table(list(nodes)), np.array(ids, np.int32), np.array(scores))


def _table(pairs: Sequence[tuple[int, int]]) -> kernels.Table:
    """Return the table that maps each pair to its position."""
    from nmt.data import noise_kernels as kernels

    keys = np.array([left << 32 | right for left, right in pairs], np.int64)
    slots = np.full(1 << (2 * len(keys) + 1).bit_length(), -1, np.int32)
    kernels.fill_slots(keys, slots)
    return kernels.Table(keys, slots)


def _ends(parts: Collection[Sequence[object]]) -> np.ndarray:
    """Return [n + 1] int32: where each part starts if all are concatenated, and the end."""
    return np.cumsum([0, *map(len, parts)], dtype=np.int32)
