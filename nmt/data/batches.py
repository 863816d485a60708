"""From encoded pairs to batches of flat tokens.

Legend: B sentences, Ns and Nt flat source and target tokens.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from nmt.data.vocab import BOS, EOS
from nmt.layout import Layout

POOL_BATCHES = 100  # a pool this many batches large is sorted by length, then cut into batches


class Corpus(Protocol):
    """What batches need of an encoded corpus."""

    def src(self, row: int) -> np.ndarray:
        """Source ids of a pair, without EOS."""

    def tgt(self, row: int) -> np.ndarray:
        """Target ids of a pair, without EOS."""


@dataclass(frozen=True)
class Batch:
    """B sentence pairs as flat tokens.

    Attributes:
        src: [Ns] int64, every sentence ends with EOS.
        tgt_in: [Nt] int64, BOS and the target's ids: what the decoder sees.
        tgt_out: [Nt] int64, the target's ids and EOS: what it shall say.
        src_layout, tgt_layout: where the tokens sit; ``tgt_in`` and ``tgt_out`` share one.
        rows: [B] rows of the corpus.
    """

    src: Tensor
    src_layout: Layout
    tgt_in: Tensor
    tgt_out: Tensor
    tgt_layout: Layout
    rows: np.ndarray

    @property
    def tokens(self) -> int:
        """Target tokens incl. EOS, Nt."""
        return self.tgt_out.numel()

    def to(self, device: torch.device) -> Batch:
        """The same batch on another device."""
        if device.type == "cpu":
            return self
        return Batch(
            self.src.pin_memory().to(device, non_blocking=True),
            self.src_layout.to(device, non_blocking=True),
            self.tgt_in.pin_memory().to(device, non_blocking=True),
            self.tgt_out.pin_memory().to(device, non_blocking=True),
            self.tgt_layout.to(device, non_blocking=True),
            self.rows,
        )


def plan(
    src_len: np.ndarray,
    tgt_len: np.ndarray,
    batch_tokens: int,
    seed: int,
    epoch: int,
    rebatch: bool = True,
) -> list[np.ndarray]:
    """The batches of one pass over the data, as rows: a pure function of its arguments.

    Pairs are shuffled into pools, each pool is sorted by length and cut into batches with
    sentences x max(longest source, longest target) <= batch_tokens [A], lengths incl. EOS; a pair
    that is longer alone is a batch alone. Then the batches are shuffled.

    Args:
        src_len, tgt_len: [n] pieces without EOS.
        epoch: number of the pass; without ``rebatch`` it changes the order of batches only.
    """
    n = len(src_len)
    makeup = np.random.default_rng([seed, epoch if rebatch else 0])
    longest = np.maximum(src_len, tgt_len).astype(np.int64) + 1
    order = makeup.permutation(n)
    pool = max(1, int(POOL_BATCHES * batch_tokens / longest.mean())) if n else 1
    batches: list[np.ndarray] = []
    for first in range(0, n, pool):
        rows = order[first : first + pool]
        rows = rows[np.lexsort((src_len[rows] + tgt_len[rows], longest[rows]))]
        batches.extend(np.split(rows, _cuts(longest[rows], batch_tokens)))
    np.random.default_rng([seed, epoch, 1]).shuffle(batches)
    return batches


def _cuts(longest: np.ndarray, batch_tokens: int) -> list[int]:
    """Where to cut rows sorted by length; the last row of a batch is its longest."""
    cuts, first = [], 0
    while first < len(longest):
        window = longest[first : first + max(1, batch_tokens // int(longest[first]))]
        size = np.arange(1, len(window) + 1)
        first += max(1, int(np.count_nonzero(size * window <= batch_tokens)))
        cuts.append(first)
    return cuts[:-1]


def collate(corpus: Corpus, rows: np.ndarray) -> Batch:
    """The batch of these rows."""
    src = [corpus.src(int(row)) for row in rows]
    tgt = [corpus.tgt(int(row)) for row in rows]
    src_ids, src_layout = collate_sources(src)
    eos, bos = np.array([EOS]), np.array([BOS])
    return Batch(
        src=src_ids,
        src_layout=src_layout,
        tgt_in=_join([part for ids in tgt for part in (bos, ids)]),
        tgt_out=_join([part for ids in tgt for part in (ids, eos)]),
        tgt_layout=Layout.of([len(ids) + 1 for ids in tgt]),
        rows=rows,
    )


def collate_sources(sources: Sequence[np.ndarray]) -> tuple[Tensor, Layout]:
    """Source ids without EOS -> flat ids [Ns], EOS after each sentence, and their layout."""
    eos = np.array([EOS])
    ids = _join([part for source in sources for part in (source, eos)])
    return ids, Layout.of([len(source) + 1 for source in sources])


def _join(parts: list[np.ndarray]) -> Tensor:
    return torch.from_numpy(np.concatenate(parts).astype(np.int64))


class Prefetcher:
    """Collates the batches of a plan ahead, in one thread; same batches, same order.

    Use as a context manager, which ends the thread; an error in it is raised to the consumer.
    """

    def __init__(
        self,
        corpus: Corpus,
        batches: Sequence[np.ndarray],
        start: int,
        device: torch.device,
        ahead: int = 8,
    ) -> None:
        self._corpus, self._batches, self._start, self._device = corpus, batches, start, device
        self._ready: queue.Queue[Batch | BaseException | None] = queue.Queue(ahead)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Prefetcher:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        while self._thread.is_alive():
            with contextlib.suppress(queue.Empty):
                self._ready.get(timeout=0.05)

    def __iter__(self) -> Iterator[Batch]:
        while True:
            ready = self._ready.get()
            if isinstance(ready, Batch):
                yield ready
                continue
            self._ready.put(ready)  # the thread has ended: who asks again is not left waiting
            if ready is None:
                return
            raise ready

    def _work(self) -> None:
        try:
            for rows in self._batches[self._start :]:
                if self._ended.is_set():
                    return
                self._ready.put(collate(self._corpus, rows).to(self._device))
            self._ready.put(None)
        except BaseException as error:
            self._ready.put(error)
