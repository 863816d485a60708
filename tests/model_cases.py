"""Tiny models, batches and helpers that several tests share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nmt.config import recipe
from nmt.config.model import model_config
from nmt.data.batches import Batch
from nmt.model.config import ModelConfig
from nmt.model.layout import Layout
from nmt.model.transformer import Transformer

BOS, EOS, UNK = 1, 2, 3
TYPES = 11
# Types 5 and 8 never occur on the target side.
ALLOWED = np.array([False, False, True, True, True, False, True, True, False, True, True])

SOURCES = [[4, 5, 6, EOS], [8, EOS], [7, 8, 9, 10, 3, EOS]]
TARGETS = [[4, 6, 9], [10, 3, 4, 4, 7], [6]]  # without BOS and EOS

TINY: dict[str, Any] = {
    "dim": 8,
    "ffn_dim": 12,
    "heads": 2,
    "enc_layers": 2,
    "dec_layers": 2,
    "dropout": 0.0,
    "word_dropout": 0.0,
}
NORM_NAMES = ("layernorm", "rmsnorm", "scalenorm")
BASES = [
    {"norm_place": place, "norm": norm, "fixnorm": fixnorm}
    for place, norm, fixnorm in product(("pre", "post"), NORM_NAMES, (True, False))
]
ALL_N_PARTS = {"head_scale": True, "post_attn_norm": True, "ffn_norm": True, "qkv_norm": True}


def tiny(**keys: Any) -> ModelConfig:
    return model_config(recipe.ModelConfig(**{**TINY, **keys}))


def batch_of(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Batch:
    """Return a batch of lists of ids; sources end with EOS, targets have neither BOS nor EOS."""

    def flat(rows: list[list[int]]) -> Tensor:
        return torch.tensor([kind for row in rows for kind in row], dtype=torch.int64)

    return Batch(
        src=flat([list(row) for row in sources]),
        src_layout=Layout.of([len(row) for row in sources]),
        tgt_in=flat([[BOS, *row] for row in targets]),
        tgt_out=flat([[*row, EOS] for row in targets]),
        tgt_layout=Layout.of([len(row) + 1 for row in targets]),
        rows=np.arange(len(sources)),
    )


def build(config: ModelConfig, seed: int = 1, noise: float = 0.2) -> Transformer:
    """Return a model in eval mode with normal noise added to every parameter.

    Gains and biases get noise too, because at their start values a missing one has no effect.
    """
    generator = torch.Generator().manual_seed(seed)
    model = Transformer(config, TYPES, ALLOWED)
    model.init_weights(generator)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += noise * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def log_probs(model: Transformer, batch: Batch) -> Tensor:
    with torch.no_grad():
        return torch.log_softmax(model(*batch.inputs).float(), dim=-1)


def random_variants(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield random valid combinations of all model keys that change the computed function."""
    rng = Random(seed)
    flags = ("head_scale", "post_attn_norm", "ffn_norm", "qkv_norm", "bias", "out_bias")
    flags += ("logit_mask", "fixnorm")
    for _ in range(count):
        keys: dict[str, Any] = {flag: rng.random() < 0.5 for flag in flags}
        keys["norm"] = rng.choice(NORM_NAMES)
        keys["norm_place"] = rng.choice(("pre", "post"))
        keys["activation"] = rng.choice(("relu", "gelu", "relu2", "geglu"))
        keys["tie"] = rng.choice(("src_tgt_out", "tgt_out", "none"))
        keys["res_scale"] = rng.choice(("none", "ffn", "all", "scalar"))
        keys["heads"] = rng.choice((1, 2, 4))
        keys["enc_layers"], keys["dec_layers"] = rng.choice((1, 2)), rng.choice((1, 2))
        if keys["norm"] == "scalenorm":
            keys["scalenorm_gain"] = rng.choice(("learned", "fixed"))
        if keys["post_attn_norm"] or keys["ffn_norm"] or keys["qkv_norm"]:
            keys["extra_norm"] = rng.choice(NORM_NAMES)
        yield keys


def short(keys: dict[str, Any]) -> str:
    """Return a readable test id."""
    return "-".join(
        name if value is True else f"no_{name}" if value is False else str(value)
        for name, value in keys.items()
    )
