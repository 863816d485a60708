"""The interface of segmenters, and the simplest one: white space separates pieces."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from nmt.data.bitext import Chunk
from nmt.data.segmenters.noise import Noise
from nmt.data.tokenizer import Moses

Side: TypeAlias = Literal["src", "tgt"]


class Segmenter(ABC):
    """Split text into pieces, and join pieces into text.

    A run folder stores the segmenter, so that translation treats text as training did. ``lang``
    selects the rules of the tokenizer. Instances must be picklable.

    Attributes:
        kind: value of ``segment.kind`` in recipes.
        moses: tokenizes text before segmentation, and references for scoring.
    """

    kind: str

    def __init__(self, moses: Moses) -> None:
        self.moses = moses

    @classmethod
    @abstractmethod
    def learn(
        cls, config: Any, moses: Moses, text: Iterable[Chunk], progress: bool = False
    ) -> Segmenter:
        """Learn the segmentation of both sides, or read the file that the recipe names.

        Args:
            config: the recipe's ``segment``.
            text: is read at most once.
            progress: show on a terminal that a model is learned.
        """

    @classmethod
    @abstractmethod
    def load(cls, folder: Path, moses: Moses, metadata: dict[str, Any]) -> Segmenter:
        """Read the ``files()`` of a segmenter from a folder."""

    @abstractmethod
    def encode(self, line: str, lang: str, side: Side = "src") -> list[str]:
        """Return the pieces of a line.

        Args:
            lang: its language.
            side: the side of the model that it is for; a segmenter may have codes for each.
        """

    @abstractmethod
    def decode_tokenized(self, pieces: Sequence[str], lang: str) -> str:
        """Return pieces as tokenized text, for tokenized BLEU."""

    @abstractmethod
    def surface(self, piece: str) -> str:
        """Return what a piece adds to tokenized text, with a space where a word begins or ends."""

    def decode(self, pieces: Sequence[str], lang: str) -> str:
        """Return pieces as plain text."""
        return self.moses.detokenize(self.decode_tokenized(pieces, lang), lang)

    def noise(self, config: Any) -> Noise | None:
        """Return how to segment training text at random; None if the recipe does not want it.

        Raises:
            UserError: this segmenter cannot do what the recipe wants.
        """
        return None

    def alphabet(self) -> list[str]:
        """Return pieces that the vocabulary has even if the training text does not."""
        return []

    def files(self) -> dict[str, bytes]:
        """Return the files to save, by name."""
        return {}

    def metadata(self) -> dict[str, Any]:
        """Return what ``load`` needs in addition to the files, as JSON values."""
        return {}


class Whitespace(Segmenter):
    """Words are pieces; Moses tokenizes the text first unless the corpus is tokenized."""

    kind = "whitespace"

    @classmethod
    def learn(
        cls, config: Any, moses: Moses, text: Iterable[Chunk], progress: bool = False
    ) -> Whitespace:
        """Make the segmenter, which has nothing to learn."""
        return cls(moses)

    @classmethod
    def load(cls, folder: Path, moses: Moses, metadata: dict[str, Any]) -> Whitespace:
        """Make the segmenter, which has no files."""
        return cls(moses)

    def encode(self, line: str, lang: str, side: Side = "src") -> list[str]:
        """Return the words of an input line."""
        return self.moses.tokenize(line, lang)

    def decode_tokenized(self, pieces: Sequence[str], lang: str) -> str:
        """Return words as tokenized text."""
        return " ".join(pieces)

    def surface(self, piece: str) -> str:
        """Return a word and a space."""
        return piece + " "
