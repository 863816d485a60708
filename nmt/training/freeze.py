"""Choose which parameters train: ``init.freeze``, and LoRA, which trains nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from torch import nn

from nmt.config.errors import did_you_mean
from nmt.config.recipe import Recipe
from nmt.errors import UserError
from nmt.model.linear import Linear
from nmt.model.lora import add_lora

# words of init.freeze -> patterns
PARTS = {
    "embeddings": ("embed.*", "src_embed.*", "out_embed.*", "src_input.*", "tgt_input.*"),
    "encoder": ("encoder.*",),
    "decoder": ("decoder.*",),
}


def choose_trained(model: nn.Module, recipe: Recipe) -> None:
    """Exclude parameters from training, and add those of LoRA, as a recipe says.

    Raises:
        UserError: a pattern of ``init.freeze`` or ``lora.targets`` matches nothing.
    """
    lora = recipe.lora
    if not lora.rank:
        freeze(model, recipe.init.freeze)
        return
    alpha = 2.0 * lora.rank if lora.alpha is None else lora.alpha
    if not add_lora(model, lora.rank, alpha, lora.targets, recipe.seed):
        layers = dict.fromkeys(
            name.rpartition(".")[2] for name, m in model.named_modules() if isinstance(m, Linear)
        )
        raise UserError(
            f"no linear layer matches {', '.join(lora.targets)}",
            at="lora.targets",
            fix=f"use patterns such as *.{', *.'.join(layers)}",
        )


def freeze(model: nn.Module, patterns: Sequence[str]) -> None:
    """Exclude parameters from training, by patterns of their names or the words of PARTS.

    Raises:
        UserError: a pattern matches no parameter, or no parameter is left to train.
    """
    parameters = dict(model.named_parameters())
    frozen: set[str] = set()
    for pattern in patterns:
        names = PARTS.get(pattern, (pattern,))
        matching = [p for p in parameters if any(fnmatchcase(p, name) for name in names)]
        if not matching:
            above = {f"{p[:i]}.*": 0 for p in parameters for i, c in enumerate(p) if c == "."}
            near = did_you_mean(pattern, [*parameters, *above])
            raise UserError(
                f'no parameter of the model matches "{pattern}"{near}',
                at="init.freeze",
                fix=f"use a pattern of these: {top_level(parameters)}; or the "
                f"words {', '.join(PARTS)}",
            )
        frozen.update(matching)
    if len(frozen) == len(parameters):
        raise UserError(
            "these patterns match all parameters, so nothing is left to train",
            at="init.freeze",
            fix="remove a pattern from init.freeze",
        )
    for name in frozen:
        parameters[name].requires_grad_(False)


def top_level(names: Iterable[str]) -> str:
    """Return the first part of each name, sorted: ``encoder.*, embed.*, out_bias``."""
    parts = {f"{name.partition('.')[0]}.*" if "." in name else name for name in names}
    return ", ".join(sorted(parts))
