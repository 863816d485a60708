"""The feed-forward sublayer, the residual connection and the block that encoder and decoder share.

Legend: N flat tokens, D model dim, F feed-forward dim.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.config.recipe import ModelConfig
from nmt.data.layout import Layout
from nmt.model.attention import MultiHeadAttention
from nmt.model.cpu.linear import Linear
from nmt.model.dropout import Dropout, DropoutRng
from nmt.model.norms import MakeNorm


def _relu2(x: Tensor) -> Tensor:
    """ReLU squared (So et al. 2021; N table 2)."""
    return F.relu(x).square()


def _geglu(x: Tensor) -> Tensor:
    """GeGLU (Shazeer 2020; N section 5): the first half, through GELU, gates the second."""
    gate, value = x.chunk(2, dim=-1)
    return F.gelu(gate) * value


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "relu2": _relu2,
    "geglu": _geglu,
}


class FeedForward(nn.Module):
    """``LN(dropout(sigma(x W_1 + b_1))) W_2 + b_2`` (N 2.1); LN under ``ffn_norm`` alone."""

    def __init__(self, config: ModelConfig, dropout: Dropout, norm: MakeNorm | None) -> None:
        super().__init__()
        gated = config.activation == "geglu"
        self.fc1 = Linear(config.dim, config.ffn_dim * (2 if gated else 1), bias=config.bias)
        self.fc2 = Linear(config.ffn_dim, config.dim, bias=config.bias)
        self.norm = norm(config.ffn_dim) if norm else None
        self.activation = ACTIVATIONS[config.activation]
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        """[N, D] -> [N, D]."""
        h = self.dropout(self.activation(self.fc1(x)))
        return self.fc2(h if self.norm is None else self.norm(h))


class Residual(nn.Module):
    """The only place that orders norm, dropout and skip connection.

    PreNorm ``lambda x + dropout(branch_norm(branch(norm(x))))`` (T equation 3), PostNorm
    ``norm(lambda x + dropout(branch_norm(branch(x))))`` (T equation 2); branch_norm is N's
    post-attention norm, lambda its ResScale.
    """

    def __init__(
        self,
        norm: nn.Module,
        dropout: Dropout,
        *,
        pre: bool,
        branch_norm: nn.Module | None = None,
        scale: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.norm, self.dropout, self.pre, self.branch_norm = norm, dropout, pre, branch_norm
        self.scale = None if scale is None else nn.Parameter(scale)

    def forward(self, x: Tensor, branch: Callable[[Tensor], Tensor]) -> Tensor:
        """[N, D] -> [N, D]."""
        h = branch(self.norm(x) if self.pre else x)
        if self.branch_norm is not None:
            h = self.branch_norm(h)
        skip = x if self.scale is None else x * self.scale
        y = skip + self.dropout(h)
        return y if self.pre else self.norm(y)


class Block(nn.Module):
    """Self-attention, cross-attention in a decoder, feed-forward, each in a Residual."""

    def __init__(
        self,
        config: ModelConfig,
        rng: DropoutRng,
        make_norm: MakeNorm,
        make_extra_norm: MakeNorm,
        *,
        cross: bool,
        last_norm: nn.Module | None = None,
    ) -> None:
        """``last_norm`` replaces the norm of the feed-forward's residual."""
        super().__init__()
        self.cross_attn = self.cross_attn_res = None
        self.self_attn = self._attention(config, rng, make_extra_norm, causal=cross)
        self.self_attn_res = self._residual(config, rng, make_norm, make_extra_norm)
        if cross:
            self.cross_attn = self._attention(config, rng, make_extra_norm, cross=True)
            self.cross_attn_res = self._residual(config, rng, make_norm, make_extra_norm)
        self.ffn = FeedForward(
            config,
            Dropout(config.feedforward_dropout, rng),
            make_extra_norm if config.ffn_norm else None,
        )
        self.ffn_res = Residual(
            last_norm or make_norm(config.dim),
            Dropout(config.dropout, rng),
            pre=config.norm_place == "pre",
            scale=_res_scale(config, ffn=True),
        )

    @staticmethod
    def _attention(
        config: ModelConfig,
        rng: DropoutRng,
        make_extra_norm: MakeNorm,
        *,
        cross: bool = False,
        causal: bool = False,
    ) -> MultiHeadAttention:
        return MultiHeadAttention(
            config.dim,
            config.heads,
            Dropout(config.attention_dropout, rng),
            bias=config.bias,
            cross=cross,
            causal=causal,
            head_scale=config.head_scale,
            scale_outside=config.head_scale_place == "outside",
            qkv_norm=make_extra_norm if config.qkv_norm else None,
        )

    @staticmethod
    def _residual(
        config: ModelConfig, rng: DropoutRng, make_norm: MakeNorm, make_extra_norm: MakeNorm
    ) -> Residual:
        return Residual(
            make_norm(config.dim),
            Dropout(config.dropout, rng),
            pre=config.norm_place == "pre",
            branch_norm=make_extra_norm(config.dim) if config.post_attn_norm else None,
            scale=_res_scale(config, ffn=False),
        )

    def forward(
        self,
        x: Tensor,
        self_attend: Callable[[Tensor], Tensor],
        cross_attend: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        """[N, D] -> [N, D]; what attention looks at is bound into the callables."""
        x = self.self_attn_res(x, self_attend)
        if self.cross_attn_res is not None:
            x = self.cross_attn_res(x, cross_attend)
        return self.ffn_res(x, self.ffn)

    def batch_attention(
        self, layout: Layout, memory: Tensor | None = None, memory_layout: Layout | None = None
    ) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor] | None]:
        """The attention callables over a whole batch (training, encoding)."""
        cross_attn = self.cross_attn
        return (
            lambda h: self.self_attn(h, layout),
            cross_attn and (lambda h: cross_attn(h, layout, memory, memory_layout)),
        )


def _res_scale(config: ModelConfig, *, ffn: bool) -> Tensor | None:
    """ResScale's start value for one residual (N 2.2): ones, per dimension or one scalar."""
    if config.res_scale == "scalar":
        return torch.ones(())
    if config.res_scale == "all" or (config.res_scale == "ffn" and ffn):
        return torch.ones(config.dim)
    return None
