"""Keys and values of earlier positions, for one block.

Shapes: B sentences, K beams, S source length, C slots, D model dim.
"""

from __future__ import annotations

from torch import Tensor


class BlockCache:
    """Keys and values of one decoder block, side by side.

    Attributes:
        memory: [B, S, 2D], for cross-attention.
        own: [B, C, 2D], for self-attention. A slot is written for all sentences before it is read.
    """

    def __init__(self, memory: Tensor, slots: int) -> None:
        self.memory = memory
        self.own = memory.new_empty(len(memory), slots, memory.shape[-1])

    def append(self, kv: Tensor, used: int) -> Tensor:
        """Write a position [B, K, 2D] into the last of the used slots; return these slots."""
        self.own[:, used - kv.shape[1] : used] = kv
        return self.own[:, :used]

    def grow(self, slots: int) -> None:
        """Allocate this many more slots."""
        batch, old, width = self.own.shape
        larger = self.own.new_empty(batch, old + slots, width)
        larger[:, :old] = self.own
        self.own = larger

    def keep(self, sentences: Tensor, source_length: int, slots: Tensor) -> None:
        """Keep some sentences and some of their slots.

        Args:
            sentences: [B'] int64.
            source_length: of the longest of them.
            slots: [B', C'] int64, in their new order.
        """
        self.memory = self.memory[:, :source_length].index_select(0, sentences)
        index = sentences[:, None] * self.own.shape[1] + slots
        kept = self.own.flatten(0, 1).index_select(0, index.flatten())
        self.own = kept.unflatten(0, index.shape)
