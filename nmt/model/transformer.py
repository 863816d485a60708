"""The encoder-decoder transformer of both papers (V section 3; T section 2; N section 2).

Legend: Ns, Nt flat source and target tokens, B sentences, D model dim, V types, K beams.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.weak import WeakTensorKeyDictionary

from nmt.config.recipe import ModelConfig
from nmt.data.batches import Batch
from nmt.data.layout import Layout
from nmt.data.vocab import UNK
from nmt.model import MASKED_LOGIT
from nmt.model.attention import MultiHeadAttention
from nmt.model.cpu.inference import LinearFunction, output_projection, replace_layers
from nmt.model.cpu.linear import linear
from nmt.model.dropout import Dropout, DropoutRng, WordDropout
from nmt.model.embedding import SinusoidalPositions, TiedEmbedding
from nmt.model.incremental import DecodeState
from nmt.model.layers import Block, FeedForward
from nmt.model.norms import NORMS, MakeNorm


class Stack(nn.Module):
    """The blocks of an encoder or a decoder; PreNorm ends with one more norm (T section 2.1)."""

    def __init__(self, blocks: list[Block], norm: nn.Module | None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(blocks)
        self.norm = norm

    @property
    def blocks(self) -> Iterable[Block]:
        """The layers, with their type, which ModuleList does not keep."""
        return cast(Iterable[Block], self.layers)

    def forward(self, x: Tensor, *seen: Any) -> Tensor:
        """[N, D] -> [N, D]; ``seen``: x's layout and, by a decoder, memory and its layout."""
        for block in self.blocks:
            x = block(x, *block.batch_attention(*seen))
        return x if self.norm is None else self.norm(x)


Tables: TypeAlias = tuple[Tensor, Tensor, Tensor]


class Transformer(nn.Module):
    """Source and target ids in, logits over the target's types out.

    Args:
        config: every choice of both papers.
        vocab_size: V, the joint vocabulary.
        tgt_types: [V] bool, the types that the target language has; others are masked at the
            output when ``config.logit_mask``. None = all.
        initialize: draw weights; False where they are loaded next.
    """

    allowed: Tensor

    def __init__(
        self,
        config: ModelConfig,
        vocab_size: int,
        tgt_types: np.ndarray | Tensor | None = None,
        initialize: bool = True,
    ) -> None:
        super().__init__()
        self.config = config
        self.dropout_rng = DropoutRng()
        self.inference_dtype: torch.dtype | None = None
        self._tables: Tables | None = None
        pre = config.norm_place == "pre"
        make_norm = _norm_maker(config)
        make_extra_norm = functools.partial(NORMS[config.extra_norm], eps=config.norm_eps)
        # the last gain scales the logits (T equation 6), so it is learned even if g is fixed
        make_last_norm = functools.partial(NORMS[config.norm], eps=config.norm_eps)

        def stack(layers: int, cross: bool) -> list[Block]:
            last = cross and not pre
            return [
                Block(
                    config,
                    self.dropout_rng,
                    make_norm,
                    make_extra_norm,
                    cross=cross,
                    last_norm=make_last_norm(config.dim) if last and i == layers - 1 else None,
                )
                for i in range(layers)
            ]

        self.encoder = Stack(
            stack(config.enc_layers, False), make_norm(config.dim) if pre else None
        )
        self.decoder = Stack(
            stack(config.dec_layers, True), make_last_norm(config.dim) if pre else None
        )
        table = functools.partial(TiedEmbedding, vocab_size, config.dim, config.fixnorm)
        self.embed = table()
        self.src_embed = None if config.tie == "src_tgt_out" else table()
        self.out_embed = table() if config.tie == "none" else None
        self.out_bias = nn.Parameter(torch.zeros(vocab_size)) if config.out_bias else None
        self.positions = SinusoidalPositions(config.dim)
        self.word_dropout = WordDropout(config.word_dropout, UNK, self.dropout_rng)
        self.embed_dropout = Dropout(config.dropout, self.dropout_rng)
        allowed = torch.ones(vocab_size, dtype=torch.bool)
        if config.logit_mask and tgt_types is not None:
            allowed = torch.as_tensor(tgt_types).bool().clone()
        self.register_buffer("allowed", allowed, persistent=False)
        if initialize:
            self.init_weights(torch.Generator().manual_seed(0))

    def prepare_for_inference(self, dtype: torch.dtype) -> Transformer:
        """From now on for translation alone, with products in ``dtype``; returns itself."""
        replace_layers(self.eval(), dtype)
        with torch.no_grad():
            self._tables = self.embedding_tables()
        self._outputs = WeakTensorKeyDictionary()
        self.inference_dtype = dtype
        return self

    @property
    def for_inference(self) -> bool:
        """Whether ``prepare_for_inference`` was called."""
        return self.inference_dtype is not None

    def init_weights(self, generator: torch.Generator) -> None:
        """Draw every weight matrix anew (T sections 2.2 and 3.2); their biases become 0.

        | part | std of N(0, std) |
        |---|---|
        | attention, init small | sqrt(2 / (d + 4d)) whatever ffn_dim is |
        | attention, init xavier | sqrt(2 / (d + d)), equation 4 |
        | feed-forward | sqrt(2 / (d + ffn_dim)) |
        | embeddings | sqrt(1 / d); U(-0.01, 0.01) under FixNorm |
        """
        d, f = self.config.dim, self.config.ffn_dim
        attention_std = math.sqrt(2 / (5 * d) if self.config.init == "small" else 2 / (2 * d))
        with torch.no_grad():
            for module in self.modules():
                if isinstance(module, MultiHeadAttention | FeedForward):
                    ffn = isinstance(module, FeedForward)
                    for linear in module.children():
                        if isinstance(linear, nn.Linear):
                            std = math.sqrt(2 / (d + f)) if ffn else attention_std
                            linear.weight.normal_(0, std, generator=generator)
                            if linear.bias is not None:
                                linear.bias.zero_()
                elif isinstance(module, TiedEmbedding):
                    if module.fixnorm:
                        module.weight.uniform_(-0.01, 0.01, generator=generator)
                    else:
                        module.weight.normal_(0, d**-0.5, generator=generator)

    def forward(self, batch: Batch) -> Tensor:
        """Logits [Nt, V], one row per target token, in the order of ``batch.tgt_out``."""
        src_rows, tgt_rows, out_rows = self.embedding_tables()
        memory = self.encode(batch.src, batch.src_layout, src_rows)
        x = self._embed(
            self.word_dropout(batch.tgt_in),
            tgt_rows,
            batch.tgt_layout.positions,
            batch.tgt_layout.shape[1],
        )
        states = self.decoder(self.embed_dropout(x), batch.tgt_layout, memory, batch.src_layout)
        return self.logits(states, out_rows)

    def embedding_tables(self) -> Tables:
        """Source, target and output tables [V, D], normalized once for a whole forward."""
        if self._tables is not None:
            return self._tables
        tgt = self.embed.table()
        src = tgt if self.src_embed is None else self.src_embed.table()
        return src, tgt, tgt if self.out_embed is None else self.out_embed.table()

    def encode(self, src: Tensor, layout: Layout, rows: Tensor) -> Tensor:
        """Source ids [Ns] -> encoder output [Ns, D]."""
        x = self._embed(self.word_dropout(src), rows, layout.positions, layout.shape[1])
        return self.encoder(self.embed_dropout(x), layout)

    def logits(self, states: Tensor, rows: Tensor) -> Tensor:
        """``states @ rows.T + out_bias``, [..., D] -> [..., V]; masked types get -1e4.

        The mask is part of the bias, so it costs no pass over the logits.
        """
        if self.inference_dtype is not None:
            return self._output(rows, None)(states)[:, : len(rows)]
        return linear(states, rows, self.logit_bias())

    def logit_bias(self) -> Tensor:
        """Output bias and logit mask in one, [V]."""
        if self.out_bias is None:
            return torch.where(self.allowed, 0.0, MASKED_LOGIT)
        return torch.where(self.allowed, self.out_bias, MASKED_LOGIT)

    def start_decoding(
        self, src: Tensor, layout: Layout, beam: int, max_len: int, types: Tensor | None = None
    ) -> DecodeState:
        """Encode B sentences and make the state that decodes them position by position.

        ``types``: [A] ids that the first columns of its logits are for, others being -inf; None =
        columns are for all V.
        """
        src_rows, tgt_rows, out_rows = self.embedding_tables()
        memory = self.encode(src, layout, src_rows)

        def embed(tokens: Tensor, position: int) -> Tensor:
            places = torch.full_like(tokens, position)
            return self._embed(tokens, tgt_rows, places, position + 1)

        project = self._output(out_rows, types)
        last = self.decoder.norm
        columns = len(out_rows) if types is None else None
        return DecodeState(
            self.decoder.blocks,
            embed,
            lambda x: project(x if last is None else last(x))[:, :columns],
            memory,
            layout,
            beam,
            max_len,
        )

    def _output(self, rows: Tensor, types: Tensor | None) -> LinearFunction:
        """``output`` for these types, None = all; a frozen model makes one for the same once."""
        key = rows if types is None else types
        if self.inference_dtype is not None and key in self._outputs:
            return self._outputs[key]
        chosen = slice(None) if types is None else types
        project = output_projection(rows[chosen], self.logit_bias()[chosen], self.inference_dtype)
        if self.inference_dtype is not None:
            self._outputs[key] = project
        return project

    def _embed(self, ids: Tensor, rows: Tensor, positions: Tensor, longest: int) -> Tensor:
        """``sqrt(D) * row + sinusoid`` (V section 3.4), [N] -> [N, D]."""
        words = F.embedding(ids, rows)
        return torch.add(self.positions(positions, longest), words, alpha=self.config.dim**0.5)


def _norm_maker(config: ModelConfig) -> MakeNorm:
    make = functools.partial(NORMS[config.norm], eps=config.norm_eps)
    if config.scalenorm_gain == "fixed":
        return functools.partial(make, learned=False)
    return make
