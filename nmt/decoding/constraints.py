"""Constraints on the translation of a line: its beginning, and phrases that it contains.

``LineConstraints`` hold the text that a user gives, ``TargetPieces`` its pieces, and
``PieceStrings`` says which words the pieces of a translation are. A search forces a beginning
(``logits_processors.Prefix``), and ``required`` searches again where a phrase is missing.
"""

from __future__ import annotations

import functools
import itertools
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import regex

from nmt.data.segmenters import Segmenter
from nmt.data.segmenters.sentencepiece import BYTE_SURFACE
from nmt.data.vocab import EOS, Vocab
from nmt.errors import UserError
from nmt.runtime.words import quantity
from nmt.text.languages import UNSPACED_CHARACTER

# ---------------------------------------------------------------- text that a user gives


@dataclass(frozen=True)
class LineConstraints:
    """The constraints of one line.

    Attributes:
        prefix: text that the translation starts with, blank = any.
        require: phrases that the translation contains.
    """

    prefix: str = ""
    require: Sequence[str] = ()


def require_list(form: str, **given: object) -> None:
    """Raise a TypeError for a single text, which Python treats as a list of characters.

    Args:
        form: how the arguments are given, for the message.
    """
    for name, value in given.items():
        if isinstance(value, str | bytes):
            raise TypeError(f"{name} is a {type(value).__name__}; give a list: {form}")


def with_constraints(
    lines: Iterable[str], constraints: Mapping[str, Iterable[Any]]
) -> Iterator[tuple[int, str, LineConstraints]]:
    """Yield the number of each line, from 1, the line and its constraints.

    Args:
        constraints: field of ``LineConstraints`` -> its value for each line.

    Raises:
        UserError: a constraint has fewer or more values than there are lines.
    """
    ended: Any = object()
    rows = itertools.zip_longest(lines, *constraints.values(), fillvalue=ended)
    for number, (line, *values) in enumerate(rows, 1):
        line_values = dict(zip(constraints, values, strict=True))
        for name, value in line_values.items():
            if (value is ended) != (line is ended):
                problem = f"ends before line {number}"
                if line is ended:
                    problem = f"has more than the {quantity(number - 1, 'line')}"
                raise UserError(
                    f"{name} {problem} of the input",
                    fix=f"give {name} one item per line, blank for none",
                )
            if name != "prefix":
                require_list(f"{name}=[[phrase]]", **{name: value})
        yield number, line, LineConstraints(**line_values)


# ---------------------------------------------------------------- pieces


@dataclass(frozen=True)
class TargetPieces:
    """Target text that a user gives, segmented.

    Attributes:
        pieces: of the text.
        ids: of the pieces; UNK where the target side of the training data lacks the piece.
    """

    pieces: tuple[str, ...] = ()
    ids: tuple[int, ...] = ()


UNKNOWN = "<unk>"  # stands for any characters
_WORD_CHARACTER = regex.compile(r"\w")  # unlike ``re``, also vowel signs


class PieceStrings:
    """The strings that pieces add to tokenized text, which has a space between words.

    Attributes:
        continues: [V], whether a type may continue a word.
    """

    def __init__(self, segmenter: Segmenter, vocab: Vocab) -> None:
        self._surface = segmenter.surface
        texts = [segmenter.surface(piece) for piece in vocab.pieces(range(len(vocab)))]
        texts[EOS] = " "
        self.continues = [text.startswith(UNKNOWN) or _in_word(text[:1]) for text in texts]

    def join(self, pieces: Iterable[str]) -> str:
        """Join pieces to tokenized text."""
        return "".join(map(self._surface, pieces))

    def ends_in_word(self, pieces: Sequence[str]) -> bool:
        """Return whether a next piece may continue the last word."""
        return _in_word(self.join(pieces[-1:])[-1:])

    def contains(self, pieces: Sequence[str], phrase: Sequence[str]) -> bool:
        """Return whether pieces have a phrase as complete words."""
        text, words = self.join(pieces), self.join(phrase).strip(" ")
        start = text.find(words)
        while start >= 0:
            end = start + len(words)
            before = _in_word(text[start - 1 : start]) and _in_word(words[:1])
            if not before and not (_in_word(words[-1:]) and _in_word(text[end : end + 1])):
                return True
            start = text.find(words, start + 1)
        return False

    def places(self, pieces: Sequence[str], phrase: Sequence[str]) -> Iterator[int]:
        """Yield how many pieces may stand before a phrase: they and the rest are complete words.

        In scripts without spaces, a word may begin after each letter.
        """
        first = self.join(phrase)[:1]
        for count in range(len(pieces) + 1):
            last = self.join(pieces[:count][-1:])[-1:]
            after = self.join(pieces[count:][:1])[:1]
            opens = not last or last == " " or unicodedata.category(last) in ("Ps", "Pi")
            unspaced = UNSPACED_CHARACTER.match(last) or UNSPACED_CHARACTER.match(first)
            if (opens or first == " " or unspaced) and not (_in_word(last) and _in_word(after)):
                yield count


@functools.cache
def _in_word(char: str) -> bool:
    """Return whether a word of a script with spaces may have a character."""
    return char >= BYTE_SURFACE or (
        _WORD_CHARACTER.match(char) is not None and UNSPACED_CHARACTER.match(char) is None
    )
