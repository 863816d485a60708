"""Decode position by position with cached keys and values that rarely move.

Shapes: B sentences, K beams, N = B * K, S source length, C cache slots allocated, D
model dim, A types that logits have columns for.

Keys and values of a position are written into the next K slots of a buffer [B, C, 2D] and stay
there, whichever beams survive. A boolean ancestry [B, K, C] tells which slots each beam descends
from: reordering beams gathers this small tensor instead of copying every cache. Slots without
descendants are dropped when sentences finish, because caches are copied then anyway.
Cross-attention keys and values exist once for each sentence; its beams are the queries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from nmt.model.cache import BlockCache
from nmt.model.layers import Block
from nmt.model.layout import Layout, StepLayout

ALLOCATED_POSITIONS = 32  # positions that slots are allocated for at a time
SPARE_POSITIONS = 16  # positions with free slots after finished sentences are dropped


class DecodeState:
    """The state of B sentences with K beams each, decoded one position at a time.

    Args:
        blocks: of the decoder.
        embed: maps (tokens [N], position) to vectors [N, D].
        project: maps [N, D] to logits [N, A].
        memory: [Ns, D], the encoder's output of the flat source tokens.
        memory_layout: of ``memory``.
        beam: K.
        max_len: positions that can be decoded.
    """

    def __init__(
        self,
        blocks: Iterable[Block],
        embed: Callable[[Tensor, int], Tensor],
        project: Callable[[Tensor], Tensor],
        memory: Tensor,
        memory_layout: Layout,
        beam: int,
        max_len: int,
    ) -> None:
        self.blocks, self.embed, self.project = list(blocks), embed, project
        self.beam, self.max_len = beam, max_len
        self.position = self.used = 0
        self.memory_layout = StepLayout(memory_layout.visible[:, None, :])
        batch, slots = memory_layout.shape[0], min(ALLOCATED_POSITIONS, max_len) * beam
        self.ancestry = torch.zeros(batch, beam, slots, dtype=torch.bool, device=memory.device)
        self.caches = [
            BlockCache(block.cross_attn.keys_values(memory, memory_layout), slots)
            for block in self.blocks
            if block.cross_attn is not None
        ]

    def advance(self, tokens: Tensor) -> Tensor:
        """Process the tokens of this position and return logits of the next.

        Args:
            tokens: [B, K].

        Returns:
            [B * K, A].

        Raises:
            IndexError: ``max_len`` positions are already decoded.
        """
        if self.position == self.max_len:
            raise IndexError(f"decoding went past max_len {self.max_len}")
        first, self.used = self.used, self.used + self.beam
        if self.used > self.ancestry.shape[-1]:
            self._grow()
        itself = torch.eye(self.beam, dtype=torch.bool, device=tokens.device)
        self.ancestry[:, :, first : self.used] = itself
        layout = StepLayout(self.ancestry[:, :, : self.used])
        x = self.embed(layout.flat(tokens), self.position)  # [N, D]
        for block, cache in zip(self.blocks, self.caches, strict=True):
            x = block(x, layout, None, self.memory_layout, cache)
        self.position += 1
        return self.project(x)

    def select(self, parents: Tensor) -> None:
        """Reorder beams: beam k continues beam ``parents[b, k]``. parents: [B, K] int64."""
        index = parents[:, :, None].expand(-1, -1, self.used)
        self.ancestry[:, :, : self.used] = self.ancestry[:, :, : self.used].gather(1, index)

    def keep(self, sentences: Tensor) -> None:
        """Drop all sentences but these: [B'] int64 indices into the current ones."""
        source_visible = self.memory_layout.visible[sentences]
        source_length = int(source_visible.sum(-1).max())
        self.memory_layout = StepLayout(source_visible[..., :source_length])
        ancestry = self.ancestry[sentences, :, : self.used]
        # slots with descendants come first, in their order, then free slots for next positions
        alive = ancestry.any(1)
        self.used = int(alive.sum(1).max())
        slots = alive.sort(dim=1, descending=True, stable=True).indices
        slots = slots[:, : self.used + SPARE_POSITIONS * self.beam]  # [B', C']
        self.ancestry = ancestry.gather(2, slots[:, None].expand(-1, self.beam, -1))
        for cache in self.caches:
            cache.keep(sentences, source_length, slots)

    def _grow(self) -> None:
        more = self.ancestry.new_zeros(*self.ancestry.shape[:2], ALLOCATED_POSITIONS * self.beam)
        self.ancestry = torch.cat([self.ancestry, more], dim=-1)
        for cache in self.caches:
            cache.grow(more.shape[-1])
