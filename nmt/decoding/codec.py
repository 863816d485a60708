"""From a line of text to the inputs of a search, and from hypotheses to translations.

A line is segmented once. Its pieces stay with the inputs, for scores and alignment.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from nmt.config.entries import Directions
from nmt.data.glossary import Term
from nmt.data.lines import clean_line, is_blank, too_long
from nmt.data.segmenters import Segmenter
from nmt.data.segmenters.base import Side
from nmt.data.segmenters.sentencepiece import SPACE
from nmt.data.vocab import UNK, Vocab, tag_piece
from nmt.decoding.constraints import LineConstraints, PieceStrings, TargetPieces
from nmt.decoding.engine import NO_PIECES, Hypothesis, SearchInput
from nmt.decoding.glossary import Glossary, glossary_of
from nmt.decoding.options import SearchOptions
from nmt.errors import UserError
from nmt.store.model import Model
from nmt.text.languages import base_language, sentence_space
from nmt.text.sentences import UsualLine, join_in_parts, join_translations, split_sentences

MAX_NAMED_LINES = 5  # lines of which a note gives the numbers
MAX_SOURCE_PIECES = 512  # of one search; longer lines are translated in parts
OPENING = "("  # a sign that the next word follows without a space
SHORT_RATIO, SHORT_SLACK = 2.0, 10  # see TextCodec.is_short


@dataclass(frozen=True)
class Translation:
    """A translation of a line.

    Attributes:
        pieces: of the output, without EOS.
        text: plain text.
        score: log_prob / length penalty; the search ranks by it.
        log_prob: natural logarithm of the probability, summed over pieces and EOS.
        finished: whether it ended with EOS, not at the length limit.
        token_log_probs: of each piece and of EOS, if requested. Each part of a line has an EOS.
        alignment: pairs (source word, target word), from 0, if requested. Words are those of
            tokenized text, or of plain text if the segmenter has no tokenizer.
        short: whether it, or that of a part of the line, is too short for its source.
        eos: where the EOS are in ``token_log_probs``.
    """

    pieces: list[str]
    text: str
    score: float
    log_prob: float
    finished: bool
    token_log_probs: list[float] = field(default_factory=list)
    alignment: list[tuple[int, int]] = field(default_factory=list)
    short: bool = False
    eos: list[int] = field(default_factory=list)


BLANK = Translation([], "", 0.0, 0.0, True)


@dataclass
class UnknownPieces:
    """Counts source pieces that the model does not know: the source side of training lacks them.

    Attributes:
        lines: number of lines that are not blank.
        first: numbers of the first lines with only unknown pieces.
    """

    pieces: int = 0
    unknown: int = 0
    lines: int = 0
    lines_with_unknown: int = 0
    lines_all_unknown: int = 0
    first: list[int] = field(default_factory=list)

    @property
    def share(self) -> float:
        """The share of all pieces that is unknown."""
        return self.unknown / self.pieces if self.pieces else 0.0

    def add(self, number: int, unknown: int, pieces: int) -> None:
        """Count a line: its number, its unknown pieces, all its pieces."""
        self.pieces += pieces
        self.unknown += unknown
        self.lines += pieces > 0
        self.lines_with_unknown += unknown > 0
        if 0 < unknown == pieces:
            self.lines_all_unknown += 1
            if len(self.first) < MAX_NAMED_LINES:
                self.first.append(number)


class TextCodec:
    """Converts between text and ids for one pair of languages.

    Args:
        directions: those of the model.
        usual: what the lines of the training data are like.

    Attributes:
        unknown: counts over all source text so far.
    """

    def __init__(
        self,
        segmenter: Segmenter,
        vocab: Vocab,
        directions: Directions,
        usual: UsualLine = UsualLine(),  # noqa: B008  it cannot change
    ) -> None:
        self.segmenter, self.vocab, self.usual = segmenter, vocab, usual
        self.directions, self.src, self.tgt = directions, directions.src, directions.tgt
        self.unknown = UnknownPieces()
        self._others: dict[str, TextCodec] = {}  # of other target languages

    def for_tag(self, tag: str | None) -> TextCodec:
        """Select the codec of the target language of a tag; None = no tag."""
        return self.for_target(self.directions.tag_targets.get(tag or "", self.tgt))

    def for_target(self, tgt: str) -> TextCodec:
        """Select the codec of a target language; all codecs share ``unknown``."""
        if tgt == self.tgt:
            return self
        if tgt not in self._others:
            directions = replace(self.directions, tgt=tgt)
            self._others[tgt] = TextCodec(self.segmenter, self.vocab, directions)
        other = self._others[tgt]
        other.unknown, other.usual = self.unknown, self.usual
        return other

    def langs(self, options: SearchOptions) -> tuple[str, str]:
        """Return the source and target language of a call with these options."""
        return options.src or self.src, self.for_tag(options.target_tag).tgt

    @functools.cached_property
    def strings(self) -> PieceStrings:
        """The string that each type adds to target text."""
        return PieceStrings(self.segmenter, self.vocab)

    @functools.cached_property
    def _known(self) -> dict[str, np.ndarray]:
        return {side: self.vocab.types_of(side) for side in ("src", "tgt")}

    def encode_line(
        self,
        number: int,
        line: str,
        constraints: LineConstraints,
        options: SearchOptions,
        glossary: Glossary | None = None,
    ) -> list[SearchInput]:
        """Make the search inputs of a line: one for each part, none for a blank line.

        The prefix and the required phrases apply to the first part, the terms of a glossary to the
        part that has them. A line with a prefix or a required phrase is not split into sentences.

        Args:
            number: of the line, from 1.
            options: ``tag``, ``src`` and ``split``.
            glossary: terms whose translations are required too.

        Raises:
            UserError: the line or a constraint is too long.
        """
        at, src, split = f"line {number}", options.src, options.split
        if problem := too_long(line):
            raise UserError(problem, at=at, fix="split it into sentences, one per line")
        for text in (constraints.prefix, *constraints.require):
            if problem := too_long(text):
                what = f"prefix or require: {problem}"
                raise UserError(what, at=at, fix="give shorter text")
        prefix = self._encode_target(constraints.prefix, at)
        _check_size("prefix", len(prefix.ids), at)
        phrases: list[tuple[str, ...]] = [(p,) for p in constraints.require if not is_blank(p)]
        parts = self.divide(line, "line" if prefix.ids or phrases else split, src)
        count = sum(len(pieces) for _, pieces in parts)
        if count > MAX_SOURCE_PIECES and not (split == "auto" and all(text for text, _ in parts)):
            note = f"line {number} has {count:,} subwords; it is translated in {len(parts):,} parts"
            print(f"note: {note}", file=sys.stderr)
        tag_ids = self.tag_ids(options.tag)
        ids = self.source_ids(number, [piece for _, pieces in parts for piece in pieces])
        inputs, start = [], 0
        for part, (text, pieces) in enumerate(parts):
            part_ids = np.concatenate([tag_ids, ids[start : start + len(pieces)]])
            if glossary is not None:
                part_text = text or self.segmenter.decode(pieces, src or self.src)
                phrases += glossary.find(part_text).values()
            require = self._encode_required(phrases, at)
            inputs.append(SearchInput(part_ids, number, part, pieces, text, prefix, require))
            prefix, phrases, start = NO_PIECES, [], start + len(pieces)
        return inputs

    def glossary(self, terms: Sequence[Term], src: str | None = None) -> Glossary:
        """Make the glossary of some terms for lines of a language, None = that of the model."""
        tokenized = self.segmenter.moses.tokenized
        return glossary_of(tuple(terms), (src or self.src, self.tgt), tokenized)

    def divide(
        self, line: str, split: str = "line", src: str | None = None
    ) -> list[tuple[str, list[str]]]:
        """Divide a line into parts, as text and source pieces; none for a blank line.

        A part is the whole line if it is not too long. Otherwise, its sentences are divided into
        halves until each part is short enough: MAX_SOURCE_PIECES pieces and, with ``split`` auto,
        the usual number of sentences. A longer sentence is cut between words, else inside one.
        Texts of such cuts are empty.
        """
        most = self.usual.sentences if split == "auto" else None
        pieces_of = functools.cache(functools.partial(self.source_pieces, src=src))

        def fits(sentences: Sequence[str]) -> bool:
            few = most is None or len(sentences) <= most
            return few and len(pieces_of("".join(sentences))) <= MAX_SOURCE_PIECES

        texts = [line]
        if most is not None or not fits(texts):
            normal = self.segmenter.moses.normalize(clean_line(line))
            lang = base_language(src or self.src)
            sentences = split_sentences(normal, lang, self.abbreviations(src))
            texts = join_in_parts(sentences, fits)
        parts = []
        for text in texts:
            pieces = pieces_of(text)
            ends = part_ends(list(map(self.segmenter.surface, pieces)), MAX_SOURCE_PIECES)
            parts += [
                (text if len(ends) == 1 else "", pieces[start:end])
                for start, end in itertools.pairwise([0, *ends])
            ]
        return parts

    def _encode_required(
        self, phrases: Iterable[tuple[str, ...]], at: str
    ) -> tuple[tuple[TargetPieces, ...], ...]:
        """Encode phrases, each in all of its forms."""
        require = []
        for forms in dict.fromkeys(phrases):
            encoded: dict[TargetPieces, None] = {}
            for form in forms:
                encoded[self._encode_target(form, at)] = None
                # the same after a sign without a space, such as an opening bracket
                sign, *pieces = self.target_pieces(f"{OPENING}{clean_line(form).strip()}")
                if self.segmenter.surface(sign).strip(" ") == OPENING and pieces:
                    encoded[self._target_ids(pieces)] = None
            require.append(tuple(encoded))
        longest = (max(len(form.ids) for form in forms) for forms in require)
        _check_size("require or glossary", sum(longest), at)
        return tuple(require)

    def _encode_target(self, text: str, at: str) -> TargetPieces:
        pieces = tuple(self.target_pieces(text))
        # U+2581 is SentencePiece's sign for a space
        if SPACE in text and SPACE not in self.strings.join(pieces):
            raise UserError(
                f"{text!r} contains U+2581, which SentencePiece uses for a space, so no "
                "translation can contain it",
                at=at,
                fix="remove U+2581, or write another character, such as _",
            )
        return self._target_ids(pieces)

    def _target_ids(self, pieces: Sequence[str]) -> TargetPieces:
        ids = (token if self._known["tgt"][token] else UNK for token in self.vocab.ids(pieces))
        return TargetPieces(tuple(pieces), tuple(ids))

    def source_ids(self, number: int, pieces: Sequence[str]) -> np.ndarray:
        """Encode the source pieces of a line as [N] int64, and count unknown ones."""
        ids = np.array(self.vocab.ids(pieces), dtype=np.int64)
        self.unknown.add(number, self._count_unknown(ids), len(ids))
        return ids

    def unknown_share(self, pieces: Sequence[str]) -> float:
        """Compute the share of source pieces that the model does not know; 0 without pieces."""
        ids = np.array(self.vocab.ids(pieces), dtype=np.int64)
        return self._count_unknown(ids) / len(ids) if len(ids) else 0.0

    def _count_unknown(self, ids: np.ndarray) -> int:
        return int(((ids == UNK) | ~self._known["src"][ids]).sum())

    def tag_ids(self, tag: str | None, side: Side = "src") -> np.ndarray:
        """Return the id of a tag as [1] int64, or [0] for None.

        Raises:
            UserError: the model has no such tag on this side.
        """
        tags = self.vocab.tags if side == "src" else self.vocab.tgt_tags
        if tag is not None and tag not in tags:
            kind = "tag" if side == "src" else "target tag"
            listed = f"its {kind}s are {', '.join(tags)}"
            raise UserError(
                f"the model has no {kind} {tag}; "
                + (listed if tags else f"it was trained without {kind}s"),
                at="tag" if side == "src" else "tgt_tag",
                fix=f"choose one of its {kind}s" if tags else "leave the tag out",
            )
        return np.array(self.vocab.ids(tag_piece(tag)), dtype=np.int64)

    def abbreviations(self, src: str | None = None) -> Collection[str]:
        """Return what the training text says of stops in a source language."""
        return self.usual.learned.get(base_language(src or self.src), ())

    def source_pieces(self, line: str, src: str | None = None) -> list[str]:
        """Segment a line of a language, None = that of the model; a blank line has no pieces."""
        return self._segment(line, src or self.src, "src")

    def target_pieces(self, line: str) -> list[str]:
        """Segment a translation; a blank line has no pieces."""
        return self._segment(line, self.tgt, "tgt")

    def word_ends(self, pieces: Sequence[str]) -> list[bool]:
        """Mark each piece that is the last one of a word of tokenized text.

        A piece that only spells a space, such as SentencePiece's U+2581, is not a word. It
        belongs to the word after it, or at the end of the text to the word before it.
        """
        strings = [self.segmenter.surface(piece) for piece in pieces]
        ends, begun = [], False
        for string, after in zip(strings, [*strings[1:], " "], strict=False):
            begun = begun or bool(string.strip(" "))
            ends.append(begun and (string.endswith(" ") or after.startswith(" ")))
            begun = begun and not ends[-1]
        if ends and not ends[-1]:
            last = max((index for index, end in enumerate(ends) if end), default=-1)
            ends[last], ends[-1] = False, True
        return ends

    def _segment(self, line: str, lang: str, side: Side) -> list[str]:
        line = clean_line(line)
        return [] if is_blank(line) else self.segmenter.encode(line, lang, side)

    def decode_line(
        self, hypotheses: Sequence[list[Hypothesis]], parts: Sequence[SearchInput]
    ) -> list[Translation]:
        """Decode the hypotheses of a line, best first; a blank one if the line has no parts.

        The hypotheses of each part are given best first. Those of one rank become one translation.

        Raises:
            UserError: a part has no hypothesis, as the options allow none.
        """
        if not all(hypotheses):
            at = f"line {parts[0].line}"
            raise UserError("the options allow no translation", at=at, fix="leave some out")
        sources = [part.text for part in parts]
        return [
            _join(list(map(self._decode_part, rank, parts)), sources, sentence_space(self.tgt))
            for rank in zip(*hypotheses, strict=False)
        ] or [BLANK]

    def pieces(self, hypothesis: Hypothesis) -> list[str]:
        """List the pieces of a hypothesis; forced ones are as given, also those that are UNK."""
        ids, forced = hypothesis.ids, hypothesis.forced.pieces
        return [*forced[: len(ids)], *self.vocab.pieces(ids[len(forced) :])]

    def _decode_part(self, hypothesis: Hypothesis, part: SearchInput) -> Translation:
        pieces = self.pieces(hypothesis)
        return Translation(
            pieces,
            self.segmenter.decode(pieces, self.tgt),
            hypothesis.score,
            hypothesis.log_prob,
            hypothesis.finished,
            short=self.is_short(len(part.pieces), len(pieces)),
        )

    def is_short(self, source: int, translation: int) -> bool:
        """Return whether a translation is too short for its source, so that text is missing.

        The expected length (source length x training length ratio) exceeds twice the actual length
        plus ten subwords: the lengths of short texts vary more than those of sentences.
        """
        expected = source * self.usual.length_ratio
        return expected > SHORT_RATIO * translation + SHORT_SLACK


def _join(parts: Sequence[Translation], sources: Sequence[str], space: str) -> Translation:
    if len(parts) == 1:
        return parts[0]
    return Translation(
        pieces=[piece for part in parts for piece in part.pieces],
        text=join_translations([part.text for part in parts], sources, space),
        score=sum(part.score for part in parts),
        log_prob=sum(part.log_prob for part in parts),
        finished=all(part.finished for part in parts),
        short=any(part.short for part in parts),
    )


def _check_size(name: str, pieces: int, at: str) -> None:
    if pieces > MAX_SOURCE_PIECES:
        problem = f"{name} has {pieces:,} subwords, at most {MAX_SOURCE_PIECES} are allowed"
        raise UserError(problem, at=at, fix="give shorter text")


def codec_of(model: Model) -> TextCodec:
    """Make the codec of a model."""
    return TextCodec(model.segmenter, model.vocab, model.about.trained, model.about.usual_line)


# ---------------------------------------------------------------- parts of a long sentence


def part_ends(strings: Sequence[str], longest: int) -> list[int]:
    """Find where the parts of a sentence end: between words if possible, else inside a word.

    Args:
        strings: what each piece adds to tokenized text.
        longest: the most pieces of a part.
    """
    count, ends, start = len(strings), [], 0

    def inside(cut: int) -> bool:
        return not (strings[cut - 1].endswith(" ") or strings[cut].startswith(" "))

    while count - start > longest:
        left = count - start
        size = left / -(-left // longest)  # of equal parts
        # the best cut after at least half the size
        cuts = range(start + max(1, int(size / 2)), start + longest + 1)
        start = min(cuts, key=lambda cut: (inside(cut), abs(cut - start - size)))
        ends.append(start)
    return [*ends, count] if count else []
