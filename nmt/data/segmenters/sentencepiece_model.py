"""Read the pieces of a SentencePiece model file.

SentencePiece's Python package does not report the model type and which pieces are user-defined, so
this reads them from the file, in the wire format of protocol buffers. The fields are those of
sentencepiece_model.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

NORMAL = 1  # type of a piece that text is segmented into
MODEL_TYPES = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
_PIECES, _TRAINER = 1, 2  # fields of ModelProto
_TEXT, _SCORE, _TYPE = 1, 2, 3  # fields of a piece
_MODEL_TYPE = 3  # field of TrainerSpec
_WIDTHS = {1: 8, 5: 4}  # bytes of the wire types of fixed size


class Model(NamedTuple):
    """What segmentation needs of a model file.

    Attributes:
        kind: unigram, bpe, word or char.
        scores: of the normal pieces, not those that are special, bytes, unused or user-defined.
    """

    kind: str
    scores: dict[str, float]


def read_model(data: bytes) -> Model:
    """Return the pieces of a model file that SentencePiece has loaded without an error."""
    kind, scores = 1, {}  # SentencePiece's default is unigram
    for field, value in _fields(data):
        if field == _PIECES:
            parts = dict(_fields(value))
            if parts.get(_TYPE, NORMAL) == NORMAL:
                score = struct.unpack("<f", parts.get(_SCORE, b"\0\0\0\0"))[0]
                scores[parts[_TEXT].decode()] = score
        elif field == _TRAINER:
            kind = dict(_fields(value)).get(_MODEL_TYPE, kind)
    return Model(MODEL_TYPES[kind], scores)


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
