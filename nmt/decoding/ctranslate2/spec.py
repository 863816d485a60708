"""Build CTranslate2's specification of a folded model; reject models that it does not support."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from nmt.config.errors import format_value
from nmt.config.recipe import DecodeConfig
from nmt.data.vocab import BOS, EOS, PAD, UNK, Vocab
from nmt.decoding.codec import MAX_SOURCE_PIECES
from nmt.errors import UserError, install_fix
from nmt.model.config import ModelConfig, unknown_keys

if TYPE_CHECKING:
    from torch import Tensor

SPECIALS = ("< pad >", "< s >", "< /s >", "< unk >")
"""PAD, BOS, EOS and UNK in an exported vocabulary.

No piece of text contains a space, and only the piece of a tag begins with one.
"""

LONGEST_SOURCE = MAX_SOURCE_PIECES + 3  # with EOS, its tag and the tag of the target
POSITIONS = 2048  # pieces of the longest sentence with EOS, unless the decode settings need more
LARGEST_CLAMP = 1e-3  # a ScaleNorm that clamps at this length or less is exported without clamp
TYPICAL_LENGTH = 25  # pieces; there the two length penalties grow at the same rate

NORMS = ("scalenorm", "rmsnorm", "layernorm")
ACTIVATIONS = ("relu", "relu2", "geglu", "gelu", "swish")

# keys of a model of which CTranslate2 computes all values, after ``fold``; others are in
# ``check_supported``
EXPORTED = (
    "dim", "ffn_dim", "heads", "enc_layers", "dec_layers", "bias", "norm_place", "scalenorm_gain",
    "fixnorm", "tie", "out_bias", "logit_mask", "head_scale", "head_scale_place", "positions",
    "max_positions", "embed_norm", "extra_norm", "src_eos",
)  # fmt: skip

Arrays = Mapping[str, np.ndarray]


def require_ctranslate2() -> ModuleType:
    """Import ctranslate2, or raise a UserError that says how to install it."""
    try:
        import ctranslate2
    except ImportError as error:
        what = f"the package ctranslate2 cannot be imported: {error}"
        raise UserError(what, fix=install_fix()) from error
    return ctranslate2


def ctranslate2_length_penalty(decode: DecodeConfig) -> float:
    """Compute CTranslate2's ``length_penalty`` that is closest to that of a recipe.

    CTranslate2 divides by ``n^p``, as the kind mean does, and the kind gnmt by
    ``((5 + n) / 6)^alpha`` (W equation 14). Their relative growth with n is ``p / n`` and
    ``alpha / (5 + n)``: equal at n = 25 if p = 5/6 alpha.
    """
    if decode.length_penalty == "mean":
        return decode.length_alpha
    return round(decode.length_alpha * TYPICAL_LENGTH / (5 + TYPICAL_LENGTH), 3)


def length_penalty_formula(decode: DecodeConfig) -> str:
    """Return what divides the log-probability of n tokens, for people."""
    base = "n" if decode.length_penalty == "mean" else "((5+n)/6)"
    return f"{base}^{decode.length_alpha:g}"


def largest_offset(decode: DecodeConfig, config: ModelConfig) -> int:
    """Compute the largest ``max_len_offset`` for which an export has enough positions."""
    if config.positions == "learned":
        return config.max_positions - LONGEST_SOURCE
    return max(POSITIONS - LONGEST_SOURCE, decode.max_len_offset)


def check_supported(config: ModelConfig) -> None:
    """Check that CTranslate2 supports a model.

    Raises:
        UserError: it does not; the message names every key that prevents it.
    """
    limits = [
        ("norm", config.norm not in NORMS, "CTranslate2 has no such norm"),
        (
            "activation",
            config.activation not in ACTIVATIONS,
            "CTranslate2 has no such activation, or its export is not written",
        ),
        ("ffn_norm", config.ffn_norm, "CTranslate2 has no norm inside the feed-forward layer"),
        (
            "post_attn_norm",
            config.post_attn_norm,
            "CTranslate2 has no norm on attention outputs alone",
        ),
        (
            "qkv_norm",
            config.qkv_norm,
            "CTranslate2 normalizes queries and keys of each head only",
        ),
        (
            "res_scale",
            config.res_scale in ("ffn", "all"),
            "CTranslate2 has no factor for each dimension of a residual connection; scalar "
            "can be exported",
        ),
        (
            "norm_eps",
            config.norm == "scalenorm" and config.norm_eps > LARGEST_CLAMP,
            "CTranslate2's norms do not clamp; for ScaleNorm, values of up to "
            f"{LARGEST_CLAMP:g} can be exported",
        ),
    ]
    listed = {*EXPORTED, *(key for key, _, _ in limits)}
    for key in unknown_keys([field.name for field in fields(config)], listed):
        limits.append((key, True, "no export of this key is written"))
    obstacles = [
        f"model.{key}: {format_value(getattr(config, key))}, {reason}"
        for key, is_obstacle, reason in limits
        if is_obstacle
    ]
    if obstacles:
        raise UserError(
            "CTranslate2 does not support this model:\n  " + "\n  ".join(obstacles),
            fix="translate with nmt-translate, or train without these settings",
        )


def tokens_of(vocab: Vocab) -> list[str]:
    """Return CTranslate2's token of each type."""
    return [*SPECIALS, *vocab.pieces(range(len(SPECIALS), len(vocab)))]


def save_model(
    folder: Path,
    weights: Mapping[str, Tensor],
    config: ModelConfig,
    allowed: Tensor,
    vocab: Vocab,
    decode: DecodeConfig,
    quantization: str | None = None,
) -> None:
    """Write a model for CTranslate2 into a folder.

    Args:
        weights, config, allowed: of a Transformer.
        decode: its ``max_len_offset`` is possible.
        quantization: one of CTranslate2's types; None = fp32.

    Raises:
        UserError: CTranslate2 does not support the model.
    """
    from nmt.decoding.ctranslate2.fold import fold

    check_supported(config)
    positions = LONGEST_SOURCE + largest_offset(decode, config)
    config, folded = fold(weights, config, allowed)
    spec = build_spec(config, folded, tokens_of(vocab)[len(SPECIALS) :], positions)
    spec.optimize(quantization)
    spec.save(str(folder))


def hidden_tokens(vocab: Vocab, allowed: Sequence[bool]) -> list[str]:
    """Return the tokens that no output shows, but that a model could produce."""
    tokens = tokens_of(vocab)
    return [tokens[i] for i in (PAD, BOS, *vocab.reserved_ids) if allowed[i]]


def build_spec(
    config: ModelConfig, weights: Mapping[str, Tensor], types: Sequence[str], positions: int
) -> Any:
    """Build a complete and validated ``ctranslate2.specs.TransformerSpec``.

    Args:
        config, weights: the results of ``fold``.
        types: the pieces of the vocabulary, without the four special tokens.
        positions: the maximum length of a source or target sentence, in pieces including EOS.
    """
    from nmt.decoding.ctranslate2.fold import layers_of
    from nmt.model.embedding import sinusoids

    specs = require_ctranslate2().specs
    arrays = {name: tensor.numpy() for name, tensor in weights.items()}
    common = {
        "num_heads": config.heads,
        "pre_norm": config.norm_place == "pre",
        "rms_norm": config.norm != "layernorm",
        # relu2 is a gated layer with equal halves, relu(h) * h; equal arrays are stored once
        "ffn_glu": config.activation in ("geglu", "relu2"),
        "activation": {
            "relu": specs.Activation.RELU,
            "relu2": specs.Activation.RELU,
            "swish": specs.Activation.SWISH,
        }.get(config.activation, specs.Activation.GELU),
        "layernorm_embedding": config.embed_norm,
    }
    spec = specs.TransformerSpec(
        specs.TransformerEncoderSpec(config.enc_layers, **common),
        # word alignments read the mean over the heads of this layer
        specs.TransformerDecoderSpec(
            config.dec_layers,
            alignment_layer=config.alignment_layer,
            alignment_heads=config.heads,
            **common,
        ),
    )
    tokens = [*SPECIALS, *types]
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.config.bos_token = spec.config.decoder_start_token = SPECIALS[BOS]
    spec.config.eos_token, spec.config.unk_token = SPECIALS[EOS], SPECIALS[UNK]
    spec.config.add_source_eos = config.src_eos
    spec.config.layer_norm_epsilon = config.norm_eps

    tgt = arrays["embed.weight"]
    spec.encoder.embeddings[0].weight = arrays.get("src_embed.weight", tgt)
    spec.decoder.embeddings.weight = tgt
    spec.decoder.projection.weight = arrays.get("out_embed.weight", tgt)
    if config.out_bias:
        spec.decoder.projection.bias = arrays["out_bias"]
    sides = (("encoder", spec.encoder, "src_input"), ("decoder", spec.decoder, "tgt_input"))
    for name, stack, side in sides:
        if config.positions == "learned":
            stack.position_encodings.encodings = arrays[f"{side}.positions.weight"]
        else:
            table = sinusoids(positions, config.dim, config.positions)
            stack.position_encodings.encodings = table.numpy()
        if config.embed_norm:
            _set_norm(stack.layernorm_embedding, arrays, f"{side}.norm")
        if config.norm_place == "pre":
            _set_norm(stack.layer_norm, arrays, f"{name}.norm")
        for number in layers_of(config, name):
            _set_layer(stack.layer[number], arrays, f"{name}.layers.{number}", config)
    spec.validate()
    return spec


def _set_layer(layer: Any, arrays: Arrays, name: str, config: ModelConfig) -> None:
    attentions: list[tuple[str, Any, tuple[str, ...]]]
    attentions = [("self_attn", layer.self_attention, ("qkv", "out"))]
    if hasattr(layer, "attention"):
        attentions.append(("cross_attn", layer.attention, ("q", "kv", "out")))
    for branch, attention, parts in attentions:
        _set_norm(attention.layer_norm, arrays, f"{name}.{branch}_res.norm")
        for linear, part in zip(attention.linear, parts, strict=True):
            _set_linear(linear, arrays, f"{name}.{branch}.{part}")
    ffn = layer.ffn
    _set_norm(ffn.layer_norm, arrays, f"{name}.ffn_res.norm")
    _set_linear(ffn.linear_1, arrays, f"{name}.ffn.fc2")
    if config.activation != "geglu":
        _set_linear(ffn.linear_0, arrays, f"{name}.ffn.fc1")
        if config.activation == "relu2":
            _set_linear(ffn.linear_0_noact, arrays, f"{name}.ffn.fc1")
        return
    for linear, half in ((ffn.linear_0, 0), (ffn.linear_0_noact, 1)):  # the gate is first
        linear.weight = np.split(arrays[f"{name}.ffn.fc1.weight"], 2)[half]
        if config.bias:
            linear.bias = np.split(arrays[f"{name}.ffn.fc1.bias"], 2)[half]


def _set_norm(norm: Any, arrays: Arrays, name: str) -> None:
    norm.gamma = arrays[f"{name}.weight"]
    if f"{name}.bias" in arrays:
        norm.beta = arrays[f"{name}.bias"]


def _set_linear(linear: Any, arrays: Arrays, name: str) -> None:
    linear.weight = arrays[f"{name}.weight"]
    if f"{name}.bias" in arrays:
        linear.bias = arrays[f"{name}.bias"]
