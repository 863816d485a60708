"""Multi-head attention with HeadScale and query/key/value norms (Vaswani 3.2; NormFormer 2.1).

Shapes: N flat rows (tokens of a batch, or hypotheses at one position), B sentences, T queries and S
keys of a sentence, D model dim, H heads, E = D / H. Masks are boolean; True = attend to this key.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.model.cache import BlockCache
from nmt.model.config import ModelConfig
from nmt.model.dropout import Dropout, DropoutRng
from nmt.model.layout import AnyLayout, Layout
from nmt.model.linear import Linear
from nmt.model.norms import MakeNorm


class MultiHeadAttention(nn.Module):
    """``Concat(gamma_1 h_1, ..., gamma_H h_H) W_O`` (NormFormer 2.1); gamma = 1 without HeadScale.

    Differences from the papers: queries, keys and values of self-attention share one matrix, as do
    keys and values of cross-attention. NormFormer has no cross-attention; its operations apply
    there as well. With ``head_scale_place: outside``, gamma_i scales the i-th of H slices of the
    projected output, as in NormFormer's release: a different function, because the output mixes all
    heads. ``head_scale`` is [H, 1, 1] as in stored runs.

    Args:
        rng: of the dropout of attention weights.
        make_norm: of queries, keys and values over D, before the split into heads (NormFormer
            table 4).
        projections: number of features of each input projection.
    """

    def __init__(
        self, config: ModelConfig, rng: DropoutRng, make_norm: MakeNorm, **projections: int
    ) -> None:
        super().__init__()
        self.dim, self.heads = config.dim, config.heads
        self.dropout = Dropout(config.attention_dropout, rng)
        for name, features in projections.items():
            self.add_module(name, Linear(config.dim, features, bias=config.bias))
        self.out = Linear(config.dim, config.dim, bias=config.bias)
        self.head_scale = nn.Parameter(torch.ones(self.heads, 1, 1)) if config.head_scale else None
        self.scale_outside = config.head_scale_place == "outside"
        self.q_norm, self.k_norm, self.v_norm = (
            make_norm(config.dim) if config.qkv_norm else None for _ in range(3)
        )

    def split_heads(self, x: Tensor) -> Tensor:
        """Split queries, keys or values side by side: [B, L, n * D] -> [n, B, H, L, E]."""
        return x.view(*x.shape[:2], -1, self.heads, self.dim // self.heads).permute(2, 0, 3, 1, 4)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None, causal: bool = False
    ) -> Tensor:
        """Return ``softmax(q k^T / sqrt(E)) v`` (Vaswani equation 1).

        Shapes: q and the result [B, H, T, E], k and v [B, H, S, E].

        Args:
            visible: [B, 1, T or 1, S]; None = all keys.
            causal: a query attends to itself and earlier positions, and ``visible`` is None.
        """
        if not self.dropout.fuses_with_attention(q):
            return self.dropout(attention_weights(q, k, visible, causal)) @ v
        p = self.dropout.p if self.dropout.active else 0.0
        return F.scaled_dot_product_attention(q, k, v, visible, p, causal)

    def project_output(self, heads: Tensor) -> Tensor:
        """Apply HeadScale and the output projection: [N, H, E] -> [N, D]."""
        if self.head_scale is None:
            return self.out(heads.flatten(-2))
        gamma = self.head_scale.view(-1, 1).to(heads.dtype)
        if self.scale_outside:
            return (self.out(heads.flatten(-2)).view(heads.shape) * gamma).flatten(-2)
        return self.out((heads * gamma).flatten(-2))


class SelfAttention(MultiHeadAttention):
    """Attention to the own sentence; if ``causal``, a position sees itself and earlier ones."""

    qkv: Linear

    def __init__(
        self, config: ModelConfig, rng: DropoutRng, make_norm: MakeNorm, *, causal: bool
    ) -> None:
        super().__init__(config, rng, make_norm, qkv=3 * config.dim)
        self.causal = causal

    def forward(self, x: Tensor, layout: AnyLayout, cache: BlockCache | None = None) -> Tensor:
        """Attend within the sentences of a batch or, with a cache, to all positions so far.

        The position itself is added to the cache. [N, D] -> [N, D].
        """
        qkv = _normalize(self.qkv(x), self.q_norm, self.k_norm, self.v_norm)
        return self.project_output(self.attend_rows(qkv, layout, cache))

    def attend_rows(self, qkv: Tensor, layout: AnyLayout, cache: BlockCache | None) -> Tensor:
        """Return the outputs of heads: [N, 3D] -> [N, H, E]."""
        grid = layout.pad(qkv)
        q, k, v = self.split_heads(grid)
        if cache is not None:
            # ``visible`` has a column for each slot in use
            k, v = self.split_heads(cache.append(grid[..., self.dim :], layout.visible.shape[-1]))
        # padding is on the right, so a causal mask already hides it
        causal = self.causal and cache is None
        visible = None if causal else layout.key_mask
        mixed = self.attend(q, k, v, visible, causal)
        return layout.flat(mixed.transpose(1, 2))


class CrossAttention(MultiHeadAttention):
    """Attention of target positions to the memory, which is the encoder's output."""

    q: Linear
    kv: Linear

    def __init__(self, config: ModelConfig, rng: DropoutRng, make_norm: MakeNorm) -> None:
        super().__init__(config, rng, make_norm, q=config.dim, kv=2 * config.dim)

    def forward(
        self,
        x: Tensor,
        layout: AnyLayout,
        memory: Tensor,
        memory_layout: AnyLayout,
        cache: BlockCache | None = None,
    ) -> Tensor:
        """Attend from x to the memory [Ns, D] or, with a cache, to its keys and values there.

        [N, D] -> [N, D].
        """
        q = _normalize(self.q(x), self.q_norm)
        kv = self.keys_values(memory, memory_layout) if cache is None else cache.memory
        return self.project_output(self.attend_rows(q, layout, kv, memory_layout))

    def keys_values(self, memory: Tensor, layout: AnyLayout) -> Tensor:
        """Return keys and values side by side: [Ns, D] -> [B, S, 2D]."""
        return layout.pad(_normalize(self.kv(memory), self.k_norm, self.v_norm))

    def attend_rows(
        self, q: Tensor, layout: AnyLayout, kv: Tensor, memory_layout: AnyLayout
    ) -> Tensor:
        """Return the outputs of heads: [N, D], [B, S, 2D] -> [N, H, E]."""
        (q,), (k, v) = self.split_heads(layout.pad(q)), self.split_heads(kv)
        mixed = self.attend(q, k, v, memory_layout.key_mask)
        return layout.flat(mixed.transpose(1, 2))

    def weights(
        self, x: Tensor, layout: Layout, memory: Tensor, memory_layout: Layout, cache: None = None
    ) -> Tensor:
        """Return the attention weights for the arguments of ``forward``: [B, H, T, S] fp32."""
        (q,) = self.split_heads(layout.pad(_normalize(self.q(x), self.q_norm)).float())
        k, _ = self.split_heads(self.keys_values(memory, memory_layout).float())
        return attention_weights(q, k, memory_layout.key_mask)


def attention_weights(q: Tensor, k: Tensor, visible: Tensor | None, causal: bool = False) -> Tensor:
    """Return ``softmax(q k^T / sqrt(E))``: [B, H, T, E], [B, H, S, E] -> [B, H, T, S]."""
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
    if visible is not None:
        scores = scores.masked_fill_(~visible, float("-inf"))
    elif causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu_(1)
        scores = scores.masked_fill_(future, float("-inf"))
    # softmax in fp32 or more: torch's CPU softmax of bf16 takes several times as long
    precise = torch.promote_types(scores.dtype, torch.float32)
    return scores.to(precise).softmax(-1).to(scores.dtype)


def _normalize(x: Tensor, *norms: nn.Module | None) -> Tensor:
    """Apply the norms to what is side by side in x: [N, n * D] -> [N, n * D]."""
    if norms[0] is None:
        return x
    parts = zip(norms, x.chunk(len(norms), dim=-1), strict=True)
    return torch.cat([norm(part) for norm, part in parts if norm is not None], dim=-1)
