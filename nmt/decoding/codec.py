"""Lines of text as sentences that a search takes, and what it finds as text again."""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from nmt.data.segment import Segmenter, fingerprint
from nmt.data.text import LONGEST_SENTENCE, clean_line, is_blank
from nmt.data.vocab import UNK, Vocab
from nmt.decoding.parts import part_ends
from nmt.decoding.surfaces import PieceStrings
from nmt.decoding.wishes import UNCONSTRAINED, LineConstraints
from nmt.errors import UserError

if TYPE_CHECKING:
    from nmt.decoding.constraints import Requirement, Symbol
    from nmt.decoding.found import Hypothesis

SIGN = "\u2581"
NAMED = 5  # lines that are named one by one
LONGEST = 512  # source pieces searched at once; longer lines are translated in parts


@dataclass(frozen=True)
class Translation:
    """A translation.

    Attributes:
        pieces: as the model produced them, without EOS.
        text: plain text.
        score: log_prob / length penalty, what the search ranked by.
        log_prob: natural logarithm, summed over pieces and EOS.
        finished: it ended with EOS, not at the length limit.
        token_log_probs: of each piece and of EOS, if they were asked for.
        alignment: (source word, target word), from 0, if it was asked for; words are those of
            tokenized text, or of plain text if the segmenter has no tokenizer in front.
    """

    pieces: list[str]
    text: str
    score: float
    log_prob: float
    finished: bool
    token_log_probs: list[float] = field(default_factory=list)
    alignment: list[tuple[int, int]] = field(default_factory=list)


BLANK = Translation([], "", 0.0, 0.0, True)


@dataclass(frozen=True)
class Pieces:
    """Given text in pieces, and their ids; UNK where the target side of the training had none."""

    pieces: tuple[str, ...] = ()
    ids: tuple[int, ...] = ()

    @property
    def symbols(self) -> list[Symbol]:
        """Ids, and the piece itself instead of UNK."""
        pairs = zip(self.pieces, self.ids, strict=True)
        return [piece if token == UNK else token for piece, token in pairs]


@dataclass(frozen=True)
class SearchInput:
    """What is searched at once: a line, or a part of a long one.

    Attributes:
        ids: of its source pieces, at least one.
        place: number of the line from 1, and of the part from 0: what samples are drawn by.
        prefix: the first pieces of the translation.
        require: pieces of phrases that it says.
        forbid: patterns of phrases that it does not say.
    """

    ids: np.ndarray
    place: tuple[int, int] = (0, 0)
    prefix: Pieces = Pieces()
    require: tuple[Pieces, ...] = ()
    forbid: tuple[str, ...] = ()

    def requirement(self, surfaces: PieceStrings) -> Requirement:
        """Return what its hypotheses must say."""
        phrases = [phrase.symbols for phrase in self.require]
        from nmt.decoding.constraints import Requirement

        return Requirement(self.prefix.symbols, phrases, surfaces.of)


@dataclass
class Unknown:
    """How much of the source text is unknown to the model: never on the source side of training.

    Attributes:
        pieces, unknown: all, and those that are unknown.
        lines, lines_with, lines_only: lines that are not blank, those with unknown pieces, and
            those with no others.
        first: numbers of the first lines with no others.
    """

    pieces: int = 0
    unknown: int = 0
    lines: int = 0
    lines_with: int = 0
    lines_only: int = 0
    first: list[int] = field(default_factory=list)

    @property
    def share(self) -> float:
        """Return the share of the pieces that are unknown."""
        return self.unknown / self.pieces if self.pieces else 0.0

    def add(self, number: int, unknown: int, pieces: int) -> None:
        """Count a line with so many pieces."""
        self.pieces += pieces
        self.unknown += unknown
        self.lines += pieces > 0
        self.lines_with += unknown > 0
        if 0 < unknown == pieces:
            self.lines_only += 1
            if len(self.first) < NAMED:
                self.first.append(number)


class TextCodec:
    """Both directions between text and a search, for one pair of languages."""

    def __init__(self, segmenter: Segmenter, vocab: Vocab, src: str, tgt: str) -> None:
        self.segmenter, self.vocab, self.src, self.tgt = segmenter, vocab, src, tgt
        self.unknown = Unknown()

    @functools.cached_property
    def surfaces(self) -> PieceStrings:
        """What each type spells."""
        return PieceStrings(self.segmenter, self.vocab, self.tgt)

    @functools.cached_property
    def _known_source(self) -> np.ndarray:
        return self.vocab.types_of("src")

    @functools.cached_property
    def _known(self) -> np.ndarray:
        return self.vocab.types_of("tgt")

    def of_line(
        self,
        number: int,
        line: str,
        wish: LineConstraints = UNCONSTRAINED,
        never: Sequence[str] = (),
    ) -> list[SearchInput]:
        """A line, numbered from 1, in searchable parts; a blank line has none.

        The prefix and the required phrases are for the first part, the forbidden ones for all.
        ``never``: patterns that no line says; here only what is required is compared with them.

        Raises:
            UserError: the line or what is given for it is too long, or a phrase of the wish is
                both required and forbidden.
        """
        at = f"line {number}"
        if too_long := self.too_long(line):
            raise UserError(too_long, at=at, fix="split it into sentences, one a line")
        pieces = self.source_pieces(line)
        ids = self.source_ids(number, pieces)
        ends = part_ends(list(map(self.segmenter.surface, pieces)), LONGEST)
        if len(ends) > 1:
            print(
                f"note: line {number} has {len(ids)} pieces; it is translated in {len(ends)} parts",
                file=sys.stderr,
            )
        parts = np.split(ids, ends[:-1]) if ends else []
        given = (wish.prefix, *wish.require, *wish.forbid)
        if too_long := next(filter(None, map(self.too_long, given)), ""):
            raise UserError(
                f"prefix, require or forbid: {too_long}", at=at, fix="give shorter text"
            )
        forbid = self.patterns(wish.forbid, at)
        require = tuple(
            self.pieces(phrase, at)
            for phrase in dict.fromkeys(wish.require)
            if not is_blank(phrase)
        )
        for phrase in require:
            said = f" {self.surfaces.spelled(phrase.pieces).strip(' ')} "
            if both := [pattern for pattern in (*forbid, *never) if pattern in said]:
                raise UserError(
                    f"{said.strip()!r} is required and {both[0].strip()!r} is forbidden",
                    at=at,
                    fix="drop one of them from require or forbid",
                )
        prefix = self.pieces(wish.prefix, at)
        sizes = {"prefix": len(prefix.ids), "require": sum(len(phrase.ids) for phrase in require)}
        for name, size in sizes.items():
            if size > LONGEST:
                raise UserError(
                    f"{name} has {size:,} pieces, at most {LONGEST} are allowed",
                    at=at,
                    fix="give shorter text",
                )
        return [
            SearchInput(part, (number, place), prefix, require, forbid)
            if place == 0
            else SearchInput(part, (number, place), forbid=forbid)
            for place, part in enumerate(parts)
        ]

    def patterns(self, phrases: Sequence[str], at: str) -> tuple[str, ...]:
        """Return how forbidden phrases, given ``at`` some place, look in tokenized text."""
        found = []
        for text in phrases:
            if text.strip():
                self._require_sign(text, self.segmenter.encode(text, self.tgt), at)
                found += self.surfaces.patterns(text)
        return tuple(found)

    def pieces(self, text: str, at: str) -> Pieces:
        """Return target text, given ``at`` some place, as pieces."""
        pieces = tuple(self.target_pieces(text))
        self._require_sign(text, pieces, at)
        ids = (token if self._known[token] else UNK for token in self.vocab.ids(pieces))
        return Pieces(pieces, tuple(ids))

    def _require_sign(self, text: str, pieces: Sequence[str], at: str) -> None:
        """
        Raises:
            UserError: the text has SentencePiece's sign for a space, and its pieces do not.
        """
        if SIGN in text and SIGN not in "".join(map(self.segmenter.surface, pieces)):
            raise UserError(
                f"U+2581 in {text!r}: SentencePiece takes this sign for a space, so it cannot be "
                "given",
                at=at,
                fix="leave it out, or write another sign, such as _",
            )

    def too_long(self, line: str) -> str:
        """Return what is wrong with a line that is not even segmented, nothing if it is fine.

        Segmenting takes time that grows with the square of a word's length.
        """
        if len(line) <= LONGEST_SENTENCE or is_blank(line):
            return ""
        return f"{len(line):,} characters, at most {LONGEST_SENTENCE:,} are allowed"

    def source_ids(self, number: int, pieces: Sequence[str]) -> np.ndarray:
        """Return ids of the source pieces of a line, and count those that are unknown."""
        ids = np.array(self.vocab.ids(pieces), dtype=np.int64)
        self.unknown.add(number, int(((ids == UNK) | ~self._known_source[ids]).sum()), len(ids))
        return ids

    def source_pieces(self, line: str) -> list[str]:
        """Pieces of a line to translate; a blank one has none."""
        line = clean_line(line)
        return [] if is_blank(line) else self.segmenter.encode(line, self.src)

    def target_pieces(self, line: str) -> list[str]:
        """Return pieces of a translation; a blank one has none."""
        line = clean_line(line)
        return [] if is_blank(line) else self.segmenter.encode(line, self.tgt)

    def join(
        self, found: Sequence[list[Hypothesis]], sentences: Sequence[SearchInput]
    ) -> list[Translation]:
        """Return hypotheses of one line from those of its parts, rank by rank.

        Raises:
            UserError: there is none, as everything that a part could say is forbidden.
        """
        for sentence, of_part in zip(sentences, found, strict=True):
            if not of_part:
                raise UserError(
                    "every translation is forbidden",
                    at=f"line {sentence.place[0]}",
                    fix="forbid fewer phrases",
                )
        ranks = [
            [self.hypothesis(*pair) for pair in zip(rank, sentences, strict=True)]
            for rank in zip(*found, strict=False)
        ]
        return [rank[0] if len(rank) == 1 else _joined(rank) for rank in ranks] or [BLANK]

    def hypothesis(self, found: Hypothesis, sentence: SearchInput) -> Translation:
        """What was found, as text."""
        pieces = self.vocab.pieces(found.ids)
        if UNK in found.ids:  # what was given is written as given
            symbols = sentence.requirement(self.surfaces).symbols(found.ids)
            for place, symbol in enumerate(symbols):
                if isinstance(symbol, str):
                    pieces[place] = symbol
        text = self.segmenter.decode(pieces, self.tgt)
        return Translation(pieces, text, found.score, found.log_prob, found.finished)


def _joined(parts: Sequence[Translation]) -> Translation:
    return Translation(
        pieces=[piece for part in parts for piece in part.pieces],
        text=" ".join(part.text for part in parts),
        score=sum(part.score for part in parts),
        log_prob=sum(part.log_prob for part in parts),
        finished=all(part.finished for part in parts),
    )


def text_fingerprint(vocab: Vocab, segmenter: Segmenter) -> str:
    """Return the SHA-256 of all that gives ids their meaning: vocabulary and segmenter."""
    parts = vocab.fingerprint + fingerprint(segmenter)
    return hashlib.sha256(parts.encode()).hexdigest()
