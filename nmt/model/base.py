"""What the encoder-decoder and the language model share: words in, logits out, initialization.

Shapes: N flat tokens, D model dim, V vocabulary size. A type is an entry of the vocabulary.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from nmt.model import MASKED_LOGIT
from nmt.model.attention import MultiHeadAttention
from nmt.model.config import ModelConfig
from nmt.model.dropout import DropoutRng
from nmt.model.embedding import EmbeddingTable, InputEmbedding, LearnedPositions
from nmt.model.layers import Block, FeedForward, Stack
from nmt.model.linear import linear
from nmt.model.norms import NORMS


class ModelBase(nn.Module):
    """The parts of a model around its stacks. A subclass makes the stacks and ``forward``.

    Args:
        config: sizes, norms and regularization.
        vocab_size: V.
        allowed: [V] bool, the types that the model may predict. The output masks the others if
            ``config.logit_mask``. None = all.

    Attributes:
        dropout_rng: the generator of all dropout masks.
        allowed: [V] bool, the types that the output does not mask.
        states: returns the arguments of ``logits`` for those of ``forward``.
    """

    allowed: Tensor
    states: Callable[..., tuple[Tensor, Tensor]]

    def __init__(
        self, config: ModelConfig, vocab_size: int, allowed: np.ndarray | Tensor | None
    ) -> None:
        super().__init__()
        self.config = config
        self.vocab_size = vocab_size
        self.dropout_rng = DropoutRng()
        self.out_bias = nn.Parameter(torch.zeros(vocab_size)) if config.out_bias else None
        mask = torch.ones(vocab_size, dtype=torch.bool)
        if config.logit_mask and allowed is not None:
            mask = torch.as_tensor(allowed).bool().clone()
        self.register_buffer("allowed", mask, persistent=False)

    def make_stack(self, blocks: int, *, causal: bool, cross: bool, before_logits: bool) -> Stack:
        """Return a stack of blocks. With PostNorm, its last norm is that of the last feed-forward.

        Args:
            blocks: how many.
            causal, cross: of ``Block``.
            before_logits: its outputs become logits. The gain of its last norm scales them (Nguyen
                equation 6), so that norm learns its gain even if ``scalenorm_gain`` is fixed.
        """
        config, pre = self.config, self.config.norm_place == "pre"
        make_learned_norm = functools.partial(NORMS[config.norm], eps=config.norm_eps)
        make_norm = make_learned_norm
        if config.scalenorm_gain == "fixed":
            make_norm = functools.partial(make_norm, learned=False)
        last_norm = (make_learned_norm if before_logits else make_norm)(config.dim)
        layers = [
            Block(
                config,
                self.dropout_rng,
                make_norm,
                functools.partial(NORMS[config.extra_norm], eps=config.norm_eps),
                causal=causal,
                cross=cross,
                last_norm=None if pre or i < blocks - 1 else last_norm,
            )
            for i in range(blocks)
        ]
        return Stack(layers, last_norm if pre else None)

    @property
    def longest(self) -> int | None:
        """The number of tokens of a sentence that there are positions for; None = any."""
        return self.config.max_positions if self.config.positions == "learned" else None

    def make_input(self) -> InputEmbedding:
        """Make the input of a stack: words in, vectors out."""
        return InputEmbedding(self.config, self.dropout_rng)

    def recompute_activations(self) -> None:
        """Compute the activations of each block again in the backward pass."""
        for stack in self.modules():
            if isinstance(stack, Stack):
                stack.recompute_rng = self.dropout_rng

    def make_embedding(self) -> EmbeddingTable:
        """Return an uninitialized table of word vectors."""
        return EmbeddingTable(self.vocab_size, self.config.dim, self.config.fixnorm)

    def init_weights(self, generator: torch.Generator) -> None:
        """Draw all weight matrices (Nguyen sections 2.2 and 3.2) and set their biases to 0.

        N(mean, variance); the paper writes the standard deviation. Queries, keys and values, which
        share a matrix, are drawn as d x d matrices of their own.

        | part | distribution |
        |---|---|
        | attention, init small | N(0, 2 / (d + 4d)) for any ffn_dim |
        | attention, init xavier | N(0, 2 / (d + d)), Nguyen equation 4 |
        | feed-forward | N(0, 2 / (d + ffn_dim)) |
        | embeddings | N(0, 1 / d); U(-0.01, 0.01) under FixNorm |
        | learned positions | N(0, 1 / d) |
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
                elif isinstance(module, EmbeddingTable):
                    if module.fixnorm:
                        module.weight.uniform_(-0.01, 0.01, generator=generator)
                    else:
                        module.weight.normal_(0, d**-0.5, generator=generator)
                elif isinstance(module, LearnedPositions):
                    module.weight.normal_(0, d**-0.5, generator=generator)

    def logits(self, states: Tensor, table: Tensor) -> Tensor:
        """Return ``states @ table.T + logit_bias``: [N, D] -> [N, V].

        The logit mask is part of the bias, so it needs no pass over the logits.
        """
        return linear(states, table, self.logit_bias())

    def logit_bias(self) -> Tensor:
        """Return the output bias with ``MASKED_LOGIT`` at masked types: [V]."""
        if self.out_bias is None:
            return torch.where(self.allowed, 0.0, MASKED_LOGIT)
        return torch.where(self.allowed, self.out_bias, MASKED_LOGIT)
