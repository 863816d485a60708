"""The training corpus of each epoch: segmented again at random if the recipe has noise.

The corpus of an epoch is a pure function of the encoded corpus, the seed and the epoch. It is not
stored. A thread computes its lengths, from which batches are planned, while the epoch before
trains. Pieces are computed again when a batch needs them: about ten microseconds a sentence.

Noise reads the pieces of the encoded corpus, not the text. If noise would make a side of a pair
longer than ``longest``, the pair keeps the pieces of the encoded corpus in this epoch. So an epoch
has all pairs, and no batch exceeds its limit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

import numpy as np

from nmt.data.batches import Corpus, SelectedPairs
from nmt.data.encoded import SIDES, EncodedCorpus, Side
from nmt.data.segmenters.noise import Merges, Noise, Unigram
from nmt.data.vocab import SPECIALS, Vocab
from nmt.runtime.cpus import available_cpus

if TYPE_CHECKING:
    from nmt.data import noise_kernels as kernels

ROWS = 10_000  # segmented in one call
KEPT_EPOCHS = 3  # an update may need two, and the next one is made meanwhile


class Lengths(Protocol):
    """The lengths from which batches are planned.

    Attributes:
        src_len, tgt_len: [n] int32, pieces of each pair.
    """

    src_len: np.ndarray
    tgt_len: np.ndarray


class NoisyCorpus:
    """The pairs of one epoch, segmented at random.

    Args:
        corpus: the pairs without noise.
        noise: segments the sentences of each side.
        seed, epoch: decide the random draws.
        longest: maximum number of pieces of a side.
        threads: number of threads that compute the lengths.

    Attributes:
        src_len, tgt_len: [n] int32, pieces of each pair.
    """

    def __init__(
        self,
        corpus: EncodedCorpus,
        noise: dict[Side, SideNoise],
        seed: int,
        epoch: int,
        longest: int,
        threads: int = 1,
    ) -> None:
        self._corpus, self._noise = corpus, noise
        self._keys = {
            side: np.random.SeedSequence([seed, epoch, i]).generate_state(1, np.uint64)[0]
            for i, side in enumerate(SIDES)
        }
        self._lengths: dict[Side, np.ndarray] = {"src": corpus.src_len, "tgt": corpus.tgt_len}
        self.src_len, self.tgt_len = corpus.src_len.copy(), corpus.tgt_len.copy()
        self._noisy = np.zeros(len(corpus.src_len), bool)

        def measure(first: int) -> None:
            last = min(first + ROWS, len(corpus.src_len))
            rows, noisy = np.arange(first, last), np.ones(last - first, bool)
            new = [
                self._segment(side, rows, corpus.ids(side, first, last), lengths[first:last])[1]
                for side, lengths in self._lengths.items()
            ]
            for of_side in new:
                noisy &= of_side <= longest
            self._noisy[first:last] = noisy
            for kept, of_side in zip((self.src_len, self.tgt_len), new, strict=True):
                np.copyto(kept[first:last], of_side, where=noisy)

        chunks = range(0, len(corpus.src_len), ROWS)
        if threads == 1:  # no pool, because a command would wait for its threads when it ends
            for first in chunks:
                measure(first)
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(measure, chunks))

    def select(self, rows: np.ndarray) -> SelectedPairs:
        """Return these pairs."""
        src, tgt = (self._rows(side, rows) for side in SIDES)
        return SelectedPairs({row: (src[row], tgt[row]) for row in src})

    def _rows(self, side: Side, rows: np.ndarray) -> dict[int, np.ndarray]:
        """Return the ids of each row."""
        found = {row: self._corpus.ids(side, row, row + 1) for row in rows.tolist()}
        noisy = np.array([row for row in found if self._noisy[row]], np.int64)
        if len(noisy):
            ids = np.concatenate([found[row] for row in noisy.tolist()])
            new, lengths = self._segment(side, noisy, ids, self._lengths[side][noisy])
            parts = np.split(new, np.cumsum(lengths)[:-1])
            found.update(zip(noisy.tolist(), parts, strict=True))
        return found

    def _segment(
        self, side: Side, rows: np.ndarray, ids: np.ndarray, lengths: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the concatenated ids of rows with noise, and the length of each."""
        return self._noise[side](ids, lengths, rows, self._keys[side])


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
        self, ids: np.ndarray, lengths: np.ndarray, rows: np.ndarray, key: np.uint64
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the concatenated ids of sentences and the length of each.

        Args:
            ids: [sum of lengths] without noise.
            lengths: [n] int32.
            rows: [n] row of each sentence.
            key: of the random draws.
        """
        out = np.empty(int(self._sizes[ids].sum()), np.int32)
        out_lengths = np.empty(len(lengths), np.int32)
        self._kernel(ids, lengths, rows, key, self._words, self._arrays, out, out_lengths)
        return out[: int(out_lengths.sum())], out_lengths


class Epochs:
    """Make the training corpus of each epoch, and that of the next one in the background.

    Args:
        corpus: the pairs without noise.
        noise: None = every epoch has this corpus.
        longest: maximum number of pieces of a side with noise.
    """

    def __init__(
        self, corpus: EncodedCorpus, vocab: Vocab, noise: Noise | None, seed: int, longest: int
    ) -> None:
        self._corpus, self._seed, self._longest = corpus, seed, longest
        self._vocab, self._noise = vocab, noise
        self._sides: dict[Side, SideNoise] = {}
        self._made: dict[int, Future[NoisyCorpus]] = {}
        self._lock = threading.Lock()

    def lengths(self, epoch: int) -> Lengths:
        """Return the lengths of the pairs of an epoch."""
        return self._corpus if self._noise is None else self._noisy(epoch)

    def pairs(self, epoch: int, rows: np.ndarray) -> Corpus:
        """Return pairs of an epoch, to collate them."""
        return self._corpus if self._noise is None else self._noisy(epoch).select(rows)

    def _noisy(self, epoch: int) -> NoisyCorpus:
        """Return the corpus of an epoch; wait for it if it is not made yet."""
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

    def _start(self, epoch: int, threads: int) -> Future[NoisyCorpus]:
        """Make the corpus of an epoch in a thread."""
        made = self._made[epoch] = Future()
        corpus, sides, seed, longest = self._corpus, self._sides, self._seed, self._longest

        def make() -> None:
            try:
                made.set_result(NoisyCorpus(corpus, sides, seed, epoch, longest, threads))
            except BaseException as error:
                made.set_exception(error)

        threading.Thread(target=make, daemon=True).start()
        return made


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
        np.array([i for of_symbol in ids.values() for i in of_symbol], np.int32),
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
