"""Where a training is: the numbers beside weights and optimizer that a resumed run needs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from pydantic import ConfigDict, TypeAdapter

_CONFIG = ConfigDict(strict=True, ser_json_inf_nan="constants")


@dataclass
class IntervalState:
    """What a resumed run needs to go on with the log line that a stop cut short.

    Attributes:
        smoothed, nll: sums of the losses since the last log line, in nats.
        tokens: their target tokens.
        updates_before: updates done before the interval.
        seconds: training time of the interval.
        lowest_loss: lowest loss of any log line.
        loss_ratio: loss of the last log line over ``lowest_loss``; ends an lr_ramp.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _CONFIG

    smoothed: float = 0.0
    nll: float = 0.0
    tokens: int = 0
    updates_before: int = 0
    seconds: float = 0.0
    lowest_loss: float = math.inf
    loss_ratio: float = 1.0


@dataclass
class TrainState:
    """Where training is; with weights and optimizer, all that a resumed run needs.

    Attributes:
        update: optimizer updates done.
        epoch: passes over the training data begun before, the number of the batch plan.
        next_batch: place in that plan of the first batch not yet used.
        history: (update, dev score) of each validation; schedules replay it.
        best_update: update of the best dev score.
        seconds: training time of all starts together.
        target_tokens: target tokens trained on, EOS included.
        bad_updates: updates in a row that were skipped for non-finite gradients.
        content: SHA-256 of each file of train, dev, test and segment; a resumed run must have the
            same, wherever they are now. Empty = not known, from an older version.
        interval: the log line under way.
        text_fingerprint: of vocabulary and segmenter; translation must have the same.
        update_batches: batches of an update, of all processes together; 0 = not known.
        precision: the resolved one; auto keeps it in a resumed run. Empty = not known.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _CONFIG

    update: int = 0
    epoch: int = 0
    next_batch: int = 0
    history: list[tuple[int, float]] = field(default_factory=list)
    best_update: int | None = None
    seconds: float = 0.0
    target_tokens: int = 0
    bad_updates: int = 0
    content: dict[str, list[str]] = field(default_factory=dict)
    interval: IntervalState = field(default_factory=IntervalState)
    text_fingerprint: str = ""
    update_batches: int = 0
    precision: str = ""

    def to_json(self) -> str:
        """JSON text; ``from_json`` gives an equal state back."""
        return _STATE.dump_json(self, indent=1).decode("utf-8")

    @classmethod
    def from_json(cls, text: str | bytes) -> TrainState:
        """The state of a JSON text.

        Raises:
            ValueError: it is no JSON, or a value has another type.
        """
        return _STATE.validate_json(text)


_STATE = TypeAdapter(TrainState)
