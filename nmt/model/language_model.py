"""The language model: a decoder without cross-attention, or an encoder, that predicts words.

NormFormer trains both (section 2.2): causal models after GPT-3, masked ones after RoBERTa. A model
has one stack of the Transformer's blocks, under the names of that stack, so a Transformer can take
its parameters.

Shapes: N flat tokens, M predicted tokens, D model dim, V vocabulary size.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from nmt.model.base import ModelBase
from nmt.model.config import ModelConfig
from nmt.model.layers import Stack
from nmt.model.layout import Layout


class LanguageModel(ModelBase):
    """The model: token ids in, logits over the vocabulary out.

    | | causal | masked |
    |---|---|---|
    | a position attends to | itself and earlier ones | all |
    | ``decoder`` or ``encoder`` | ``decoder.layers.*``, ``decoder.norm`` | ``encoder.*`` |
    | layers | ``config.dec_layers`` | ``config.enc_layers`` |

    Input and output share the table ``embed`` unless ``config.tie`` is none; then the output has
    ``out_embed``.

    Differences from NormFormer: positions are the sinusoids of the Transformer for both kinds,
    where RoBERTa learns them. A masked model predicts from the stack's output, where RoBERTa has
    one more linear layer, GELU and norm.

    Args:
        config: sizes, norms and regularization.
        vocab_size: V.
        causal: predict the next token; False = predict masked tokens.
        allowed: [V] bool, the types that the model may predict. The output masks the others if
            ``config.logit_mask``. None = all.
        initialize: draw weights with the seed 0, as in ``Transformer``.
    """

    def __init__(
        self,
        config: ModelConfig,
        vocab_size: int,
        causal: bool,
        allowed: np.ndarray | Tensor | None = None,
        initialize: bool = True,
    ) -> None:
        super().__init__(config, vocab_size, allowed)
        self.causal = causal
        if causal:
            self.tgt_input = self.make_input()
            self.decoder = self.make_stack(
                config.dec_layers, causal=True, cross=False, before_logits=True
            )
        else:
            self.src_input = self.make_input()
            self.encoder = self.make_stack(
                config.enc_layers, causal=False, cross=False, before_logits=True
            )
        self.embed = self.make_embedding()
        self.out_embed = self.make_embedding() if config.tie == "none" else None
        if initialize:
            self.init_weights(torch.Generator().manual_seed(0))

    @property
    def stack(self) -> Stack:
        """Return the blocks: ``decoder`` if causal, else ``encoder``."""
        return self.decoder if self.causal else self.encoder

    def forward(self, ids: Tensor, layout: Layout, places: Tensor | None = None) -> Tensor:
        """Return logits: [N] -> [M, V]. The arguments are those of ``states``."""
        return self.logits(*self.states(ids, layout, places))

    def states(
        self, ids: Tensor, layout: Layout, places: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the arguments of ``logits``: the stack's output [M, D] and a table [V, D].

        Args:
            ids: [N] token ids.
            places: [M] indices of the tokens to compute logits at: in a small model, logits take
                most of the time. None = at all, so that M = N.
        """
        table = self.embed.table()
        embed = self.tgt_input if self.causal else self.src_input
        states = self.stack(embed(ids, table, layout.positions, layout.shape[1]), layout)
        if places is not None:
            states = states[places]
        return states, table if self.out_embed is None else self.out_embed.table()
