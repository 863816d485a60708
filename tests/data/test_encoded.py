"""Encoded corpora: the width of ids, and damaged files."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmt.data.encoded import CorpusWriter, EncodedCorpus, Ragged
from nmt.errors import MachineError


def test_vocabulary_size_decides_the_bytes_per_id(tmp_path: Path):
    for types, size in ((1000, 2), (70_000, 4)):
        folder = tmp_path / str(types)
        writer = CorpusWriter(folder, types)
        writer.add(Ragged.of([[types - 1, 4]]), Ragged.of([[5]]))
        writer.finish()
        corpus = EncodedCorpus(folder)
        assert (folder / "src.ids").stat().st_size == 2 * size
        assert corpus.src(0).tolist() == [types - 1, 4]
        assert corpus.tgt(0).tolist() == [5]


@pytest.mark.parametrize("name", ["src.ids", "tgt.len", "corpus.json"])
def test_truncated_or_missing_file_is_an_error(tmp_path: Path, name: str):
    writer = CorpusWriter(tmp_path, 100)
    writer.add(Ragged.of([[5, 6]]), Ragged.of([[7]]))
    writer.finish()
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-1])
    with pytest.raises(MachineError, match="damaged"):
        EncodedCorpus(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(MachineError, match="damaged"):
        EncodedCorpus(tmp_path)
