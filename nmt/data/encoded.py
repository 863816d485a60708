"""Encoded corpora: ids in flat memory-mapped files, written and read without holding them.

A folder holds ``src.ids``, ``tgt.ids`` (uint16 or int32), ``src.len``, ``tgt.len`` (int32) and
``corpus.json`` with the counts that the sizes of the files must match.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from nmt.errors import MachineError

Side: TypeAlias = Literal["src", "tgt"]
ROWS = 10_000  # copied at a time
SIDES: tuple[Side, Side] = ("src", "tgt")


class Ragged(NamedTuple):
    """Sentences one after another.

    Attributes:
        ids: [sum of lengths] ids.
        lengths: [n] int32.
    """

    ids: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, sentences: Sequence[Sequence[int]]) -> Ragged:
        """From lists of ids."""
        lengths = np.fromiter(map(len, sentences), np.int32, len(sentences))
        ids = (i for sentence in sentences for i in sentence)
        return cls(np.fromiter(ids, np.int32, int(lengths.sum())), lengths)


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
                f"{side}.{part}": _map(folder / f"{side}.{part}", *facts[f"{side}.{part}"])
                for side in SIDES
                for part in ("ids", "len")
            }
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise MachineError(f"the encoded corpus is damaged: {error}", at=str(folder)) from error
        self.src_len, self.tgt_len = (np.asarray(arrays[f"{side}.len"]) for side in SIDES)
        # as plain arrays on the same memory: a slice of a memmap costs several times as much
        self._ids = {side: np.asarray(arrays[f"{side}.ids"]) for side in SIDES}
        self._starts = {side: _starts(arrays[f"{side}.len"]) for side in SIDES}

    def __len__(self) -> int:
        return len(self.src_len)

    def src(self, row: int) -> np.ndarray:
        """Source ids of a pair."""
        return self.ids("src", row, row + 1)

    def tgt(self, row: int) -> np.ndarray:
        """Target ids of a pair."""
        return self.ids("tgt", row, row + 1)

    def ids(self, side: Side, first: int = 0, last: int | None = None) -> np.ndarray:
        """The ids of rows ``first`` to ``last`` (exclusive), one after another."""
        starts = self._starts[side]
        return self._ids[side][starts[first] : starts[len(self) if last is None else last]]


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
        self.add_flat(Ragged.of(src), Ragged.of(tgt))

    def add_flat(self, src: Ragged, tgt: Ragged) -> None:
        """Append pairs that are flat already."""
        for side, flat in zip(SIDES, (src, tgt), strict=True):
            for part, array in (("ids", flat.ids.astype(self._id_type)), ("len", flat.lengths)):
                self._files[f"{side}.{part}"].write(array.tobytes())
                self._counts[f"{side}.{part}"] += len(array)

    def close(self) -> EncodedCorpus:
        """Finish the files and open the corpus."""
        self.finish()
        return EncodedCorpus(self._folder)

    def finish(self) -> None:
        """Finish the files."""
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())  # a size that was promised must hold after a power cut too
            file.close()
        kinds = {"ids": self._id_type.name, "len": "int32"}
        facts = {name: (kinds[name[4:]], count) for name, count in self._counts.items()}
        (self._folder / "corpus.json").write_text(json.dumps(facts), encoding="utf-8")


DRAFT_TYPES = 1 << 31  # of a corpus whose vocabulary is not known yet; its ids are int32


def remap_ids(draft: Path, ids: np.ndarray, folder: Path, types: int) -> EncodedCorpus:
    """A copy of a corpus that was written with DRAFT_TYPES, ``ids[i]`` in place of i.

    Read block by block: what is mapped would count as memory of the process.
    """
    writer = CorpusWriter(folder, types)
    with ExitStack() as stack:
        files = {
            (side, part): stack.enter_context(open(draft / f"{side}.{part}", "rb"))
            for side in SIDES
            for part in ("ids", "len")
        }
        while True:
            lengths = [np.fromfile(files[side, "len"], np.int32, ROWS) for side in SIDES]
            if not len(lengths[0]):
                return writer.close()
            found = [
                np.fromfile(files[side, "ids"], np.int32, int(n.sum()))
                for side, n in zip(SIDES, lengths, strict=True)
            ]
            writer.add_flat(Ragged(ids[found[0]], lengths[0]), Ragged(ids[found[1]], lengths[1]))


def _starts(lengths: np.ndarray) -> np.ndarray:
    """[n + 1] int64: where each sentence begins, and the end."""
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts


def _map(path: Path, kind: str, count: int) -> np.ndarray:
    size, width = path.stat().st_size, np.dtype(kind).itemsize
    if size != count * width:
        raise ValueError(f"{path.name} has {size} bytes, {count * width} were written")
    return np.memmap(path, kind, "r") if count else np.empty(0, kind)
