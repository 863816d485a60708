"""From encoded pairs to batches of flat tokens.

Legend: B sentences, Ns and Nt flat source and target tokens.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Generic, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from nmt.data.buckets import Bucket
from nmt.data.layout import Layout
from nmt.data.vocab import BOS, EOS, PAD

POOL_BATCHES = 100  # a pool this many batches large is sorted by length, then cut into batches


T = TypeVar("T")


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
        shape: what the batch was filled up to; None = it is as large as its pairs.
        weights: [Nt] fp32, 1 and for filler 0; None = no filler.
        buffer: what all tensors are parts of, bytes; None = each is its own.
    """

    src: Tensor
    src_layout: Layout
    tgt_in: Tensor
    tgt_out: Tensor
    tgt_layout: Layout
    rows: np.ndarray
    shape: Bucket | None = None
    weights: Tensor | None = None
    buffer: Tensor | None = None

    @property
    def tokens(self) -> int:
        """Target tokens incl. EOS and filler, Nt."""
        return self.tgt_out.numel()

    def map(self, f: Callable[[Tensor], Tensor]) -> Batch:
        """The same batch with ``f`` applied to each tensor, in the order of the fields."""
        return replace(
            self,
            src=f(self.src),
            src_layout=self.src_layout.map(f),
            tgt_in=f(self.tgt_in),
            tgt_out=f(self.tgt_out),
            tgt_layout=self.tgt_layout.map(f),
            weights=None if self.weights is None else f(self.weights),
        )

    def to(self, device: torch.device) -> Batch:
        """The same batch on another device."""
        return self if device.type == "cpu" else self.pack(device)

    def pack(self, device: torch.device) -> Batch:
        """A copy on a device whose tensors are parts of one buffer: a single transfer."""
        tensors: list[Tensor] = []

        def collect(tensor: Tensor) -> Tensor:
            tensors.append(tensor)
            return tensor

        self.map(collect)
        buffer, parts = move(tensors, device)
        moved = iter(parts)
        return replace(self.map(lambda _: next(moved)), buffer=buffer)


def move(tensors: Sequence[Tensor], device: torch.device) -> tuple[Tensor, list[Tensor]]:
    """A buffer on a device, and the copies of the tensors that it holds behind each other.

    A GPU gets it from pinned memory without waiting. The transfer takes its turn on the stream that
    computes: some 20 microseconds of an update, less than what a stream of its own needs in events.
    """
    ends = list(itertools.accumulate(-(-t.nbytes // 16) * 16 for t in tensors))  # 16: alignment

    def parts(buffer: Tensor) -> list[Tensor]:
        starts = [0, *ends[:-1]]
        pairs = zip(starts, tensors, strict=True)
        return [buffer[i : i + t.nbytes].view(t.dtype).view(t.shape) for i, t in pairs]

    host = torch.empty(ends[-1], dtype=torch.uint8, pin_memory=device.type == "cuda")
    for part, tensor in zip(parts(host), tensors, strict=True):
        part.copy_(tensor)
    buffer = host.to(device, non_blocking=True)
    return buffer, parts(buffer)


@dataclass(frozen=True)
class PlannedBatch:
    """A batch and its place: the pair that its dropout masks are a function of."""

    epoch: int
    index: int
    batch: Batch


@dataclass(frozen=True)
class Update:
    """What one optimizer step learns from.

    Attributes:
        planned: the batches that this process computes.
        tokens: target tokens incl. EOS of all batches, those of other processes too.
        epoch, next_batch: the place behind it in the plans, where the next update begins.
    """

    planned: list[PlannedBatch]
    tokens: int
    epoch: int
    next_batch: int


def make_batches(
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


def collate(corpus: Corpus, rows: np.ndarray, shape: Bucket | None = None) -> Batch:
    """The batch of these rows, filled up to a shape if one is given."""
    src = [corpus.src(int(row)) for row in rows]
    tgt = [corpus.tgt(int(row)) for row in rows]
    eos, bos = np.array([EOS]), np.array([BOS])
    src_ids = [part for ids in src for part in (ids, eos)]
    tgt_in = [part for ids in tgt for part in (bos, ids)]
    tgt_out = [part for ids in tgt for part in (ids, eos)]
    src_len, tgt_len = ([len(ids) + 1 for ids in side] for side in (src, tgt))
    if shape is None:
        layouts = Layout.of(src_len), Layout.of(tgt_len)
        return Batch(_join(src_ids), layouts[0], _join(tgt_in), _join(tgt_out), layouts[1], rows)
    sizes, grid = (shape.src_tokens, shape.tgt_tokens), (shape.sentences, shape.longest)
    return Batch(
        _join(src_ids, sizes[0]),
        Layout.filled(src_len, sizes[0], *grid),
        _join(tgt_in, sizes[1]),
        _join(tgt_out, sizes[1]),
        Layout.filled(tgt_len, sizes[1], *grid),
        rows,
        shape,
        weights=(torch.arange(sizes[1]) < sum(tgt_len)).float(),
    )


def collate_sources(sources: Sequence[np.ndarray]) -> tuple[Tensor, Layout]:
    """Source ids without EOS -> flat ids [Ns], EOS after each sentence, and their layout."""
    eos = np.array([EOS])
    ids = _join([part for source in sources for part in (source, eos)])
    return ids, Layout.of([len(source) + 1 for source in sources])


def _join(parts: list[np.ndarray], size: int = 0) -> Tensor:
    """The ids behind each other, with PAD up to a size."""
    length = sum(map(len, parts))
    ids = np.full(max(size, length), PAD)
    np.concatenate(parts, out=ids[:length])
    return torch.from_numpy(ids)


def updates(
    tgt_len: np.ndarray,
    plan_epoch: Callable[[int], list[np.ndarray]],
    make: Callable[[np.ndarray], Batch],
    epoch: int,
    next_batch: int,
    accumulate: int,
    rank: int = 0,
    ranks: int = 1,
) -> Iterator[Update]:
    """The updates from a place in the plans on, without end.

    An update is the next ``accumulate * ranks`` batches, also across the end of an epoch; process
    ``rank`` of ``ranks`` computes every ``ranks``-th of them.

    Args:
        tgt_len: [n] pieces of each pair without EOS.
        plan_epoch: the plan of a pass.
        make: the batch of these rows, where it is computed.
    """

    def places() -> Iterator[tuple[int, int, np.ndarray]]:
        batches = plan_epoch(epoch)[next_batch:]
        yield from ((epoch, index, rows) for index, rows in enumerate(batches, next_batch))
        for later in itertools.count(epoch + 1):
            yield from ((later, index, rows) for index, rows in enumerate(plan_epoch(later)))

    stream = places()
    while True:
        taken = list(itertools.islice(stream, accumulate * ranks))
        yield Update(
            [PlannedBatch(of, index, make(rows)) for of, index, rows in taken[rank::ranks]],
            sum(int(tgt_len[rows].sum()) + len(rows) for _, _, rows in taken),
            taken[-1][0],
            taken[-1][1] + 1,
        )


class Prefetcher(Generic[T]):
    """Runs an iterator ahead in one thread: same items, same order.

    Use as a context manager, which ends the thread; an error in it is raised to the consumer.
    """

    def __init__(self, items: Iterable[T], ahead: int = 8) -> None:
        self._items = items
        self._ready: queue.Queue[tuple[tuple[T, ...], BaseException | None]] = queue.Queue(ahead)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Prefetcher[T]:
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

    def __iter__(self) -> Iterator[T]:
        while True:
            items, error = self._ready.get()
            yield from items
            if error is not None:
                self._ready.put(((), error))  # who asks again is not left waiting
                if isinstance(error, StopIteration):
                    return
                raise error

    def _work(self) -> None:
        end: BaseException = StopIteration()
        try:
            for item in self._items:
                if self._ended.is_set():
                    return
                self._ready.put(((item,), None))
        except BaseException as error:
            end = error
        self._ready.put(((), end))
