"""Folds: a model as an equal one of plain parts, as functions from weights to weights.

An inference engine has LayerNorm and RMSNorm, tables, linear layers and skip connections. What else
the papers have, as far as it can be said in those, is multiplied into the weights:

| part | fold |
|---|---|
| ScaleNorm ``g x / |x|`` | RMSNorm of weight ``g / sqrt(D)``: ``x / rms(x) = sqrt(D) x / |x|`` |
| FixNorm | tables of unit rows; the factor sqrt(D) on the input stays where it is |
| HeadScale | columns of the output projection, ``W (s z) = (W diag(s)) z``, or its rows outside |
| logit mask | output bias |
| scalar ResScale | the branch's last layer, see ``_fold_skips`` |

The result is again weights and a configuration of ours, so an equal model can be built from it.
Epsilons: ScaleNorm clamps |x| where RMSNorm adds D * eps to its square. With 1e-12 they agree but
for vectors shorter than ``norm_eps``.

Legend: D model dim, H heads, E = D / H, V types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from nmt.config.recipe import ModelConfig
from nmt.errors import UserError
from nmt.model import MASKED_LOGIT
from nmt.model.embedding import FIXNORM_EPS

SCALENORM_EPS = 1e-12

Weights = dict[str, Tensor]
PARTS = {"encoder": ("self_attn", "ffn"), "decoder": ("self_attn", "cross_attn", "ffn")}


def fold(
    state: Mapping[str, Tensor], config: ModelConfig, allowed: Tensor
) -> tuple[ModelConfig, Weights]:
    """The plain configuration and weights of an equal model; ``state`` is left as it is.

    Args:
        state: a Transformer's state_dict; the result has its precision, on the CPU.
        config: without ffn_norm, post_attn_norm, qkv_norm and a ResScale per dimension.
        allowed: [V] bool, the target language's types.

    Raises:
        UserError: a scalar ResScale is 0.
    """
    kind = state["embed.weight"].dtype
    weights = {
        name: tensor.detach().to("cpu", torch.float64, copy=True) for name, tensor in state.items()
    }
    _fold_norms(weights, config)
    _fold_tables(weights, config)
    _fold_heads(weights, config)
    _fold_skips(weights, config)
    _fold_mask(weights, config, allowed.cpu())
    return plain(config), {name: tensor.to(kind) for name, tensor in weights.items()}


def plain(config: ModelConfig) -> ModelConfig:
    """The configuration of the folded model."""
    changes = {
        "fixnorm": False,
        "head_scale": False,
        "head_scale_place": "inside",
        "res_scale": "none",
        "out_bias": config.out_bias or config.logit_mask,
        "logit_mask": False,
        "scalenorm_gain": "learned",
    }
    if config.norm == "scalenorm":
        changes |= {"norm": "rmsnorm", "norm_eps": SCALENORM_EPS}
    return ModelConfig(**{**config.model_dump(), **changes})


def layers(config: ModelConfig, stack: str) -> range:
    """The layer numbers of ``encoder`` or ``decoder``."""
    return range(config.enc_layers if stack == "encoder" else config.dec_layers)


def _residuals(config: ModelConfig, stack: str) -> Iterator[tuple[str, str]]:
    """(residual, the linear layer that ends its branch) from the bottom of a stack to its top."""
    for number in layers(config, stack):
        for part in PARTS[stack]:
            branch = f"{stack}.layers.{number}.{part}"
            yield f"{branch}_res", f"{branch}.{'fc2' if part == 'ffn' else 'out'}"


def _norms(config: ModelConfig) -> Iterator[str]:
    for stack in PARTS:
        for residual, _ in _residuals(config, stack):
            yield f"{residual}.norm"
        if config.norm_place == "pre":
            yield f"{stack}.norm"


def _fold_norms(weights: Weights, config: ModelConfig) -> None:
    if config.norm != "scalenorm":
        return
    root = float(config.dim) ** 0.5
    fixed = torch.tensor(root, dtype=torch.float64)  # a fixed gain is not in a checkpoint
    for norm in _norms(config):
        gain = weights.pop(f"{norm}.g", fixed)
        weights[f"{norm}.weight"] = (gain / root).repeat(config.dim)


def _fold_tables(weights: Weights, config: ModelConfig) -> None:
    if config.fixnorm:
        for table in ("embed.weight", "src_embed.weight", "out_embed.weight"):
            if table in weights:
                weights[table] = F.normalize(weights[table], dim=-1, eps=FIXNORM_EPS)


def _fold_heads(weights: Weights, config: ModelConfig) -> None:
    if not config.head_scale:
        return
    for stack, parts in PARTS.items():
        for number in layers(config, stack):
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


def _fold_skips(weights: Weights, config: ModelConfig) -> None:
    """Skip connections without a factor, the branches divided by it instead.

    PostNorm, ``norm(a x + f(x))``: a norm does not see its input's length, only its sign, so this
    is ``sign(a) norm(x + f(x) / a)``.

    PreNorm, ``x' = a x + f(norm(x))``: with A the product of the factors up to here and x = A z,
    ``x' = a A z + f(norm(A z)) = A' (z + f(sign(A) norm(z)) / A')`` where A' = a A. So each branch
    is divided by the product of the factors up to and including its own, each norm takes the sign
    of the product before it, and what follows the stack is a norm too.

    Under LayerNorm and RMSNorm this holds but for their epsilon, which now meets z in place of x.
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
                    "a ResScale of 0 drops a skip connection, which CTranslate2 always has",
                    at=f"{residual}.scale",
                )
            before, product = product, (product if pre else 1.0) * scale
            weights[f"{residual}.norm.weight"] *= (before if pre else scale).sign()
            weights[f"{last}.weight"] /= product
            if config.bias:
                weights[f"{last}.bias"] /= product
        if pre:
            weights[f"{stack}.norm.weight"] *= product.sign()


def _fold_mask(weights: Weights, config: ModelConfig, allowed: Tensor) -> None:
    if not config.logit_mask:
        return
    bias = weights.get("out_bias", torch.zeros(len(allowed), dtype=torch.float64))
    weights["out_bias"] = bias.where(allowed, torch.tensor(MASKED_LOGIT, dtype=torch.float64))
