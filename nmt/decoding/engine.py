"""What a Translator needs of a library that computes with a model. It does not import torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from nmt.decoding.codec import SearchInput
from nmt.decoding.hypothesis import Hypothesis
from nmt.decoding.options import SearchOptions

if TYPE_CHECKING:
    import numpy as np
    import torch

    from nmt.config.recipe import DecodeConfig

# ids of source and target, without EOS, and a line number for errors
EncodedPair: TypeAlias = "tuple[np.ndarray, np.ndarray, int]"


@dataclass(frozen=True)
class ModelInfo:
    """What is known of a model besides its weights and its text.

    Attributes:
        decode: defaults of the search options.
        source: origin of the weights, for errors; None = a model in training.
        always_tagged: whether a tag was before each source of the training data.
        sources: source languages of the training data; empty = not known.
    """

    decode: DecodeConfig
    source: str | None = None
    always_tagged: bool = False
    sources: Sequence[str] = ()


@dataclass(frozen=True)
class TokenScores:
    """The result for one given target.

    Attributes:
        log_probs: of each token, including EOS.
        aligned: for each piece, the index of the source piece with the highest attention; empty if
            not requested.
    """

    log_probs: list[float]
    aligned: list[int]


class Engine(Protocol):
    """A model, and the library that computes with it.

    Attributes:
        name: of the library, for people.
        precision: number format of matrix products with weights.
        can_score: whether it scores given targets.
    """

    name: str
    precision: str
    can_score: bool

    @property
    def device(self) -> torch.device | str:
        """The device that computes."""

    def check_options(self, options: SearchOptions, constraints: Set[str]) -> None:
        """Raise a UserError if an option, or a constraint of this name, is not supported."""

    def model_hash(self) -> str:
        """Return the SHA-256 of the weights, the vocabulary and the segmenter."""

    def search(
        self,
        inputs: Sequence[SearchInput],
        options: SearchOptions,
        stop: Callable[[], None] = lambda: None,
        progress: Callable[[int], None] = lambda lines: None,
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each input, best first; samples in the order of their draws.

        Args:
            stop: called between two steps; may raise an exception to stop.
            progress: called with the number of lines that a step has finished.

        Raises:
            MachineError: a single input does not fit in memory, or a worker process was ended.
            NonFiniteScores: scores are NaN or infinite; with the number of the line.
        """

    def score(
        self,
        pairs: Sequence[EncodedPair],
        options: SearchOptions,
        stop: Callable[[], None] = lambda: None,
        progress: Callable[[int], None] = lambda pairs: None,
    ) -> list[TokenScores]:
        """Score the target of each pair given its source.

        Args:
            options: ``batch_tokens`` and ``align``.
            stop, progress: see ``search``.

        Raises:
            MachineError: a single pair does not fit in memory.
            NonFiniteScores: scores are NaN or infinite; with the number of the line.
        """
