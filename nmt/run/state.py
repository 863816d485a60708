"""The numbers that a resumed run needs in addition to weights and optimizer state."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, TypeAdapter

from nmt.data.sentences import UsualLine

_CONFIG = ConfigDict(strict=True, ser_json_inf_nan="constants")


@dataclass
class IntervalState:
    """Sums since the last log line, so that a resumed run completes the same line.

    Attributes:
        smoothed, nll: sums of the losses, in nats.
        tokens: their target tokens.
        updates_before: updates done before the interval.
        seconds: training time of the interval.
        lowest_loss: lowest loss of any log line.
        loss_ratio: loss of the last log line over ``lowest_loss``; ends an lr_ramp.
        skipped_before: updates that were skipped before the interval.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _CONFIG

    smoothed: float = 0.0
    nll: float = 0.0
    tokens: int = 0
    updates_before: int = 0
    seconds: float = 0.0
    lowest_loss: float = math.inf
    loss_ratio: float = 1.0
    skipped_before: int = 0


@dataclass
class TrainState:
    """The progress of a training: state.json of a checkpoint.

    Attributes:
        update: optimizer updates done.
        epoch: number of the batch plan, which is the number of completed passes over the data.
        next_batch: index in that plan of the first batch not used yet.
        history: (update, dev score) of each validation; schedules replay it. Higher is better: a
            perplexity is negated (``nmt.run.results.as_score``).
        best_update: update of the best dev score.
        seconds: training time of all starts together.
        target_tokens: target tokens trained on, EOS included.
        bad_updates: updates in a row that were skipped for non-finite gradients.
        content: SHA-256 of each file of train, dev, test and segment, which a resumed run must
            match.
        interval: sums since the last log line.
        text_hash: of vocabulary and segmenter; translation must have the same.
        update_batches: batches of an update, of all processes together; 0 = not known.
        loss_scale: the factor on the loss in fp16.
        loss_scale_updates: updates in a row with finite gradients at that scale.
        recipe: the keys of config.yaml that must not change, with their values.
        usual_line: of the training data, by which lines are split; None = not known.
        precision: the resolved precision, which ``auto`` keeps in a resumed run; empty = not known.
        skipped_updates: all updates that were skipped for non-finite gradients.
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
    text_hash: Annotated[str, Field(alias="text_fingerprint")] = ""  # its stored name
    update_batches: int = 0
    loss_scale: float = 2.0**16
    loss_scale_updates: int = 0
    precision: str = ""
    skipped_updates: int = 0
    recipe: dict[str, Any] = field(default_factory=dict)
    usual_line: UsualLine | None = None

    def to_json(self) -> str:
        """Return JSON text from which ``from_json`` makes an equal state."""
        return _STATE.dump_json(self, indent=1, by_alias=True).decode("utf-8")

    @classmethod
    def from_json(cls, text: str | bytes) -> TrainState:
        """Return the state of a JSON text.

        Raises:
            ValueError: the text is not JSON, or a value has a wrong type.
        """
        return _STATE.validate_json(text)


_STATE = TypeAdapter(TrainState)
