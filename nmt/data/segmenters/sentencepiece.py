"""SentencePiece: pieces of plain text with its spaces, without a tokenizer.

Any white space, including U+00A0, U+202F and U+3000, is read as one space, and U+2581 as ``_``. All
other characters are restored exactly. A model of another toolkit has rules of its own instead: it
gets each line unchanged (``raw``), and may have a second model for the target.
"""

from __future__ import annotations

import functools
import io
import math
import re
import struct
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

import sentencepiece

from nmt.data.bitext import Chunk
from nmt.data.lines import SIDES, Side, clean_line
from nmt.data.segmenters.base import Segmenter
from nmt.data.segmenters.extend import learn_symbols
from nmt.data.segmenters.noise import Merges, Noise, Unigram
from nmt.data.workers import map_chunks
from nmt.errors import UserError
from nmt.runtime.files import LARGE, read_file
from nmt.runtime.progress import progress_bar
from nmt.text.tokenizer import Moses

CHARACTER_COVERAGE = 0.9995  # share of the characters that get pieces; the others become bytes
MAX_COUNTED_WORDS = 2_000_000  # distinct words in memory when pieces are added; then without rare
BYTE_SURFACE = "\U000f0000"  # surface of byte 0, in a private plane; byte b is this plus b
SPACE = "\u2581"  # SentencePiece's sign for a space


MODEL, TARGET_MODEL = "spm.model", "target.model"  # files of a model


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
        source = load_model(model)
        target = source if target_model is None else load_model(target_model)
        self._processors: dict[Side, Any] = {"src": source, "tgt": target}
        self._bytes: dict[str, int] = {}
        for processor in (source, target):
            ids = filter(processor.is_byte, range(processor.get_piece_size()))
            pieces = map(processor.id_to_piece, ids)
            self._bytes |= {piece: byte for byte, piece in enumerate(pieces)}

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
                # SentencePiece reports no progress while it learns
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

    def noise(self, config: Any, known: Collection[str] | None = None) -> Noise | None:
        """Return the BPE-dropout of ``segment.dropout``, or the sampling of ``sampling_alpha``.

        A piece is only split if the model has each of its characters as a piece, so byte pieces,
        unknown characters and user-defined symbols stay.

        Raises:
            UserError: the recipe wants noise that the type of the model does not have, or each side
                has a model.
        """
        if not config.dropout and config.sampling_alpha is None:
            return None
        key, needed = ("dropout", "bpe") if config.dropout else ("sampling_alpha", "unigram")
        if self._target_model is not None:
            raise UserError(
                "this segmenter has a model for each side, and noise is for one of both",
                at=f"segment.{key}",
                fix=f"remove segment.{key}",
            )
        kind, scores = read_scores(self._model)
        if kind != needed:
            instead = {
                "unigram": " and set segment.sampling_alpha=0.2",
                "bpe": " and set segment.dropout=0.1",
            }
            learn = f", or set segment.model_type={needed} and segment.model=learn"
            raise UserError(
                f"requires a SentencePiece model of type {needed}; this model is of type {kind}",
                at=f"segment.{key}",
                fix=f"remove segment.{key}{instead.get(kind, learn)}",
            )
        kept = {p: score for p, score in scores.items() if known is None or p in known}
        model: Merges | Unigram
        if config.dropout:
            merged = scores | read_scores(self._model, UNUSED)[1]
            model = Merges(config.dropout, _merges(merged), kept)
        else:
            model = Unigram(config.sampling_alpha, kept)
        return Noise(model, functools.partial(_spell, set(scores)), str, _is_inner, known)

    def extended(
        self, known: Collection[str], text: Iterable[Chunk], limit: int
    ) -> tuple[SentencePiece, dict[str, list[str]]]:
        """Add pieces that are learned on a text to each model; see the base class.

        A new piece of a BPE model ranks behind all others. One of a unigram model scores a little
        more than the pieces that it replaces, or the logarithm of its frequency if it has a
        character that the model lacks.
        """
        known = set(known)
        words = self._count_words(known, text)
        models: dict[Side, bytes] = {}
        parts: dict[str, list[str]] = {}
        for side, model in self._models().items():
            kind, scores = _unigram_or_bpe(model, "init.vocab", "extended")
            processor = self._processors[side]
            taken = {processor.id_to_piece(i) for i in range(processor.get_piece_size())}
            new = learn_symbols(words[side], known, taken, lambda s: s.replace(SPACE, ""), limit)
            added = [symbol for symbol in new.parts if symbol not in taken]
            if kind == "bpe":
                lowest = min([*scores.values(), *read_scores(model, UNUSED)[1].values()])
                new_scores = {symbol: lowest - rank for rank, symbol in enumerate(added, 1)}
            else:
                total = sum(len(word) * count for word, count in words[side].items())
                new_scores = _unigram_scores(scores, added, new.counts, total)
            models[side] = edit_model(model, known | new.parts.keys(), new_scores)
            for symbol, replaced in new.parts.items():
                parts.setdefault(symbol, [p for part in replaced for p in self._known(part, known)])
        return self._with_models(models), parts

    def trimmed(
        self, known: Collection[str], wanted: Collection[str]
    ) -> tuple[SentencePiece, set[str]]:
        """Remove pieces from each model; see the base class.

        A BPE model keeps them as unused pieces: SentencePiece splits these as it merged them.
        """
        models: dict[Side, bytes] = {}
        kept, normal = set(wanted).intersection(known), set[str]()
        for side, model in self._models().items():
            _, scores = _unigram_or_bpe(model, "init.trim", "trimmed")
            pieces = scores.keys() & known
            single = {piece for piece in pieces if len(piece) == 1}
            needed = {p for p in pieces if p in wanted or p in single or not single.issuperset(p)}
            models[side] = edit_model(model, needed, {})
            kept |= needed
            normal |= scores.keys()
        return self._with_models(models), kept | (set(known) - normal)

    def _models(self) -> dict[Side, bytes]:
        """Return the models by side; a model of both sides is that of the source."""
        models: dict[Side, bytes] = {"src": self._model}
        if self._target_model is not None:
            models["tgt"] = self._target_model
        return models

    def _with_models(self, models: Mapping[Side, bytes]) -> SentencePiece:
        return SentencePiece(self.moses, models["src"], models.get("tgt"), self.raw)

    def _count_words(
        self, known: Collection[str], text: Iterable[Chunk]
    ) -> dict[Side, Counter[tuple[str, ...]]]:
        words: dict[Side, Counter[tuple[str, ...]]] = {side: Counter() for side in self._models()}
        for of_chunk in map_chunks(functools.partial(_count_words, self, known), text):
            for side, counts in of_chunk.items():
                counter = words[side if side in words else "src"]
                counter.update(counts)
                if len(counter) > MAX_COUNTED_WORDS:
                    for word in [word for word, count in counter.items() if count == 1]:
                        del counter[word]
        return words

    def words_of(self, line: str, lang: str, side: Side, known: Collection[str]) -> list[list[str]]:
        """Return the words of a line as symbols: pieces, and the characters of all other text."""
        words: list[list[str]] = [[]]
        data = b""
        for piece in [*self.encode(line, lang, side), ""]:
            byte = self._bytes.get(piece)
            if byte is not None:
                data += bytes([byte])
                continue
            words[-1] += data.decode(errors="replace")
            data = b""
            if _begins_word(piece):
                words.append([])
            is_piece = piece in known or not self._processors[side].is_unknown(
                self._processors[side].piece_to_id(piece)
            )
            words[-1] += [piece] if piece and is_piece else piece
        return [word for word in words if word]

    def _known(self, symbol: str, known: Collection[str]) -> list[str]:
        """Return a symbol, or the bytes of a character that is not a type, as far as known."""
        if symbol in known:
            return [symbol]
        names = {byte: piece for piece, byte in self._bytes.items()}
        return [names[byte] for byte in symbol.encode() if byte in names and names[byte] in known]

    def decode_tokenized(self, pieces: Sequence[str], lang: str) -> str:
        """Return pieces as tokenized text."""
        return self.moses.tokenize_reference(self._text(pieces), lang)

    def decode(self, pieces: Sequence[str], lang: str) -> str:
        """Return pieces as plain text."""
        text = self._text(pieces)
        return self.moses.detokenize(text, lang) if self.moses.tokenized else text

    def surface(self, piece: str) -> str:
        """Return the text that a piece adds; a word begins with a space.

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
            if not (model.is_control(i) or model.is_unknown(i) or model.is_unused(i))
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

    def __reduce__(self) -> tuple[Any, ...]:
        return SentencePiece, (self.moses, self._model, self._target_model, self.raw)


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


def _count_words(
    segmenter: SentencePiece, known: Collection[str], chunk: Chunk
) -> dict[Side, Counter[tuple[str, ...]]]:
    return {
        side: Counter(
            tuple(word) for line in lines for word in segmenter.words_of(line, lang, side, known)
        )
        for side, lines, lang in zip(SIDES, chunk.sides(), chunk.corpus.langs, strict=True)
    }


def _spell(pieces: set[str], piece: str) -> tuple[str, ...]:
    """Return the characters of a normal piece if all of them are pieces, else none."""
    return tuple(piece) if piece in pieces and pieces.issuperset(piece) else ()


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


def _is_inner(_: str, piece: str) -> bool:
    return not _begins_word(piece)


def _training_error(reason: str, config: Any) -> UserError:
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


def _unigram_or_bpe(model: bytes, key: str, what: str) -> tuple[str, dict[str, float]]:
    """Return type and scores of a model; UserError if it is of another type."""
    kind, scores = read_scores(model)
    if kind not in ("unigram", "bpe"):
        raise UserError(
            f"the SentencePiece model of the parent is of type {kind}, which cannot be {what}; "
            "unigram and bpe can",
            at=key,
            fix="set init.vocab=new" + (" and remove init.trim" if key == "init.trim" else ""),
        )
    return kind, scores


def _unigram_scores(
    scores: Mapping[str, float], added: Iterable[str], counts: Mapping[str, int], total: int
) -> dict[str, float]:
    """Return the scores of new pieces of a unigram model; each part of a piece comes before it."""
    all_scores = dict(scores)
    for piece in added:
        frequency = math.log(counts[piece] / total)
        best = [0.0] + [-math.inf] * len(piece)  # score of the best way to write each beginning
        for start in range(len(piece)):
            for end in range(start + 1, len(piece) + 1):
                score = best[start] + all_scores.get(piece[start:end], -math.inf)
                best[end] = max(best[end], score)
        is_new = any(c not in scores for c in piece)
        all_scores[piece] = max(best[-1] + MARGIN, frequency if is_new else -math.inf)
    return {piece: score for piece, score in all_scores.items() if piece not in scores}


MARGIN = 0.01  # of the score of a new piece above the best way to write it without
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED = (
    1,
    2,
    3,
    4,
    5,
)  # types of pieces: a text gives normal ones
MODEL_TYPES = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3  # fields of ModelProto
_TEXT, _SCORE, _TYPE = 1, 2, 3  # fields of a piece
_MODEL_TYPE = 3  # field of TrainerSpec
_CHARSMAP = 2  # field of NormalizerSpec
# field and its field -> name, and values of models that nmt learns
_USUAL: dict[tuple[int, int], tuple[str, tuple[Any, ...]]] = {
    (_TRAINER, _MODEL_TYPE): ("model_type", (1, 2)),
    (_TRAINER, 24): ("treat_whitespace_as_suffix", (0,)),
    (_NORMALIZER, _CHARSMAP): ("normalization_rule_name", (b"",)),
    (_NORMALIZER, 3): ("add_dummy_prefix", (1,)),
    (_NORMALIZER, 4): ("remove_extra_whitespaces", (1,)),
    (_NORMALIZER, 5): ("escape_whitespaces", (1,)),
}
_WIDTHS = {1: 8, 5: 4}  # bytes of the wire types of fixed size


def read_scores(data: bytes, of_type: int = NORMAL) -> tuple[str, dict[str, float]]:
    """Return the type of a model file, and the scores of its normal pieces, or of another type.

    Normal pieces are not special, bytes, unused or user-defined. SentencePiece's Python package
    reports neither, so this reads the wire format of protocol buffers (sentencepiece_model.proto).

    Raises:
        UserError: SentencePiece accepts the file, but pieces or the type are damaged.
    """
    kind, scores = 1, {}  # SentencePiece's default is unigram
    try:
        for field, value in _fields(data):
            if field == _PIECES:
                parts = dict(_fields(value))
                if parts.get(_TYPE, NORMAL) == of_type:
                    score = struct.unpack("<f", parts.get(_SCORE, b"\0\0\0\0"))[0]
                    scores[parts[_TEXT].decode()] = score
            elif field == _TRAINER:
                kind = dict(_fields(value)).get(_MODEL_TYPE, kind)
        return MODEL_TYPES[kind], scores
    except (LookupError, ValueError, TypeError, AttributeError, struct.error) as error:
        what, fix = "damaged, or not written by SentencePiece", "use another model"
        raise UserError(what, at=f"the SentencePiece model ({MODEL})", fix=fix) from error


def unusual_settings(data: bytes) -> list[str]:
    """Name the settings of a model file that models learned by nmt do not have."""
    return [
        _USUAL[field, number][0]
        for field, message in _fields(data)
        if field in (_TRAINER, _NORMALIZER)
        for number, value in _fields(message)
        if (field, number) in _USUAL and value not in _USUAL[field, number][1]
    ]


def edit_model(data: bytes, kept: Collection[str], added: Mapping[str, float]) -> bytes:
    """Return a model without some of its normal pieces, and with new ones at the end.

    Args:
        kept: other normal pieces are removed; those of a BPE model become unused instead.
        added: new pieces with their scores.
    """
    is_bpe = read_scores(data)[0] == "bpe"
    messages: list[bytes] = []
    for field, value in _fields(data):
        if field == _PIECES:
            parts = dict(_fields(value))
            if parts.get(_TYPE, NORMAL) == NORMAL and parts[_TEXT].decode() not in kept:
                if not is_bpe:
                    continue
                value += _number(_TYPE << 3) + _number(UNUSED)  # the last value of a field counts
        messages.append(_message(field, value))
    for text, score in added.items():
        piece = _message(_TEXT, text.encode()) + _number(_SCORE << 3 | 5) + struct.pack("<f", score)
        messages.append(_message(_PIECES, piece))
    return b"".join(messages)


def make_model(kind: str, pieces: Mapping[str, float], charsmap: bytes) -> bytes:
    """Return a model of the type unigram or bpe, with <unk>, <s> and </s> before its pieces.

    Args:
        pieces: scores of the normal pieces, in the order of their ids.
        charsmap: table of the normalizer; empty = text stays as it is.
    """
    specials = (("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL))
    messages = [
        _message(_PIECES, _message(_TEXT, name.encode()) + _number(_TYPE << 3) + _number(of_type))
        for name, of_type in specials
    ]
    number = next(number for number, name in MODEL_TYPES.items() if name == kind)
    messages.append(_message(_TRAINER, _number(_MODEL_TYPE << 3) + _number(number)))
    messages.append(_message(_NORMALIZER, _message(_CHARSMAP, charsmap)))
    return edit_model(b"".join(messages), (), pieces)


def _message(field: int, data: bytes) -> bytes:
    return _number(field << 3 | 2) + _number(len(data)) + data


def _number(value: int) -> bytes:
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*data, value])


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the number and the value of each field of a message of protocol buffers."""
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
    """Read an integer of 7 bits a byte, lowest first; return it and the place after it."""
    value = shift = 0
    while True:
        value |= (data[place] & 0x7F) << shift
        place += 1
        if data[place - 1] < 0x80:
            return value, place
        shift += 7
