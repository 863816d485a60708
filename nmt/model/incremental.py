"""Decoding position by position: caches that are written once and seldom moved.

Legend: B sentences, K beams, D model dim, S source length, C slots allocated, R rows of
B * K that are computed, A types that logits have columns for.

Keys and values of a position are written into the next K slots of a [B, C, 2D] buffer and stay
there, whichever beams survive. Which slots a beam descends from is a boolean ancestry [B, K, C]:
one small gather per position instead of copying every cache. What no beam descends from any more
goes when sentences leave, as caches are copied then anyway. Cross-attention keys exist once per
sentence; the beams are its queries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from nmt.data.layout import Layout
from nmt.model.cpu import kernels
from nmt.model.cpu.active_rows import ALL_ROWS, ActiveRows
from nmt.model.layers import Block

ROOM = 32  # positions that slots are allocated for at a time
ROOM_KEPT = 16  # and how many more when sentences leave


class DecodeState:
    """Everything B sentences with K beams each need to be decoded one position at a time."""

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
        """``embed(tokens [N], position)`` -> [N, D]; ``project([N, D])`` -> logits [N, A or more],
        what is more being -inf.
        """
        self.embed, self.project = embed, project
        self.beam, self.max_len = beam, max_len
        self.position = self.used = 0
        batch, device = memory_layout.shape[0], memory.device
        self.source_visible = memory_layout.visible[:, None, :]  # [B, 1, S]
        slots = min(ROOM, max_len) * beam
        self.ancestry = torch.zeros(batch, beam, slots, dtype=torch.bool, device=device)
        self.layers = [_LayerCache(block, memory, memory_layout, batch, slots) for block in blocks]

    def advance(self, tokens: Tensor, rows: ActiveRows = ALL_ROWS) -> Tensor:
        """Take the tokens at this position, [B, K]; return logits of the next, [R, A or more].

        What is not among ``rows`` is never asked for again: matrix products leave it out.
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
        """Say which beam each new beam continues: parents [B, K] int64."""
        index = parents[:, :, None].expand(-1, -1, self.used)
        self.ancestry[:, :, : self.used] = self.ancestry[:, :, : self.used].gather(1, index)

    def keep(self, sentences: Tensor) -> None:
        """Drop every sentence but these, [B'] int64 indices into the present ones."""
        self.source_visible = self.source_visible[sentences]
        longest = int(self.source_visible.sum(-1).max())
        self.source_visible = self.source_visible[..., :longest]
        ancestry = self.ancestry[sentences, :, : self.used]
        # the slots that a beam descends from, in their order, then others as room for new ones
        alive = ancestry.any(1)
        self.used = int(alive.sum(1).max())
        order = alive.sort(dim=1, descending=True, stable=True).indices
        order = order[:, : self.used + ROOM_KEPT * self.beam]  # [B', C']
        self.ancestry = ancestry.gather(2, order[:, None].expand(-1, self.beam, -1))
        for layer in self.layers:
            layer.keep(sentences, longest, order)

    def _grow(self) -> None:
        more = self.ancestry.new_zeros(*self.ancestry.shape[:2], ROOM * self.beam)
        self.ancestry = torch.cat([self.ancestry, more], dim=-1)
        for layer in self.layers:
            layer.grow(more.shape[-1])


class _LayerCache:
    """One decoder block with its keys and values."""

    def __init__(
        self, block: Block, memory: Tensor, layout: Layout, batch: int, slots: int
    ) -> None:
        self.block = block
        assert block.cross_attn is not None
        self.self_attn, self.cross_attn = block.self_attn, block.cross_attn
        self.source = layout.pad(self.cross_attn.project_keys_values(memory))  # [B, S, 2D]
        # a slot is written, for every sentence, before it is looked at
        self.slots = self.source.new_empty(batch, slots, self.source.shape[-1])

    def step(
        self,
        x: Tensor,
        first: int,
        beam: int,
        visible: Tensor,
        source_visible: Tensor,
        rows: ActiveRows,
    ) -> Tensor:
        """[R, D] -> [R, D]; writes this position's keys and values from slot ``first`` on."""

        def attend_self(h: Tensor) -> Tensor:
            attention = self.self_attn
            qkv = attention.project_qkv(h)  # [R, 3D]
            self._write(qkv, rows, beam, first)
            return attention.project_output(
                attention.cached_attention(qkv, rows, beam, self.slots, visible)
            )

        def attend_source(h: Tensor) -> Tensor:
            attention = self.cross_attn
            q = attention.project_queries(h)
            return attention.project_output(
                attention.cached_attention(q, rows, beam, self.source, source_visible)
            )

        return self.block(x, attend_self, attend_source)

    def keep(self, sentences: Tensor, longest: int, order: Tensor) -> None:
        """Drop the other sentences, and the source positions that none of these has.

        ``order``: [B', C'], the slots of each that are kept.
        """
        self.source = self.source[:, :longest].index_select(0, sentences)
        place = sentences[:, None] * self.slots.shape[1] + order
        kept = self.slots.flatten(0, 1).index_select(0, place.flatten())
        self.slots = kept.unflatten(0, place.shape)

    def grow(self, slots: int) -> None:
        """Allocate more slots."""
        batch, old, width = self.slots.shape
        wider = self.slots.new_empty(batch, old + slots, width)
        wider[:, :old] = self.slots
        self.slots = wider

    def _write(self, qkv: Tensor, rows: ActiveRows, beam: int, first: int) -> None:
        if kernels.supports(qkv):
            kernels.write_cache(qkv, rows.positions, self.slots, first)
            return
        kv = rows.expand(qkv)[:, -self.slots.shape[-1] :]
        self.slots[:, first : first + beam] = kv.unflatten(0, (-1, beam))
