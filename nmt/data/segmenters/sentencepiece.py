"""SentencePiece: pieces of plain text with its spaces, without a tokenizer.

White space of any kind is read as one space, also U+00A0, U+202F and U+3000, and U+2581 as ``_``.
All other characters come back as they were. A model of another toolkit has rules of its own
instead: it gets each line as it is (``raw``), and may have a second model for the target.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

import sentencepiece

from nmt.data.bitext import Chunk
from nmt.data.segmenters.base import Segmenter, Side
from nmt.data.segmenters.noise import Merges, Noise, Unigram, never
from nmt.data.text import clean_line
from nmt.data.tokenizer import Moses
from nmt.errors import UserError
from nmt.runtime.files import LARGE, read_file
from nmt.runtime.progress import progress_bar

CHARACTER_COVERAGE = 0.9995  # share of the characters that get pieces; the others become bytes
BYTE_SURFACE = "\U000f0000"  # surface of byte 0, in a private plane; byte b is this plus b
SPACE = "\u2581"  # SentencePiece's sign for a space


MODEL, TARGET_MODEL = "spm.model", "target.model"  # files of a run folder


class SentencePiece(Segmenter):
    """A SentencePiece model over plain text, or over tokenized text if the corpus is tokenized.

    Args:
        model: of both sides, or of the source.
        target_model: of the target; None = ``model``.
        raw: the model normalizes text itself, as those of other toolkits do.
    """

    kind = "sentencepiece"

    def __init__(
        self, moses: Moses, model: bytes, target_model: bytes | None = None, raw: bool = False
    ) -> None:
        super().__init__(moses)
        self._model, self._target_model, self.raw = model, target_model, raw
        self._open()

    @classmethod
    def learn(
        cls, config: Any, moses: Moses, text: Iterable[Chunk], progress: bool = False
    ) -> SentencePiece:
        """Learn a model over both sides, or read the file that the recipe names.

        Raises:
            UserError: the corpus has more characters than ``vocab_size``, or cannot be learned
                from; or the file cannot be read or is not a model.
        """
        if config.model != "learn":
            return cls._from_file(config, moses)
        model = io.BytesIO()
        failure: BaseException | None = None
        learning = ExitStack()

        def sentences() -> Iterator[str]:
            # the trainer replaces any exception of its input by one of its own
            nonlocal failure
            try:
                for pair in chain.from_iterable(chunk.pairs() for chunk in text):
                    yield from (_single_spaces(moses.normalize(line)) for line in pair)
                # SentencePiece begins to learn, and does not say how far it is
                title = f"learning a SentencePiece model of type {config.model_type}"
                learning.enter_context(progress_bar(title, show=progress, slow=True))
            except (Exception, KeyboardInterrupt) as error:
                failure = error
                raise

        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=sentences(),
                model_writer=model,
                vocab_size=config.vocab_size,
                model_type=config.model_type,
                # byte pieces must occur in training, otherwise their embeddings learn nothing
                character_coverage=CHARACTER_COVERAGE if config.byte_fallback else 1.0,
                byte_fallback=config.byte_fallback,
                hard_vocab_limit=False,
                normalization_rule_name="identity",
                max_sentence_length=100_000,
                num_threads=1,  # with more, unigram models differ from run to run
                minloglevel=2,
            )
        except RuntimeError as error:
            if failure is not None:
                raise failure from None
            raise _training_error(str(error), config) from error
        finally:
            learning.close()
        return cls(moses, model.getvalue())

    @classmethod
    def _from_file(cls, config: Any, moses: Moses) -> SentencePiece:
        try:
            segmenter = cls(moses, read_file(Path(config.model), LARGE))
        except OSError as error:
            raise UserError(
                f"cannot be read: {error.strerror}", at=config.model, fix="check segment.model"
            ) from error
        except ValueError as error:
            raise UserError(
                str(error),
                at=config.model,
                fix="segment.model must be a .model file that SentencePiece wrote; or set "
                "segment.model=learn",
            ) from error
        if config.byte_fallback and not segmenter.alphabet():
            raise UserError(
                "segment.byte_fallback is true, but this model was trained without byte_fallback",
                at=config.model,
                fix="set segment.byte_fallback=false, or use a model trained with byte_fallback",
            )
        return segmenter

    @classmethod
    def load(cls, folder: Path, moses: Moses, metadata: dict[str, Any]) -> SentencePiece:
        """Read the models from a folder."""
        model = read_file(folder / MODEL, LARGE)
        target = None
        if TARGET_MODEL in metadata["sha256"]:
            target = read_file(folder / TARGET_MODEL, LARGE)
        return cls(moses, model, target, metadata.get("raw", False))

    def encode(self, line: str, lang: str, side: Side = "src") -> list[str]:
        """Return the pieces of a line; U+2581 begins a word."""
        line = self.moses.normalize(line)
        return self._processors[side].encode(
            line if self.raw else _single_spaces(line), out_type=str
        )

    def noise(self, config: Any) -> Noise | None:
        """Return the BPE-dropout of ``segment.dropout``, or the sampling of ``sampling_alpha``.

        A piece is only split if the model has each of its characters as a piece, so byte pieces,
        unknown characters and user-defined symbols stay.

        Raises:
            UserError: the recipe wants noise that the type of the model does not have, or each side
                has a model.
        """
        if not config.dropout and config.sampling_alpha is None:
            return None
        if self._target_model is not None:
            key = "dropout" if config.dropout else "sampling_alpha"
            raise UserError(
                "this segmenter has a model for each side, and noise is for one of both",
                at=f"segment.{key}",
                fix=f"remove segment.{key}",
            )
        kind, scores = read_model(self._model)
        model: Merges | Unigram
        if config.dropout:
            _require_type("dropout", kind, "bpe", "unigram", "sampling_alpha=0.2")
            model = Merges(config.dropout, _merges(scores), together=False)
        else:
            _require_type("sampling_alpha", kind, "unigram", "bpe", "dropout=0.1")
            model = Unigram(config.sampling_alpha, scores)
        return Noise(
            model,
            spell=_Spelling(scores.keys()),
            name=str,
            begins=_begins_word,
            ends=never,
            joined={piece for piece in scores if len(piece) > 1},
        )

    def decode_tokenized(self, pieces: Sequence[str], lang: str) -> str:
        """Return pieces as tokenized text."""
        return self.moses.tokenize_reference(self._text(pieces), lang)

    def decode(self, pieces: Sequence[str], lang: str) -> str:
        """Return pieces as plain text."""
        text = self._text(pieces)
        return self.moses.detokenize(text, lang) if self.moses.tokenized else text

    def surface(self, piece: str) -> str:
        """Return what a piece adds to tokenized text; a word begins with a space.

        A byte that is not an ASCII character becomes a character of a private plane, so that
        phrases with such bytes can be compared like others.
        """
        byte = self._bytes.get(piece)
        if byte is None:
            return piece.replace(SPACE, " ")
        return chr(byte) if 0x20 <= byte < 0x7F else chr(ord(BYTE_SURFACE) + byte)

    def alphabet(self) -> list[str]:
        """Return all pieces of a model with byte fallback, which can encode any text."""
        model = self._processors["src"]
        pieces = (
            model.id_to_piece(i)
            for i in range(model.get_piece_size() if self._bytes else 0)
            if not (model.is_control(i) or model.is_unknown(i))
        )
        # a text cannot give these pieces, and a line of vocab.txt cannot contain them
        return [piece for piece in pieces if not {"\t", "\n"} & set(piece)]

    def files(self) -> dict[str, bytes]:
        """Return the models."""
        if self._target_model is None:
            return {MODEL: self._model}
        return {MODEL: self._model, TARGET_MODEL: self._target_model}

    def metadata(self) -> dict[str, Any]:
        """Return whether the model normalizes text itself."""
        return {"raw": True} if self.raw else {}

    def _open(self) -> None:
        model = load_model(self._model)
        target = model if self._target_model is None else load_model(self._target_model)
        self._processors: dict[Side, Any] = {"src": model, "tgt": target}
        self._bytes: dict[str, int] = {}
        for one in (model, target):
            pieces = map(one.id_to_piece, filter(one.is_byte, range(one.get_piece_size())))
            self._bytes |= {piece: byte for byte, piece in enumerate(pieces)}

    def _text(self, pieces: Sequence[str]) -> str:
        if self._bytes.keys().isdisjoint(pieces):
            text = "".join(pieces)
        else:  # a translation model may produce invalid UTF-8 or control characters
            values = (self._bytes.get(p) for p in pieces)
            data = (
                p.encode() if b is None else bytes([b]) for p, b in zip(pieces, values, strict=True)
            )
            text = clean_line(b"".join(data).decode(errors="replace"))
        return text.replace(SPACE, " ").strip(" ")

    def __getstate__(self) -> dict[str, Any]:
        names = ("moses", "_model", "_target_model", "raw")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()


def load_model(model: bytes) -> Any:
    """Return the processor of a model file.

    Raises:
        ValueError: it is not a model.
    """
    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(model)  # the constructor ignores b""
    except RuntimeError as error:
        raise ValueError("not a SentencePiece model") from error
    return processor


class _Spelling:
    """Map a normal piece to its characters if all of them are pieces, any other piece to none."""

    def __init__(self, pieces: Collection[str]) -> None:
        self._pieces = set(pieces)
        self._single = {piece for piece in pieces if len(piece) == 1}

    def __call__(self, piece: str) -> tuple[str, ...]:
        known = piece in self._pieces and self._single.issuperset(piece)
        return tuple(piece) if known else ()


def _merges(scores: Mapping[str, float]) -> dict[tuple[str, str], int]:
    """Return the pairs of pieces that make another piece, with the rank of that piece."""
    best_first = sorted(scores, key=lambda piece: -scores[piece])
    return {
        (piece[:i], piece[i:]): rank
        for rank, piece in enumerate(best_first)
        for i in range(1, len(piece))
        if piece[:i] in scores and piece[i:] in scores
    }


def _begins_word(piece: str) -> bool:
    return piece.startswith(SPACE)


def _require_type(key: str, kind: str, needed: str, other: str, instead: str) -> None:
    if kind == needed:
        return
    fix = f"remove segment.{key}, or set segment.model_type={needed} and segment.model=learn"
    if kind == other:
        fix = f"remove segment.{key} and set segment.{instead}"
    what = f"requires a SentencePiece model of type {needed}; this model is of type {kind}"
    raise UserError(what, at=f"segment.{key}", fix=fix)


def _training_error(reason: str, config: Any) -> UserError:
    """Return SentencePiece's error in terms of the recipe."""
    if found := re.search(r"smaller than required_chars\. \d+ vs (\d+)", reason):
        needed = "one for each character"
        if config.byte_fallback:
            needed += " except the rarest, and 256 for bytes"
        return UserError(
            f"a vocabulary of {config.vocab_size:,} is too small: this corpus needs "
            f"{int(found[1]):,} types, {needed}",
            at="segment.vocab_size",
            fix=f"set segment.vocab_size={found[1]} or more",
        )
    return UserError(
        f"SentencePiece cannot learn from this corpus: {reason.strip().rpartition('] ')[2]}",
        at="data.train",
        fix="check that the training files contain text; nmt-prepare lists dropped pairs",
    )


def _single_spaces(line: str) -> str:
    """Return words separated by one space each, with U+2581 replaced."""
    return " ".join(line.replace(SPACE, "_").split())


NORMAL = 1  # type of a piece that text is segmented into
MODEL_TYPES = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
_PIECES, _TRAINER = 1, 2  # fields of ModelProto
_TEXT, _SCORE, _TYPE = 1, 2, 3  # fields of a piece
_MODEL_TYPE = 3  # field of TrainerSpec
_WIDTHS = {1: 8, 5: 4}  # bytes of the wire types of fixed size


def read_model(data: bytes) -> tuple[str, dict[str, float]]:
    """Return the type of a model file, and the scores of its normal pieces.

    These are not special, bytes, unused or user-defined. SentencePiece's Python package reports
    neither, so this reads the wire format of protocol buffers (sentencepiece_model.proto).
    """
    kind, scores = 1, {}  # SentencePiece's default is unigram
    for field, value in _fields(data):
        if field == _PIECES:
            parts = dict(_fields(value))
            if parts.get(_TYPE, NORMAL) == NORMAL:
                score = struct.unpack("<f", parts.get(_SCORE, b"\0\0\0\0"))[0]
                scores[parts[_TEXT].decode()] = score
        elif field == _TRAINER:
            kind = dict(_fields(value)).get(_MODEL_TYPE, kind)
    return MODEL_TYPES[kind], scores


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the number and the value of each field of a message."""
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        wire = tag & 7
        if wire == 0:
            value, place = _varint(data, place)
            yield tag >> 3, value
            continue
        size = _WIDTHS.get(wire)
        if size is None:
            size, place = _varint(data, place)
        yield tag >> 3, data[place : place + size]
        place += size


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """Return an integer of 7 bits a byte, lowest first, and the place after it."""
    value = shift = 0
    while True:
        value |= (data[place] & 0x7F) << shift
        place += 1
        if data[place - 1] < 0x80:
            return value, place
        shift += 7
