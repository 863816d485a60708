"""The encoder-decoder transformer of both papers (V section 3; T section 2; N section 2).

Shapes: N flat tokens (Ns source, Nt target), B sentences, D model dim, V vocabulary size, A types
that a search considers, K beams. A type is an entry of the vocabulary.
Sources: T = Nguyen & Salazar 2019, N = Shleifer et al. 2021, V = Vaswani et al. 2017.
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

EmbeddingTables: TypeAlias = tuple[Tensor, Tensor, Tensor]


class Stack(nn.Module):
    """The blocks of an encoder or a decoder; PreNorm ends with one more norm (T section 2.1)."""

    def __init__(self, blocks: list[Block], norm: nn.Module | None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(blocks)
        self.norm = norm

    @property
    def blocks(self) -> Iterable[Block]:
        """Return the layers with their type, which ``ModuleList`` does not keep."""
        return cast(Iterable[Block], self.layers)

    def forward(self, x: Tensor, *layouts: Any) -> Tensor:
        """Apply all blocks: [N, D] -> [N, D].

        ``layouts`` are the arguments of ``Block.batch_attention``: the layout of x and, in a
        decoder, the memory and its layout.
        """
        for block in self.blocks:
            x = block(x, *block.batch_attention(*layouts))
        return x if self.norm is None else self.norm(x)


class Transformer(nn.Module):
    """The model: source and target ids in, logits over the vocabulary out.

    Difference from the papers: tokens are flat [N], so that only attention sees padding. All other
    choices are keys of the recipe.

    Args:
        config: the recipe's ``model`` keys.
        vocab_size: V, the size of the joint vocabulary.
        tgt_types: [V] bool, the types that the target language has. The output masks the others
            if ``config.logit_mask``. None = all.
        initialize: draw initial weights. False saves that time where weights are loaded next.
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
        self._tables: EmbeddingTables | None = None
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
        make_embedding = functools.partial(TiedEmbedding, vocab_size, config.dim, config.fixnorm)
        self.embed = make_embedding()
        self.src_embed = None if config.tie == "src_tgt_out" else make_embedding()
        self.out_embed = make_embedding() if config.tie == "none" else None
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
        """Replace layers by inference versions that compute in ``dtype``; return the model.

        Weights are packed and embedding tables normalized once, so later changes of parameters
        have no effect. The model can no longer be trained.
        """
        replace_layers(self.eval(), dtype)
        with torch.no_grad():
            self._tables = self.embedding_tables()
        self._projections = WeakTensorKeyDictionary()
        self.inference_dtype = dtype
        return self

    @property
    def for_inference(self) -> bool:
        """Return whether ``prepare_for_inference`` was called."""
        return self.inference_dtype is not None

    def init_weights(self, generator: torch.Generator) -> None:
        """Draw all weight matrices (T sections 2.2 and 3.2) and set their biases to 0.

        | part | distribution |
        |---|---|
        | attention, init small | N(0, 2 / (d + 4d)) for any ffn_dim |
        | attention, init xavier | N(0, 2 / (d + d)), T equation 4 |
        | feed-forward | N(0, 2 / (d + ffn_dim)) |
        | embeddings | N(0, 1 / d); U(-0.01, 0.01) under FixNorm |
        """
        d, f = self.config.dim, self.config.ffn_dim
        attention_std = math.sqrt(2 / (5 * d) if self.config.init == "small" else 2 / (2 * d))
        with torch.no_grad():
            for module in self.modules():
                if isinstance(module, MultiHeadAttention | FeedForward):
                    ffn = isinstance(module, FeedForward)
                    for layer in module.children():
                        if isinstance(layer, nn.Linear):
                            std = math.sqrt(2 / (d + f)) if ffn else attention_std
                            layer.weight.normal_(0, std, generator=generator)
                            if layer.bias is not None:
                                layer.bias.zero_()
                elif isinstance(module, TiedEmbedding):
                    if module.fixnorm:
                        module.weight.uniform_(-0.01, 0.01, generator=generator)
                    else:
                        module.weight.normal_(0, d**-0.5, generator=generator)

    def forward(self, batch: Batch) -> Tensor:
        """Return logits [Nt, V], one row for each token of ``batch.tgt_out``, in its order."""
        src_table, tgt_table, out_table = self.embedding_tables()
        memory = self.encode(batch.src, batch.src_layout, src_table)
        x = self._embed(
            self.word_dropout(batch.tgt_in),
            tgt_table,
            batch.tgt_layout.positions,
            batch.tgt_layout.shape[1],
        )
        states = self.decoder(self.embed_dropout(x), batch.tgt_layout, memory, batch.src_layout)
        return self.logits(states, out_table)

    def embedding_tables(self) -> EmbeddingTables:
        """Return source, target and output tables, [V, D] each, normalized under FixNorm."""
        if self._tables is not None:
            return self._tables
        tgt = self.embed.table()
        src = tgt if self.src_embed is None else self.src_embed.table()
        return src, tgt, tgt if self.out_embed is None else self.out_embed.table()

    def encode(self, src: Tensor, layout: Layout, table: Tensor) -> Tensor:
        """Return the encoder's output: source ids [Ns] and table [V, D] -> [Ns, D]."""
        x = self._embed(self.word_dropout(src), table, layout.positions, layout.shape[1])
        return self.encoder(self.embed_dropout(x), layout)

    def logits(self, states: Tensor, table: Tensor) -> Tensor:
        """Return ``states @ table.T + logit_bias``: [N, D] -> [N, V].

        The logit mask is part of the bias, so it needs no pass over the logits.
        """
        if self.inference_dtype is not None:
            return self._output_projection(table, None)(states)[:, : len(table)]
        return linear(states, table, self.logit_bias())

    def logit_bias(self) -> Tensor:
        """Return the output bias with ``MASKED_LOGIT`` at masked types: [V]."""
        if self.out_bias is None:
            return torch.where(self.allowed, 0.0, MASKED_LOGIT)
        return torch.where(self.allowed, self.out_bias, MASKED_LOGIT)

    def start_decoding(
        self, src: Tensor, layout: Layout, beam: int, max_len: int, types: Tensor | None = None
    ) -> DecodeState:
        """Encode B sentences and return the state for decoding them position by position.

        Args:
            src: [Ns] source ids.
            layout: of ``src``.
            beam: K.
            max_len: positions that can be decoded.
            types: [A] ids of the types that the first A columns of logits stand for; further
                columns are -inf. None = all V types, without further columns.
        """
        src_table, tgt_table, out_table = self.embedding_tables()
        memory = self.encode(src, layout, src_table)

        def embed(tokens: Tensor, position: int) -> Tensor:
            positions = torch.full_like(tokens, position)
            return self._embed(tokens, tgt_table, positions, position + 1)

        project = self._output_projection(out_table, types)
        last_norm = self.decoder.norm
        columns = len(out_table) if types is None else None
        return DecodeState(
            self.decoder.blocks,
            embed,
            lambda x: project(x if last_norm is None else last_norm(x))[:, :columns],
            memory,
            layout,
            beam,
            max_len,
        )

    def _output_projection(self, table: Tensor, types: Tensor | None) -> LinearFunction:
        """Return ``output_projection`` for these types, None = all.

        A model prepared for inference packs the weights once for the same types.
        """
        key = table if types is None else types
        if self.inference_dtype is not None and key in self._projections:
            return self._projections[key]
        chosen = slice(None) if types is None else types
        project = output_projection(table[chosen], self.logit_bias()[chosen], self.inference_dtype)
        if self.inference_dtype is not None:
            self._projections[key] = project
        return project

    def _embed(self, ids: Tensor, table: Tensor, positions: Tensor, max_length: int) -> Tensor:
        """Return ``sqrt(D) * word + position`` (V section 3.4): [N] -> [N, D]."""
        words = F.embedding(ids, table)
        return torch.add(self.positions(positions, max_length), words, alpha=self.config.dim**0.5)


def _norm_maker(config: ModelConfig) -> MakeNorm:
    make = functools.partial(NORMS[config.norm], eps=config.norm_eps)
    if config.scalenorm_gain == "fixed":
        return functools.partial(make, learned=False)
    return make
