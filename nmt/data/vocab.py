"""The joint vocabulary: types with their ids and their counts on each side.

A type is a distinct piece. Ids 0 to 3 are the specials PAD, BOS, EOS and UNK. They have no text, so
no text of a corpus can become one of them.

The type of a tag such as ``<bt>`` is its text after a space. No segmenter gives a piece with a
space, so no text becomes a tag either.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import numpy as np

from nmt.data.lines import Side
from nmt.errors import UserError
from nmt.runtime.files import LARGE, RESTORE, open_file, write_atomic

PAD, BOS, EOS, UNK = range(4)
SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")  # only for display
# A type that no text can produce: it begins with a space, and no segmenter yields a space. Models
# that restore text read it; its counts are 0.
MASK = " <mask>"
TAG_MARK = " "  # begins the type of a tag
FILE = "vocab.txt"
MAX_TYPES = 1_000_000


def tag_piece(tag: str | None) -> list[str]:
    """Return the piece of a tag as a list of one, or an empty list for None."""
    return [] if tag is None else [TAG_MARK + tag]


class Vocab:
    """Types in order of frequency, with their counts on each side of the training text."""

    def __init__(self, types: Sequence[str], counts: np.ndarray) -> None:
        """``counts``: [len(types), 2] int64, source and target."""
        self._types = list(types)
        self._counts = counts
        self._ids = {text: number for number, text in enumerate(self._types, len(SPECIALS))}

    @classmethod
    def build(
        cls,
        counts_src: Counter[str],
        counts_tgt: Counter[str],
        min_count: int = 1,
        alphabet: Iterable[str] = (),
    ) -> Vocab:
        """Build a vocabulary of the most frequent types first, ties in order of their text.

        Args:
            min_count: how often a type must occur, both sides together.
            alphabet: types to add even if they do not occur.
        """
        total = counts_src + counts_tgt
        types = [t for t in sorted(total, key=lambda t: (-total[t], t)) if total[t] >= min_count]
        types += sorted(set(alphabet).difference(types))
        counts = [(counts_src[t], counts_tgt[t]) for t in types]
        return cls(types, np.array(counts, dtype=np.int64).reshape(-1, 2))

    def with_counts(
        self, counts_src: Counter[str], counts_tgt: Counter[str], new: Iterable[str] = ()
    ) -> Vocab:
        """Return the same types with the counts of another text added to their own.

        ``new`` types are appended if the vocabulary lacks them.
        """
        types = [*self._types, *sorted(set(new).difference(self._types))]
        added = np.array([(counts_src[t], counts_tgt[t]) for t in types], dtype=np.int64)
        counts = added.reshape(-1, 2)
        counts[: len(self._types)] += self._counts
        return Vocab(types, counts)

    def with_types(self, kept: Collection[str]) -> Vocab:
        """Return the vocabulary with some of its types, in the same order with the same counts."""
        rows = [row for row, text in enumerate(self._types) if text in kept]
        return Vocab([self._types[row] for row in rows], self._counts[rows])

    @property
    def types(self) -> list[str]:
        """The types, in order of their ids."""
        return list(self._types)

    @property
    def most_frequent(self) -> list[str]:
        """The types in order of frequency on both sides together, ties in order of their ids."""
        order = np.argsort(-self._counts.sum(1), kind="stable")
        return [self._types[row] for row in order]

    def __len__(self) -> int:
        return len(SPECIALS) + len(self._types)

    def ids(self, pieces: Iterable[str]) -> list[int]:
        """Return the ids of pieces; pieces that are not types are UNK."""
        get = self._ids.get
        return [get(piece, UNK) for piece in pieces]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the pieces of ids."""
        first = len(SPECIALS)
        return [self._types[i - first] if i >= first else SPECIALS[i] for i in ids]

    @functools.cached_property
    def tags(self) -> list[str]:
        """The tags that a source may begin with, sorted."""
        return self._tags_of("src")

    @functools.cached_property
    def tgt_tags(self) -> list[str]:
        """The tags that a target may begin with, sorted."""
        return self._tags_of("tgt")

    def _tags_of(self, side: Side) -> list[str]:
        types = (t for t in self.pieces(self.types_of(side).nonzero()[0]) if t != MASK)
        return sorted(t.removeprefix(TAG_MARK) for t in types if t.startswith(TAG_MARK))

    @property
    def reserved_ids(self) -> list[int]:
        """The ids of the types that no text can produce: the tags and MASK."""
        return self.ids(t for t in self._types if t.startswith(TAG_MARK))

    def types_of(self, side: Side) -> np.ndarray:
        """Return the types of one side of the training text, EOS and UNK (A's code): [V] bool."""
        mask = np.zeros(len(self), dtype=bool)
        mask[[EOS, UNK]] = True
        mask[len(SPECIALS) :] = self._counts[:, 0 if side == "src" else 1] > 0
        return mask

    def share_of_text(self, ids: Sequence[int], side: Side) -> float:
        """Return the share of the tokens of one side that have these types; NaN without text."""
        counts = np.zeros(len(self))
        counts[len(SPECIALS) :] = self._counts[:, 0 if side == "src" else 1]
        return float(counts[ids].sum() / counts.sum()) if counts.any() else math.nan

    @property
    def hash(self) -> str:
        """SHA-256 of the file that ``save`` writes."""
        return hashlib.sha256(self._text().encode()).hexdigest()

    def save(self, folder: Path) -> None:
        """Write vocab.txt: a line TYPE, tab, source count, tab, target count for each id."""
        write_atomic(folder / FILE, self._text())

    @classmethod
    def load(cls, folder: Path) -> Vocab:
        """Read vocab.txt.

        Raises:
            UserError: the file is missing, empty or too large, or a line is malformed or a
                duplicate.
        """
        path, number = folder / FILE, 0
        types: dict[str, None] = {}
        counts = []
        try:
            with open_file(path, LARGE) as file:
                for number, data in enumerate(file, 1):
                    if number > MAX_TYPES:
                        break
                    line = data.decode("utf-8")
                    text, *numbers = line.removesuffix("\n").split("\t")
                    if not (text and line.endswith("\n") and len(numbers) == 2):
                        raise ValueError("not TYPE, tab, count, tab, count")
                    if text in types:
                        raise ValueError(f"duplicate type {text!r}")
                    types[text] = None
                    counts.append([_count(count) for count in numbers])
        except ValueError as error:
            what = "not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
            raise UserError(what, at=f"{path}:{number}", fix=RESTORE) from error
        except OSError as error:
            what = f"cannot be read: {error.strerror}"
            raise UserError(what, at=str(path), fix=RESTORE) from error
        if not 0 < number <= MAX_TYPES:
            count = f"{number:,} types{' or more' if number else ''}"
            what = f"{count}; between 1 and {MAX_TYPES:,} are allowed"
            raise UserError(what, at=str(path), fix=RESTORE)
        return cls(list(types), np.array(counts, dtype=np.int64))

    def _text(self) -> str:
        return "".join(
            f"{t}\t{s}\t{g}\n" for t, (s, g) in zip(self._types, self._counts, strict=True)
        )


def _count(text: str) -> int:
    if not (text.isdecimal() and len(text) <= 18):  # more digits would not fit in 64 bits
        raise ValueError(f"not a count: {text[:30]!r}")
    return int(text)
