"""The feed-forward sublayer, the residual connection, the block, and a stack of blocks.

A block is what the papers call a layer. Shapes: N flat tokens, D model dim, F feed-forward dim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.model.attention import CrossAttention, SelfAttention
from nmt.model.cache import BlockCache
from nmt.model.config import ModelConfig
from nmt.model.dropout import Dropout, DropoutRng
from nmt.model.layout import AnyLayout, Layout
from nmt.model.linear import Linear
from nmt.model.norms import MakeNorm
from nmt.model.recompute import recomputed


def _relu2(x: Tensor) -> Tensor:
    """Return the square of ReLU (So et al. 2021; NormFormer table 2)."""
    return F.relu(x).square()


def _geglu(x: Tensor) -> Tensor:
    """Return GELU of the first half times the second half (Shazeer 2020; NormFormer section 5)."""
    gate, value = x.chunk(2, dim=-1)
    return F.gelu(gate) * value


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "relu2": _relu2,
    "geglu": _geglu,
    "swish": F.silu,
}


class FeedForward(nn.Module):
    """``norm(dropout(sigma(x W_1 + b_1))) W_2 + b_2``, norm if ``ffn_norm`` (NormFormer 2.1)."""

    def __init__(self, config: ModelConfig, dropout: Dropout, norm: MakeNorm | None) -> None:
        super().__init__()
        gated = config.activation == "geglu"
        self.fc1 = Linear(config.dim, config.ffn_dim * (2 if gated else 1), bias=config.bias)
        self.fc2 = Linear(config.ffn_dim, config.dim, bias=config.bias)
        self.norm = norm(config.ffn_dim) if norm else None
        self.activation = ACTIVATIONS[config.activation]
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        """Apply the two layers: [N, D] -> [N, D]."""
        h = self.dropout(self.activation(self.fc1(x)))
        return self.fc2(h if self.norm is None else self.norm(h))


class Residual(nn.Module):
    """The residual connection, the only place that orders norm, dropout and skip.

    PreNorm is ``lambda x + dropout(branch_norm(branch(norm(x))))`` (Nguyen equation 3), PostNorm is
    ``norm(lambda x + dropout(branch_norm(branch(x))))`` (Nguyen equation 2). Dropout is where
    Vaswani 5.4 has it. ``branch_norm`` is NormFormer's norm after attention (its section 2.1),
    lambda its ResScale (section 2.2).

    Args:
        norm: of the input (PreNorm) or of the sum (PostNorm).
        dropout: of the branch's output.
        pre: PreNorm instead of PostNorm.
        branch_norm: of the branch's output, None = without.
        scale: the start value of lambda, a scalar or [D]; None = without.
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

    def forward(self, x: Tensor, branch: Callable[..., Tensor], *arguments: Any) -> Tensor:
        """Add the branch's output to x: [N, D] -> [N, D]. Further arguments are the branch's."""
        h = branch(self.norm(x) if self.pre else x, *arguments)
        if self.branch_norm is not None:
            h = self.branch_norm(h)
        skip = x if self.scale is None else x * self.scale
        y = skip + self.dropout(h)
        return y if self.pre else self.norm(y)


class Block(nn.Module):
    """Self-attention, optional cross-attention, and feed-forward, each in a ``Residual``.

    An encoder has neither ``causal`` nor ``cross``, a decoder has both, and a causal language
    model has ``causal`` alone.

    Args:
        config: sizes, norms and regularization.
        rng: of all dropout.
        make_norm: makes the norms of residuals.
        make_extra_norm: makes NormFormer's additional norms.
        causal: a position attends to itself and earlier ones.
        cross: attend to a memory after self-attention.
        last_norm: replaces the norm of the feed-forward's residual.
    """

    def __init__(
        self,
        config: ModelConfig,
        rng: DropoutRng,
        make_norm: MakeNorm,
        make_extra_norm: MakeNorm,
        *,
        causal: bool,
        cross: bool,
        last_norm: nn.Module | None = None,
    ) -> None:
        super().__init__()

        def residual(
            norm: nn.Module | None = None, branch_norm: bool = False, ffn: bool = False
        ) -> Residual:
            return Residual(
                norm or make_norm(config.dim),
                Dropout(config.dropout, rng),
                pre=config.norm_place == "pre",
                branch_norm=make_extra_norm(config.dim) if branch_norm else None,
                scale=_initial_res_scale(config, ffn=ffn),
            )

        self.cross_attn = self.cross_attn_res = None
        self.self_attn = SelfAttention(config, rng, make_extra_norm, causal=causal)
        self.self_attn_res = residual(branch_norm=config.post_attn_norm)
        if cross:
            self.cross_attn = CrossAttention(config, rng, make_extra_norm)
            self.cross_attn_res = residual(branch_norm=config.post_attn_norm)
        self.ffn = FeedForward(
            config,
            Dropout(config.feedforward_dropout, rng),
            make_extra_norm if config.ffn_norm else None,
        )
        self.ffn_res = residual(last_norm, ffn=True)

    def forward(
        self,
        x: Tensor,
        layout: AnyLayout,
        memory: Tensor | None = None,
        memory_layout: AnyLayout | None = None,
        cache: BlockCache | None = None,
    ) -> Tensor:
        """Apply the sublayers: [N, D] -> [N, D].

        Args:
            layout: of x: sentences of a batch, or one position of hypotheses.
            memory: [Ns, D], the encoder's output; a cache has its keys and values instead.
            memory_layout: of the memory.
            cache: the earlier positions; None = x has complete sentences.
        """
        x = self.self_attn_res(x, self.self_attn, layout, cache)
        if self.cross_attn_res is not None:
            x = self.cross_attn_res(x, self.cross_attn, layout, memory, memory_layout, cache)
        return self.ffn_res(x, self.ffn)


def _initial_res_scale(config: ModelConfig, *, ffn: bool) -> Tensor | None:
    """Return the start of ResScale (NormFormer 2.2) for a residual: ones [D] or [], or None."""
    if config.res_scale == "scalar":
        return torch.ones(())
    if config.res_scale == "all" or (config.res_scale == "ffn" and ffn):
        return torch.ones(config.dim)
    return None


class Stack(nn.Module):
    """The blocks of an encoder or a decoder; PreNorm ends with one more norm (Nguyen section 2.1).

    Attributes:
        recompute_rng: the generator of the blocks' dropout, to compute each block again in the
            backward pass; None = keep its activations.
    """

    recompute_rng: DropoutRng | None = None

    def __init__(self, blocks: list[Block], norm: nn.Module | None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(blocks)
        self.norm = norm

    @property
    def blocks(self) -> Iterable[Block]:
        """Return the layers with their type, which ``ModuleList`` does not keep."""
        return cast(Iterable[Block], self.layers)

    def forward(
        self,
        x: Tensor,
        layout: Layout,
        memory: Tensor | None = None,
        memory_layout: Layout | None = None,
    ) -> Tensor:
        """Apply all blocks to a batch, with the arguments of ``Block``: [N, D] -> [N, D]."""
        for block in self.blocks:
            if self.recompute_rng is not None and self.training:
                x = recomputed(block, self.recompute_rng, x, layout, memory, memory_layout)
            else:
                x = block(x, layout, memory, memory_layout)
        return x if self.norm is None else self.norm(x)
