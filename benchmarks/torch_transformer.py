"""``torch.nn.Transformer`` as the baseline, with the weights of one of ours."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.data.vocab import PAD
from nmt.model.attention import MultiHeadAttention
from nmt.model.embedding import sinusoids
from nmt.model.transformer import Transformer


class TorchTransformer(nn.Module):
    """``nn.Transformer`` between tied embeddings."""

    def __init__(self, ours: Transformer) -> None:
        super().__init__()
        c = ours.config
        self.dim, self.dropout = c.dim, nn.Dropout(c.dropout)
        self.embed = nn.Embedding.from_pretrained(ours.embed.weight.detach().clone(), freeze=False)
        self.bias = nn.Parameter(torch.zeros(len(ours.embed.weight)))
        self.register_buffer("places", sinusoids(1024, c.dim))
        layers = (c.enc_layers, c.dec_layers)
        options: dict[str, Any] = {"batch_first": True, "norm_first": True}
        with warnings.catch_warnings():  # PreNorm has no nested tensors: no news
            warnings.simplefilter("ignore", UserWarning)
            self.body = nn.Transformer(c.dim, c.heads, *layers, c.ffn_dim, c.dropout, **options)
        copy_weights(ours, self.body)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Padded ids [B, S], [B, T] -> logits [B, T, V]."""
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

    def _embed(self, ids: Tensor) -> Tensor:
        return self.dropout(self.embed(ids) * self.dim**0.5 + self.places[: ids.shape[1]])


@torch.no_grad()
def copy_weights(ours: Transformer, theirs: nn.Transformer) -> None:
    """The weights of ours, PreNorm with LayerNorm, into torch's modules."""
    for stack in ("encoder", "decoder"):
        mine, other = getattr(ours, stack), getattr(theirs, stack)
        other.norm.load_state_dict(mine.norm.state_dict())
        for block, layer in zip(mine.layers, other.layers, strict=True):
            attentions = [(block.self_attn, layer.self_attn)]
            residuals = [block.self_attn_res, block.ffn_res]
            if block.cross_attn is not None:
                attentions.append((block.cross_attn, layer.multihead_attn))
                residuals.insert(1, block.cross_attn_res)
            for attention, torchs in attentions:
                copy_attention(attention, torchs)
            for number, residual in enumerate(residuals, 1):
                getattr(layer, f"norm{number}").load_state_dict(residual.norm.state_dict())
            layer.linear1.load_state_dict(block.ffn.fc1.state_dict())
            layer.linear2.load_state_dict(block.ffn.fc2.state_dict())


def copy_attention(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
    """Projections of one attention."""
    inputs = [ours.q, ours.kv] if ours.cross else [ours.qkv]
    theirs.in_proj_weight.copy_(torch.cat([part.weight for part in inputs]))
    theirs.in_proj_bias.copy_(torch.cat([part.bias for part in inputs]))
    theirs.out_proj.load_state_dict(ours.out.state_dict())
