"""Segmentation noise: what a segmenter provides to segment training text at random, and its arrays.

Noise takes the pieces of a word, splits them into symbols (its characters), and joins the symbols
again at random. It never changes the text: the pieces of a word still join to the same word.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nmt.data.vocab import SPECIALS, Vocab

MAX_SEEN_WORDS = 200_000  # per process and side, about 40 MB


@dataclass(frozen=True)
class Merges:
    """BPE-dropout (Provilkov et al. 2020, algorithm 1).

    In each step, every pair of neighbors that may merge is skipped with probability ``skip``, and
    the best of the others merges. A word is done when a step skips all pairs.

    Attributes:
        skip: probability of skipping a pair, at least 0 and below 1.
        ranks: pairs of symbols that may merge; the lowest rank merges first.
        together: True = a step merges all pairs with the lowest rank, as in subword-nmt; False =
            only the leftmost, as in SentencePiece.
    """

    skip: float
    ranks: Mapping[tuple[str, str], int]
    together: bool


@dataclass(frozen=True)
class Unigram:
    """Subword regularization (Kudo 2018, equation 8), over all segmentations of a word.

    The probability of a segmentation is proportional to the product of the probabilities of its
    pieces, to the power of ``alpha``.

    Attributes:
        alpha: 0 = all segmentations are equally probable; a large value = only the best one.
        scores: logarithm of the probability of each piece.
    """

    alpha: float
    scores: Mapping[str, float]


@dataclass(frozen=True)
class Noise:
    """How to segment the words of encoded training text at random. Instances must be picklable.

    A piece is named by its text in the vocabulary, a symbol by its text in ``model``.

    Attributes:
        model: decides which symbols are joined.
        spell: returns the single symbols of a piece; none = the piece is never split.
        name: returns the piece of a symbol.
        begins, ends: whether a piece begins or ends a word. A word that noise segments as one has
            no piece with ``begins`` except the first, and none with ``ends`` except the last.
        joined: the symbols that noise can make of several.
    """

    model: Merges | Unigram
    spell: Callable[[str], Sequence[str]]
    name: Callable[[str], str]
    begins: Callable[[str], bool]
    ends: Callable[[str], bool]
    joined: Collection[str]

    def words(self, pieces: Iterable[str]) -> Iterable[tuple[str, ...]]:
        """Yield the pieces of each word that noise segments; other pieces are left out."""
        word: list[str] = []
        for piece in pieces:
            if word and (self.begins(piece) or not self.spell(piece)):
                yield tuple(word)
                word = []
            if self.spell(piece):
                word.append(piece)
                if self.ends(piece):
                    yield tuple(word)
                    word = []
        if word:
            yield tuple(word)


def never(piece: str) -> bool:
    """Be ``begins`` or ``ends`` of a segmenter whose pieces do not mark it."""
    return False


class ReachablePieces:
    """Collect the pieces that noise can make of the words of a text.

    These are the single symbols of each word, and each part of a word that is in ``joined``. That
    can be a few more than those with a probability above 0, if a codes file has merges of symbols
    that no other merges make.
    """

    def __init__(self, noise: Noise) -> None:
        self._noise = noise
        self._longest = max(map(len, noise.joined), default=1)
        self._seen: set[tuple[str, ...]] = set()

    def __call__(self, sentences: Iterable[Iterable[str]]) -> set[str]:
        """Return the pieces of the words that earlier calls have not seen."""
        noise, symbols = self._noise, set()
        for pieces in sentences:
            for word in noise.words(pieces):
                if word in self._seen:
                    continue
                if len(self._seen) >= MAX_SEEN_WORDS:
                    self._seen.clear()
                self._seen.add(word)
                symbols |= self._parts([s for piece in word for s in noise.spell(piece)])
        return {noise.name(symbol) for symbol in symbols}

    def _parts(self, spelled: list[str]) -> set[str]:
        found = set(spelled)
        for first in range(len(spelled)):
            part = spelled[first]
            for symbol in spelled[first + 1 : first + self._longest]:
                part += symbol
                if part in self._noise.joined:
                    found.add(part)
        return found


# ---------------------------------------------------------------- as arrays


class Words(NamedTuple):
    """How pieces make words, and symbols make pieces: V types, S symbols.

    Attributes:
        starts: [V + 1] int32, where the symbols of each type start; none = it is never split.
        symbols: int32, the symbols of the types.
        begins, ends: [V] bool, whether a type begins or ends a word.
    """

    starts: np.ndarray
    symbols: np.ndarray
    begins: np.ndarray
    ends: np.ndarray


class Table(NamedTuple):
    """A map from pairs of int32 to 0, 1, ...: open addressing with linear probing.

    Attributes:
        keys: [n] int64, the pairs.
        slots: [power of 2] int32, index of the pair in a slot; -1 = free.
    """

    keys: np.ndarray
    slots: np.ndarray


class MergeArrays(NamedTuple):
    """A ``Merges`` as arrays.

    Attributes:
        pairs: of symbols that merge.
        ranks, results: of each pair, int32.
        starts, ids: the types of each symbol, as in ``Words``.
        skip: probability of skipping a pair, times 2^64.
        together: merge all pairs of the lowest rank in a step.
    """

    pairs: Table
    ranks: np.ndarray
    results: np.ndarray
    starts: np.ndarray
    ids: np.ndarray
    skip: np.uint64
    together: bool


class UnigramArrays(NamedTuple):
    """A ``Unigram`` as a prefix tree of its pieces; node 0 is the root.

    Attributes:
        edges: pairs of a node and a symbol; edge i leads to node i + 1.
        ids: [nodes] int32, type of the piece that ends at a node; -1 = none.
        scores: [nodes] float64, alpha times the logarithm of the probability of this piece.
    """

    edges: Table
    ids: np.ndarray
    scores: np.ndarray


class SideNoise:
    """Segment the sentences of one side at random, as ids.

    A piece is split only if its symbols are types of this side as pieces: a vocabulary that was not
    built for noise, such as that of another run, limits the noise. A symbol that is not such a type
    is split as ``Merges`` made it.

    Args:
        allowed: [V] bool, the types that may occur on this side.
    """

    def __init__(self, noise: Noise, vocab: Vocab, allowed: np.ndarray) -> None:
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
        self._words = Words(
            _ends(known),
            np.array([numbers[s] for symbols in known for s in symbols], np.int32),
            np.array([noise.begins(t) for t in types]),
            np.array([noise.ends(t) for t in types]),
        )
        self._arrays = (
            _merge_arrays(noise.model, noise.name, numbers, vocab, allowed)
            if isinstance(noise.model, Merges)
            else _unigram_arrays(noise.model, numbers, vocab, allowed)
        )

    def __call__(
        self, ids: np.ndarray, lengths: np.ndarray, numbers: np.ndarray, key: np.uint64
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the concatenated ids of sentences and the length of each.

        Args:
            ids: [sum of lengths] without noise.
            lengths: [n] int32.
            numbers: [n] int64, number of each sentence; it and ``key`` decide the draws.
        """
        from nmt.data.noise_kernels import merge, sample  # here: they load Numba

        segment = merge if isinstance(self._arrays, MergeArrays) else sample
        out = np.empty(int(self._sizes[ids].sum()), np.int32)
        out_lengths = np.empty(len(lengths), np.int32)
        segment(ids, lengths, numbers, key, self._words, self._arrays, out, out_lengths)
        return out[: int(out_lengths.sum())], out_lengths


def _merge_arrays(
    merges: Merges,
    name: Callable[[str], str],
    numbers: dict[str, int],
    vocab: Vocab,
    allowed: np.ndarray,
) -> MergeArrays:
    """Number the symbols, and list the pairs that merge.

    Args:
        numbers: of the single symbols.
        allowed: [V] bool, types that symbols may become; other symbols are split again.
    """
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
    return MergeArrays(
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
) -> UnigramArrays:
    """Return a unigram model as a prefix tree; ``numbers`` and ``allowed`` as for merges."""
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
    return UnigramArrays(_table(list(nodes)), np.array(ids, np.int32), np.array(scores))


def _table(pairs: Sequence[tuple[int, int]]) -> Table:
    from nmt.data.noise_kernels import fill_slots

    keys = np.array([left << 32 | right for left, right in pairs], np.int64)
    slots = np.full(1 << (2 * len(keys) + 1).bit_length(), -1, np.int32)
    fill_slots(keys, slots)
    return Table(keys, slots)


def _ends(parts: Collection[Sequence[object]]) -> np.ndarray:
    """Return [n + 1] int32: where each part starts if all are concatenated, and the end."""
    return np.cumsum([0, *map(len, parts)], dtype=np.int32)
