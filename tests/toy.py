"""A corpus that a model learns in seconds: lines of digits, and the digits in reverse order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import yaml

from nmt.config.entries import Direction
from nmt.data.bitext import Bitext, Chunk
from nmt.data.pair import Pair
from nmt.data.segmenters.bpe import FastBpe, piece_of, symbols_of
from nmt.data.workers import in_chunks

SPLITS = {"train": 200, "dev": 20, "test": 20}
RECIPE: dict[str, Any] = {
    "src": "gl",
    "tgt": "en",
    "device": "cpu",
    "precision": "fp32",
    "data": {"tokenized": True, "batch_tokens": 64},
    "segment": {"kind": "whitespace"},
    "model": {"dim": 16, "ffn_dim": 32, "heads": 2, "enc_layers": 1, "dec_layers": 1},
    "schedule": {"kind": "constant", "lr": 3e-3},
    "train": {"validate_every": 4, "max_validations": 3, "log_every": 1},
    "decode": {"beam": 2, "max_len_offset": 4},
    "score": {"metrics": ["bleu"]},
}


CORPUS = Bitext("toy", (), Direction("gl", "en"))


def one_corpus(pairs: Sequence[tuple[str, str]]) -> list[Chunk]:
    """Return pairs as ``learn_segmenter`` takes them."""
    return [Chunk.of(CORPUS, some) for some in in_chunks(pairs)]


def without_rare_pieces(segmenter: FastBpe, pairs: Sequence[tuple[str, str]]) -> FastBpe:
    """Return a trimmed segmenter, which splits the pieces that pairs have less than five times."""
    counts = Counter(chain.from_iterable(segmenter.encode(s, "gl") for pair in pairs for s in pair))
    known = {*counts, *(piece_of(symbol) for piece in counts for symbol in symbols_of(piece))}
    return segmenter.trimmed(known, {piece for piece, count in counts.items() if count > 4})[0]


def numbered(pairs: Sequence[tuple[str, str]], name: str = "train") -> list[Pair]:
    """Return pairs as ``TrainingText.add`` takes them."""
    return [Pair(*pair, f"{name}:{number}", number=number) for number, pair in enumerate(pairs, 1)]


def reverse(line: str) -> str:
    return " ".join(reversed(line.split()))


def lines_of_digits(count: int, seed: int = 1, shortest: int = 2, longest: int = 8) -> list[str]:
    """Return ``count`` different lines such as ``3 1 4``."""
    rng = Random(seed)
    lines: dict[str, None] = {}
    while len(lines) < count:
        length = rng.randint(shortest, longest)
        lines[" ".join(rng.choice("0123456789") for _ in range(length))] = None
    return list(lines)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def write_pairs(
    prefix: Path, sources: Sequence[str], langs: tuple[str, str] = ("gl", "en")
) -> None:
    """Write PREFIX.gl, and PREFIX.en with each line reversed."""
    for side, make in zip(langs, (str, reverse), strict=True):
        write_lines(Path(f"{prefix}.{side}"), map(make, sources))


def toy_corpus(
    folder: Path,
    sizes: dict[str, int] | None = None,
    longest: int = 8,
    langs: tuple[str, str] = ("gl", "en"),
) -> None:
    """Write train, dev and test into ``folder``; no line is in two of them."""
    sizes = SPLITS if sizes is None else sizes
    lines = iter(lines_of_digits(sum(sizes.values()), longest=longest))
    for split, size in sizes.items():
        write_pairs(folder / split, [next(lines) for _ in range(size)], langs)


def toy_recipe(folder: Path, changes: dict[str, Any] | None = None) -> Path:
    """Write ``folder``/toy.yaml for the corpus in ``folder``; its run folder is ``folder``/run.

    Args:
        changes: groups of keys to add to those of RECIPE, or other top-level keys.
    """
    values: dict[str, Any] = {**RECIPE, "out": str(folder / "run")}
    values["data"] = {**values["data"], **{split: split for split in SPLITS}}
    for name, change in (changes or {}).items():
        same_kind = isinstance(change, dict) and "kind" not in change
        values[name] = {**values.get(name, {}), **change} if same_kind else change
    path = folder / "toy.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return path
