"""The results of a model on a dev or test set: its loss, and what a task measures besides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from nmt.runtime.files import write_atomic
from nmt.scoring.results import Score
from nmt.scoring.systems import set_file, words_file
from nmt.store.results import format_number
from nmt.training.loss import PERPLEXITIES, logged_losses


class Stopped(Exception):
    """A stop was requested during an evaluation, which is discarded."""


@dataclass
class HeldOutLoss:
    """Sums over the predicted tokens of a dev or test set, in nats.

    Attributes:
        sums: the losses by name.
        tokens: how many there are.
        unknown: how many are UNK, which stands for many words and is easier to predict.
    """

    sums: dict[str, float] = field(default_factory=dict)
    tokens: int = 0
    unknown: int = 0

    @property
    def logged(self) -> dict[str, float]:
        """Return the perplexities, smoothed and not (T table 8), and the means of other terms."""
        return logged_losses({name: value / self.tokens for name, value in self.sums.items()})


@dataclass(frozen=True)
class Evaluation:
    """The results of a model on a dev or test set, or their mean over several sets.

    Attributes:
        scores: with their signatures.
        values: everything measured, by name, for metrics.jsonl.
        line: the values as a part of a log line.
        bars: the length of each score's bar in the log, by name; 1 = full.
        texts: hypotheses as plain text, one per line of the set; empty if the task has no output.
        words: the same hypotheses as tokenized text.
        sets: the results on each set by name, if this is their mean.
    """

    scores: list[Score]
    values: dict[str, Any]
    line: str
    bars: dict[str, float]
    texts: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    sets: dict[str, Evaluation] = field(default_factory=dict)

    def write(self, hyp_file: Path) -> None:
        """Write the hypotheses and, next to them, their tokenized form, for nmt-score.

        Those of several sets are written to ``u000100.NAME.hyp``.
        """
        for name, held_out in self.sets.items():
            held_out.write(set_file(hyp_file, name))
        if self.texts:
            write_atomic(hyp_file, "".join(text + "\n" for text in self.texts))
            write_atomic(words_file(hyp_file), "".join(words + "\n" for words in self.words))


def mean_of(sets: dict[str, Evaluation], selecting: Sequence[str]) -> Evaluation:
    """Return the mean of the results on the sets that select, with ``NAME/VALUE`` of each set."""

    def mean(values: Iterable[float]) -> float:
        return float(np.mean([*values]))

    parts = [sets[name] for name in selecting]
    first = parts[0]
    signature = f"mean of {', '.join(selecting)}"
    scores = [
        Score(same[0].name, mean(score.value for score in same), signature)
        for same in zip(*(part.scores for part in parts), strict=True)
    ]
    values = {name: mean(part.values[name] for part in parts) for name in first.values}
    shown = {score.name: score.value for score in scores}
    shown |= {"ppl": values["ppl"]}  # it may be what selects the best checkpoint
    line = [f"{name} {format_number(value)}" for name, value in shown.items()]
    line += [f"[{name}: {part.line}]" for name, part in sets.items()]
    for name, part in sets.items():
        values |= {f"{name}/{key}": value for key, value in part.values.items()}
    bars = {name: mean(part.bars[name] for part in parts) for name in first.bars}
    return Evaluation(scores, values, "  ".join(line), bars, sets=sets)


def loss_text(logged: Mapping[str, float]) -> str:
    """Return logged losses as a part of a line: ``ppl 6.17 (7.72 smoothed)`` and other terms."""
    ppl, smoothed = (format_number(logged[name]) for name in ("ppl", "smoothed_ppl"))
    terms = [name for name in logged if name not in PERPLEXITIES.values()]
    shown = [f"{name} {format_number(logged[name], 3)}" for name in terms]
    return "  ".join([f"ppl {ppl} ({smoothed} smoothed)", *shown])


def score_line(score: Score) -> str:
    """Return a line with a test score, its interval and its signature."""
    interval = "" if score.low is None else f"  [{score.low:.2f}, {score.high:.2f}]"
    return f"  {score.name:<10} {format_number(score.value):>6}{interval}  {score.signature}"
