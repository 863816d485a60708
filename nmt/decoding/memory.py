"""Batches that are halved when memory is short."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

import torch

from nmt.decoding.shares import next_batch
from nmt.errors import MachineError

Result = TypeVar("Result")


class Memory:
    """What is known of a device's memory; it is halved, once said, each time a batch is too large.

    Args:
        device: where batches are computed.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.room = sys.maxsize  # the longest of a batch x their number that fits

    def in_turn(
        self, lengths: Sequence[int], most: int, work: Callable[[range], Result]
    ) -> Generator[tuple[range, Result], None, None]:
        """Yield the places of each batch, and what ``work`` made of them.

        Args:
            lengths: what each item takes, falling.
            most: the longest of a batch x their number, at most; a longer item is alone.

        Raises:
            MachineError: a single item does not fit.
        """
        first = 0
        while first < len(lengths):
            run = next_batch(first, lengths, min(most, self.room))
            try:
                result = work(run)
            except torch.OutOfMemoryError as error:
                if len(run) == 1:
                    raise MachineError(
                        f"no memory on {self.device} for one sentence that takes "
                        f"{lengths[first]:,} tokens, all its hypotheses counted",
                        fix="take a smaller beam, shorter lines, or device cpu",
                    ) from error
                if self.room == sys.maxsize:
                    print(f"note: out of memory on {self.device}; batches halved", file=sys.stderr)
                self.room = len(run) * lengths[first] // 2
                continue
            yield run, result
            first = run.stop
