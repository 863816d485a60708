"""What the trainer needs of a task: a model, the batches of an epoch, a loss and an evaluation.

Everything here is a function of (recipe, data, epoch, examples), so that a resumed run and several
processes see the same batches.
"""

from __future__ import annotations

import contextlib
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from nmt.config.recipe import Recipe
from nmt.data.batches import FlatBatch
from nmt.data.bitext import Split, held_out_entries
from nmt.data.encoded import Side
from nmt.data.prepare import EvalSet, Prepared
from nmt.data.vocab import UNK
from nmt.model.base import ModelBase
from nmt.runtime.device import autocast
from nmt.training.evaluation import Evaluation, HeldOutLoss, Stopped, mean_of, score_line
from nmt.training.loss import LossSums, add_sums, recomputed_losses, token_losses

ModelT = TypeVar("ModelT", bound=ModelBase)
BatchT = TypeVar("BatchT", bound=FlatBatch)


class Task(ABC, Generic[ModelT, BatchT]):
    """One way to train a model on prepared corpora.

    Args:
        recipe: resolved.
        prepared: corpora, segmenter and vocabulary.
        device, precision: resolved.

    Attributes:
        unit: what an example is called in messages: pair or block.
        predicted: side of the training text whose types the model may predict.
    """

    unit: str
    predicted: Side

    def __init__(
        self, recipe: Recipe, prepared: Prepared, device: torch.device, precision: str
    ) -> None:
        self.recipe, self.prepared = recipe, prepared
        self.device, self.precision = device, precision

    @classmethod
    @abstractmethod
    def empty_model(cls, recipe: Recipe, vocab_size: int, allowed: Tensor | None = None) -> ModelT:
        """Return the model of a recipe with uninitialized weights.

        Args:
            vocab_size: V.
            allowed: [V] bool, the types that the model may predict; None = all.
        """

    def make_model(self) -> ModelT:
        """Return the model on the CPU, with the initial weights that the seed determines."""
        vocab = self.prepared.vocab
        allowed = torch.from_numpy(vocab.types_of(self.predicted))
        model = self.empty_model(self.recipe, len(vocab), allowed)
        model.init_weights(torch.Generator().manual_seed(self.recipe.seed))
        return model

    @property
    @abstractmethod
    def size(self) -> int:
        """Return the number of examples to train on."""

    @abstractmethod
    def plan(self, epoch: int) -> list[np.ndarray]:
        """Return the batches of an epoch, each as the indices of its examples."""

    @abstractmethod
    def tokens(self, epoch: int, examples: np.ndarray) -> int:
        """Return the number of tokens to predict in a batch of this or another process."""

    @abstractmethod
    def make_batch(self, epoch: int, examples: np.ndarray, pad: bool) -> BatchT:
        """Return a batch on the device.

        Args:
            pad: pad it to one of a few sizes and pack its tensors.
        """

    @staticmethod
    @abstractmethod
    def targets(batch: BatchT) -> Tensor:
        """Return the tokens to predict in a batch: [M] int64."""

    def loss(self, model: ModelT, batch: BatchT, targets: Tensor | None = None) -> LossSums:
        """Return the losses, summed over the tokens to predict.

        Args:
            targets: [M], in place of ``self.targets(batch)``.
        """
        targets = self.targets(batch) if targets is None else targets
        optim = self.recipe.optim
        with self.autocast():
            if self.recipe.train.recompute and torch.is_grad_enabled():
                states, table = model.states(*batch.inputs)
                return recomputed_losses(
                    model.logits, states, table, targets, model.allowed, optim, batch.weights
                )
            logits = model(*batch.inputs)
        return token_losses(logits, targets, model.allowed, optim, batch.weights)

    @torch.no_grad()
    def held_out_loss(
        self, model: ModelT, batches: Iterable[BatchT], stop_requested: Callable[[], bool]
    ) -> HeldOutLoss:
        """Sum the losses over batches of a dev or test set, without dropout.

        A token whose type the training text lacks counts as UNK.

        Args:
            batches: on the CPU.
            stop_requested: called before each batch.

        Raises:
            Stopped: a stop was requested.
        """
        total = HeldOutLoss()
        model.eval()
        for batch in batches:
            if stop_requested():
                raise Stopped
            batch = batch.to(model.allowed.device)
            targets = self.targets(batch)
            targets = targets.masked_fill(~model.allowed[targets], UNK)
            sums = self.loss(model, batch, targets)
            add_sums(total.sums, {name: float(value) for name, value in sums.items()})
            total.tokens += targets.numel()
            total.unknown += int((targets == UNK).sum())
        return total

    def evaluate(
        self,
        model: ModelT,
        split: Split,
        stop_requested: Callable[[], bool],
        intervals: bool = False,
    ) -> Evaluation:
        """Evaluate the model on dev or test, without dropout: the mean over the sets that select.

        Args:
            stop_requested: called between batches.
            intervals: add 95 % bootstrap intervals to the scores.

        Raises:
            Stopped: a stop was requested.
        """
        sets = self.prepared.dev if split == "dev" else self.prepared.test
        assert sets is not None, "the caller checks has_test"
        results: dict[str, Evaluation] = {}
        for held_out in sets:
            name = held_out.name.partition(".")[2]
            results[name] = self.evaluate_set(model, held_out, stop_requested, intervals)
        if len(results) == 1:
            return results[name]
        entries = held_out_entries(self.recipe, split).items()
        return mean_of(results, [name.partition(".")[2] for name, entry in entries if entry.select])

    @abstractmethod
    def evaluate_set(
        self, model: ModelT, held_out: EvalSet, stop_requested: Callable[[], bool], intervals: bool
    ) -> Evaluation:
        """Evaluate the model on one dev or test set; see ``evaluate``."""

    @abstractmethod
    def describe(self) -> str:
        """Return a short name of the training, for the log: ``gl-en``."""

    @abstractmethod
    def commands(self, folder: str) -> list[str]:
        """Return lines with the commands that use the model of a run folder, which is quoted."""

    def examples(self, held_out: EvalSet, result: Evaluation) -> list[str]:
        """Return lines with some outputs of the model on a test set."""
        return []

    def results(self, run: Path, test: Evaluation | None) -> str:
        """Return a text with test scores, examples, and the commands that use the model."""
        lines = []
        if test is not None:
            if test.sets:
                lines += ["", "test scores, mean", *map(score_line, test.scores)]
            parts = [*test.sets.values()] or [test]
            for held_out, part in zip(self.prepared.test or [], parts, strict=True):
                title = f"test scores {held_out.name.partition('.')[2]}".rstrip()
                lines += ["", title, *map(score_line, part.scores), ""]
                lines += self.examples(held_out, part)
        folder = shlex.quote(str(run))
        return "\n".join([*lines, f"run folder: {folder}", *self.commands(folder)])

    @property
    def has_test(self) -> bool:
        """Return whether the recipe has a test set."""
        return self.prepared.test is not None

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Return the context in which the model computes in the precision of the training."""
        return autocast(self.device, self.precision)
