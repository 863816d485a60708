"""The results of a model on a dev or test set: its loss, and what a task measures besides."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nmt.run.results import format_number
from nmt.scoring.metrics import Score
from nmt.scoring.systems import set_file
from nmt.training.loss import perplexity


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


def score_line(score: Score) -> str:
    """Return a line with a test score, its interval and its signature."""
    interval = "" if score.low is None else f"  [{score.low:.2f}, {score.high:.2f}]"
    return f"  {score.name:<10} {format_number(score.value):>6}{interval}  {score.signature}"
