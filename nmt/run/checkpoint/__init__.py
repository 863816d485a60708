"""Checkpoints of a run: what they hold, how they are stored, and which of them are kept."""

from nmt.run.checkpoint.format import (
    MODEL,
    OPTIMIZER,
    Checkpoint,
    Shapes,
    find_problem,
    read_checkpoint,
    require_fit,
    shapes_of,
    weights_hash,
)
from nmt.run.checkpoint.state import IntervalState, TrainState
from nmt.run.checkpoint.store import (
    average_checkpoints,
    best_checkpoints,
    checkpoint_name,
    checkpoints_to_keep,
    dev_scores,
    latest,
    load_checkpoint,
    replace_damaged_best,
    save_average,
    save_checkpoint,
    space_needed,
)

__all__ = [
    "MODEL",
    "OPTIMIZER",
    "Checkpoint",
    "IntervalState",
    "Shapes",
    "TrainState",
    "average_checkpoints",
    "best_checkpoints",
    "checkpoint_name",
    "checkpoints_to_keep",
    "dev_scores",
    "find_problem",
    "latest",
    "load_checkpoint",
    "read_checkpoint",
    "replace_damaged_best",
    "require_fit",
    "save_average",
    "save_checkpoint",
    "shapes_of",
    "space_needed",
    "weights_hash",
]
