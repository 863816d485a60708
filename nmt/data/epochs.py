"""The pairs of each epoch: drawn by weight, with changed text, and segmented again at random.

The pairs of an epoch are a pure function of the encoded corpus, the seed and the epoch. They are
not stored. A thread computes their lengths, from which batches are planned, while the epoch before
trains. Pieces are computed again when a batch needs them: about ten microseconds a sentence.

``data.augment`` changes the text of some pairs, which are segmented when the epoch is made. Their
pieces stay in memory as long as the epoch.

Noise reads pieces, not the text. Each copy of a pair of a weighted entry has changes and noise of
its own. If a change or noise would make a side of a pair longer than ``longest``, the pair keeps
the pieces that it had before. So an epoch has all pairs, and no batch exceeds its limit. A pair
also keeps its pieces if a change would give it one that the vocabulary lacks, or that the model
may not predict.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeAlias

import numpy as np

from nmt.data.augment import Augmenter, Draws
from nmt.data.batches import SelectedPairs
from nmt.data.encoded import EncodedCorpus
from nmt.data.mixture import Mixture, copy_numbers
from nmt.data.segmenters import Segmenter
from nmt.data.segmenters.noise import Noise, SideNoise
from nmt.data.text import SIDES, Pair, Side
from nmt.data.vocab import Vocab, tag_piece
from nmt.runtime.cpus import available_cpus

CHUNK = 10_000  # pairs segmented in one call
KEPT_EPOCHS = 3  # an update may need two, and the next one is made meanwhile

# the ids of the pairs of an epoch whose text is changed, by the index of the pair in the epoch
ChangedPairs: TypeAlias = dict[int, dict[Side, np.ndarray]]


class TextChanges:
    """Change the text of some pairs of each epoch, as ``data.augment`` says.

    Args:
        corpus: the pairs without changes, with their text.
        entries: languages and tags of each entry of the corpus.
        longest: maximum pieces of a side.
    """

    def __init__(
        self,
        augmenter: Augmenter,
        corpus: EncodedCorpus,
        segmenter: Segmenter,
        vocab: Vocab,
        entries: Sequence[tuple[tuple[str, str], tuple[str | None, str | None]]],
        longest: int,
    ) -> None:
        self._augmenter, self._corpus, self._segmenter = augmenter, corpus, segmenter
        self._vocab, self._entries, self._longest = vocab, entries, longest
        self._ends = np.cumsum(corpus.sizes)
        self._known = vocab.readable()

    def draw(self, rows: np.ndarray | None, seed: int, epoch: int) -> ChangedPairs:
        """Change the pairs of an epoch, a pure function of the arguments.

        ``rows``: [n] row of each pair, sorted; None = each row once.
        """
        rows = np.arange(len(self._corpus)) if rows is None else rows
        changed: ChangedPairs = {}
        numbers = _numbers(rows, len(self._corpus))
        for i, kinds, draws in self._augmenter.draw(numbers, seed, epoch):
            if ids := self._encode(int(rows[i]), kinds, draws):
                changed[i] = ids
        return changed

    def _encode(self, row: int, kinds: Sequence[str], draws: Draws) -> dict[Side, np.ndarray]:
        """Return the ids of a changed pair; empty if it stays as it is."""
        entry = int(np.searchsorted(self._ends, row, "right"))
        langs, tags = self._entries[entry]
        size = self._corpus.sizes[entry]

        def other(draws: Draws) -> Pair:
            return self._pair(int(self._ends[entry]) - size + draws.below(size))

        pair = self._pair(row)
        changed = self._augmenter.change(pair, kinds, draws, langs, other)
        if changed == pair:
            return {}
        encoded: dict[Side, np.ndarray] = {}
        for side, line, lang, tag in zip(SIDES, changed, langs, tags, strict=True):
            ids = self._vocab.ids([*tag_piece(tag), *self._segmenter.encode(line, lang, side)])
            if not ids or len(ids) > self._longest or not self._known[side][ids].all():
                return {}
            encoded[side] = np.array(ids, self._corpus.ids(side).dtype)
        return encoded

    def _pair(self, row: int) -> Pair:
        return self._corpus.line("src", row), self._corpus.line("tgt", row)


def _numbers(rows: np.ndarray, size: int) -> np.ndarray:
    """Number the pairs of an epoch, so that each copy of a row has draws of its own: [n]."""
    return rows + size * copy_numbers(rows)


class EpochPairs:
    """The n pairs of one epoch, by their index in the epoch.

    Args:
        corpus: the pairs of all epochs.
        rows: [n] row of each pair in the corpus, sorted; None = each row once.
        changed: the pairs with changed text.

    Attributes:
        rows: as given.
        src_len, tgt_len: [n] int32, pieces of each pair.
    """

    def __init__(
        self, corpus: EncodedCorpus, rows: np.ndarray | None, changed: ChangedPairs | None = None
    ) -> None:
        self._corpus, self.rows, self._changed = corpus, rows, changed
        self._noisy: np.ndarray | None = None
        self.src_len, self.tgt_len = corpus.src_len, corpus.tgt_len
        if rows is not None:
            self.src_len, self.tgt_len = self.src_len[rows], self.tgt_len[rows]
        if changed:
            self.src_len, self.tgt_len = self.src_len.copy(), self.tgt_len.copy()
            for i, ids in changed.items():
                self.src_len[i], self.tgt_len[i] = len(ids["src"]), len(ids["tgt"])

    def add_noise(
        self, noise: dict[Side, SideNoise], seed: int, epoch: int, longest: int, threads: int
    ) -> None:
        """Segment the pairs at random, a pure function of ``seed`` and ``epoch``.

        Args:
            noise: segments the sentences of each side.
            longest: maximum pieces of a side.
            threads: compute the lengths.
        """
        n = len(self.src_len)
        self._noise = noise
        self._keys = {
            side: np.random.SeedSequence([seed, epoch, i]).generate_state(1, np.uint64)[0]
            for i, side in enumerate(SIDES)
        }
        rows = np.arange(n) if self.rows is None else self.rows
        self._draws = _numbers(rows, len(self._corpus))
        self._plain_lengths = {"src": self.src_len, "tgt": self.tgt_len}
        self.src_len, self.tgt_len = self.src_len.copy(), self.tgt_len.copy()
        noisy = self._noisy = np.zeros(n, bool)

        def measure(first: int) -> None:
            chunk = np.arange(first, min(first + CHUNK, n))
            src_len, tgt_len = (self._segment(side, chunk)[1] for side in SIDES)
            fits = np.maximum(src_len, tgt_len) <= longest
            noisy[chunk] = fits
            self.src_len[chunk[fits]] = src_len[fits]
            self.tgt_len[chunk[fits]] = tgt_len[fits]

        chunks = range(0, n, CHUNK)
        if threads == 1:  # no pool, because a command would wait for its threads when it ends
            for first in chunks:
                measure(first)
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(measure, chunks))

    def rows_of(self, indices: np.ndarray) -> np.ndarray:
        """Return the rows of pairs in the corpus."""
        return indices if self.rows is None else self.rows[indices]

    def select(self, indices: np.ndarray) -> SelectedPairs:
        """Return pairs, by index."""
        plain = zip(self._ids("src", indices), self._ids("tgt", indices), strict=True)
        pairs = dict(zip(indices.tolist(), plain, strict=True))
        if self._noisy is not None and len(noisy := indices[self._noisy[indices]]):
            sides = []
            for side in SIDES:
                ids, lengths = self._segment(side, noisy)
                sides.append(np.split(ids, np.cumsum(lengths)[:-1]))
            pairs.update(zip(noisy.tolist(), zip(*sides, strict=True), strict=True))
        return SelectedPairs(pairs)

    def _ids(self, side: Side, indices: np.ndarray) -> list[np.ndarray]:
        """Return the ids of a side of pairs, before noise."""
        ids_of = self._corpus.src if side == "src" else self._corpus.tgt
        found = [ids_of(row) for row in self.rows_of(indices).tolist()]
        if self._changed:
            for place, i in enumerate(indices.tolist()):
                if i in self._changed:
                    found[place] = self._changed[i][side]
        return found

    def _segment(self, side: Side, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the concatenated ids of pairs with noise, and the length of each."""
        ids = np.concatenate(self._ids(side, indices))
        lengths = self._plain_lengths[side][indices]
        return self._noise[side](ids, lengths, self._draws[indices], self._keys[side])


class Epochs:
    """Make the pairs of each epoch, and those of the next one in the background.

    Args:
        corpus: the pairs without noise.
        mixture: how often an epoch has each pair; None = once.
        noise: None = every epoch has the pieces of the corpus.
        longest: maximum pieces of a side with noise.
        changes: of the text of each epoch; None = there are none.
    """

    def __init__(
        self,
        corpus: EncodedCorpus,
        vocab: Vocab,
        mixture: Mixture | None,
        noise: Noise | None,
        seed: int,
        longest: int,
        changes: TextChanges | None = None,
    ) -> None:
        self._corpus, self._seed, self._longest = corpus, seed, longest
        self._changes = changes
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
        changed = self._changes.draw(rows, self._seed, epoch) if self._changes else None
        pairs = EpochPairs(self._corpus, rows, changed)
        if self._noise is not None:
            pairs.add_noise(self._sides, self._seed, epoch, self._longest, threads)
        return pairs
