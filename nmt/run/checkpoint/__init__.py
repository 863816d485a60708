"""Checkpoints of a run: what they hold, how they are stored, and which of them are kept."""

from nmt.run.checkpoint.format import (
    Checkpoint,
    Shapes,
    find_problem,
    read_checkpoint,
    require_fit,
    shapes_of,
)
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
from nmt.run.manifest import MODEL, OPTIMIZER, weights_hash
from nmt.run.state import IntervalState, TrainState

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
