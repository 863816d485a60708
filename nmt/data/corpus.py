"""Encoded corpora: ids in flat memory-mapped files, written and read without holding them.

A folder holds ``src.ids``, ``tgt.ids`` (uint16 or int32), ``src.len``, ``tgt.len`` (int32) and
``corpus.json`` with the counts that the sizes of the files must match.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nmt.errors import MachineError

SIDES = ("src", "tgt")


class EncodedCorpus:
    """Pairs of id sequences without EOS, memory-mapped.

    Attributes:
        src_len, tgt_len: [n] int32, pieces of each pair.
    """

    def __init__(self, folder: Path) -> None:
        """Open what ``CorpusWriter`` wrote.

        Raises:
            MachineError: a file is missing or has another size than was written.
        """
        try:
            facts = json.loads((folder / "corpus.json").read_text(encoding="utf-8"))
            arrays = {
                name: _map(folder / name, np.dtype(kind), count)
                for name, (kind, count) in facts.items()
            }
        except (OSError, ValueError) as error:
            raise MachineError(
                f"the encoded corpus is damaged: {error}",
                at=str(folder),
                fix="delete this folder; it is made again from the corpus",
            ) from error
        self.src_len, self.tgt_len = (np.asarray(arrays[f"{side}.len"]) for side in SIDES)
        self._ids = {side: arrays[f"{side}.ids"] for side in SIDES}
        self._starts = {
            side: np.concatenate([[0], np.cumsum(arrays[f"{side}.len"], dtype=np.int64)])
            for side in SIDES
        }

    def __len__(self) -> int:
        return len(self.src_len)

    def src(self, row: int) -> np.ndarray:
        """Source ids of a pair."""
        return self._slice("src", row)

    def tgt(self, row: int) -> np.ndarray:
        """Target ids of a pair."""
        return self._slice("tgt", row)

    def _slice(self, side: str, row: int) -> np.ndarray:
        starts = self._starts[side]
        return self._ids[side][starts[row] : starts[row + 1]]


class CorpusWriter:
    """Writes pairs one after another; ``close`` makes the folder a whole corpus."""

    def __init__(self, folder: Path, types: int) -> None:
        """``types``: size of the vocabulary; it decides the width of an id."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._id_type = np.dtype(np.uint16 if types <= 1 << 16 else np.int32)
        self._files = {
            f"{side}.{part}": open(folder / f"{side}.{part}", "wb")  # noqa: SIM115
            for side in SIDES
            for part in ("ids", "len")
        }
        self._counts = dict.fromkeys(self._files, 0)

    def add(self, src: Sequence[Sequence[int]], tgt: Sequence[Sequence[int]]) -> None:
        """Append pairs of id sequences."""
        for side, sentences in zip(SIDES, (src, tgt), strict=True):
            lengths = np.fromiter(map(len, sentences), np.int32, len(sentences))
            total = int(lengths.sum())
            flat = np.fromiter((i for ids in sentences for i in ids), self._id_type, total)
            for part, array in (("ids", flat), ("len", lengths)):
                self._files[f"{side}.{part}"].write(array.tobytes())
                self._counts[f"{side}.{part}"] += len(array)

    def close(self) -> EncodedCorpus:
        """Finish the files and open the corpus."""
        for file in self._files.values():
            file.close()
        kinds = {"ids": self._id_type.name, "len": "int32"}
        facts = {name: (kinds[name[4:]], count) for name, count in self._counts.items()}
        (self._folder / "corpus.json").write_text(json.dumps(facts), encoding="utf-8")
        return EncodedCorpus(self._folder)


def _map(path: Path, kind: np.dtype, count: int) -> np.ndarray:
    size = path.stat().st_size
    if size != count * kind.itemsize:
        raise ValueError(f"{path.name} has {size} bytes, {count * kind.itemsize} were written")
    return np.memmap(path, kind, "r") if count else np.empty(0, kind)
