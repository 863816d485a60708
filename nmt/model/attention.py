"""Multi-head attention with HeadScale and query/key/value norms (V 3.2; N 2.1, table 4).

Legend: N flat tokens, B sentences, T queries, S keys, K beams, R rows of B * K, C slots of a cache,
D model dim, H heads, E = D / H.
Masks are boolean, True = may look.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.data.layout import Layout
from nmt.model.cpu import kernels
from nmt.model.cpu.active_rows import ActiveRows
from nmt.model.cpu.linear import Linear
from nmt.model.dropout import Dropout
from nmt.model.norms import MakeNorm

SHORT = 20  # positions up to which torch's attention on a CPU takes up to three times as long


class MultiHeadAttention(nn.Module):
    """``Concat(gamma_1 h_1, ..., gamma_H h_H) W_O`` (N 2.1); gamma = 1 without HeadScale.

    ``scale_outside`` is HeadScale as N's release has it, moved outside attention (N 2.2): gamma_i
    scales the i-th of H slices of the projected output, which mixes all heads, so it is another
    function. ``qkv_norm`` norms queries, keys and values over D, before they are split into heads.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        dropout: Dropout,
        *,
        bias: bool,
        cross: bool = False,
        causal: bool = False,
        head_scale: bool = False,
        scale_outside: bool = False,
        qkv_norm: MakeNorm | None = None,
    ) -> None:
        super().__init__()
        self.dim, self.heads, self.cross, self.causal = dim, heads, cross, causal
        self.dropout = dropout
        if cross:
            self.q = Linear(dim, dim, bias=bias)
            self.kv = Linear(dim, 2 * dim, bias=bias)
        else:
            self.qkv = Linear(dim, 3 * dim, bias=bias)
        self.out = Linear(dim, dim, bias=bias)
        self.head_scale = nn.Parameter(torch.ones(heads, 1, 1)) if head_scale else None
        self.scale_outside = scale_outside
        self.q_norm = qkv_norm(dim) if qkv_norm else None
        self.k_norm = qkv_norm(dim) if qkv_norm else None
        self.v_norm = qkv_norm(dim) if qkv_norm else None

    def forward(
        self,
        x: Tensor,
        layout: Layout,
        memory: Tensor | None = None,
        memory_layout: Layout | None = None,
    ) -> Tensor:
        """Attend within sentences, or from x to memory: [N, D] -> [N, D]."""
        if self.cross:
            q, k, v, visible = self._across(x, layout, memory, memory_layout)
        else:
            qkv = self.project_qkv(x)
            length, visible = layout.shape[1], layout.visible[:, None]
            if (
                length < SHORT
                and not (self.causal or self.dropout.active)
                and kernels.supports(qkv)
            ):
                places = ActiveRows(layout.to_flat)
                return self.project_output(
                    self.cached_attention(qkv, places, length, layout.pad(qkv), visible)
                )
            q, k, v = self._heads(layout.pad(qkv), parts=3)
            # right padding is never in a causal row's past, so only a free row needs the mask
            hidden = layout.padded and not self.causal
            visible = layout.visible[:, None, None, :] if hidden else None
        return self.project_output(layout.flat(self.attend(q, k, v, visible).transpose(1, 2)))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None) -> Tensor:
        """Attention of whole sentences: [B, H, T, E], [B, H, S, E] -> [B, H, T, E].

        torch's fused CPU kernel has no dropout; with dropout the weights are formed here.
        """
        if not (self.dropout.active and q.device.type == "cpu"):
            p = self.dropout.p if self.dropout.active else 0.0
            return F.scaled_dot_product_attention(
                q, k, v, attn_mask=visible, dropout_p=p, is_causal=self.causal
            )
        return self.dropout(self.attention_weights(q, k, visible)) @ v

    def attention_weights(self, q: Tensor, k: Tensor, visible: Tensor | None) -> Tensor:
        """How much queries look at keys: [B, H, T, E], [B, H, S, E] -> [B, H, T, S]."""
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
        if visible is not None:
            scores = scores.masked_fill_(~visible, float("-inf"))
        elif self.causal:
            length = q.shape[-2]
            future = torch.ones(length, length, dtype=torch.bool, device=q.device).triu_(1)
            scores = scores.masked_fill_(future, float("-inf"))
        # at least fp32: torch's CPU softmax of bf16 takes several times as long, both ways
        precise = torch.promote_types(scores.dtype, torch.float32)
        return scores.to(precise).softmax(-1).to(scores.dtype)

    def cross_attention_weights(
        self, x: Tensor, layout: Layout, memory: Tensor, memory_layout: Layout
    ) -> Tensor:
        """What ``forward`` of cross-attention looks at, given the same: [B, H, T, S], fp32."""
        q, k, _, visible = self._across(x, layout, memory, memory_layout)
        return self.attention_weights(q.float(), k.float(), visible)

    def cached_attention(
        self, q: Tensor, rows: ActiveRows, beam: int, kv: Tensor, visible: Tensor
    ) -> Tensor:
        """Attention of K beams at one position to what ``visible`` shows them, without dropout.

        [R, D or more], [B, C, 2D], [B, K or 1, up to C] -> [R, H, E].
        """
        if kernels.supports(q):
            return kernels.cached_attention(
                q, rows.indices, beam, kv, visible, self.heads, self.dim
            )
        split = (self.heads, self.dim // self.heads)
        q = rows.expand(q[:, : self.dim]).view(-1, beam, *split)
        slots = kv[:, : visible.shape[-1]].unflatten(-1, (2, *split))  # [B, C, 2, H, E]
        k, v = slots.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q.transpose(1, 2), k, v, attn_mask=visible[:, None])
        return rows.gather(mixed.transpose(1, 2).flatten(0, 1))

    def project_output(self, h: Tensor) -> Tensor:
        """HeadScale and the output projection: [..., H, E] -> [..., D]."""
        if self.head_scale is None:
            return self.out(h.flatten(-2))
        gamma = self.head_scale.view(-1, 1).to(h.dtype)
        if self.scale_outside:
            return (self.out(h.flatten(-2)).view(h.shape) * gamma).flatten(-2)
        return self.out((h * gamma).flatten(-2))

    def project_qkv(self, x: Tensor) -> Tensor:
        """Queries, keys and values of self-attention side by side: [N, D] -> [N, 3D]."""
        qkv = self.qkv(x)
        if self.q_norm is None or self.k_norm is None or self.v_norm is None:
            return qkv
        q, k, v = qkv.chunk(3, dim=-1)
        return torch.cat([self.q_norm(q), self.k_norm(k), self.v_norm(v)], dim=-1)

    def project_queries(self, x: Tensor) -> Tensor:
        """Queries of cross-attention: [N, D] -> [N, D]."""
        q = self.q(x)
        return q if self.q_norm is None else self.q_norm(q)

    def project_keys_values(self, memory: Tensor) -> Tensor:
        """Keys and values of cross-attention side by side: [N, D] -> [N, 2D]."""
        kv = self.kv(memory)
        if self.k_norm is None or self.v_norm is None:
            return kv
        k, v = kv.chunk(2, dim=-1)
        return torch.cat([self.k_norm(k), self.v_norm(v)], dim=-1)

    def _across(
        self, x: Tensor, layout: Layout, memory: Tensor | None, memory_layout: Layout | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Queries, keys and values of cross-attention, and what is visible."""
        assert memory is not None
        assert memory_layout is not None
        q = self._heads(layout.pad(self.project_queries(x)))
        k, v = self._heads(memory_layout.pad(self.project_keys_values(memory)), parts=2)
        visible = memory_layout.visible[:, None, None, :] if memory_layout.padded else None
        return q, k, v, visible

    def _heads(self, x: Tensor, parts: int = 1) -> Tensor:
        """[B, L, parts * D] -> [parts, B, H, L, E], without the first axis for one part."""
        split = x.view(*x.shape[:2], parts, self.heads, -1).permute(2, 0, 3, 1, 4)
        return split[0] if parts == 1 else split
