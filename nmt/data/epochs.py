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
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from nmt.data.batches import SelectedPairs
from nmt.data.encoded import SIDES, EncodedCorpus, Side
from nmt.data.mixture import Mixture, copy_numbers
from nmt.data.segmenters.noise import Noise, SideNoise
from nmt.data.vocab import Vocab
from nmt.runtime.cpus import available_cpus

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
        noise: segments the sentences of each side.
        seed, epoch: decide the random draws.
        longest: maximum pieces of a side.
        threads: compute the lengths.
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
            for lengths, noisy_lengths in zip((self.src_len, self.tgt_len), new, strict=True):
                lengths[chunk[noisy]] = noisy_lengths[noisy]

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


class Epochs:
    """Make the pairs of each epoch, and those of the next one in the background.

    Args:
        corpus: the pairs without noise.
        mixture: how often an epoch has each pair; None = once.
        noise: None = every epoch has the pieces of the corpus.
        longest: maximum pieces of a side with noise.
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
