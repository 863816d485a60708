"""The list of batches that every contender trains on."""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.eager_loop import random_batches
from nmt.config.recipe import Recipe
from nmt.data.batches import make_batches
from nmt.data.prepare import Prepared

Pair = tuple[list[int], list[int]]  # source and target ids, without EOS


@dataclass(frozen=True)
class Size:
    """The size of the model: an encoder-decoder transformer with PreNorm and LayerNorm."""

    dim: int
    ffn_dim: int
    heads: int
    layers: int
    dropout: float = 0.1
    label_smoothing: float = 0.1


SIZES = {"paper": Size(512, 2048, 8, 6), "small": Size(256, 1024, 4, 3)}


@dataclass(frozen=True)
class Workload:
    """Batches as lists of ids, which every contender can read.

    Attributes:
        size: of the model.
        types: V, the size of the joint vocabulary.
        rows: rows of the corpus in each batch, as nmt-train makes batches.
        batches: the pairs of those rows.
        shuffled: as many batches within the same limit, of pairs in random order.
    """

    size: Size
    types: int
    rows: list[list[int]]
    batches: list[list[Pair]]
    shuffled: list[list[Pair]]

    @classmethod
    def of(cls, recipe: Recipe, prepared: Prepared, size: Size, count: int) -> Workload:
        """Return the first ``count`` batches of the first epoch."""
        corpus, limit = prepared.train, recipe.data.batch_tokens
        rows = [
            r.tolist() for r in make_batches(corpus.src_len, corpus.tgt_len, limit, recipe.seed, 0)
        ]

        def pairs(batch: list[int]) -> list[Pair]:
            return [(corpus.src(row).tolist(), corpus.tgt(row).tolist()) for row in batch]

        lengths = corpus.src_len, corpus.tgt_len
        shuffled = itertools.islice(random_batches(*lengths, limit, recipe.seed, 0), count)
        return cls(
            size,
            len(prepared.vocab),
            rows[:count],
            [pairs(batch) for batch in rows[:count]],
            [pairs(batch.tolist()) for batch in shuffled],
        )

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Workload:
        values = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{**values, "size": Size(**values["size"])})


def target_tokens(batch: list[Pair]) -> int:
    """Return target tokens of a batch with EOS and without padding, which all speeds count."""
    return sum(len(tgt) + 1 for _, tgt in batch)


def padding_share(batches: list[list[Pair]]) -> float:
    slots = tokens = 0
    for batch in batches:
        for side in zip(*batch, strict=True):
            lengths = [len(ids) + 1 for ids in side]
            slots += len(lengths) * max(lengths)
            tokens += sum(lengths)
    return 1 - tokens / slots
