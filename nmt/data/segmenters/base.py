"""The interface of segmenters, and the simplest one: white space separates pieces."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from nmt.data.bitext import Chunk
from nmt.data.lines import Side
from nmt.data.segmenters.noise import Noise
from nmt.errors import UserError
from nmt.text.tokenizer import Moses


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
        """Return the pieces of a line; a segmenter may have codes for each side."""

    @abstractmethod
    def decode_tokenized(self, pieces: Sequence[str], lang: str) -> str:
        """Return pieces as tokenized text, for tokenized BLEU."""

    @abstractmethod
    def surface(self, piece: str) -> str:
        """Return the text that a piece adds, with a space where a word begins or ends."""

    def decode(self, pieces: Sequence[str], lang: str) -> str:
        """Return pieces as plain text."""
        return self.moses.detokenize(self.decode_tokenized(pieces, lang), lang)

    def noise(self, config: Any, known: Collection[str] | None = None) -> Noise | None:
        """Return the segmentation noise that a recipe asks for; None = none.

        Args:
            known: pieces that it may give; None = any.

        Raises:
            UserError: this segmenter does not have that noise.
        """
        return None

    def extended(
        self, known: Collection[str], text: Iterable[Chunk], limit: int
    ) -> tuple[Segmenter, dict[str, list[str]]]:
        """Return a segmenter with more pieces, and for each new piece those that it replaces.

        Text without new pieces keeps its segmentation. Other text gets it with neighbors joined.

        Args:
            known: the types of the vocabulary.
            text: to learn the pieces from; it is read once.
            limit: maximum number of new pieces; of each side if each has a model.

        Raises:
            UserError: this segmenter cannot be extended.
        """
        raise UserError(
            f"segment.kind: {self.kind} has no subwords, so it cannot be extended",
            at="init.vocab",
            fix="set init.vocab=new",
        )

    def trimmed(
        self, known: Collection[str], wanted: Collection[str]
    ) -> tuple[Segmenter, set[str]]:
        """Return a segmenter with fewer pieces, and the types that it needs.

        Text of wanted pieces keeps its segmentation, and no known text becomes unknown.

        Args:
            known: the types of the vocabulary.
            wanted: types to keep; others stay if a text cannot be written without them.

        Raises:
            UserError: this segmenter cannot be trimmed.
        """
        raise UserError(
            f"segment.kind: {self.kind} has no subwords, so words that are left "
            "out would become UNK",
            at="init.trim",
            fix="remove init.trim, or set init.vocab=new",
        )

    def alphabet(self) -> list[str]:
        """Return pieces that the vocabulary has even if the training text does not."""
        return []

    def files(self) -> dict[str, bytes]:
        """Return the files to save, by name."""
        return {}

    def metadata(self) -> dict[str, Any]:
        """Return JSON values that ``load`` needs in addition to the files."""
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
