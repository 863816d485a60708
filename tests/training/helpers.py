"""Functions that read or manipulate a trainer."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from nmt.config.load import load_recipe
from nmt.model.base import ModelBase
from nmt.session import Training, open_run
from nmt.training.loss import LossSums
from nmt.training.optimizer import optimizer_tensors
from nmt.training.trainer import Trainer

NO_DROPOUT = ["model.dropout=0", "model.word_dropout=0"]
Work = Callable[[], LossSums]


def started(words: Sequence[str]) -> tuple[Training, ModelBase]:
    """Return a run that starts from a parent, and its first model.

    Args:
        words: of nmt-train.
    """
    training = Training(open_run(load_recipe(words[0], words[1:])), quiet=True)
    assert training.start.transfer is not None
    model = training.task.make_model()
    training.start.transfer.load_into(model)
    return training, model


def weights(trainer: Trainer) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in trainer.model.named_parameters()}


def gradients(trainer: Trainer) -> dict[str, Tensor]:
    return {n: p.grad.clone() for n, p in trainer.model.named_parameters() if p.grad is not None}


def moments(trainer: Trainer) -> dict[str, Tensor]:
    tensors = optimizer_tensors(trainer.optimizer, trainer.model)
    return {name: tensor.clone() for name, tensor in tensors.items()}


def equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def norm(tensors: dict[str, Tensor]) -> float:
    return math.sqrt(sum(float(t.double().square().sum()) for t in tensors.values()))


def records(run: Path, kind: str) -> list[dict[str, Any]]:
    """Return the records of metrics.jsonl of one kind."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def script_values(trainer: Trainer, *values: dict[str, float]) -> None:
    """Replace values of each validation; the last ones repeat."""
    real = trainer.evaluate

    def evaluate(*arguments: Any, **named: Any) -> Any:
        found = real(*arguments, **named)
        changed = values[min(len(trainer.state.history), len(values) - 1)]
        return dataclasses.replace(found, values=found.values | changed)

    trainer.evaluate = evaluate  # type: ignore[method-assign]


def spoil_gradients(trainer: Trainer, updates: set[int]) -> None:
    """Make one element of a gradient NaN or infinite in these updates."""
    values = iter([math.nan, math.inf] * 10)

    def spoil(gradient: Tensor) -> Tensor:
        if trainer.state.update + 1 in updates:
            gradient = gradient.clone()
            gradient.view(-1)[3] = next(values)
        return gradient

    trainer.model.embed.weight.register_hook(spoil)


class CountReads(TorchDispatchMode):
    """Count operations that read from a tensor, for which a CPU waits for a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        self.count += name in ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero")
        return func(*args, **(kwargs or {}))


class FakeCapture:
    """A capture that repeats the work and counts captures and replays."""

    def __init__(self) -> None:
        self.captured = self.replayed = 0

    def __call__(self, work: Work) -> Work:
        self.captured += 1

        def replay() -> LossSums:
            self.replayed += 1
            return work()

        return replay
