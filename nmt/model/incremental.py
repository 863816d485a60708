"""Decode position by position with cached keys and values that rarely move.

Shapes: B sentences, K beams, R computed rows of B * K, S source length, C cache slots allocated, D
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

from nmt.model.cpu import kernels
from nmt.model.cpu.active_rows import ALL_ROWS, ActiveRows
from nmt.model.layers import Block
from nmt.model.layout import Layout

ALLOCATED_POSITIONS = 32  # positions that slots are allocated for at a time
SPARE_POSITIONS = 16  # positions with free slots after finished sentences are dropped


class DecodeState:
    """The state of B sentences with K beams each, decoded one position at a time.

    Args:
        blocks: of the decoder.
        embed: maps (tokens [R], position) to vectors [R, D].
        project: maps [R, D] to logits [R, A or more]; columns after A are -inf.
        memory: [N, D], the encoder's output of N flat source tokens.
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
        self.embed, self.project = embed, project
        self.beam, self.max_len = beam, max_len
        self.position = self.used = 0
        batch, device = memory_layout.shape[0], memory.device
        self.source_visible = memory_layout.visible[:, None, :]  # [B, 1, S]
        slots = min(ALLOCATED_POSITIONS, max_len) * beam
        self.ancestry = torch.zeros(batch, beam, slots, dtype=torch.bool, device=device)
        self.layers = [_LayerCache(block, memory, memory_layout, batch, slots) for block in blocks]

    def advance(self, tokens: Tensor, rows: ActiveRows = ALL_ROWS) -> Tensor:
        """Process the tokens of this position and return logits of the next.

        Args:
            tokens: [B, K].
            rows: the hypotheses to compute. The others must never become active again.

        Returns:
            [R, A or more].

        Raises:
            IndexError: ``max_len`` positions are already decoded.
        """
        if self.position == self.max_len:
            raise IndexError(f"decoding went past max_len {self.max_len}")
        beam, first = self.beam, self.used
        if first + beam > self.ancestry.shape[-1]:
            self._grow()
        self.ancestry[:, :, first : first + beam] = torch.eye(
            beam, dtype=torch.bool, device=tokens.device
        )
        visible = self.ancestry[:, :, : first + beam]
        x = self.embed(rows.gather(tokens.reshape(-1)), self.position)  # [R, D]
        for layer in self.layers:
            x = layer.step(x, first, beam, visible, self.source_visible, rows)
        self.position += 1
        self.used += beam
        return self.project(x)

    def select(self, parents: Tensor) -> None:
        """Reorder beams: beam k continues beam ``parents[b, k]``. parents: [B, K] int64."""
        index = parents[:, :, None].expand(-1, -1, self.used)
        self.ancestry[:, :, : self.used] = self.ancestry[:, :, : self.used].gather(1, index)

    def keep(self, sentences: Tensor) -> None:
        """Drop all sentences but these: [B'] int64 indices into the current ones."""
        self.source_visible = self.source_visible[sentences]
        source_length = int(self.source_visible.sum(-1).max())
        self.source_visible = self.source_visible[..., :source_length]
        ancestry = self.ancestry[sentences, :, : self.used]
        # slots with descendants come first, in their order, then free slots for next positions
        alive = ancestry.any(1)
        self.used = int(alive.sum(1).max())
        order = alive.sort(dim=1, descending=True, stable=True).indices
        order = order[:, : self.used + SPARE_POSITIONS * self.beam]  # [B', C']
        self.ancestry = ancestry.gather(2, order[:, None].expand(-1, self.beam, -1))
        for layer in self.layers:
            layer.keep(sentences, source_length, order)

    def _grow(self) -> None:
        """Allocate slots for more positions."""
        more = self.ancestry.new_zeros(*self.ancestry.shape[:2], ALLOCATED_POSITIONS * self.beam)
        self.ancestry = torch.cat([self.ancestry, more], dim=-1)
        for layer in self.layers:
            layer.grow(more.shape[-1])


class _LayerCache:
    """One decoder block with its cached keys and values.

    ``source_kv`` [B, S, 2D] is for cross-attention, ``self_kv`` [B, C, 2D] for self-attention.
    """

    def __init__(
        self, block: Block, memory: Tensor, layout: Layout, batch: int, slots: int
    ) -> None:
        self.block = block
        assert block.cross_attn is not None
        self.self_attn, self.cross_attn = block.self_attn, block.cross_attn
        self.source_kv = layout.pad(self.cross_attn.project_keys_values(memory))
        # uninitialized: a slot is written for every sentence before it is read
        self.self_kv = self.source_kv.new_empty(batch, slots, self.source_kv.shape[-1])

    def step(
        self,
        x: Tensor,
        first: int,
        beam: int,
        visible: Tensor,
        source_visible: Tensor,
        rows: ActiveRows,
    ) -> Tensor:
        """Apply the block and write this position's keys and values from slot ``first`` on.

        [R, D] -> [R, D].
        """

        def self_attend(h: Tensor) -> Tensor:
            attention = self.self_attn
            qkv = attention.project_qkv(h)  # [R, 3D]
            self._write(qkv, rows, beam, first)
            heads = attention.cached_attention(qkv, rows, beam, self.self_kv, visible)
            return attention.project_output(heads)

        def cross_attend(h: Tensor) -> Tensor:
            attention = self.cross_attn
            q = attention.project_queries(h)
            heads = attention.cached_attention(q, rows, beam, self.source_kv, source_visible)
            return attention.project_output(heads)

        return self.block(x, self_attend, cross_attend)

    def keep(self, sentences: Tensor, source_length: int, order: Tensor) -> None:
        """Keep these sentences, source positions below ``source_length``, and ordered slots.

        Args:
            sentences: [B'] int64.
            source_length: of the longest sentence that is kept.
            order: [B', C'] int64, the slots of each that are kept.
        """
        self.source_kv = self.source_kv[:, :source_length].index_select(0, sentences)
        index = sentences[:, None] * self.self_kv.shape[1] + order
        kept = self.self_kv.flatten(0, 1).index_select(0, index.flatten())
        self.self_kv = kept.unflatten(0, index.shape)

    def grow(self, slots: int) -> None:
        """Allocate this many more slots."""
        batch, old, width = self.self_kv.shape
        larger = self.self_kv.new_empty(batch, old + slots, width)
        larger[:, :old] = self.self_kv
        self.self_kv = larger

    def _write(self, qkv: Tensor, rows: ActiveRows, beam: int, first: int) -> None:
        if kernels.supports(qkv):
            kernels.write_cache(qkv, rows.positions, self.self_kv, first)
            return
        kv = rows.expand(qkv)[:, -self.self_kv.shape[-1] :]
        self.self_kv[:, first : first + beam] = kv.unflatten(0, (-1, beam))
