"""The joint vocabulary: types with ids, and which side of the training data has them.

Ids 0 to 3 are PAD, BOS, EOS and UNK; they have no text, so nothing in a corpus can become one.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from nmt.errors import UserError
from nmt.runtime.files import write_atomic

PAD, BOS, EOS, UNK = range(4)
SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")  # how they are shown, never how they are read
FILE = "vocab.txt"
LARGEST = 1_000_000


class Vocab:
    """Types in order of frequency, with their counts on each side of the training data."""

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
        """Return all types seen ``min_count`` times, the most frequent first, equal ones by text.

        ``alphabet``: types that are added even if they were never seen.
        """
        total = counts_src + counts_tgt
        types = [t for t in sorted(total, key=lambda t: (-total[t], t)) if total[t] >= min_count]
        types += sorted(set(alphabet).difference(types))
        counts = [(counts_src[t], counts_tgt[t]) for t in types]
        return cls(types, np.array(counts, dtype=np.int64).reshape(-1, 2))

    def __len__(self) -> int:
        return len(SPECIALS) + len(self._types)

    def ids(self, pieces: Iterable[str]) -> list[int]:
        """Ids of pieces; those never seen in training are UNK."""
        get = self._ids.get
        return [get(piece, UNK) for piece in pieces]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Pieces of ids."""
        shown = len(SPECIALS)
        return [self._types[i - shown] if i >= shown else SPECIALS[i] for i in ids]

    def types_of(self, side: Literal["src", "tgt"]) -> np.ndarray:
        """[V] bool: the types of that side in training, and EOS and UNK [A]."""
        mask = np.zeros(len(self), dtype=bool)
        mask[[EOS, UNK]] = True
        mask[len(SPECIALS) :] = self._counts[:, 0 if side == "src" else 1] > 0
        return mask

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the file that ``save`` writes."""
        return hashlib.sha256(self._text().encode()).hexdigest()

    def save(self, folder: Path) -> None:
        """Write vocab.txt: type, source count and target count, tab-separated, in order of id."""
        write_atomic(folder / FILE, self._text())

    @classmethod
    def load(cls, folder: Path) -> Vocab:
        """Read vocab.txt.

        Raises:
            UserError: missing, empty, too large, or a line that is malformed or a duplicate.
        """
        path = folder / FILE
        restore = "restore the file that nmt-train wrote"
        types: dict[str, None] = {}
        counts = []
        number = 0
        try:
            with open(path, encoding="utf-8", newline="\n") as file:
                for number, line in enumerate(file, 1):
                    if number > LARGEST:
                        break
                    text, *numbers = line.removesuffix("\n").split("\t")
                    if not (text and line.endswith("\n") and len(numbers) == 2):
                        raise ValueError("not TYPE, tab, count, tab, count")
                    if text in types:
                        raise ValueError(f"duplicate type {text!r}")
                    types[text] = None
                    counts.append([_count(count) for count in numbers])
        except UnicodeDecodeError as error:
            raise UserError("not UTF-8", at=f"{path}:{number + 1}", fix=restore) from error
        except ValueError as error:
            raise UserError(str(error), at=f"{path}:{number}", fix=restore) from error
        except OSError as error:
            raise UserError(
                f"cannot be read: {error.strerror}", at=str(path), fix=restore
            ) from error
        if not 0 < number <= LARGEST:
            count = f"{number:,} types{' or more' if number else ''}"
            raise UserError(
                f"{count}; between 1 and {LARGEST:,} are allowed",
                at=str(path),
                fix=restore,
            )
        return cls(list(types), np.array(counts, dtype=np.int64))

    def _text(self) -> str:
        return "".join(
            f"{t}\t{s}\t{g}\n" for t, (s, g) in zip(self._types, self._counts, strict=True)
        )


def _count(text: str) -> int:
    if not (text.isdecimal() and len(text) <= 18):  # more digits would not fit in 64 bits
        raise ValueError(f"not a count: {text[:30]!r}")
    return int(text)
