"""Segmentation noise: segment the words of training text at random.

Noise takes the pieces of a word, splits them into symbols (its characters), and joins the symbols
again at random. It never changes the text: the pieces still join to the same word.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

MAX_SYMBOLS = 40  # of a word; a longer one is several words, because the time grows with the square
POOL = 16  # random segmentations of a word
MAX_WORDS = 60_000  # with a pool in memory, per process about 60 MB

Word: TypeAlias = tuple[str, ...]  # the pieces of a word without noise


@dataclass(frozen=True)
class Merges:
    """BPE-dropout (Provilkov et al. 2020, algorithm 1).

    In each step, every pair of neighbors that may merge is skipped with probability ``skip``, and
    the best of the others merges. A word is done when a step skips all pairs.

    Attributes:
        skip: probability of skipping a pair, at least 0 and below 1.
        ranks: pairs of symbols that may merge; the lowest rank merges first.
        kept: joined symbols that may remain; others are split again as they merged.
    """

    skip: float
    ranks: Mapping[tuple[str, str], int]
    kept: Collection[str]

    @functools.cached_property
    def _parts(self) -> dict[str, tuple[str, str]]:
        """The parts of each joined symbol that may not remain."""
        last_first = sorted(self.ranks, key=self.ranks.__getitem__, reverse=True)
        parts = {left + right: (left, right) for left, right in last_first}
        return {symbol: pair for symbol, pair in parts.items() if symbol not in self.kept}

    def draw(self, symbols: Sequence[str], random: Random) -> list[str]:
        """Join symbols."""
        symbols, skip = list(symbols), self.skip
        ranks = [self.ranks.get(pair, math.inf) for pair in itertools.pairwise(symbols)]
        while True:
            best, place = math.inf, 0
            for i, rank in enumerate(ranks):
                # a pair that is not better than the best so far needs no decision
                if rank < best and random.random() >= skip:
                    best, place = rank, i
            if best == math.inf:
                return [part for symbol in symbols for part in self._split(symbol)]
            symbols[place : place + 2] = [symbols[place] + symbols[place + 1]]
            del ranks[place]
            for i in range(max(0, place - 1), min(place + 1, len(ranks))):
                ranks[i] = self.ranks.get((symbols[i], symbols[i + 1]), math.inf)

    def _split(self, symbol: str) -> Iterator[str]:
        if symbol not in self._parts:
            yield symbol
        for part in self._parts.get(symbol, ()):
            yield from self._split(part)


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

    def draw(self, symbols: Sequence[str], random: Random) -> list[str]:
        """Join symbols."""
        n = len(symbols)
        # logarithm of the sum over all segmentations of the rest from each symbol on
        total = [0.0] * (n + 1)
        ways: list[list[tuple[str, int, float]]] = [[] for _ in symbols]
        for first in reversed(range(n)):
            text = ""
            for last in range(first, n):
                text += symbols[last]
                if (score := self.scores.get(text)) is not None:
                    ways[first].append((text, last + 1, self.alpha * score + total[last + 1]))
            highest = max(score for _, _, score in ways[first])
            rest = sum(math.exp(score - highest) for _, _, score in ways[first])
            total[first] = highest + math.log(rest)
        pieces, place = [], 0
        while place < n:
            chances = [math.exp(score - total[place]) for _, _, score in ways[place]]
            [(piece, place, _)] = random.choices(ways[place], chances)
            pieces.append(piece)
        return pieces


class Noise:
    """Segment the words of a text at random. Instances are picklable.

    A piece is named by its text in the vocabulary, a symbol by its text in ``model``.

    A word has POOL random segmentations, which are a function of its pieces alone. Each occurrence
    draws one of them. So its segmentations have the probabilities of the model, and those of a
    frequent word are computed once.

    Args:
        model: decides which symbols are joined.
        spell: returns the single symbols of a piece; none = the piece is never split.
        name: returns the piece of a symbol.
        joins: whether two neighboring pieces are of one word.
        known: pieces that may occur; None = any. A piece stays as it is if it or one of its single
            symbols is not known.
    """

    def __init__(
        self,
        model: Merges | Unigram,
        spell: Callable[[str], Sequence[str]],
        name: Callable[[str], str],
        joins: Callable[[str, str], bool],
        known: Collection[str] | None = None,
    ) -> None:
        self._model, self._spell, self._name, self._joins = model, spell, name, joins
        self._known = None if known is None else frozenset(known)
        self._symbols: dict[str, Sequence[str]] = {}
        self._pools: dict[Word, list[Word]] = {}

    def symbols(self, piece: str) -> Sequence[str]:
        """Return the single symbols of a piece; none = it is not split."""
        if (symbols := self._symbols.get(piece)) is None:
            symbols, known = self._spell(piece), self._known
            if known is not None and not known.issuperset([piece, *map(self._name, symbols)]):
                symbols = ()
            self._symbols[piece] = symbols
        return symbols

    def words(self, pieces: Iterable[str]) -> list[Word]:
        """Return the words of a line: the pieces that noise joins in another way."""
        words: list[list[str]] = []
        room = 0  # symbols that still fit into the last word
        for piece in pieces:
            size = len(self.symbols(piece))
            if 0 < size <= room and self._joins(words[-1][-1], piece):
                words[-1].append(piece)
            else:
                words.append([piece])
                room = MAX_SYMBOLS if size else 0
            room -= size
        return list(map(tuple, words))

    def draw(self, words: Iterable[Word], random: Callable[[], float]) -> list[str]:
        """Return the pieces of a line; ``random`` draws from [0, 1)."""
        pieces: list[str] = []
        for word in words:
            pool = self._pools.get(word) or self._new_pool(word)
            pieces += pool[int(random() * len(pool))]
        return pieces

    def _new_pool(self, word: Word) -> list[Word]:
        if len(self._pools) >= MAX_WORDS:
            self._pools.clear()
        symbols = [symbol for piece in word for symbol in self.symbols(piece)]
        pool, random = [word], Random(" ".join(word))
        if len(symbols) > 1:
            drawn = (map(self._name, self._model.draw(symbols, random)) for _ in range(POOL))
            same = {word: word}  # equal ones share memory
            pool = [same.setdefault(found, found) for found in map(tuple, drawn)]
        self._pools[word] = pool
        return pool
