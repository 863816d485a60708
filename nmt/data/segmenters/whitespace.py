"""White space separates pieces: for text that is already segmented."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from nmt.data.segmenters.base import Segmenter, Side
from nmt.data.tokenizer import Moses
from nmt.data.training_text import Chunk


class Whitespace(Segmenter):
    """Words are pieces; Moses tokenizes the text first unless the corpus is tokenized."""

    kind = "whitespace"

    @classmethod
    def learn(
        cls, config: Any, moses: Moses, text: Iterable[Chunk], progress: bool = False
    ) -> Whitespace:
        """Return the segmenter, which has nothing to learn."""
        return cls(moses)

    @classmethod
    def load(cls, folder: Path, moses: Moses, metadata: dict[str, Any]) -> Whitespace:
        """Return the segmenter, which has no files."""
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
