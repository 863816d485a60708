"""Text to pieces and back: fastBPE, SentencePiece, or pieces that come ready.

Each segmenter is saved in the run folder and is all that translation needs to treat text as
training did. To add one: a class with these methods, and one line in SEGMENTERS.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import sentencepiece

from nmt.data.bpe import (
    JOINER,
    WordSplitter,
    codes_text,
    join,
    learn_codes,
    read_codes,
    seed_dropout,
)
from nmt.data.moses import Moses
from nmt.data.text import clean_line
from nmt.data.workers import Pair, on_all_cores
from nmt.errors import UserError
from nmt.runtime.files import write_atomic

FACTS = "segmenter.json"
COVERAGE = 0.9995  # share of the characters that are types where the others are bytes
BYTE = "\U000f0000"  # what the surface of byte 0 is; private
COUNTED_WORDS = 4_000_000  # distinct ones, some 400 MB
Lines = Callable[[], Iterator[Pair]]
Encode = Callable[[str, str], list[str]]


class Segmenter(Protocol):
    """What the toolkit needs of a segmenter. ``lang`` chooses the tokenizer's rules.

    Attributes:
        kind: its name in recipes.
        moses: the words in front of it, and what references need for scoring.
    """

    kind: str
    moses: Moses

    def encode(self, line: str, lang: str) -> list[str]:
        """Input text -> pieces."""

    def training_encoder(self, seed: Sequence[int]) -> Encode:
        """``encode`` for training text, with its dropout drawn from ``seed``."""

    def words(self, pieces: Sequence[str], lang: str) -> str:
        """Pieces -> tokenized text, for tokenized BLEU."""

    def decode(self, pieces: Sequence[str], lang: str) -> str:
        """Pieces -> plain text."""

    def surface(self, piece: str) -> str:
        """What a piece adds to tokenized text, with a space where a word begins or ends."""

    def alphabet(self) -> list[str]:
        """Return the pieces that a vocabulary has even where the training text lacks them."""

    def files(self) -> dict[str, bytes]:
        """What ``save`` writes, beside the facts."""

    def facts(self) -> dict[str, Any]:
        """What ``load`` needs beside the files."""


class CountWords:
    """Counts the words of both sides of a chunk of pairs, in worker processes."""

    def __init__(self, moses: Moses, src: str, tgt: str) -> None:
        self._moses, self._langs = moses, (src, tgt)

    def __call__(self, number: int, pairs: list[Pair]) -> Counter[str]:
        """The counts of one chunk."""
        words, (src, tgt) = self._moses.words, self._langs
        lines = (side for one, other in pairs for side in (words(one, src), words(other, tgt)))
        return Counter(chain.from_iterable(lines))


def prune_rare(counts: Counter[str]) -> Counter[str]:
    """The counts less the rarest words, once there are more than a machine should hold.

    So memory is bounded; what goes is too rare to be merged in what so large a corpus teaches.
    """
    rare = 0
    while len(counts) > COUNTED_WORDS:
        rare += 1
        counts = Counter({word: n for word, n in counts.items() if n > rare})
    return counts


class FastBpe:
    """Joint byte-pair encoding in fastBPE's format, Moses in front (T appendix A)."""

    kind = "fastbpe"

    def __init__(self, moses: Moses, splitter: WordSplitter, dropout: float) -> None:
        self.moses, self.dropout = moses, dropout
        self._split = splitter

    @classmethod
    def learn(cls, config: Any, moses: Moses, src: str, tgt: str, lines: Lines) -> FastBpe:
        """Learn the merges over both sides, or take a given file's."""
        learning = config.codes == "learn"
        counts: Counter[str] = Counter()
        if learning or config.vocab_threshold:
            for chunk in on_all_cores(CountWords(moses, src, tgt), lines()):
                counts.update(chunk)
                counts = prune_rare(counts)
        merges = learn_codes(counts, config.merges) if learning else read_codes(Path(config.codes))
        splitter = WordSplitter(merges)
        if config.vocab_threshold:
            pieces = splitter.count_pieces(counts)
            kept = {piece for piece, n in pieces.items() if n >= config.vocab_threshold}
            splitter = WordSplitter(merges, kept)
        return cls(moses, splitter, config.dropout)

    def encode(self, line: str, lang: str) -> list[str]:
        """Input text -> pieces; all but the last of a word end with ``@@``."""
        return self._split(self.moses.words(line, lang))

    def training_encoder(self, seed: Sequence[int]) -> Encode:
        """``encode``, with BPE-dropout if the recipe asks for it."""
        if not self.dropout:
            return self.encode
        seed_dropout(seed)
        draw = self._split.draw
        return lambda line, lang: [
            p for word in self.moses.words(line, lang) for p in draw(word, self.dropout)
        ]

    def words(self, pieces: Sequence[str], lang: str) -> str:
        """Pieces -> tokenized text."""
        return join(pieces)

    def decode(self, pieces: Sequence[str], lang: str) -> str:
        """Pieces -> plain text."""
        return self.moses.plain(join(pieces), lang)

    def surface(self, piece: str) -> str:
        """A piece in tokenized text; a word ends with a space."""
        return piece.removesuffix(JOINER) if piece.endswith(JOINER) else piece + " "

    def alphabet(self) -> list[str]:
        """None."""
        return []

    def files(self) -> dict[str, bytes]:
        """The codes, and the pieces that ``vocab_threshold`` keeps."""
        files = {"codes.txt": codes_text(self._split.merges).encode()}
        if self._split.kept is not None:
            files["kept.txt"] = "".join(p + "\n" for p in sorted(self._split.kept)).encode()
        return files

    def facts(self) -> dict[str, Any]:
        """Beside the files."""
        return {"dropout": self.dropout, "kept": self._split.kept is not None}

    @classmethod
    def load(cls, folder: Path, moses: Moses, facts: dict[str, Any]) -> FastBpe:
        """From a folder."""
        merges_file, kept = folder / "codes.txt", None
        merges = read_codes(merges_file) if merges_file.stat().st_size else []
        if facts["kept"]:
            kept = set((folder / "kept.txt").read_text(encoding="utf-8").split("\n")[:-1])
        return cls(moses, WordSplitter(merges, kept), facts["dropout"])


class SentencePiece:
    """SentencePiece over plain text, white space included; no tokenizer in front."""

    kind = "sentencepiece"

    def __init__(self, moses: Moses, model: bytes) -> None:
        self.moses, self._model = moses, model
        self._open()

    @classmethod
    def learn(cls, config: Any, moses: Moses, src: str, tgt: str, lines: Lines) -> SentencePiece:
        """Learn a model over both sides, or take a given file's.

        Raises:
            UserError: the corpus has more characters than ``vocab_size``, or is bad itself; or the
                given file cannot be read or is not a model.
        """
        if config.model != "learn":
            try:
                given = cls(moses, Path(config.model).read_bytes())
            except OSError as error:
                raise UserError(
                    f"cannot be read: {error.strerror}", at=config.model, fix="check segment.model"
                ) from error
            except ValueError as error:
                raise UserError(
                    str(error),
                    at=config.model,
                    fix="give segment.model the .model file of a training with SentencePiece, or "
                    "set segment.model=learn",
                ) from error
            if config.byte_fallback and not given.alphabet():
                raise UserError(
                    "segment.byte_fallback is true, but the model has no pieces for bytes",
                    at=config.model,
                    fix="leave segment.byte_fallback out, or give a model trained with it",
                )
            return given
        model = io.BytesIO()
        failure: BaseException | None = None

        def sentences() -> Iterator[str]:
            # the trainer turns whatever its input raises into an error of its own
            nonlocal failure
            try:
                for pair in lines():
                    yield from (_one_spaced(moses.compose(line)) for line in pair)
            except (Exception, KeyboardInterrupt) as error:
                failure = error
                raise

        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=sentences(),
                model_writer=model,
                vocab_size=config.vocab_size,
                model_type=config.model_type,
                # without bytes for rare characters in training, they would mean nothing later
                character_coverage=COVERAGE if config.byte_fallback else 1.0,
                byte_fallback=config.byte_fallback,
                hard_vocab_limit=False,
                normalization_rule_name="identity",
                max_sentence_length=100_000,
                num_threads=1,  # more change the result of unigram from run to run
                minloglevel=2,
            )
        except RuntimeError as error:
            if failure is not None:
                raise failure from None
            raise _not_learned(str(error), config) from error
        return cls(moses, model.getvalue())

    def encode(self, line: str, lang: str) -> list[str]:
        """Input text -> pieces; U+2581 begins a word."""
        return self._processor.encode(_one_spaced(self.moses.compose(line)), out_type=str)

    def training_encoder(self, seed: Sequence[int]) -> Encode:
        """``encode``."""
        return self.encode

    def words(self, pieces: Sequence[str], lang: str) -> str:
        """Pieces -> tokenized text."""
        return self.moses.reference_words(self._text(pieces), lang)

    def decode(self, pieces: Sequence[str], lang: str) -> str:
        """Pieces -> plain text."""
        text = self._text(pieces)
        return self.moses.plain(text, lang) if self.moses.tokenized else text

    def surface(self, piece: str) -> str:
        """Return a piece as in tokenized text; a word begins with a space.

        A byte that is not a character by itself is one of a private plane, so that phrases with
        such bytes are compared as others are.
        """
        byte = self._bytes.get(piece)
        if byte is None:
            return piece.replace("\u2581", " ")
        return chr(byte) if 0x20 <= byte < 0x7F else chr(ord(BYTE) + byte)

    def alphabet(self) -> list[str]:
        """Return all pieces of a model that has bytes: any text is some of them."""
        model = self._processor
        return [
            model.id_to_piece(i)
            for i in range(model.get_piece_size() if self._bytes else 0)
            if not (model.is_control(i) or model.is_unknown(i))
        ]

    def files(self) -> dict[str, bytes]:
        """The model."""
        return {"spm.model": self._model}

    def facts(self) -> dict[str, Any]:
        """Nothing beside the model."""
        return {}

    @classmethod
    def load(cls, folder: Path, moses: Moses, facts: dict[str, Any]) -> SentencePiece:
        """From a folder."""
        return cls(moses, (folder / "spm.model").read_bytes())

    def _open(self) -> None:
        try:
            self._processor = sentencepiece.SentencePieceProcessor()
            self._processor.LoadFromSerializedProto(self._model)  # the constructor ignores b""
        except RuntimeError as error:
            raise ValueError("not a SentencePiece model") from error
        numbers = range(self._processor.get_piece_size())
        pieces = map(self._processor.id_to_piece, filter(self._processor.is_byte, numbers))
        self._bytes = {piece: byte for byte, piece in enumerate(pieces)}

    def _text(self, pieces: Sequence[str]) -> str:
        if self._bytes.keys().isdisjoint(pieces):
            text = "".join(pieces)
        else:  # a model may say bytes that are no character, or a control character
            coded = (self._bytes.get(p) for p in pieces)
            data = (
                p.encode() if b is None else bytes([b]) for p, b in zip(pieces, coded, strict=True)
            )
            text = clean_line(b"".join(data).decode(errors="replace"))
        return text.replace("\u2581", " ").strip(" ")

    def __getstate__(self) -> dict[str, Any]:
        return {"moses": self.moses, "_model": self._model}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()


def _not_learned(reason: str, config: Any) -> UserError:
    """Return SentencePiece's error in terms of the recipe."""
    if found := re.search(r"smaller than required_chars\. \d+ vs (\d+)", reason):
        what, fix = "one for each character", f"set segment.vocab_size={found[1]} or more"
        if config.byte_fallback:
            what += " but the rarest, and 256 for bytes"
        return UserError(
            f"{config.vocab_size:,} types are too few: this corpus takes {int(found[1]):,}, {what}",
            at="segment.vocab_size",
            fix=fix,
        )
    return UserError(
        f"SentencePiece cannot learn from this corpus: {reason.strip().rpartition('] ')[2]}",
        at="data.train",
        fix="check that the training files hold text; nmt-prepare says what was dropped",
    )


def _one_spaced(line: str) -> str:
    """Words one space apart; U+2581, SentencePiece's own sign for a space, is replaced."""
    return " ".join(line.replace("\u2581", "_").split())


class Whitespace:
    """Split at white space, after Moses tokenization unless the text is tokenized."""

    kind = "whitespace"

    def __init__(self, moses: Moses) -> None:
        self.moses = moses

    @classmethod
    def learn(cls, config: Any, moses: Moses, src: str, tgt: str, lines: Lines) -> Whitespace:
        """Nothing to learn."""
        return cls(moses)

    def encode(self, line: str, lang: str) -> list[str]:
        """Input text -> words."""
        return self.moses.words(line, lang)

    def training_encoder(self, seed: Sequence[int]) -> Encode:
        """``encode``."""
        return self.encode

    def words(self, pieces: Sequence[str], lang: str) -> str:
        """Words -> tokenized text."""
        return " ".join(pieces)

    def decode(self, pieces: Sequence[str], lang: str) -> str:
        """Words -> plain text."""
        return self.moses.plain(" ".join(pieces), lang)

    def surface(self, piece: str) -> str:
        """A word and a space."""
        return piece + " "

    def alphabet(self) -> list[str]:
        """None."""
        return []

    def files(self) -> dict[str, bytes]:
        """None."""
        return {}

    def facts(self) -> dict[str, Any]:
        """None."""
        return {}

    @classmethod
    def load(cls, folder: Path, moses: Moses, facts: dict[str, Any]) -> Whitespace:
        """From a folder."""
        return cls(moses)


SEGMENTERS: dict[str, Any] = {
    "fastbpe": FastBpe,
    "sentencepiece": SentencePiece,
    "whitespace": Whitespace,
}
# segmenter.json keeps this kind's first name: its hash identifies the text of a stored run
_STORED_KINDS = {"whitespace": "plain"}
_KINDS = {stored: kind for kind, stored in _STORED_KINDS.items()}


def learn_segmenter(
    config: Any, src: str, tgt: str, tokenized: bool, normalize: str, lines: Lines
) -> Segmenter:
    """Learn a recipe's segmentation from its training pairs, or load what the recipe names.

    Args:
        config: the recipe's ``segment``.
        lines: gives the training pairs, anew at each call.
    """
    moses = Moses(tokenized, nfc=normalize == "nfc")
    return SEGMENTERS[config.kind].learn(config, moses, src, tgt, lines)


def save_segmenter(segmenter: Segmenter, folder: Path) -> None:
    """Write the files of a segmenter into a folder, each one whole, and last the one naming them.

    Raises:
        MachineError: the disk is full, or the folder is not writable.
    """
    for name, data in segmenter.files().items():
        write_atomic(folder / name, data)
    write_atomic(folder / FACTS, _description(segmenter))


def fingerprint(segmenter: Segmenter) -> str:
    """SHA-256 of what ``save_segmenter`` writes."""
    return hashlib.sha256(_description(segmenter).encode()).hexdigest()


def _description(segmenter: Segmenter) -> str:
    files = segmenter.files().items()
    facts = {
        "kind": _STORED_KINDS.get(segmenter.kind, segmenter.kind),
        "tokenised": segmenter.moses.tokenized,  # this spelling is part of the file format
        "nfc": segmenter.moses.nfc,
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in files},
        **segmenter.facts(),
    }
    return json.dumps(facts, indent=1) + "\n"


def load_segmenter(folder: Path) -> Segmenter:
    """Read what ``save_segmenter`` wrote.

    Raises:
        UserError: a file is missing, damaged, or was changed since.
    """
    try:
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        moses = Moses(facts["tokenised"], facts["nfc"])
        for name, digest in facts["sha256"].items():
            if hashlib.sha256((folder / Path(name).name).read_bytes()).hexdigest() != digest:
                raise ValueError(f"{name} was changed since it was written")
        kind = facts["kind"]
        return SEGMENTERS[_KINDS.get(kind, kind)].load(folder, moses, facts)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(
            f"the segmenter cannot be read: {error}",
            at=str(folder / FACTS),
            fix="restore the files that nmt-train wrote",
        ) from error
