"""The encoder-decoder transformer of both papers (Vaswani 3; Nguyen 2; NormFormer 2).

Shapes: N flat tokens (Ns source, Nt target), B sentences, D model dim, V vocabulary size, A types
that a search considers, K beams. A type is an entry of the vocabulary.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from nmt.model.base import ModelBase
from nmt.model.config import ModelConfig
from nmt.model.incremental import DecodeState
from nmt.model.inference import LinearFunction, output_projection, replace_layers
from nmt.model.layout import Layout

EmbeddingTables: TypeAlias = tuple[Tensor, Tensor, Tensor]


class Transformer(ModelBase):
    """The model: source and target ids in, logits over the vocabulary out.

    Difference from the papers: tokens are flat [N], so that only attention sees padding. All other
    choices are keys of the recipe.

    Args:
        config: sizes, norms and regularization.
        vocab_size: V, the size of the joint vocabulary.
        allowed: [V] bool, the types that the target language has. The output masks the others
            if ``config.logit_mask``. None = all.
        initialize: draw weights with the seed 0. A training draws them with the recipe's seed
            (``Task.make_model``), and a stored model loads them.
    """

    def __init__(
        self,
        config: ModelConfig,
        vocab_size: int,
        allowed: np.ndarray | Tensor | None = None,
        initialize: bool = True,
    ) -> None:
        super().__init__(config, vocab_size, allowed)
        self.inference_dtype: torch.dtype | None = None
        self._tables: EmbeddingTables | None = None
        self.src_input, self.tgt_input = self.make_input(), self.make_input()
        self.encoder = self.make_stack(
            config.enc_layers, causal=False, cross=False, before_logits=False
        )
        self.decoder = self.make_stack(
            config.dec_layers, causal=True, cross=True, before_logits=True
        )
        self.embed = self.make_embedding()
        self.src_embed = None if config.tie == "src_tgt_out" else self.make_embedding()
        self.out_embed = self.make_embedding() if config.tie == "none" else None
        if initialize:
            self.init_weights(torch.Generator().manual_seed(0))

    def prepare_for_inference(self, dtype: torch.dtype) -> Transformer:
        """Replace layers by inference versions that compute in ``dtype``; return the model.

        Weights are cast and embedding tables normalized once, so later changes of parameters have
        no effect. The model can no longer be trained.
        """
        self.eval()
        if dtype != torch.float32:
            replace_layers(self, dtype)
        with torch.no_grad():
            self._tables = self.embedding_tables()
        # weights of the output by the table or the types, as long as these exist
        self._projections = WeakTensorKeyDictionary()
        self.inference_dtype = dtype
        return self

    def forward(self, src: Tensor, src_layout: Layout, tgt: Tensor, tgt_layout: Layout) -> Tensor:
        """Return the logits of the token after each target token: [Nt, V].

        Args:
            src: [Ns] source ids; each sentence ends with EOS.
            tgt: [Nt] target ids; each sentence begins with BOS.
        """
        return self.logits(*self.states(src, src_layout, tgt, tgt_layout))

    def states(
        self, src: Tensor, src_layout: Layout, tgt: Tensor, tgt_layout: Layout
    ) -> tuple[Tensor, Tensor]:
        """Return the arguments of ``logits``: the decoder's output [Nt, D] and a table [V, D]."""
        src_table, tgt_table, out_table = self.embedding_tables()
        src_layout = self._visible(src_layout)
        memory = self.encode(src, src_layout, src_table)
        x = self.tgt_input(tgt, tgt_table, tgt_layout.positions, tgt_layout.shape[1])
        return self.decoder(x, tgt_layout, memory, src_layout), out_table

    def embedding_tables(self) -> EmbeddingTables:
        """Return source, target and output tables, [V, D] each, normalized under FixNorm."""
        if self._tables is not None:
            return self._tables
        tgt = self.embed.table()
        src = tgt if self.src_embed is None else self.src_embed.table()
        return src, tgt, tgt if self.out_embed is None else self.out_embed.table()

    def encode(self, src: Tensor, layout: Layout, table: Tensor) -> Tensor:
        """Return the encoder's output: source ids [Ns] and table [V, D] -> [Ns, D]."""
        x = self.src_input(src, table, layout.positions, layout.shape[1])
        return self.encoder(x, layout)

    def _visible(self, layout: Layout) -> Layout:
        """Return the layout of sources, of which attention sees EOS only with ``src_eos``."""
        return layout if self.config.src_eos else layout.without_last()

    def logits(self, states: Tensor, table: Tensor) -> Tensor:
        """Return ``states @ table.T + logit_bias``: [N, D] -> [N, V]."""
        if self.inference_dtype is not None:
            return self._output_projection(table, None)(states)
        return super().logits(states, table)

    def start_decoding(
        self, src: Tensor, layout: Layout, beam: int, max_len: int, types: Tensor | None = None
    ) -> DecodeState:
        """Encode B sentences and return the state for decoding them position by position.

        Args:
            src: [Ns] source ids.
            layout: of ``src``.
            beam: K.
            max_len: positions that can be decoded.
            types: [A] ids of the types that the columns of logits stand for; None = all V.
        """
        src_table, tgt_table, out_table = self.embedding_tables()
        layout = self._visible(layout)
        memory = self.encode(src, layout, src_table)

        def embed(tokens: Tensor, position: int) -> Tensor:
            positions = torch.full_like(tokens, position)
            return self.tgt_input(tokens, tgt_table, positions, position + 1)

        project = self._output_projection(out_table, types)
        last_norm = self.decoder.norm

        def logits(x: Tensor) -> Tensor:
            return project(x if last_norm is None else last_norm(x))

        return DecodeState(
            self.decoder.blocks,
            embed,
            logits,
            memory,
            memory_layout=layout,
            beam=beam,
            max_len=max_len,
        )

    def _output_projection(self, table: Tensor, types: Tensor | None) -> LinearFunction:
        """Return ``output_projection`` for these types, None = all.

        A model prepared for inference gathers the weights once for the same types.
        """
        key = table if types is None else types
        if self.inference_dtype is not None and key in self._projections:
            return self._projections[key]
        chosen = slice(None) if types is None else types
        project = output_projection(table[chosen], self.logit_bias()[chosen], self.inference_dtype)
        if self.inference_dtype is not None:
            self._projections[key] = project
        return project
