"""Segmentation noise: what a segmenter provides to segment training text at random.

Noise takes the pieces of a word, splits them into symbols (its characters), and joins the symbols
again at random. It never changes the text: the pieces of a word still join to the same word.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

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


Model: TypeAlias = Merges | Unigram


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

    model: Model
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
    """Return False: ``begins`` or ``ends`` of a segmenter whose pieces do not mark it."""
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
