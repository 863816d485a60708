"""What a Translator and an engine exchange; torch is not imported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from nmt.decoding.constraints import TargetPieces
from nmt.decoding.options import SearchOptions
from nmt.errors import UserError
from nmt.runtime.cpus import available_cpus, num_threads, within_limit
from nmt.store.model import Model

if TYPE_CHECKING:
    import torch

    from nmt.config.recipe import DecodeConfig

Penalty: TypeAlias = Callable[[Any], Any]  # number of tokens -> what divides their score
# ids of source and target, without EOS, and a line number for errors
EncodedPair: TypeAlias = tuple[np.ndarray, np.ndarray, int]
Stop: TypeAlias = Callable[[], None]  # called between two steps; may raise an exception to stop
Progress: TypeAlias = Callable[[int], None]  # called with the number of lines a step has finished
# a model or a run, or several as an ensemble
Runs: TypeAlias = str | Path | Sequence[str | Path]

NO_PIECES = TargetPieces()
MAX_TARGET_PIECES = 4096  # the attention of longer targets would not fit in memory
MAX_WORKERS = 1024


def all_cores() -> int:
    """Count the available CPUs, at most OMP_NUM_THREADS."""
    return within_limit(min(available_cpus(), num_threads()))


def check_workers(workers: int) -> int:
    """Return a number of workers; UserError unless it is from 1 to MAX_WORKERS."""
    if isinstance(workers, bool) or not isinstance(workers, int) or not 1 <= workers <= MAX_WORKERS:
        raise UserError(
            f"workers: {workers} is not an integer from 1 to {MAX_WORKERS}",
            fix="give the number of cores, or a smaller number",
        )
    return workers


def ignore(*_: object) -> None:
    """Do nothing: the default of ``stop`` and ``progress``."""


def listed(runs: Runs | None) -> Sequence[str | Path]:
    """Make a list of one folder or of several."""
    return [runs] if isinstance(runs, str | Path) else runs or []


@dataclass(frozen=True)
class SearchInput:
    """What one search translates: a line, or a part of a line.

    Attributes:
        ids: of its tag, if any, and of its source pieces, at least one; without EOS.
        line: number of the line, from 1.
        part: index of the part, from 0; samples are a function of line and part.
        pieces: its source pieces, without the tag; empty if only ids were given.
        text: the source, with the white space behind it; empty if the part begins or ends inside a
            sentence, or if only ids were given.
        prefix: what the translation starts with.
        require: phrases that the translation contains, each as its forms, of which one suffices.
    """

    ids: np.ndarray
    line: int = 0
    part: int = 0
    pieces: Sequence[str] = ()
    text: str = ""
    prefix: TargetPieces = NO_PIECES
    require: tuple[tuple[TargetPieces, ...], ...] = ()

    @property
    def required_length(self) -> int:
        """The fewest tokens of a translation, with EOS."""
        return len(self.prefix.ids) + 1


@dataclass(frozen=True)
class Hypothesis:
    """A hypothesis as ids.

    Attributes:
        ids: without EOS.
        log_prob: sum over its tokens, including EOS if it is finished.
        score: log_prob / length penalty; the search ranks by it.
        finished: whether it ended with EOS, not at the length limit.
        forced: what it was forced to begin with.
    """

    ids: list[int]
    log_prob: float
    score: float
    finished: bool
    forced: TargetPieces = NO_PIECES


@dataclass(frozen=True)
class TokenScores:
    """The result for one given target.

    Attributes:
        log_probs: of each token, including EOS.
        aligned: the source piece of each target piece; empty if not requested.
    """

    log_probs: list[float]
    aligned: list[int]


class NonFiniteScores(ArithmeticError):
    """Raised when a model gives NaN or infinite scores to a sentence.

    Attributes:
        number: from ``beam_search``, the index of the sentence; from an engine, its line number.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@dataclass(frozen=True)
class ModelInfo:
    """What is known of a model besides its weights, segmenter and vocabulary.

    Attributes:
        decode: defaults of the search options.
        source: origin of the weights, for errors; None = a model in training.
        weights_hash: SHA-256 of the weights; empty = in training, an export or an ensemble.
    """

    decode: DecodeConfig
    source: str | None = None
    weights_hash: str = ""


def info_of(models: Sequence[Model]) -> ModelInfo:
    """Return what is known of a model, or of an ensemble by its first member."""
    about, is_one = models[0].about, len(models) == 1
    source = ", ".join(str(model.path) for model in models)
    weights_hash = models[0].weights_hash if is_one and models[0].has_weights else ""
    return ModelInfo(about.decode, source, weights_hash)


class Engine(Protocol):
    """A model, and the library that searches with it.

    Attributes:
        name: of the library, for people.
        precision: number format of matrix products with weights.
        longest_target: the number of pieces that a given target may have.
    """

    name: str
    precision: str
    longest_target: int

    @property
    def device(self) -> torch.device | str:
        """The device that computes."""

    def lacks(self, options: SearchOptions) -> list[str]:
        """Name the options that this engine does not support, with their values if needed."""

    def model_hash(self) -> str:
        """Compute the SHA-256 of the weights, the vocabulary and the segmenter."""

    def search(
        self, inputs: Sequence[SearchInput], options: SearchOptions, stop: Stop, progress: Progress
    ) -> list[list[Hypothesis]]:
        """Find the hypotheses of each input, best first; samples in the order of their draws.

        Raises:
            MachineError: a single input does not fit in memory.
            NonFiniteScores: scores are NaN or infinite; with the number of the line.
        """

    def score(
        self, pairs: Sequence[EncodedPair], options: SearchOptions, stop: Stop, progress: Progress
    ) -> list[TokenScores]:
        """Score the target of each pair given its source.

        Args:
            options: ``batch_tokens``, ``align`` and ``tgt_tag``.

        Raises:
            MachineError, NonFiniteScores: as in ``search``.
        """
