"""The base of contenders from other toolkits: our weights under their names, batches as ids."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.common import padded
from benchmarks.training.contenders import model_section
from benchmarks.training.workload import Workload
from nmt.config.model import model_config
from nmt.data.vocab import BOS, EOS, PAD, UNK
from nmt.model.transformer import Transformer
from nmt.runtime.device import autocast, resolve_device

SPECIALS = {"pad_index": PAD, "bos_index": BOS, "eos_index": EOS, "unk_index": UNK}


class Peer(ABC):
    """A toolkit's model, loss and optimizer.

    ``update`` is a plain training step; toolkits with a step function of their own override it.

    Args:
        workload: model size and batches.
        precision: fp32 or bf16.
        ours: the model whose weights are copied, None = a newly initialized one.
    """

    model: Any
    optimizer: torch.optim.Optimizer

    def __init__(self, workload: Workload, precision: str, ours: Transformer | None = None) -> None:
        self.size, self.types, self.batches = workload.size, workload.types, workload.batches
        self.device, self.precision = resolve_device("auto"), precision
        if ours is None:
            ours = Transformer(model_config(model_section(self.size)), self.types)
            ours.init_weights(torch.Generator().manual_seed(1))
        self.build(ours)
        self.model.to(self.device)

    @abstractmethod
    def build(self, ours: Transformer) -> None:
        """Make the toolkit's model with our weights, its loss and its optimizer."""

    @abstractmethod
    def mean_loss(self, number: int) -> Tensor:
        """Return the smoothed loss per target token of a batch, with a gradient."""

    def loss(self, number: int) -> float:
        """Return the smoothed loss per target token in evaluation mode."""
        self.model.eval()
        with torch.no_grad(), autocast(self.device, self.precision):
            return float(self.mean_loss(number))

    def update(self, number: int) -> None:
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        with autocast(self.device, self.precision):
            loss = self.mean_loss(number)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    def cast(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function under autocast, for trainers that use autocast on GPUs only."""

        def inside(*args: Any, **kwargs: Any) -> Any:
            with autocast(self.device, self.precision):
                return function(*args, **kwargs)

        return inside

    def ids(self, number: int) -> tuple[Tensor, Tensor]:
        """Return source with EOS [B, S] and target with BOS and EOS [B, T + 1]."""
        batch = self.batches[number]
        src = padded([[*s, EOS] for s, _ in batch]).to(self.device)
        return src, padded([[BOS, *t, EOS] for _, t in batch]).to(self.device)


def decoder_input(tgt: Tensor) -> Tensor:
    """Return targets without EOS: [B, T + 1] -> [B, T]."""
    return tgt[:, :-1].masked_fill(tgt[:, :-1] == EOS, PAD)


def load_renamed(
    model: nn.Module, ours: Transformer, names: dict[str, str], *, split_qkv: bool = True
) -> None:
    """Load our weights into another toolkit's model.

    Our biases are zero, so a model without them computes the same.

    Args:
        model: of the other toolkit.
        ours: has the weights.
        names: regular expressions of our names and their replacements, applied in this order.
        split_qkv: split joined queries, keys and values before renaming: ``qkv`` becomes ``q``,
            ``k`` and ``v``.
    """
    theirs = {}
    for name, value in ours.state_dict().items():
        joined = re.search(r"\.(q?kv)\.", name) if split_qkv else None
        for letter, part in split_parts(joined[1] if joined else "", value):
            new = name.replace(f".{joined[1]}.", f".{letter}.") if joined else name
            for pattern, replacement in names.items():
                new = re.sub(pattern, replacement, new)
            theirs[new] = part
    missing, unknown = nn.Module.load_state_dict(model, theirs, strict=False)
    if lost := [name for name in unknown if theirs[name].any()]:
        raise SystemExit(f"{type(model)} has no parameters {lost}; it expects {missing}")


def split_parts(letters: str, value: Tensor) -> list[tuple[str, Tensor]]:
    """Split ``kv`` [2D, ...] into k and v [D, ...]; return the value itself without letters."""
    return list(zip(letters, value.chunk(len(letters)), strict=True)) if letters else [("", value)]
