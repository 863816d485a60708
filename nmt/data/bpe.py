"""Byte-pair encoding with codes in fastBPE's format: ``left right count``, one merge a line.

The fastBPE package splits words when it is installed; subword-nmt does otherwise, and wherever
BPE-dropout or a vocabulary threshold is asked for. Both give the same pieces. Codes are learned by
subword-nmt; the count column, which neither reads, is then 0.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from subword_nmt import apply_bpe, learn_bpe

from nmt.errors import UserError

try:
    import fastBPE
except ImportError:  # an extra: subword-nmt splits alike
    fastBPE = None

JOINER = "@@"  # ends every piece of a word but the last
WORD_END = "</w>"  # in merges, ends a piece that ends a word
LEARNING_WORDS = 500_000  # the most frequent ones; subword-nmt takes a kilobyte for each
LONGEST_WORD = 1000  # characters; nothing is learned from longer ones, and they are cut in blocks
CACHED_WORDS = 200_000  # in each process; some 60 MB

_FORMATS = (
    "segment.codes reads lines LEFT RIGHT COUNT (fastBPE), or LEFT RIGHT after #version: 0.2 "
    "(subword-nmt)"
)

# "@@" in a text would be taken for a joiner and "</w>" for the end of a word: in such words "@" is
# U+E000 inside the model, and U+E001 marks a character that is meant as it stands
_MARKED = re.compile("\ue001(.)|\ue000", re.DOTALL)


def escape(word: str) -> str:
    """A word in which no piece can end like a joiner or a word."""
    if not any(sign in word for sign in (JOINER, WORD_END, "\ue000", "\ue001")):
        return word
    marked = word.replace("\ue001", "\ue001\ue001").replace("\ue000", "\ue001\ue000")
    return marked.replace("@", "\ue000").replace(WORD_END, "<\ue001/w>")


def unescape(text: str) -> str:
    """Undo ``escape``."""
    return _MARKED.sub(lambda m: m[1] or "@", text)


def join(pieces: Iterable[str]) -> str:
    """Pieces -> words with spaces."""
    text = "".join(p[: -len(JOINER)] if p.endswith(JOINER) else p + " " for p in pieces)
    return unescape(text.rstrip(" "))


def learn_codes(words: Mapping[str, int], merges: int) -> list[tuple[str, str]]:
    """Joint merges from the counts of all words of both sides (Sennrich et al. 2016)."""
    # time grows with the square of a word's length
    words = {word: count for word, count in words.items() if len(word) <= LONGEST_WORD}
    if all(len(word) == 1 for word in words):
        return []  # no two characters to merge, at which subword-nmt stumbles
    frequent = Counter(words).most_common(LEARNING_WORDS)
    listing = io.StringIO("".join(f"{escape(word)} {count}\n" for word, count in frequent))
    learned = io.StringIO()
    quiet = (
        contextlib.nullcontext()
        if sys.stderr.isatty()
        else contextlib.redirect_stderr(io.StringIO())
    )
    with quiet:
        learn_bpe.learn_bpe(listing, learned, merges, is_dict=True)
    _, *lines = learned.getvalue().removesuffix("\n").split("\n")  # the first is the version
    return [(left, right) for left, right in (line.split(" ") for line in lines)]


def read_codes(path: Path) -> list[tuple[str, str]]:
    """Merges from a codes file of fastBPE or of subword-nmt.

    Checked here, because fastBPE itself exits or crashes on a bad file. A merge that comes twice
    counts where it comes first, as in subword-nmt; fastBPE would take the last.

    Raises:
        UserError: missing, empty, a malformed line, with its number, or of subword-nmt's first
            version, which merges the end of a word as a piece of its own.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(
            f"cannot be read: {error.strerror}", at=str(path), fix="check segment.codes"
        ) from error
    try:
        lines = data.decode("utf-8-sig").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        number = error.object.count(b"\n", 0, error.start) + 1
        raise UserError("not UTF-8", at=f"{path}:{number}", fix=_FORMATS) from error
    headed = lines[0].startswith("#version")
    if lines == [""]:
        lines = []
    merges: dict[tuple[str, str], None] = {}
    for number, line in enumerate(lines[headed:], 1 + headed):
        parts = line.rstrip("\r").split(" ")
        counted = len(parts) == 3 and parts[2].isdecimal()
        if not (counted or (headed and len(parts) == 2)) or not all(parts[:2]):
            what, fix = f"not a merge: {line[:60]!r}", _FORMATS
            if len(parts) == 2 and all(parts):
                if parts[1].isdecimal():
                    what = f"a vocabulary entry (WORD COUNT), not a merge: {line[:60]!r}"
                    fix = f"give the file of merges, not that of the vocabulary; {_FORMATS}"
                else:
                    what = "two columns without subword-nmt's first line: which version wrote it?"
                    fix = 'put "#version: 0.2" in front if it is of 0.2; ' + _FORMATS
            raise UserError(what, at=f"{path}:{number}", fix=fix)
        if WORD_END in parts[:2]:
            raise UserError(
                "a merge of subword-nmt's format 0.1; 0.2 and fastBPE's are read",
                at=f"{path}:{number}",
                fix="learn the codes again, with segment.codes=learn or subword-nmt 0.2 or later",
            )
        merges.setdefault((parts[0], parts[1]))
    if not merges:
        raise UserError(
            "holds no merges", at=str(path), fix="give a codes file, or segment.codes=learn"
        )
    return list(merges)


def codes_text(merges: Sequence[tuple[str, str]]) -> str:
    """Merges in fastBPE's format."""
    return "".join(f"{left} {right} 0\n" for left, right in merges)


def _in_blocks(word: str, split: Callable[[str], list[str]]) -> list[str]:
    """Return the pieces of a word, those of a very long one block by block."""
    if len(word) <= LONGEST_WORD:
        return split(word)
    *blocks, rest = (word[i : i + LONGEST_WORD] for i in range(0, len(word), LONGEST_WORD))
    pieces: list[str] = []
    for block in blocks:
        *inner, last = split(block)
        pieces += [*inner, last + JOINER]
    return pieces + split(rest)


class _Cache(dict[str, list[str]]):
    """Word -> pieces: what is missing is worked out; all is forgotten when it grows large."""

    def __init__(self, split: Callable[[str], list[str]]) -> None:
        super().__init__()
        self._split = split

    def __missing__(self, word: str) -> list[str]:
        if len(self) >= CACHED_WORDS:
            self.clear()
        pieces = self[word] = list(map(sys.intern, _in_blocks(escape(word), self._split)))
        return pieces


class WordSplitter:
    """Word -> pieces, each word worked out once.

    Args:
        merges: in order.
        kept: pieces that may stay (``vocab_threshold``); others are split again. None = all.
    """

    def __init__(self, merges: Sequence[tuple[str, str]], kept: set[str] | None = None) -> None:
        self.merges, self.kept = list(merges), kept
        self._cache = _Cache(self._split)
        self._fast: Any = None  # made when first used, in each process anew
        self._slow: Any = None

    def __call__(self, words: Iterable[str]) -> list[str]:
        """Pieces of words; all but the last of a word end with the joiner."""
        return list(chain.from_iterable(map(self._cache.__getitem__, words)))

    def draw(self, word: str, dropout: float) -> list[str]:
        """Pieces of a word with merges skipped at random (BPE-dropout, Provilkov et al. 2020).

        subword-nmt draws from Python's ``random``; seed that.
        """
        return _in_blocks(escape(word), lambda block: self._subword_nmt(block, dropout))

    def count_pieces(self, words: Mapping[str, int]) -> Counter[str]:
        """How often each piece occurs in a text of these words."""
        counts: Counter[str] = Counter()
        for word, count in words.items():
            for piece in _in_blocks(escape(word), self._split):
                counts[piece] += count
        return counts

    def _split(self, word: str) -> list[str]:
        if fastBPE is None or self.kept is not None:
            return self._subword_nmt(word, 0.0)
        if self._fast is None:
            with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".codes") as file:
                file.write(codes_text(self.merges))
                file.flush()
                with _silent():
                    self._fast = fastBPE.fastBPE(file.name)
        return self._fast.apply([word])[0].split(" ")

    def _subword_nmt(self, word: str, dropout: float) -> list[str]:
        if not self.merges:  # which subword-nmt takes for a malformed file
            return [char + JOINER for char in word[:-1]] + [word[-1]]
        if self._slow is None:
            lines = "".join(f"{left} {right}\n" for left, right in self.merges)
            self._slow = apply_bpe.BPE(io.StringIO("#version: 0.2\n" + lines))
        engine = self._slow
        parts = apply_bpe.encode(
            word,
            engine.bpe_codes,
            engine.bpe_codes_reverse,
            self.kept,
            JOINER,
            engine.version,
            {},
            None,
            dropout,
        )
        return [part + JOINER for part in parts[:-1]] + [parts[-1]]

    def __reduce__(self) -> tuple[Any, ...]:
        return WordSplitter, (self.merges, self.kept)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Without what C++ writes to standard error."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def seed_dropout(seed: Sequence[int]) -> None:
    """Make the next draws a function of ``seed``."""
    random.seed(repr(list(seed)))
