"""What contenders from other toolkits share: our weights under their names, batches as ids."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.training.contenders import model_config, padded
from benchmarks.training.workload import Workload
from nmt.data.vocab import BOS, EOS, PAD, UNK
from nmt.model.transformer import Transformer
from nmt.runtime.device import autocast, resolve_device

SPECIALS = {"pad_index": PAD, "bos_index": BOS, "eos_index": EOS, "unk_index": UNK}


class Peer(ABC):
    """A toolkit's model, loss and optimizer; an update made of parts, unless it has its own."""

    model: Any
    optimizer: torch.optim.Optimizer

    def __init__(self, workload: Workload, precision: str, ours: Transformer | None = None) -> None:
        """``ours``: has the weights, if they are not to be drawn."""
        self.size, self.types, self.batches = workload.size, workload.types, workload.batches
        self.device, self.precision = resolve_device("auto"), precision
        if ours is None:
            ours = Transformer(model_config(self.size), self.types)
            ours.init_weights(torch.Generator().manual_seed(1))
        self.build(ours)
        self.model.to(self.device)

    @abstractmethod
    def build(self, ours: Transformer) -> None:
        """Make the toolkit's model with the weights of ours, its loss and its optimizer."""

    @abstractmethod
    def mean_loss(self, number: int) -> Tensor:
        """Smoothed loss per target token, with a graph."""

    def loss(self, number: int) -> float:
        """The same in evaluation mode."""
        self.model.eval()
        with torch.no_grad(), autocast(self.device, self.precision):
            return float(self.mean_loss(number))

    def update(self, number: int) -> None:
        """Forward, backward, clipping, optimizer."""
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        with autocast(self.device, self.precision):
            loss = self.mean_loss(number)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    def cast(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function under autocast, for a trainer that knows it on GPUs alone."""

        def inside(*args: Any, **kwargs: Any) -> Any:
            with autocast(self.device, self.precision):
                return function(*args, **kwargs)

        return inside

    def ids(self, number: int) -> tuple[Tensor, Tensor]:
        """Source with EOS [B, S], target between BOS and EOS [B, T + 1]."""
        batch = self.batches[number]
        src = padded([[*s, EOS] for s, _ in batch]).to(self.device)
        return src, padded([[BOS, *t, EOS] for _, t in batch]).to(self.device)


def decoder_input(tgt: Tensor) -> Tensor:
    """Targets between BOS and EOS [B, T + 1] without EOS: [B, T]."""
    return tgt[:, :-1].masked_fill(tgt[:, :-1] == EOS, PAD)


def load_renamed(
    model: nn.Module, ours: Transformer, names: dict[str, str], *, take_apart: bool = True
) -> None:
    """Our weights into a model: patterns of our names -> theirs, applied in this order.

    Queries, keys and values are taken apart first, unless theirs are joined too: ``qkv`` becomes
    ``q``, ``k`` and ``v``. Our biases are zero at first, so a model without them computes the same.
    """
    theirs = {}
    for name, value in ours.state_dict().items():
        joined = re.search(r"\.(q?kv)\.", name) if take_apart else None
        for letter, part in apart(joined[1] if joined else "", value):
            new = name.replace(f".{joined[1]}.", f".{letter}.") if joined else name
            for pattern, replacement in names.items():
                new = re.sub(pattern, replacement, new)
            theirs[new] = part
    missing, unknown = nn.Module.load_state_dict(model, theirs, strict=False)
    if lost := [name for name in unknown if theirs[name].any()]:
        raise SystemExit(f"{type(model)} has no {lost}, and wants {missing}")


def apart(letters: str, value: Tensor) -> list[tuple[str, Tensor]]:
    """``kv`` [2D, ...] -> k and v [D, ...]; without letters the value itself."""
    return list(zip(letters, value.chunk(len(letters)), strict=True)) if letters else [("", value)]
