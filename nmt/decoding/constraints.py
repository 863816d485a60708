"""Constraints on the translation of a line: its beginning and required phrases.

``LineConstraints`` hold the text that a user gives. Required phrases are matched by their pieces: a
``Requirement`` computes how much of them a hypothesis contains.
``nmt.decoding.logits_processors`` applies them to the search.
"""

from __future__ import annotations

import functools
import itertools
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import regex

from nmt.data.languages import UNSPACED_CHARACTER
from nmt.data.segmenters import Segmenter
from nmt.data.segmenters.sentencepiece import BYTE_SURFACE
from nmt.data.text import quantity
from nmt.data.vocab import BOS, EOS, PAD, UNK, Vocab
from nmt.errors import UserError

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


# ---------------------------------------------------------------- what pieces spell

NO_TEXT = "\0"  # the string of PAD and BOS; no text contains it
UNKNOWN = "<unk>"  # stands for any characters
_WORD_CHARACTER = regex.compile(r"\w")  # unlike ``re``, also vowel signs


class PieceStrings:
    """The string that each type of a vocabulary adds to tokenized text.

    Such text has a space where a word begins or ends, also before the first word and at the end.

    Attributes:
        text: [V], by id; EOS adds a space.
    """

    def __init__(self, segmenter: Segmenter, vocab: Vocab) -> None:
        self._segmenter = segmenter
        self.text = [segmenter.surface(piece) for piece in vocab.pieces(range(len(vocab)))]
        self.text[EOS] = " "
        self.text[PAD] = self.text[BOS] = NO_TEXT

    def of(self, symbol: int | str) -> str:
        """Spell a type, or a piece that may not be a type."""
        return self.text[symbol] if isinstance(symbol, int) else self._segmenter.surface(symbol)

    def join(self, pieces: Sequence[str]) -> str:
        """Join pieces to tokenized text."""
        return "".join(map(self._segmenter.surface, pieces))


@functools.cache
def _in_word(char: str) -> bool:
    """Return whether a word of a script with spaces may have a character."""
    return char >= BYTE_SURFACE or (
        _WORD_CHARACTER.match(char) is not None and UNSPACED_CHARACTER.match(char) is None
    )


@functools.cache
def _opens(char: str) -> bool:
    return UNSPACED_CHARACTER.match(char) is not None or unicodedata.category(char) in ("Ps", "Pi")


def begins_in_word(text: str) -> bool:
    """Return whether the string of a type may continue a word."""
    return text.startswith(UNKNOWN) or _in_word(text[:1])


def ends_in_word(text: str) -> bool:
    """Return whether the string of a type may end inside a word."""
    return text.endswith(UNKNOWN) or _in_word(text[-1:])


def opens_word(text: str) -> bool:
    """Return whether a word may begin after the string of a type: a space, or a sign such as ``(``.

    In scripts without spaces, it may begin after each letter.
    """
    return text.endswith(" ") or (text != "" and _opens(text[-1]))


# ---------------------------------------------------------------- required phrases

Symbol: TypeAlias = int | str  # the id of a token, or the piece that an UNK represents
Symbols: TypeAlias = Sequence[Symbol]


@dataclass(frozen=True)
class TargetPieces:
    """Target text that a user gives, segmented.

    Attributes:
        pieces: of the text.
        ids: of the pieces; UNK where the target side of the training data lacks the piece.
    """

    pieces: tuple[str, ...] = ()
    ids: tuple[int, ...] = ()

    @property
    def symbols(self) -> list[Symbol]:
        """The ids, with the piece itself in place of UNK."""
        pairs = zip(self.pieces, self.ids, strict=True)
        return [piece if token == UNK else token for piece, token in pairs]


@dataclass
class PhraseProgress:
    """How much of the required phrases a hypothesis contains.

    Attributes:
        missing: number of tokens of the phrases that are not met.
        next_tokens: tokens that begin or continue a phrase -> what is missing after them.
        must_continue: tokens of which one must follow: a phrase begun with UNK is completed.
        open_word: whether the last phrase is met only if its last word ends here.
    """

    missing: int = 0
    next_tokens: dict[int, int] = field(default_factory=dict)
    must_continue: set[int] = field(default_factory=set)
    open_word: bool = False


class Requirement:
    """The phrases that the translation of one sentence must contain.

    A phrase is met where the tokens of one of its forms follow each other as complete words.
    Phrases may share tokens. Pieces that the model does not know are all UNK to it. Here each is a
    symbol of its own, so one UNK does not count for two different pieces.

    Args:
        prefix: symbols that every hypothesis begins with.
        phrases: each phrase as its forms, at least one; the symbols of each form.
        spell: returns the string that a symbol adds to tokenized text.
    """

    def __init__(
        self,
        prefix: Symbols,
        phrases: Sequence[Sequence[Symbols]],
        spell: Callable[[Symbol], str],
    ) -> None:
        self.prefix = list(prefix)
        self.phrases = [[list(form) for form in forms] for forms in phrases]
        self._with_unknown = [forms for forms in self.phrases if any(map(_has_unknown, forms))]
        self._spell = spell

    def symbols(self, ids: Sequence[int]) -> list[Symbol]:
        """Find the symbols that the tokens of a hypothesis represent.

        An UNK continues the phrase of which most is present, the first of several; it stays UNK if
        no phrase needs one. So it depends only on the tokens before it.
        """
        known = len(self.prefix)
        symbols: list[Symbol] = [*self.prefix[: len(ids)], *ids[known:]]
        for index in range(known, len(ids)):
            if ids[index] == UNK:
                before = symbols[:index]
                left = [f for f in self._with_unknown if not any(self._ends(before, f))]
                if not left:
                    break
                candidates = [
                    (length, form[length])
                    for form in itertools.chain.from_iterable(left)
                    for length in self._begun(before, form)
                    if isinstance(form[length], str)
                ]
                if candidates:
                    symbols[index] = max(candidates, key=lambda candidate: candidate[0])[1]
        return symbols

    def progress(self, ids: Sequence[int]) -> PhraseProgress:
        """Compute the progress of a hypothesis.

        A phrase that is not met counts as its longest form, so that there is room for each form.
        """
        symbols, progress = self.symbols(ids), PhraseProgress()
        # (form of a phrase that is not met, how many of its tokens are last, by how much it is
        # shorter than the longest form), every possibility
        begun = []
        for forms in self.phrases:
            ends = list(self._ends(symbols, forms))
            if not ends:
                longest = max(map(len, forms))
                progress.missing += longest
                begun += [
                    (form, length, longest - len(form))
                    for form in forms
                    for length in self._begun(symbols, form)
                ]
            elif {*ends} == {len(ids)} and ends_in_word(self._spell(symbols[-1])):
                progress.open_word = True
        furthest = max((length for _, length, _ in begun), default=0)
        for form, length, shorter in begun:
            missing = progress.missing - shorter - length - 1
            token = _token(form[length])
            progress.next_tokens[token] = min(missing, progress.next_tokens.get(token, missing))
            if length == furthest and _has_unknown(form[:length]):
                progress.must_continue.add(token)
        return progress

    def is_met(self, ids: Sequence[int]) -> bool:
        """Return whether a complete hypothesis contains all phrases."""
        return self.progress(ids).missing == 0

    def _ends(self, symbols: Symbols, forms: Sequence[Symbols]) -> Iterator[int]:
        """Yield the index after each place where a phrase is met: a form as complete words."""
        for form in forms:
            if form[0] not in symbols:  # decides fast for almost all
                continue
            for end in range(len(form), len(symbols) + 1):
                start = end - len(form)
                if (
                    symbols[start:end] == form
                    and self._may_begin(symbols, start, form[0])
                    and self._may_end(symbols, end)
                ):
                    yield end

    def _begun(self, symbols: Symbols, phrase: Symbols) -> list[int]:
        """List each length at which a phrase has begun at the end; 0 = it may begin now."""
        lengths = []
        for length in range(min(len(phrase) - 1, len(symbols)) + 1):
            start = len(symbols) - length
            begun = symbols[start:] == phrase[:length]
            if begun and self._may_begin(symbols, start, phrase[0]):
                lengths.append(length)
        return lengths

    def _may_begin(self, symbols: Symbols, index: int, symbol: Symbol) -> bool:
        """Return whether a word begins with ``symbol`` at an index."""
        text = self._spell(symbol)
        return (
            index == 0
            or text.startswith(" ")
            or opens_word(self._spell(symbols[index - 1]))
            or (not text.startswith(UNKNOWN) and opens_word(text[:1]))
        )

    def _may_end(self, symbols: Symbols, index: int) -> bool:
        """Return whether a word ends before an index."""
        return (
            index == len(symbols)
            or not ends_in_word(self._spell(symbols[index - 1]))
            or not begins_in_word(self._spell(symbols[index]))
        )


def _has_unknown(symbols: Symbols) -> bool:
    return any(isinstance(symbol, str) for symbol in symbols)


def _token(symbol: Symbol) -> int:
    return UNK if isinstance(symbol, str) else symbol
