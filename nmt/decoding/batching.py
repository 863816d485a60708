"""Chunks of lines that are read ahead, and batches of similar length that fit in memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from nmt.decoding.engine import Progress
from nmt.errors import MachineError

if TYPE_CHECKING:
    import torch

Item = TypeVar("Item")
Result = TypeVar("Result")
MAX_CHUNK_CHARACTERS = 1_000_000  # four times as many as 2,048 lines of usual length have


def read_chunks(
    items: Iterable[Item],
    count: int,
    size: Callable[[Item], int],
    ready: Callable[[], bool] = lambda: True,
    skip: int = 0,
) -> Iterator[tuple[list[Item], int]]:
    """Yield the items in order, in lists of up to ``count``, and how many of each to skip.

    A list ends early when it has MAX_CHUNK_CHARACTERS, and when the next item is not ready. Which
    items are in a list does not depend on ``skip``: in bf16, a translation can depend on the others
    of its batch. So a resumed translation computes a list again of which some items are finished.

    Args:
        size: returns the number of characters of an item.
        ready: returns whether the next item, or the end, can be read without waiting.
        skip: number of first items to skip; lists of only such items are left out.
    """
    chunk: list[Item] = []
    characters = 0
    for item in items:
        chunk.append(item)
        characters += size(item)
        if len(chunk) >= count or characters >= MAX_CHUNK_CHARACTERS or not ready():
            if skip < len(chunk):
                yield chunk, skip
            skip = max(0, skip - len(chunk))
            chunk, characters = [], 0
    if skip < len(chunk):
        yield chunk, skip


def without_first(progress: Progress, lines: int) -> Progress:
    """Wrap ``progress`` so that it does not report this number of first lines."""

    def report(count: int) -> None:
        nonlocal lines
        ignored = min(lines, count)
        lines -= ignored
        progress(count - ignored)

    return report


def greedy_batches(lengths: Sequence[int], max_size: int) -> list[range]:
    """Fill each batch with as many sentences in order as fit, at least one.

    ``max_size`` limits the longest length of a batch x its sentences.
    """
    batches, first = [], 0
    while first < len(lengths):
        batches.append(next_batch(first, lengths, max_size))
        first = batches[-1].stop
    return batches


def next_batch(first: int, lengths: Sequence[int], max_size: int) -> range:
    """Fill the batch that starts at ``first``."""
    return range(first, min(first + max(1, max_size // lengths[first]), len(lengths)))


class HalvingBatcher:
    """Computes batch after batch, and halves the batches when the device is out of memory.

    Attributes:
        max_batch_size: longest length of a batch x its items that fits, as far as is known.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.max_batch_size = sys.maxsize

    def map(
        self,
        work: Callable[[Sequence[Item]], Result],
        items: Sequence[Item],
        lengths: Sequence[int],
        max_size: int,
    ) -> Generator[tuple[range, Result], None, None]:
        """Yield the indices of each batch of ``greedy_batches``, and ``work`` of its items.

        Raises:
            MachineError: a single item does not fit in memory.
        """
        import torch

        first = 0
        while first < len(lengths):
            batch = next_batch(first, lengths, min(max_size, self.max_batch_size))
            try:
                result = work(items[batch.start : batch.stop])
            except torch.OutOfMemoryError as error:
                if len(batch) == 1:
                    raise MachineError(
                        f"out of memory on {self.device}: one sentence with all its hypotheses "
                        f"has {lengths[first]:,} tokens",
                        fix="use a smaller --beam, shorter lines, or --device cpu",
                    ) from error
                if self.max_batch_size == sys.maxsize:
                    print(
                        f"note: out of memory on {self.device}; continuing with smaller batches",
                        file=sys.stderr,
                    )
                self.max_batch_size = len(batch) * lengths[first] // 2
                continue
            yield batch, result
            first = batch.stop
