"""What the trainer needs of a task: a model, the batches of an epoch, a loss and an evaluation.

Everything here is a function of (recipe, data, epoch, examples), so that a resumed run and several
processes see the same batches.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from nmt.config.recipe import Recipe
from nmt.data.batches import FlatBatch
from nmt.data.bitext import Split
from nmt.data.encoded import Side
from nmt.data.prepare import EvalSet, Prepared
from nmt.data.vocab import UNK
from nmt.model.base import ModelBase
from nmt.model.cpu.attention import use_kernels
from nmt.run.results import format_number
from nmt.runtime.device import autocast
from nmt.scoring.metrics import Score
from nmt.scoring.systems import set_file
from nmt.training.loss import LossSums, label_smoothed_loss, perplexity, recomputed_loss

ModelT = TypeVar("ModelT", bound=ModelBase)
BatchT = TypeVar("BatchT", bound=FlatBatch)


class Stopped(Exception):
    """A stop was requested during an evaluation, which is discarded."""


@dataclass
class HeldOutLoss:
    """Sums over the predicted tokens of a dev or test set, in nats.

    Attributes:
        tokens: how many there are.
        unknown: how many are UNK, which stands for many words and is easier to predict.
    """

    nll: float = 0.0
    smoothed: float = 0.0
    tokens: int = 0
    unknown: int = 0

    @property
    def ppl(self) -> float:
        """Return exp of the mean cross-entropy."""
        return perplexity(self.nll / self.tokens)

    @property
    def smoothed_ppl(self) -> float:
        """Return exp of the mean smoothed loss (T table 8)."""
        return perplexity(self.smoothed / self.tokens)


@torch.no_grad()
def held_out_loss(
    model: ModelBase,
    batches: Iterable[BatchT],
    targets: Callable[[BatchT], Tensor],
    loss: Callable[[BatchT, Tensor], LossSums],
    stop_requested: Callable[[], bool],
) -> HeldOutLoss:
    """Sum the losses over batches of a dev or test set.

    Args:
        batches: on the CPU.
        targets: returns the tokens to predict, [M]; a type that the training text lacks counts as
            UNK.
        loss: returns the sums over a batch, given its targets.
        stop_requested: called before each batch.

    Raises:
        Stopped: a stop was requested.
    """
    total = HeldOutLoss()
    for batch in batches:
        if stop_requested():
            raise Stopped
        batch = batch.to(model.allowed.device)
        known = targets(batch)
        known = known.masked_fill(~model.allowed[known], UNK)
        sums = loss(batch, known)
        total.nll += float(sums.nll)
        total.smoothed += float(sums.smoothed)
        total.tokens += sums.tokens
        total.unknown += int((known == UNK).sum())
    return total


@dataclass(frozen=True)
class Evaluation(ABC):
    """The results of a model on a dev or test set.

    Attributes:
        scores: with their signatures.
    """

    scores: list[Score]

    def value(self, name: str) -> float:
        """Return one of the values of ``record``."""
        return float(self.record()[name])

    @abstractmethod
    def record(self) -> dict[str, Any]:
        """Return all measured values by name, for metrics.jsonl."""

    @abstractmethod
    def line(self) -> str:
        """Return all measured values as a part of a log line."""

    @abstractmethod
    def share(self, name: str) -> float:
        """Return the length of a score's bar in the log, between 0 and 1."""

    @abstractmethod
    def write(self, hyp_file: Path) -> None:
        """Write the output of the model, if the task has any."""


@dataclass(frozen=True)
class MeanEvaluation(Evaluation):
    """The mean of the results on several dev or test sets.

    Attributes:
        sets: the results of each set by name.
    """

    sets: dict[str, Evaluation]

    @classmethod
    def of(cls, sets: dict[str, Evaluation]) -> MeanEvaluation:
        """Return the means of the scores of some sets."""
        signature = f"mean of {', '.join(sets)}"
        of_each_name = zip(*(evaluation.scores for evaluation in sets.values()), strict=True)
        means = [
            Score(scores[0].name, float(np.mean([s.value for s in scores])), signature)
            for scores in of_each_name
        ]
        return cls(means, sets)

    def record(self) -> dict[str, Any]:
        """Return the mean of each value, and ``NAME/VALUE`` of each set."""
        records = {name: held_out.record() for name, held_out in self.sets.items()}
        first, *_ = records.values()
        means = {key: float(np.mean([r[key] for r in records.values()])) for key in first}
        return means | {f"{name}/{key}": r[key] for name, r in records.items() for key in r}

    def line(self) -> str:
        """Return the mean scores and the values of each set as a part of a log line."""
        values = {score.name: score.value for score in self.scores}
        values |= {"ppl": self.value("ppl")}  # it may be what selects the best checkpoint
        mean = "  ".join(f"{name} {format_number(value)}" for name, value in values.items())
        return "  ".join([mean, *(f"[{name}: {e.line()}]" for name, e in self.sets.items())])

    def share(self, name: str) -> float:
        """Return the mean length of the bars of the sets."""
        return float(np.mean([held_out.share(name) for held_out in self.sets.values()]))

    def write(self, hyp_file: Path) -> None:
        """Write the output of the model on each set: ``u000100.NAME.hyp``."""
        for name, held_out in self.sets.items():
            held_out.write(set_file(hyp_file, name))


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
        if self.device.type == "cpu":
            use_kernels(model)
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
        """Return the sums of smoothed loss and cross-entropy over the tokens to predict.

        Args:
            targets: [M], in place of ``self.targets(batch)``.
        """
        targets = self.targets(batch) if targets is None else targets
        smoothing = self.recipe.optim.label_smoothing
        with self.autocast():
            if self.recipe.train.recompute and torch.is_grad_enabled():
                states, table = model.states(*batch.inputs)
                return recomputed_loss(
                    model.logits, states, table, targets, model.allowed, smoothing, batch.weights
                )
            logits = model(*batch.inputs)
        return label_smoothed_loss(logits, targets, model.allowed, smoothing, batch.weights)

    def evaluate(
        self,
        model: ModelT,
        split: Split,
        stop_requested: Callable[[], bool],
        intervals: bool = False,
    ) -> Evaluation:
        """Evaluate the model on dev or test, without dropout: the mean over several sets.

        Args:
            stop_requested: called between batches.
            intervals: add 95 % bootstrap intervals to the scores.

        Raises:
            Stopped: a stop was requested.
        """
        sets = self.prepared.dev if split == "dev" else self.prepared.test
        assert sets is not None, "the caller checks has_test"
        results = {
            held_out.name.partition(".")[2]: self.evaluate_set(
                model, held_out, stop_requested, intervals
            )
            for held_out in sets
        }
        return MeanEvaluation.of(results) if len(results) > 1 else next(iter(results.values()))

    @abstractmethod
    def evaluate_set(
        self, model: ModelT, held_out: EvalSet, stop_requested: Callable[[], bool], intervals: bool
    ) -> Evaluation:
        """Evaluate the model on one dev or test set; see ``evaluate``."""

    @abstractmethod
    def describe(self) -> str:
        """Return a short name of the training, for the log: ``gl-en``."""

    @abstractmethod
    def results(self, run: Path, test: Evaluation | None) -> str:
        """Return a text with test scores, examples, and the command that uses the model."""

    @property
    def has_test(self) -> bool:
        """Return whether the recipe has a test set."""
        return self.prepared.test is not None

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Return the context in which the model computes in the precision of the training."""
        return autocast(self.device, self.precision)


def score_line(score: Score) -> str:
    """Return a line with a test score, its interval and its signature."""
    interval = "" if score.low is None else f"  [{score.low:.2f}, {score.high:.2f}]"
    return f"  {score.name:<10} {format_number(score.value):>6}{interval}  {score.signature}"
