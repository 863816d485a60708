"""Attention without gradients on a CPU, by the compiled kernels where these are faster.

Shapes are those of ``nmt.model.attention``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from nmt.model.attention import CrossAttention, SelfAttention
from nmt.model.cache import BlockCache
from nmt.model.cpu import kernels
from nmt.model.cpu.active_rows import ActiveRows
from nmt.model.layout import AnyLayout, Layout

if TYPE_CHECKING:
    from nmt.model.base import ModelBase

# For fewer positions, torch's attention on a CPU takes up to three times as long as our kernel.
MIN_TORCH_LENGTH = 20


def use_kernels(model: ModelBase) -> None:
    """Let the attention of a model on a CPU, and the positions of its search, use the kernels.

    Weights are not copied, so a model can still be trained.
    """
    for module in model.modules():
        if isinstance(module, SelfAttention):
            module.heads_of = self_attention
        elif isinstance(module, CrossAttention):
            module.heads_of = cross_attention
    model.step_layout = ActiveRows.of


def self_attention(
    attention: SelfAttention, qkv: Tensor, layout: AnyLayout, cache: BlockCache | None
) -> Tensor:
    """Compute ``SelfAttention.attend_rows`` for short sentences and cached positions."""
    if not kernels.supports(qkv):
        return attention.attend_rows(qkv, layout, cache)
    heads, dim = attention.heads, attention.dim
    if isinstance(layout, ActiveRows) and cache is not None:
        _, beam, used = layout.visible.shape
        kernels.write_cache(qkv, layout.rows, cache.own, used - beam)
        indices, visible = layout.indices, layout.visible
        return kernels.cached_attention(qkv, indices, beam, cache.own, visible, heads, dim)
    assert isinstance(layout, Layout)
    length, visible = layout.shape[1], layout.visible[:, None]
    if length >= MIN_TORCH_LENGTH or attention.causal or attention.dropout.active:
        return attention.attend_rows(qkv, layout, None)
    grid = layout.pad(qkv)
    return kernels.cached_attention(qkv, layout.to_flat, length, grid, visible, heads, dim)


def cross_attention(
    attention: CrossAttention, q: Tensor, layout: AnyLayout, kv: Tensor, memory_layout: AnyLayout
) -> Tensor:
    """Compute ``CrossAttention.attend_rows`` for cached positions."""
    if not (isinstance(layout, ActiveRows) and kernels.supports(q)):
        return attention.attend_rows(q, layout, kv, memory_layout)
    heads, dim, beam = attention.heads, attention.dim, layout.visible.shape[1]
    return kernels.cached_attention(q, layout.indices, beam, kv, memory_layout.visible, heads, dim)
