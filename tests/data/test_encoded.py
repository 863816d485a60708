"""Encoded corpora: the width of ids, and damaged files."""

from __future__ import annotations

import os
from pathlib import Path

from nmt.data import encoded
from nmt.data.bitext import TrainingText
from nmt.data.encoded import (
    SIDES,
    EncodeChunk,
    EncodedCorpus,
    Ragged,
    encode_training,
    write_corpus,
)
from nmt.data.segmenters.base import Whitespace
from nmt.text.tokenizer import Moses
from tests.toy import CORPUS, numbered


def test_vocabulary_size_decides_the_bytes_per_id(tmp_path: Path):
    for types, size in ((1000, 2), (70_000, 4)):
        folder = tmp_path / str(types)
        write_corpus(folder, types, [(Ragged.of([[types - 1, 4]]), Ragged.of([[5]]))])
        corpus = EncodedCorpus(folder)
        assert (folder / "src.ids").stat().st_size == 2 * size
        assert corpus.src(0).tolist() == [types - 1, 4]
        assert corpus.tgt(0).tolist() == [5]


def test_files_are_flushed_to_the_disk(tmp_path: Path, monkeypatch):
    """After a power cut, the sizes in corpus.json must hold."""
    flushed: list[int] = []
    monkeypatch.setattr(encoded.os, "fsync", lambda file: flushed.append(os.fstat(file).st_ino))
    text = TrainingText(progress=False)
    text.add(CORPUS, numbered([("a b", "c"), ("b", "a a")]))
    work = EncodeChunk(Whitespace(Moses(tokenized=True)), max_pieces=9)
    encode_training(work, text, 1, tmp_path / "train", None, [])
    files = {(tmp_path / "train" / f"{side}.{part}") for side in SIDES for part in ("ids", "len")}
    assert sorted(flushed) == sorted(file.stat().st_ino for file in files)
    assert [path.name for path in tmp_path.iterdir()] == ["train"]
    assert len(EncodedCorpus(tmp_path / "train")) == 2
