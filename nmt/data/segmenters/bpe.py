"""Byte-pair encoding with codes in fastBPE's format: ``left right count``, one merge a line.

The fastBPE package splits words if it is installed. subword-nmt splits them otherwise, and always
with a vocabulary threshold; both give the same pieces. subword-nmt learns the codes and does not
report counts, so the count column of learned codes is 0; no reader uses it.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from subword_nmt import apply_bpe, learn_bpe

from nmt.data.bitext import Chunk
from nmt.data.lines import Side
from nmt.data.segmenters.base import Segmenter
from nmt.data.segmenters.extend import learn_symbols
from nmt.data.segmenters.noise import Merges, Noise
from nmt.data.workers import map_chunks
from nmt.errors import UserError
from nmt.runtime.files import LARGE, read_file, read_text
from nmt.text.tokenizer import Moses

try:
    import fastBPE
except ImportError:  # an optional dependency; subword-nmt gives the same pieces
    fastBPE = None

JOINER = "@@"  # ends every piece of a word except the last
WORD_END = "</w>"  # ends the last piece of a word, in merges
MAX_COUNTED_WORDS = 4_000_000  # maximum distinct words in memory, about 400 MB
MAX_LEARNED_WORDS = 500_000  # most frequent words to learn from; subword-nmt needs 1 KB for each
MAX_WORD_LENGTH = 1000  # characters; longer words are not learned from, and are encoded in blocks
MAX_CACHED_WORDS = 200_000  # per process, about 60 MB


class FastBpe(Segmenter):
    """Joint byte-pair encoding in fastBPE's format, after Moses tokenization (T appendix A)."""

    kind = "fastbpe"

    def __init__(self, moses: Moses, splitter: WordSplitter) -> None:
        super().__init__(moses)
        self._splitter = splitter

    @classmethod
    def learn(
        cls, config: Any, moses: Moses, text: Iterable[Chunk], progress: bool = False
    ) -> FastBpe:
        """Learn the merges of both sides, or read the file that the recipe names."""
        if config.codes == "learn":
            merges = learn_codes(_count_all(moses, text), config.merges, progress)
        else:
            merges = read_codes(Path(config.codes))
        return cls(moses, WordSplitter(merges))

    @classmethod
    def load(cls, folder: Path, moses: Moses, metadata: dict[str, Any]) -> FastBpe:
        """Read codes.txt and kept.txt from a folder."""
        codes, kept = folder / "codes.txt", None
        merges = read_codes(codes) if codes.stat().st_size else []
        if metadata["kept"]:
            kept = set(read_text(folder / "kept.txt", LARGE).split("\n")[:-1])
        return cls(moses, WordSplitter(merges, kept))

    def encode(self, line: str, lang: str, side: Side = "src") -> list[str]:
        """Return the pieces of an input line; all but the last of a word end with ``@@``."""
        return self._splitter(self.moses.tokenize(line, lang))

    def noise(self, config: Any, known: Collection[str] | None = None) -> Noise | None:
        """Return the BPE-dropout of ``segment.dropout``."""
        if not config.dropout:
            return None
        merges, limits = self._splitter.merges, [self._splitter.kept, known]
        kept = {left + right for left, right in merges}
        for pieces in limits:
            if pieces is not None:
                kept = {symbol for symbol in kept if piece_of(symbol) in pieces}
        ranks = {pair: rank for rank, pair in enumerate(merges)}
        return Noise(Merges(config.dropout, ranks, kept), symbols_of, piece_of, _is_inner, known)

    def extended(
        self, known: Collection[str], text: Iterable[Chunk], limit: int
    ) -> tuple[FastBpe, dict[str, list[str]]]:
        """Append merges that are learned on a text; see the base class."""
        words: Counter[tuple[str, ...]] = Counter()
        for word, count in _count_all(self.moses, text).items():
            words[tuple(map(_symbol_of, self._splitter([word])))] += count
        symbols = {_symbol_of(piece) for piece in known}
        taken = set(map("".join, self._splitter.merges))
        new = learn_symbols(words, symbols, taken, lambda s: s.removesuffix(WORD_END), limit)
        kept = self._splitter.kept
        if kept is not None:
            kept = kept | set(map(piece_of, new.parts))
        merges = [*self._splitter.merges, *new.merges]
        parts = {piece_of(s): list(map(piece_of, symbols)) for s, symbols in new.parts.items()}
        return FastBpe(self.moses, WordSplitter(merges, kept)), parts

    def trimmed(self, known: Collection[str], wanted: Collection[str]) -> tuple[FastBpe, set[str]]:
        """Split pieces that are not kept as their merges made them; see the base class."""
        types = set(known)

        def is_needed(piece: str) -> bool:
            single = list(map(piece_of, symbols_of(piece)))
            return piece in wanted or single == [piece] or not types.issuperset(single)

        kept = set(filter(is_needed, types))
        return FastBpe(self.moses, WordSplitter(self._splitter.merges, kept)), kept

    def decode_tokenized(self, pieces: Sequence[str], lang: str) -> str:
        """Return pieces as tokenized text."""
        return join(pieces)

    def surface(self, piece: str) -> str:
        """Return the text that a piece adds; a word ends with a space."""
        return piece.removesuffix(JOINER) if piece.endswith(JOINER) else piece + " "

    def files(self) -> dict[str, bytes]:
        """Return the codes, and the pieces that ``trimmed`` keeps."""
        files = {"codes.txt": codes_text(self._splitter.merges).encode()}
        if self._splitter.kept is not None:
            files["kept.txt"] = "".join(p + "\n" for p in sorted(self._splitter.kept)).encode()
        return files

    def metadata(self) -> dict[str, Any]:
        """Return whether there is a kept.txt; dropout is not a property of the segmenter."""
        return {"dropout": 0.0, "kept": self._splitter.kept is not None}


def symbols_of(piece: str) -> tuple[str, ...]:
    """Return the symbols of a piece before any merge: its characters, ``</w>`` with the last.

    The tag of a corpus, which begins with a space, has none.
    """
    if piece.startswith(" "):
        return ()
    if piece.endswith(JOINER):
        return tuple(piece.removesuffix(JOINER))
    return (*piece[:-1], piece[-1] + WORD_END)


def piece_of(symbol: str) -> str:
    """Return a symbol of the merges as it is written in text."""
    inner = not symbol.endswith(WORD_END)
    return symbol + JOINER if inner else symbol.removesuffix(WORD_END)


def _symbol_of(piece: str) -> str:
    return piece.removesuffix(JOINER) if piece.endswith(JOINER) else piece + WORD_END


def _is_inner(piece: str, _: str) -> bool:
    return piece.endswith(JOINER)


def count_words(moses: Moses, chunk: Chunk) -> Counter[str]:
    """Count the words of both sides of a chunk."""
    langs = chunk.corpus.langs
    words = (
        moses.tokenize(line, lang)
        for pair in chunk.pairs()
        for line, lang in zip(pair, langs, strict=True)
    )
    return Counter(chain.from_iterable(words))


def _count_all(moses: Moses, text: Iterable[Chunk]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for of_chunk in map_chunks(functools.partial(count_words, moses), text):
        counts.update(of_chunk)
        counts = prune_rare(counts)
    return counts


def prune_rare(counts: Counter[str]) -> Counter[str]:
    """Return the counts without the rarest words if there are more than MAX_COUNTED_WORDS.

    This bounds the memory. Words this rare in a corpus this large do not change the merges.
    """
    rare = 0
    while len(counts) > MAX_COUNTED_WORDS:
        rare += 1
        counts = Counter({word: n for word, n in counts.items() if n > rare})
    return counts


_FORMATS = (
    "segment.codes must be a file of fastBPE (lines LEFT RIGHT COUNT) or of subword-nmt 0.2 "
    "(first line #version: 0.2, then lines LEFT RIGHT)"
)

# "@@" in a text would be read as a joiner and "</w>" as the end of a word. In words with these,
# U+E000 replaces "@", and U+E001 marks the next character as literal.
_MARKED = re.compile("\ue001(.)|\ue000", re.DOTALL)


def escape(word: str) -> str:
    """Return the word in a form without a joiner or a word end."""
    if not any(sign in word for sign in (JOINER, WORD_END, "\ue000", "\ue001")):
        return word
    marked = word.replace("\ue001", "\ue001\ue001").replace("\ue000", "\ue001\ue000")
    return marked.replace("@", "\ue000").replace(WORD_END, "<\ue001/w>")


def unescape(text: str) -> str:
    """Undo ``escape``."""
    return _MARKED.sub(lambda m: m[1] or "@", text)


def join(pieces: Iterable[str]) -> str:
    """Return pieces as words with spaces."""
    text = "".join(p[: -len(JOINER)] if p.endswith(JOINER) else p + " " for p in pieces)
    return unescape(text.rstrip(" "))


def learn_codes(
    words: Mapping[str, int], merges: int, progress: bool = False
) -> list[tuple[str, str]]:
    """Return joint merges, from the counts of the words of both sides (Sennrich et al. 2016).

    ``progress``: show subword-nmt's bar on a terminal.
    """
    # the time grows with the square of the length of a word
    words = {word: count for word, count in words.items() if len(word) <= MAX_WORD_LENGTH}
    if all(len(word) == 1 for word in words):
        return []  # there are no pairs to merge, and subword-nmt fails without any
    frequent = Counter(words).most_common(MAX_LEARNED_WORDS)
    listing = io.StringIO("".join(f"{escape(word)} {count}\n" for word, count in frequent))
    learned = io.StringIO()
    quiet = (
        contextlib.nullcontext()
        if progress and sys.stderr.isatty()
        else contextlib.redirect_stderr(io.StringIO())
    )
    with quiet:
        learn_bpe.learn_bpe(listing, learned, merges, is_dict=True)
    _, *lines = learned.getvalue().removesuffix("\n").split("\n")  # the first is the version
    return [(left, right) for left, right in (line.split(" ") for line in lines)]


def read_codes(path: Path) -> list[tuple[str, str]]:
    """Read merges from a codes file of fastBPE or of subword-nmt.

    It is checked here, because fastBPE exits or crashes on a bad file. Of a duplicate merge the
    first place counts, as in subword-nmt; fastBPE would use the last.

    Raises:
        UserError: the file is missing or empty, has a malformed line, or is of subword-nmt 0.1,
            which merges the end of a word as a separate piece.
    """
    try:
        data = read_file(path, LARGE)
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
            what, fix = f"not a merge: {line[:60]!r}", ""
            if len(parts) == 2 and all(parts) and parts[1].isdecimal():
                what = f"a vocabulary entry (WORD COUNT), not a merge: {line[:60]!r}"
                fix = "use the codes file, not the vocabulary file; "
            elif len(parts) == 2 and all(parts):
                what = "two columns, but the first line is not #version: 0.2"
                fix = 'add the line "#version: 0.2" if subword-nmt 0.2 wrote it; '
            raise UserError(what, at=f"{path}:{number}", fix=fix + _FORMATS)
        if WORD_END in parts[:2]:
            raise UserError(
                "a merge in the format of subword-nmt 0.1, which is not supported",
                at=f"{path}:{number}",
                fix="learn the codes again: set segment.codes=learn, or use subword-nmt 0.2",
            )
        merges.setdefault((parts[0], parts[1]))
    if not merges:
        raise UserError(
            "the file has no merges",
            at=str(path),
            fix="use another codes file, or set segment.codes=learn",
        )
    return list(merges)


def codes_text(merges: Sequence[tuple[str, str]]) -> str:
    """Return merges in fastBPE's format."""
    return "".join(f"{left} {right} 0\n" for left, right in merges)


class _Cache(dict[str, list[str]]):
    """Cache the pieces of words; a full cache is emptied."""

    def __init__(self, split: Callable[[str], list[str]]) -> None:
        super().__init__()
        self._split = split

    def __missing__(self, word: str) -> list[str]:
        if len(self) >= MAX_CACHED_WORDS:
            self.clear()
        text, size = escape(word), MAX_WORD_LENGTH
        *blocks, rest = (text[i : i + size] for i in range(0, len(text), size))
        pieces: list[str] = []
        for block in blocks:
            *inner, last = self._split(block)
            pieces += [*inner, last + JOINER]
        pieces += self._split(rest)
        self[word] = pieces = list(map(sys.intern, pieces))
        return pieces


class WordSplitter:
    """Split words into pieces, with a cache.

    Args:
        merges: in order of priority.
        kept: pieces in the vocabulary, of a trimmed one; others are split again. None = all.
    """

    def __init__(self, merges: Sequence[tuple[str, str]], kept: set[str] | None = None) -> None:
        self.merges, self.kept = list(merges), kept
        self._cache = _Cache(self._split)
        self._fast: Any = None  # created on first use, in each process
        self._slow: Any = None

    def __call__(self, words: Iterable[str]) -> list[str]:
        """Return the pieces of words; all but the last of a word end with the joiner."""
        return list(chain.from_iterable(map(self._cache.__getitem__, words)))

    def _split(self, word: str) -> list[str]:
        if fastBPE is None or self.kept is not None:
            return self._subword_nmt(word)
        if self._fast is None:
            with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".codes") as file:
                file.write(codes_text(self.merges))
                file.flush()
                with _silent():
                    self._fast = fastBPE.fastBPE(file.name)
        return self._fast.apply([word])[0].split(" ")

    def _subword_nmt(self, word: str) -> list[str]:
        if not self.merges:  # subword-nmt rejects a file without merges
            return [char + JOINER for char in word[:-1]] + [word[-1]]
        if self._slow is None:
            lines = "".join(f"{left} {right}\n" for left, right in self.merges)
            self._slow = apply_bpe.BPE(io.StringIO("#version: 0.2\n" + lines))
        codes, reverse = self._slow.bpe_codes, self._slow.bpe_codes_reverse
        version = self._slow.version
        *parts, last = apply_bpe.encode(word, codes, reverse, self.kept, JOINER, version, {})
        return [*(part + JOINER for part in parts), last]

    def __reduce__(self) -> tuple[Any, ...]:
        return WordSplitter, (self.merges, self.kept)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Discard what C++ code writes to standard error."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
