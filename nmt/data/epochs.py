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
from typing import NamedTuple

import numpy as np

from nmt.data.augment import Augmenter, Draws
from nmt.data.batches import SelectedPairs
from nmt.data.encoded import SIDES, EncodedCorpus, Ragged, Side
from nmt.data.mixture import Mixture, copy_numbers
from nmt.data.segmenters import Segmenter
from nmt.data.segmenters.noise import Noise, SideNoise
from nmt.data.text import Pair
from nmt.data.vocab import Vocab, tag_piece
from nmt.runtime.cpus import available_cpus

CHUNK = 10_000  # pairs segmented in one call
KEPT_EPOCHS = 3  # an update may need two, and the next one is made meanwhile


class ChangedPairs(NamedTuple):
    """The m pairs of an epoch whose text is changed.

    Attributes:
        slots: [n] int32, number of each pair of the epoch among them; -1 = unchanged.
        sides: their pieces on each side.
        starts: [m + 1] int64 each, where the pieces of each pair begin.
    """

    slots: np.ndarray
    sides: dict[Side, Ragged]
    starts: dict[Side, np.ndarray]


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

        Args:
            rows: [n] row of each pair, sorted; None = each row once.
        """
        rows = np.arange(len(self._corpus)) if rows is None else rows
        numbers = rows + len(self._corpus) * copy_numbers(rows)
        slots = np.full(len(rows), -1, np.int32)
        changed: dict[Side, list[list[int]]] = {side: [] for side in SIDES}
        for i, kinds, draws in self._augmenter.draw(numbers, seed, epoch):
            if encoded := self._encode(int(rows[i]), kinds, draws):
                slots[i] = len(changed["src"])
                for side, ids in zip(SIDES, encoded, strict=True):
                    changed[side].append(ids)
        sides = {side: Ragged.of(ids) for side, ids in changed.items()}
        starts = {s: np.cumsum([0, *of.lengths.tolist()]) for s, of in sides.items()}
        return ChangedPairs(slots, sides, starts)

    def _encode(self, row: int, kinds: Sequence[str], draws: Draws) -> list[list[int]] | None:
        """Return the ids of a changed pair; None if it stays as it is."""
        entry = int(np.searchsorted(self._ends, row, "right"))
        langs, tags = self._entries[entry]
        size = self._corpus.sizes[entry]

        def other(draws: Draws) -> Pair:
            return self._pair(int(self._ends[entry]) - size + draws.below(size))

        pair = self._pair(row)
        changed = self._augmenter.change(pair, kinds, draws, langs, other)
        if changed == pair:
            return None
        encoded = []
        for side, line, lang, tag in zip(SIDES, changed, langs, tags, strict=True):
            ids = self._vocab.ids([*tag_piece(tag), *self._segmenter.encode(line, lang, side)])
            if not ids or len(ids) > self._longest or not self._known[side][ids].all():
                return None
            encoded.append(ids)
        return encoded

    def _pair(self, row: int) -> Pair:
        return self._corpus.line("src", row), self._corpus.line("tgt", row)


class EpochPairs:
    """The n pairs of one epoch, by their index in the epoch.

    Args:
        corpus: the pairs of all epochs.
        rows: [n] row of each pair in the corpus, sorted; None = each row once.
        changed: the pairs with changed text; None = there are none.

    Attributes:
        rows: as given.
        src_len, tgt_len: [n] int32, pieces of each pair.
    """

    def __init__(
        self,
        corpus: EncodedCorpus,
        rows: np.ndarray | None,
        changed: ChangedPairs | None = None,
    ) -> None:
        self._corpus, self.rows, self._changed = corpus, rows, changed
        self.src_len, self.tgt_len = corpus.src_len, corpus.tgt_len
        if rows is not None:
            self.src_len, self.tgt_len = self.src_len[rows], self.tgt_len[rows]
        if changed is not None:
            slots = changed.slots
            self.src_len, self.tgt_len = (
                np.where(slots < 0, old, np.append(changed.sides[side].lengths, 0)[slots])
                for side, old in zip(SIDES, (self.src_len, self.tgt_len), strict=True)
            )

    def rows_of(self, indices: np.ndarray) -> np.ndarray:
        """Return the rows of pairs in the corpus."""
        return indices if self.rows is None else self.rows[indices]

    def select(self, indices: np.ndarray) -> SelectedPairs:
        """Return pairs, by index."""
        pairs = zip(self.ids("src", indices), self.ids("tgt", indices), strict=True)
        return SelectedPairs(dict(zip(indices.tolist(), pairs, strict=True)))

    def ids(self, side: Side, indices: np.ndarray) -> list[np.ndarray]:
        """Return the ids of a side of pairs, by index, before noise."""
        rows = self.rows_of(indices).tolist()
        ids_of = self._corpus.src if side == "src" else self._corpus.tgt
        found = [ids_of(row) for row in rows]
        if self._changed is not None:
            ids, starts = self._changed.sides[side].ids, self._changed.starts[side]
            for i, slot in enumerate(self._changed.slots[indices].tolist()):
                if slot >= 0:
                    found[i] = ids[starts[slot] : starts[slot + 1]].astype(found[i].dtype)
        return found


class NoisyPairs(EpochPairs):
    """The pairs of one epoch, segmented at random.

    Args:
        corpus: the pairs without noise.
        noise: segments the sentences of each side.
        seed, epoch: decide the random draws.
        longest: maximum pieces of a side.
        threads: compute the lengths.
        changed: the pairs with changed text.
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
        changed: ChangedPairs | None = None,
    ) -> None:
        super().__init__(corpus, rows, changed)
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
        ids = np.concatenate(self.ids(side, indices))
        lengths = self._plain_lengths[side][indices]
        return self._noise[side](ids, lengths, self._numbers[indices], self._keys[side])


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
        changes = self._changes
        changed = None if changes is None else changes.draw(rows, self._seed, epoch)
        if self._noise is None:
            return EpochPairs(self._corpus, rows, changed)
        return NoisyPairs(
            self._corpus, rows, self._sides, self._seed, epoch, self._longest, threads, changed
        )
