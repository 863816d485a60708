"""The training text in memory, after it was read and checked: learning and encoding use it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import TypeAlias

import numpy as np

from nmt.data.bitext import Bitext
from nmt.data.text import Pair
from nmt.data.workers import in_chunks
from nmt.runtime.progress import progress_bar

NumberedPair: TypeAlias = tuple[int, Pair]  # the number of its line, and the pair


@dataclass(frozen=True)
class Chunk:
    """Some pairs of a corpus. UTF-8 takes a quarter of the memory of lists of strings.

    Attributes:
        corpus: the files that they are from.
        numbers: [n] int32, their lines in the files, from 1.
        src, tgt: n lines each, with LF between them.
    """

    corpus: Bitext
    numbers: np.ndarray
    src: bytes
    tgt: bytes

    @classmethod
    def of(cls, corpus: Bitext, pairs: list[NumberedPair]) -> Chunk:
        """Store pairs."""
        numbers = np.array([number for number, _ in pairs], np.int32)
        src, tgt = ("\n".join(pair[side] for _, pair in pairs).encode() for side in (0, 1))
        return cls(corpus, numbers, src, tgt)

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def src_lines(self) -> list[str]:
        """The sources."""
        return self.src.decode().split("\n")

    @property
    def tgt_lines(self) -> list[str]:
        """The targets."""
        return self.tgt.decode().split("\n")

    def pairs(self) -> Iterator[Pair]:
        """Yield the pairs."""
        return zip(self.src_lines, self.tgt_lines, strict=True)

    def place(self, index: int) -> str:
        """Return where a pair is from: ``NAME:LINE``."""
        return f"{self.corpus.name}:{self.numbers[index]}"

    def repeated(self, copies: np.ndarray) -> Iterator[Chunk]:
        """Yield each pair as often as ``copies`` says: [n] int64."""
        pairs = zip(self.numbers.tolist(), self.pairs(), strict=True)
        drawn = (
            pair for pair, n in zip(pairs, copies.tolist(), strict=True) for pair in repeat(pair, n)
        )
        return (Chunk.of(self.corpus, some) for some in in_chunks(drawn))


class TrainingText:
    """The pairs of some corpora that passed the checks.

    Attributes:
        corpora: the corpora.
        chunks: of each corpus.
        progress: show a bar on a terminal.
    """

    def __init__(self, progress: bool) -> None:
        self.corpora: list[Bitext] = []
        self.chunks: list[list[Chunk]] = []
        self.progress = progress

    def add(self, corpus: Bitext, pairs: Iterable[NumberedPair]) -> None:
        """Store the pairs of the next corpus."""
        self.corpora.append(corpus)
        self.chunks.append([Chunk.of(corpus, some) for some in in_chunks(pairs)])

    @property
    def sizes(self) -> list[int]:
        """Number of pairs of each corpus."""
        return [sum(map(len, chunks)) for chunks in self.chunks]

    def read(self, action: str, copies: np.ndarray | None = None) -> Iterator[Chunk]:
        """Yield the chunks of all corpora.

        Args:
            action: title of the progress bar.
            copies: [pairs] how often to yield each pair; None = once.
        """
        row = 0
        with progress_bar(action, "pairs", sum(self.sizes), self.progress) as bar:
            for chunk in (chunk for chunks in self.chunks for chunk in chunks):
                if copies is None:
                    yield chunk
                else:
                    yield from chunk.repeated(copies[row : row + len(chunk)])
                row += len(chunk)
                bar.update(len(chunk))

    def sample(self, action: str, step: int) -> Iterator[tuple[Bitext, Pair]]:
        """Yield every ``step``-th pair with its corpus, the first one first."""
        row = 0
        for chunk in self.read(action):
            for pair in list(chunk.pairs())[-row % step :: step]:
                yield chunk.corpus, pair
            row += len(chunk)
