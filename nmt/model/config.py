"""The settings of a model, with the names and defaults of the recipe (``nmt.config.recipe``)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

ONLY_TRAINING = frozenset({"dropout", "attn_dropout", "ffn_dropout", "word_dropout", "init"})
"""Keys that decide how weights are trained, but not what they compute."""


def unknown_keys(keys: Collection[str], known: Collection[str]) -> list[str]:
    """Return the keys that decide what weights compute, and that a list does not name.

    What a format or a parent can express is listed. A new key is refused by each of them, until its
    list names it.
    """
    return sorted({*keys} - {*known} - ONLY_TRAINING)


@dataclass(frozen=True)
class ModelConfig:
    """Sizes, norms and regularization; ``nmt.config.model`` makes it from a recipe.

    Attributes:
        attn_dropout, ffn_dropout: None = as ``dropout``.
    """

    # sizes
    dim: int = 512
    ffn_dim: int = 2048
    heads: int = 8
    enc_layers: int = 6
    dec_layers: int = 6
    # layers
    activation: str = "relu"
    bias: bool = True
    positions: str = "sinusoidal"
    max_positions: int = 1024
    embed_norm: bool = False
    src_eos: bool = True
    norm: str = "scalenorm"
    norm_place: str = "pre"
    norm_eps: float = 1e-5
    scalenorm_gain: str = "learned"
    # embeddings and output
    fixnorm: bool = True
    tie: str = "src_tgt_out"
    out_bias: bool = True
    logit_mask: bool = True
    init: str = "small"
    # regularization
    dropout: float = 0.3
    attn_dropout: float | None = None
    ffn_dropout: float | None = None
    word_dropout: float = 0.1
    # NormFormer
    head_scale: bool = False
    head_scale_place: str = "inside"
    post_attn_norm: bool = False
    ffn_norm: bool = False
    qkv_norm: bool = False
    res_scale: str = "none"
    extra_norm: str = "layernorm"

    @property
    def alignment_layer(self) -> int:
        """The decoder layer whose attention aligns words, from 0.

        It is the second to last (Garg et al. 2019, section 4.1), or the last if there are only two.
        """
        return max(self.dec_layers - 2, self.dec_layers // 2)

    @property
    def attention_dropout(self) -> float:
        """The dropout of attention weights."""
        return self.dropout if self.attn_dropout is None else self.attn_dropout

    @property
    def feedforward_dropout(self) -> float:
        """The dropout after the activation of feed-forward layers."""
        return self.dropout if self.ffn_dropout is None else self.ffn_dropout
