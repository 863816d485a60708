"""Multi-head attention with HeadScale and query/key/value norms (V 3.2; N 2.1 and table 4).

Shapes: N flat tokens, B sentences, T queries, S keys, K beams, R computed rows of B * K, C cache
slots, D model dim, H heads, E = D / H. Masks are boolean; True = attend to this position.
Sources: N = Shleifer et al. 2021, V = Vaswani et al. 2017.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.model.cpu import kernels
from nmt.model.cpu.active_rows import ActiveRows
from nmt.model.cpu.linear import Linear
from nmt.model.dropout import Dropout
from nmt.model.layout import Layout
from nmt.model.norms import MakeNorm

# For fewer positions, torch's attention on a CPU takes up to three times as long as our kernel.
MIN_TORCH_LENGTH = 20


class MultiHeadAttention(nn.Module):
    """``Concat(gamma_1 h_1, ..., gamma_H h_H) W_O`` (N 2.1); gamma = 1 without HeadScale.

    Differences from the papers: queries, keys and values of self-attention share one matrix, as do
    keys and values of cross-attention. NormFormer has no cross-attention; its operations apply
    there as well.

    Args:
        dim: D.
        heads: H.
        dropout: of the attention weights.
        bias: whether the projections have biases.
        cross: attend to a memory instead of to the input itself.
        causal: a position attends to itself and earlier ones.
        head_scale: learn a factor gamma for each head (N 2.1).
        scale_outside: apply HeadScale as N's release does: gamma_i scales the i-th of H slices of
            the projected output. The output mixes all heads, so it is a different function.
        qkv_norm: make norms of queries, keys and values over D, applied before the split into
            heads (N table 4).
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
        """Attend within sentences, or from x to ``memory`` if ``cross``: [N, D] -> [N, D]."""
        if self.cross:
            q, k, v, visible = self._cross_inputs(x, layout, memory, memory_layout)
        else:
            qkv = self.project_qkv(x)
            length, visible = layout.shape[1], layout.visible[:, None]
            full = not (self.causal or self.dropout.active)
            if length < MIN_TORCH_LENGTH and full and kernels.supports(qkv):
                rows = ActiveRows(layout.to_flat)
                heads = self.cached_attention(qkv, rows, length, layout.pad(qkv), visible)
                return self.project_output(heads)
            q, k, v = self._split_heads(layout.pad(qkv), parts=3)
            # padding is on the right, so a causal mask already hides it
            needs_mask = layout.padded and not self.causal
            visible = layout.visible[:, None, None, :] if needs_mask else None
        return self.project_output(layout.flat(self.attend(q, k, v, visible).transpose(1, 2)))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None) -> Tensor:
        """Return attention over complete sentences: [B, H, T, E], 2 x [B, H, S, E] -> [B, H, T, E].

        torch's fused CPU kernel does not support dropout, and its gradient in bf16 takes up to 50
        times as long as that of the products written here.
        """
        slow_gradient = q.dtype == torch.bfloat16 and q.requires_grad
        if q.device.type == "cpu" and (self.dropout.active or slow_gradient):
            return self.dropout(self.attention_weights(q, k, visible)) @ v
        p = self.dropout.p if self.dropout.active else 0.0
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=visible, dropout_p=p, is_causal=self.causal
        )

    def attention_weights(self, q: Tensor, k: Tensor, visible: Tensor | None) -> Tensor:
        """Return softmax(q k / sqrt(E)): [B, H, T, E], [B, H, S, E] -> [B, H, T, S]."""
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
        if visible is not None:
            scores = scores.masked_fill_(~visible, float("-inf"))
        elif self.causal:
            length = q.shape[-2]
            future = torch.ones(length, length, dtype=torch.bool, device=q.device).triu_(1)
            scores = scores.masked_fill_(future, float("-inf"))
        # softmax in fp32 or more: torch's CPU softmax of bf16 takes several times as long
        precise = torch.promote_types(scores.dtype, torch.float32)
        return scores.to(precise).softmax(-1).to(scores.dtype)

    def cross_attention_weights(
        self, x: Tensor, layout: Layout, memory: Tensor, memory_layout: Layout
    ) -> Tensor:
        """Return the weights of cross-attention for the arguments of ``forward``.

        Returns:
            [B, H, T, S], fp32.
        """
        q, k, _, visible = self._cross_inputs(x, layout, memory, memory_layout)
        return self.attention_weights(q.float(), k.float(), visible)

    def cached_attention(
        self, q: Tensor, rows: ActiveRows, beam: int, kv: Tensor, visible: Tensor
    ) -> Tensor:
        """Return attention of K queries a sentence to the cached slots that they see: [R, H, E].

        No dropout is applied.

        Args:
            q: [R, D or more], queries in the first D columns.
            rows: which of the B * K queries are computed.
            beam: K.
            kv: [B, C, 2D or more], keys and values in the last 2D columns.
            visible: [B, K or 1, up to C].
        """
        if kernels.supports(q):
            return kernels.cached_attention(
                q, rows.indices, beam, kv, visible, self.heads, self.dim
            )
        split = (self.heads, self.dim // self.heads)
        q = rows.expand(q[:, : self.dim]).view(-1, beam, *split)
        slots = kv[:, : visible.shape[-1]].unflatten(-1, (2, *split))  # [B, C, 2, H, E]
        k, v = slots.permute(2, 0, 3, 1, 4)
        heads = F.scaled_dot_product_attention(q.transpose(1, 2), k, v, attn_mask=visible[:, None])
        return rows.gather(heads.transpose(1, 2).flatten(0, 1))

    def project_output(self, heads: Tensor) -> Tensor:
        """Apply HeadScale and the output projection: [..., H, E] -> [..., D]."""
        if self.head_scale is None:
            return self.out(heads.flatten(-2))
        gamma = self.head_scale.view(-1, 1).to(heads.dtype)
        if self.scale_outside:
            return (self.out(heads.flatten(-2)).view(heads.shape) * gamma).flatten(-2)
        return self.out((heads * gamma).flatten(-2))

    def project_qkv(self, x: Tensor) -> Tensor:
        """Return queries, keys and values of self-attention side by side: [N, D] -> [N, 3D]."""
        qkv = self.qkv(x)
        if self.q_norm is None or self.k_norm is None or self.v_norm is None:
            return qkv
        q, k, v = qkv.chunk(3, dim=-1)
        return torch.cat([self.q_norm(q), self.k_norm(k), self.v_norm(v)], dim=-1)

    def project_queries(self, x: Tensor) -> Tensor:
        """Return queries of cross-attention: [N, D] -> [N, D]."""
        q = self.q(x)
        return q if self.q_norm is None else self.q_norm(q)

    def project_keys_values(self, memory: Tensor) -> Tensor:
        """Return keys and values of cross-attention side by side: [N, D] -> [N, 2D]."""
        kv = self.kv(memory)
        if self.k_norm is None or self.v_norm is None:
            return kv
        k, v = kv.chunk(2, dim=-1)
        return torch.cat([self.k_norm(k), self.v_norm(v)], dim=-1)

    def _cross_inputs(
        self, x: Tensor, layout: Layout, memory: Tensor | None, memory_layout: Layout | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Return queries, keys, values and the mask of cross-attention."""
        assert memory is not None
        assert memory_layout is not None
        q = self._split_heads(layout.pad(self.project_queries(x)))
        k, v = self._split_heads(memory_layout.pad(self.project_keys_values(memory)), parts=2)
        visible = memory_layout.visible[:, None, None, :] if memory_layout.padded else None
        return q, k, v, visible

    def _split_heads(self, x: Tensor, parts: int = 1) -> Tensor:
        """Split [B, L, parts * D] into [parts, B, H, L, E]; one part has no first axis."""
        split = x.view(*x.shape[:2], parts, self.heads, -1).permute(2, 0, 3, 1, 4)
        return split[0] if parts == 1 else split
