"""Encoded pairs to batches of flat tokens, which may be padded to fixed sizes (buckets).

Buckets are for work that is prepared once per size and then repeated: CUDA graphs, and the bf16
matrix products that oneDNN compiles on a CPU. Compiling a product takes several times as long as
computing it, and without buckets nearly every batch has another number of rows.

A CUDA graph belongs to a complete bucket, so its grid of attention is coarse: three epochs of
ted-gl-en (3,000 merges, batches of 4,096 tokens) need 20 buckets, and 6.5 % of their tokens are
padding. A product of oneDNN belongs to the grid or to one number of tokens, so both may be finer
on a CPU: an epoch at 2,048 tokens needs 30 grids and 12 numbers of tokens, and 3.6 % are padding.

Legend: B sentences, Ns and Nt flat source and target tokens.
"""

from __future__ import annotations

import bisect
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from nmt.data.mixture import shuffle_copies
from nmt.data.vocab import BOS, EOS, PAD
from nmt.model.layout import Layout

POOL_BATCHES = 100  # size of a pool, which is sorted by length and cut into batches

AnyBatch = TypeVar("AnyBatch", bound="FlatBatch")


@dataclass(frozen=True)
class Bucket:
    """The size that a batch is padded to.

    Attributes:
        sentences, max_length: the grid of attention [B, L], the same for both sides.
        src_tokens, tgt_tokens: flat tokens, padding included.
    """

    sentences: int
    max_length: int
    src_tokens: int
    tgt_tokens: int


@dataclass(frozen=True)
class Buckets:
    """The sizes that batches may be padded to.

    Attributes:
        max_lengths: lengths of the grid, in ascending order.
        steps: different numbers of tokens per side, up to ``batch_tokens``.
    """

    max_lengths: tuple[int, ...]
    steps: int

    def fit(self, src_len: np.ndarray, tgt_len: np.ndarray, batch_tokens: int) -> Bucket | None:
        """Return the smallest bucket for a batch with these lengths, [B] each, including EOS.

        None for a pair that is longer than ``batch_tokens`` or than any bucket.
        """
        longest = max(int(src_len.max()), int(tgt_len.max()))
        if longest > self.max_lengths[-1] or longest * len(src_len) > batch_tokens:
            return None
        at = bisect.bisect_left(self.max_lengths, longest)
        shorter = self.max_lengths[at - 1] if at else 0
        step = -(-batch_tokens // self.steps)
        # as many sentences as make_batches can put there, and a slot for each token and its padding
        sentences = max(
            batch_tokens // (shorter + 1), -(-step * self.steps // self.max_lengths[at])
        )
        src_tokens, tgt_tokens = (-(-int(n.sum()) // step) * step for n in (src_len, tgt_len))
        return Bucket(sentences, self.max_lengths[at], src_tokens, tgt_tokens)


GPU_BUCKETS = Buckets((4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512), steps=8)
CPU_BUCKETS = Buckets(
    (*range(4, 65, 4), *range(72, 129, 8), *range(144, 257, 16), *range(320, 513, 64)), steps=16
)


def buckets_for(device_type: str) -> Buckets:
    """Return the buckets for a type of device, such as "cpu" or "cuda"."""
    return CPU_BUCKETS if device_type == "cpu" else GPU_BUCKETS


class Corpus(Protocol):
    """Pairs of id sequences without EOS."""

    def src(self, row: int) -> np.ndarray:
        """Return the source ids of a pair."""

    def tgt(self, row: int) -> np.ndarray:
        """Return the target ids of a pair."""


class FlatBatch(ABC):
    """Tensors and layouts of flat tokens, which move to a device together.

    A subclass is a frozen dataclass with these fields and its own.

    Attributes:
        rows: [B] row of each sentence in the corpus.
        bucket: size that all batches of this bucket have; None = its size may be unique.
        weights: factor of each prediction in the loss; None = 1.
        buffer: bytes that hold all tensors; None = each tensor has its own memory.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]
    rows: np.ndarray
    bucket: Bucket | None
    weights: Tensor | None
    buffer: Tensor | None

    @property
    @abstractmethod
    def inputs(self) -> tuple[Any, ...]:
        """The arguments of the model's ``forward``."""

    @property
    @abstractmethod
    def tokens(self) -> int:
        """The number of tokens to predict, padding included."""

    def map(self: AnyBatch, f: Callable[[Tensor], Tensor]) -> AnyBatch:
        """Return this batch with ``f`` applied to each tensor, in the order of the fields."""
        changed: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Layout):
                changed[field.name] = value.map(f)
            elif isinstance(value, Tensor) and field.name != "buffer":
                changed[field.name] = f(value)
        return replace(self, **changed)

    def to(self: AnyBatch, device: torch.device) -> AnyBatch:
        """Return this batch on another device."""
        return self if device.type == "cpu" else self.pack(device)

    def pack(self: AnyBatch, device: torch.device) -> AnyBatch:
        """Return a copy on a device; its tensors share one buffer, which takes one transfer."""
        tensors: list[Tensor] = []

        def collect(tensor: Tensor) -> Tensor:
            tensors.append(tensor)
            return tensor

        self.map(collect)
        buffer, parts = move(tensors, device)
        moved = iter(parts)
        return replace(self.map(lambda _: next(moved)), buffer=buffer)


@dataclass(frozen=True)
class Batch(FlatBatch):
    """B sentence pairs as flat tokens.

    Attributes:
        src: [Ns] int64, source ids, EOS at the end of each sentence.
        tgt_in: [Nt] int64, decoder input: BOS, then the target ids.
        tgt_out: [Nt] int64, target ids, then EOS.
        src_layout, tgt_layout: sentences of the tokens; ``tgt_in`` and ``tgt_out`` share one.
        bucket: size that the batch is padded to; None = no padding.
        weights: [Nt] fp32, 1 at tokens and 0 at padding; None = no padding.
    """

    src: Tensor
    src_layout: Layout
    tgt_in: Tensor
    tgt_out: Tensor
    tgt_layout: Layout
    rows: np.ndarray
    bucket: Bucket | None = None
    weights: Tensor | None = None
    buffer: Tensor | None = None

    @property
    def inputs(self) -> tuple[Tensor, Layout, Tensor, Layout]:
        """The arguments of ``Transformer.forward``."""
        return self.src, self.src_layout, self.tgt_in, self.tgt_layout

    @property
    def tokens(self) -> int:
        """Target tokens including EOS and padding, Nt."""
        return self.tgt_out.numel()


def move(tensors: Sequence[Tensor], device: torch.device) -> tuple[Tensor, list[Tensor]]:
    """Copy tensors into one buffer on a device; return the buffer and the copies.

    The transfer to a GPU starts from pinned memory and does not block. It uses the stream that
    computes: about 20 microseconds of an update, less than the events of a second stream cost.
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
    """A batch, its place in training, which determines its dropout masks, and its examples."""

    epoch: int
    index: int
    batch: FlatBatch
    examples: np.ndarray


@dataclass(frozen=True)
class UpdateBatches:
    """The batches of one optimizer step.

    Attributes:
        own: the batches that this process computes.
        tokens: predicted tokens of all batches, also those of other processes.
        epoch, next_batch: where the next update begins.
    """

    own: list[PlannedBatch]
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
    rows: np.ndarray | None = None,
) -> list[np.ndarray]:
    """Return the batches of an epoch as arrays of indices: a pure function of the arguments.

    Pairs are shuffled into pools. Each pool is sorted by length and cut into batches with
    sentences x max(longest source, longest target) <= batch_tokens (A's code), lengths including
    EOS. A longer pair is a batch of its own. Then the batches are shuffled.

    Args:
        src_len, tgt_len: [n] pieces without EOS of each pair of the epoch.
        rebatch: make other batches in each epoch; otherwise only their order changes.
        rows: [n] row of each pair in the corpus, sorted: a pair that occurs several times is rarely
            twice in a batch. None = each pair occurs once.
    """
    rng = np.random.default_rng([seed, epoch if rebatch else 0])
    longest = np.maximum(src_len, tgt_len).astype(np.int64) + 1
    n = len(longest)
    order = rng.permutation(n) if rows is None else shuffle_copies(rows, rng)
    pool = max(1, int(POOL_BATCHES * batch_tokens / (longest.mean() if n else 1)))
    batches: list[np.ndarray] = []
    for first in range(0, n, pool):
        members = order[first : first + pool]
        members = members[np.lexsort((src_len[members] + tgt_len[members], longest[members]))]
        batches.extend(np.split(members, _cuts(longest[members], batch_tokens)))
    np.random.default_rng([seed, epoch, 1]).shuffle(batches)
    return batches


def _cuts(longest: np.ndarray, batch_tokens: int) -> list[int]:
    """Return where to cut rows sorted by length; the last row of a batch is its longest."""
    cuts, first = [], 0
    while first < len(longest):
        window = longest[first : first + max(1, batch_tokens // int(longest[first]))]
        size = np.arange(1, len(window) + 1)
        first += max(1, int(np.count_nonzero(size * window <= batch_tokens)))
        cuts.append(first)
    return cuts[:-1]


def collate(corpus: Corpus, rows: np.ndarray, bucket: Bucket | None = None) -> Batch:
    """Return the batch of these rows, padded to the size of a bucket if one is given."""
    src = [corpus.src(int(row)) for row in rows]
    tgt = [corpus.tgt(int(row)) for row in rows]
    eos, bos = np.array([EOS]), np.array([BOS])
    src_ids = [part for ids in src for part in (ids, eos)]
    tgt_in = [part for ids in tgt for part in (bos, ids)]
    tgt_out = [part for ids in tgt for part in (ids, eos)]
    src_len, tgt_len = ([len(ids) + 1 for ids in side] for side in (src, tgt))
    if bucket is None:
        layouts = Layout.of(src_len), Layout.of(tgt_len)
        return Batch(join(src_ids), layouts[0], join(tgt_in), join(tgt_out), layouts[1], rows)
    sizes, grid = (bucket.src_tokens, bucket.tgt_tokens), (bucket.sentences, bucket.max_length)
    return Batch(
        join(src_ids, sizes[0]),
        Layout.with_padding(src_len, sizes[0], *grid),
        join(tgt_in, sizes[1]),
        join(tgt_out, sizes[1]),
        Layout.with_padding(tgt_len, sizes[1], *grid),
        rows,
        bucket,
        weights=(torch.arange(sizes[1]) < sum(tgt_len)).float(),
    )


def collate_sources(sources: Sequence[np.ndarray]) -> tuple[Tensor, Layout]:
    """Append EOS to each source; return the flat ids [Ns] and their layout."""
    eos = np.array([EOS])
    ids = join([part for source in sources for part in (source, eos)])
    return ids, Layout.of([len(source) + 1 for source in sources])


def join(parts: list[np.ndarray], size: int = 0) -> Tensor:
    """Return the concatenated ids, with PAD up to a size: [max(size, ids)] int64."""
    length = sum(map(len, parts))
    ids = np.full(max(size, length), PAD)
    np.concatenate(parts, out=ids[:length])
    return torch.from_numpy(ids)


def updates(
    plan: Callable[[int], list[np.ndarray]],
    tokens: Callable[[int, np.ndarray], int],
    make: Callable[[int, np.ndarray], FlatBatch],
    epoch: int,
    next_batch: int,
    accumulate: int,
    rank: int = 0,
    ranks: int = 1,
) -> Iterator[UpdateBatches]:
    """Yield updates without end, starting at a batch of an epoch.

    An update takes the next ``accumulate * ranks`` batches, also across the end of an epoch.
    Process ``rank`` of ``ranks`` computes every ``ranks``-th of them.

    Args:
        plan: returns the batches of an epoch as indices of examples.
        tokens: returns the number of tokens to predict in these examples of an epoch.
        make: returns the batch of these examples of an epoch, on the device that computes it.
    """

    def numbered_batches() -> Iterator[tuple[int, int, np.ndarray]]:
        batches = plan(epoch)[next_batch:]
        yield from ((epoch, index, examples) for index, examples in enumerate(batches, next_batch))
        for later in itertools.count(epoch + 1):
            yield from ((later, index, examples) for index, examples in enumerate(plan(later)))

    stream = numbered_batches()
    while True:
        group = list(itertools.islice(stream, accumulate * ranks))
        own = [PlannedBatch(e, i, make(e, ex), ex) for e, i, ex in group[rank::ranks]]
        last_epoch, last_batch, _ = group[-1]
        total = sum(tokens(e, examples) for e, _, examples in group)
        yield UpdateBatches(own, total, last_epoch, last_batch + 1)
