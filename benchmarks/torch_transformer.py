"""``torch.nn.Transformer`` as a baseline that starts from the weights of our model."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.data.vocab import PAD
from nmt.model.attention import CrossAttention, SelfAttention
from nmt.model.embedding import sinusoids
from nmt.model.transformer import Transformer


class TorchTransformer(nn.Module):
    """``nn.Transformer`` with tied embeddings and an output bias, PreNorm and LayerNorm."""

    def __init__(self, ours: Transformer) -> None:
        super().__init__()
        c = ours.config
        self.dim, self.dropout = c.dim, nn.Dropout(c.dropout)
        self.embed = nn.Embedding.from_pretrained(ours.embed.weight.detach().clone(), freeze=False)
        self.bias = nn.Parameter(torch.zeros(len(ours.embed.weight)))
        self.register_buffer("positions", sinusoids(1024, c.dim))
        layers = (c.enc_layers, c.dec_layers)
        options: dict[str, Any] = {"batch_first": True, "norm_first": True}
        with warnings.catch_warnings():  # torch warns that PreNorm has no nested tensors
            warnings.simplefilter("ignore", UserWarning)
            self.body = nn.Transformer(c.dim, c.heads, *layers, c.ffn_dim, c.dropout, **options)
        with torch.no_grad():
            for mine, theirs in matching_weights(ours, self.body):
                theirs.copy_(mine)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Return logits for padded ids: [B, S], [B, T] -> [B, T, V]."""
        hidden, length = src == PAD, tgt.shape[1]
        states = self.body(
            self._embed(src),
            self._embed(tgt),
            tgt_mask=torch.ones(length, length, dtype=torch.bool, device=tgt.device).triu(1),
            tgt_is_causal=True,
            src_key_padding_mask=hidden,
            memory_key_padding_mask=hidden,
        )
        return F.linear(states, self.embed.weight, self.bias)

    @torch.no_grad()
    def copy_to(self, ours: Transformer) -> None:
        """Copy the weights into our model, which then computes the same."""
        ours.embed.weight.copy_(self.embed.weight)
        ours.out_bias.copy_(self.bias)
        for mine, theirs in matching_weights(ours, self.body):
            mine.copy_(theirs)

    def _embed(self, ids: Tensor) -> Tensor:
        return self.dropout(self.embed(ids) * self.dim**0.5 + self.positions[: ids.shape[1]])


def matching_weights(ours: Transformer, theirs: nn.Transformer) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield each weight of our PreNorm LayerNorm model with its counterpart in torch's."""
    for stack in ("encoder", "decoder"):
        mine, other = getattr(ours, stack), getattr(theirs, stack)
        modules = [(mine.norm, other.norm)]
        for block, layer in zip(mine.layers, other.layers, strict=True):
            residuals = [block.self_attn_res, block.ffn_res]
            yield from matching_projections(block.self_attn, layer.self_attn)
            modules += [(block.ffn.fc1, layer.linear1), (block.ffn.fc2, layer.linear2)]
            modules.append((block.self_attn.out, layer.self_attn.out_proj))
            if block.cross_attn is not None:
                yield from matching_projections(block.cross_attn, layer.multihead_attn)
                modules.append((block.cross_attn.out, layer.multihead_attn.out_proj))
                residuals.insert(1, block.cross_attn_res)
            for number, residual in enumerate(residuals, 1):
                modules.append((residual.norm, getattr(layer, f"norm{number}")))
        for our_module, their_module in modules:
            yield our_module.weight, their_module.weight
            yield our_module.bias, their_module.bias


def matching_projections(
    ours: SelfAttention | CrossAttention, theirs: nn.MultiheadAttention
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the projections of queries, keys and values, which torch keeps in one matrix."""
    first = 0
    for part in [ours.q, ours.kv] if isinstance(ours, CrossAttention) else [ours.qkv]:
        rows = slice(first, first + part.out_features)
        yield part.weight, theirs.in_proj_weight[rows]
        yield part.bias, theirs.in_proj_bias[rows]
        first = rows.stop
