"""Fold norms and scales into the weights: an equivalent model of the parts that engines support.

An inference engine has LayerNorm and RMSNorm, embedding tables, linear layers and residual
connections. The papers' other parts are multiplied into the weights where that is possible:

| part | fold |
|---|---|
| ScaleNorm ``g x / |x|`` | RMSNorm with weight ``g / sqrt(D)``: ``x / rms(x) = sqrt(D) x / |x|`` |
| FixNorm | tables of unit rows; the factor sqrt(D) on the input stays |
| HeadScale | columns of the output projection, ``W (s z) = (W diag(s)) z``; its rows if outside |
| logit mask | output bias |
| scalar ResScale | the last layer of the branch, see ``_fold_residuals`` |

The result is again weights and a ModelConfig, from which an equivalent Transformer can be built.
Epsilons: ScaleNorm clamps |x|, where RMSNorm adds D * eps to its square. With eps = 1e-12 they
agree except for vectors shorter than ``norm_eps``.

Legend: D model dim, H heads, E = D / H, V types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from nmt.errors import UserError
from nmt.model import MASKED_LOGIT
from nmt.model.config import ModelConfig
from nmt.model.embedding import FIXNORM_EPS

SCALENORM_EPS = 1e-12

Weights = dict[str, Tensor]
PARTS = {"encoder": ("self_attn", "ffn"), "decoder": ("self_attn", "cross_attn", "ffn")}


def fold(
    state: Mapping[str, Tensor], config: ModelConfig, allowed: Tensor
) -> tuple[ModelConfig, Weights]:
    """Compute the configuration and weights of an equivalent plain model.

    Args:
        state: a Transformer's state_dict, which is not changed. The result has its dtype and is on
            the CPU.
        config: without ffn_norm, post_attn_norm, qkv_norm and ResScale for each dimension.
        allowed: [V] bool, True for the types of the target language.

    Raises:
        UserError: a scalar ResScale is 0.
    """
    dtype = state["embed.weight"].dtype
    weights, plain = _in_doubles(state), replace(_plain(config), res_scale="none")
    if config.norm == "scalenorm":
        plain = replace(plain, norm="rmsnorm", norm_eps=SCALENORM_EPS)
        root = float(config.dim) ** 0.5
        fixed = torch.tensor(root, dtype=torch.float64)  # checkpoints do not store a fixed gain
        for norm in _norms(config):
            gain = weights.pop(f"{norm}.g", fixed)
            weights[f"{norm}.weight"] = (gain / root).repeat(config.dim)
    _fold_parts(weights, config, allowed)
    _fold_residuals(weights, config)
    return plain, {name: tensor.to(dtype) for name, tensor in weights.items()}


def fold_exactly(
    state: Mapping[str, Tensor], config: ModelConfig, allowed: Tensor
) -> tuple[ModelConfig, Weights]:
    """Compute an equivalent model of any configuration, for an engine that has all its norms.

    FixNorm, HeadScale and the logit mask are multiplied into the weights, and a fixed gain of
    ScaleNorm becomes a weight. Norms and residual connections stay, so it is exact. The arguments
    are those of ``fold``.
    """
    dtype = state["embed.weight"].dtype
    weights = _in_doubles(state)
    if config.norm == "scalenorm":
        gain = torch.tensor(float(config.dim) ** 0.5, dtype=torch.float64)
        weights = {f"{norm}.g": gain for norm in _norms(config)} | weights
    _fold_parts(weights, config, allowed)
    return _plain(config), {name: tensor.to(dtype) for name, tensor in weights.items()}


def _in_doubles(state: Mapping[str, Tensor]) -> Weights:
    return {
        name: tensor.detach().to("cpu", torch.float64, copy=True) for name, tensor in state.items()
    }


def _fold_parts(weights: Weights, config: ModelConfig, allowed: Tensor) -> None:
    if config.fixnorm:
        for table in ("embed.weight", "src_embed.weight", "out_embed.weight"):
            if table in weights:
                weights[table] = F.normalize(weights[table], dim=-1, eps=FIXNORM_EPS)
    _fold_heads(weights, config)
    if config.logit_mask:
        bias = weights.get("out_bias", torch.zeros(len(allowed), dtype=torch.float64))
        masked = torch.tensor(MASKED_LOGIT, dtype=torch.float64)
        weights["out_bias"] = bias.where(allowed.cpu(), masked)


def _plain(config: ModelConfig) -> ModelConfig:
    """Return the configuration without the parts that ``_fold_parts`` folds."""
    return replace(
        config,
        fixnorm=False,
        head_scale=False,
        head_scale_place="inside",
        out_bias=config.out_bias or config.logit_mask,
        logit_mask=False,
        scalenorm_gain="learned",
    )


def layers_of(config: ModelConfig, stack: str) -> range:
    """List the layer numbers of ``encoder`` or ``decoder``."""
    return range(config.enc_layers if stack == "encoder" else config.dec_layers)


def _residuals(config: ModelConfig, stack: str) -> Iterator[tuple[str, str]]:
    """Yield (residual, last linear layer of its branch), from a stack's first layer to its last."""
    for number in layers_of(config, stack):
        for part in PARTS[stack]:
            branch = f"{stack}.layers.{number}.{part}"
            yield f"{branch}_res", f"{branch}.{'fc2' if part == 'ffn' else 'out'}"


def _norms(config: ModelConfig) -> Iterator[str]:
    if config.embed_norm:
        yield from ("src_input.norm", "tgt_input.norm")
    for stack in PARTS:
        for residual, _ in _residuals(config, stack):
            yield f"{residual}.norm"
        if config.norm_place == "pre":
            yield f"{stack}.norm"


def _fold_heads(weights: Weights, config: ModelConfig) -> None:
    if not config.head_scale:
        return
    for stack, parts in PARTS.items():
        for number in layers_of(config, stack):
            for part in parts[:-1]:
                attention = f"{stack}.layers.{number}.{part}"
                scale = weights.pop(f"{attention}.head_scale").flatten()  # [H]
                scale = scale.repeat_interleave(config.dim // config.heads)  # [D]
                if config.head_scale_place == "inside":
                    weights[f"{attention}.out.weight"] *= scale
                    continue
                weights[f"{attention}.out.weight"] *= scale[:, None]
                if config.bias:
                    weights[f"{attention}.out.bias"] *= scale


def _fold_residuals(weights: Weights, config: ModelConfig) -> None:
    """Remove the factors of residual connections and divide the branches by them instead.

    PostNorm, ``norm(a x + f(x))``: a norm is invariant to the length of its input but not to its
    sign, so this equals ``sign(a) norm(x + f(x) / a)``.

    PreNorm, ``x' = a x + f(norm(x))``: let A be the product of the factors of all earlier
    residuals, x = A z and A' = a A. Then
    ``x' = a A z + f(norm(A z)) = A' (z + f(sign(A) norm(z)) / A')``. So each branch is divided by
    the product of the factors up to and including its own. Each norm, also the one at the end of
    the stack, is multiplied by the sign of the product before it.

    With LayerNorm and RMSNorm this is exact except for their epsilon, which is added to the
    variance of z instead of x.
    """
    if config.res_scale != "scalar":
        return
    pre = config.norm_place == "pre"
    for stack in PARTS:
        product = torch.ones((), dtype=torch.float64)
        for residual, last in _residuals(config, stack):
            scale = weights.pop(f"{residual}.scale")
            if scale == 0:
                raise UserError(
                    "a ResScale of 0 removes a residual connection, which CTranslate2 cannot do",
                    at=f"{residual}.scale",
                    fix="translate with nmt-translate",
                )
            before, product = product, (product if pre else 1.0) * scale
            weights[f"{residual}.norm.weight"] *= (before if pre else scale).sign()
            weights[f"{last}.weight"] /= product
            if config.bias:
                weights[f"{last}.bias"] /= product
        if pre:
            weights[f"{stack}.norm.weight"] *= product.sign()
