"""Check, before anything is written, that a resumed run continues the same training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from nmt.config.recipe import Recipe
from nmt.data.prepare import Prepared, prepare
from nmt.data.segmenters import Segmenter, load_segmenter, text_hash
from nmt.data.vocab import Vocab
from nmt.errors import MachineError, UserError
from nmt.runtime.device import resolve_precision
from nmt.store.checkpoint import (
    MODEL,
    OPTIMIZER,
    Checkpoint,
    TrainState,
    load_checkpoint,
)
from nmt.store.folder import RunFolder
from nmt.store.lifecycle import TrainingFolder
from nmt.store.parent import require_same_parent, stored_text_of_parent
from nmt.store.tensors import require_fit, shapes_of
from nmt.store.verify import require_text
from nmt.training.optimizer import optimizer_shapes
from nmt.training.tasks import model_without_memory

MAX_HALVINGS = 16  # updates that fp16 may skip at first: the first loss scale is 2^16
ANOTHER_FOLDER = "or train in another folder with out=PATH"


@dataclass(frozen=True)
class ResumedRun:
    """A run to resume, after all checks.

    Attributes:
        checkpoint: the newest that is not damaged, with the optimizer state.
        notes: why an older checkpoint than the newest is used; usually none.
        existing: all checkpoints of the run.
    """

    checkpoint: Checkpoint
    prepared: Prepared
    precision: str
    notes: Sequence[str]
    existing: Sequence[Path]


def read_run(
    run: TrainingFolder, processes: int, device: torch.device, progress: bool
) -> ResumedRun:
    """Read and check a run to resume.

    Raises:
        UserError: the data, the text processing, the batches of an update or the tensors of the
            checkpoint are not those of this run.
        MachineError: the device lacks the run's precision.
    """
    recipe, existing, notes = run.new_recipe, run.checkpoints(), list[str]()
    checkpoint = load_checkpoint(run, note=notes.append)
    state = checkpoint.state
    if "init.from" in run.changes:
        require_same_parent(recipe, run)
    require_same_update(state, recipe.optim.accumulate, processes)
    precision = resumed_precision(recipe.precision, state.precision, device)
    prepared = prepare_resumed(recipe, run, state, progress)
    _require_complete(recipe, checkpoint, len(prepared.vocab))
    return ResumedRun(checkpoint, prepared, precision, notes, existing)


def require_same_update(state: TrainState, accumulate: int, processes: int) -> None:
    """Raise UserError if updates of a resumed run would have more or fewer batches."""
    before, batches = state.update_batches, accumulate * processes
    if before != batches:
        raise UserError(
            f"an update of this run has {before} batch{'es' * (before > 1)}, and would now "
            f"have {batches}: optim.accumulate = {accumulate}, processes = {processes}",
            at="optim.accumulate",
            fix="choose optim.accumulate and the number of processes so that their product is "
            f"{before}",
        )


def resumed_precision(precision: str, before: str, device: torch.device) -> str:
    """Return the precision of a resumed run; ``auto`` keeps the one of its latest checkpoint.

    Args:
        precision: of the recipe.
        before: the resolved precision of the latest checkpoint.
    """
    if precision != "auto":
        return resolve_precision(precision, device)
    try:
        return resolve_precision(before, device)
    except MachineError as error:
        raise MachineError(
            f"{error.what}, and this run was trained in {before}",
            at="precision",
            fix=f"resume on a device that supports {before}, or {error.fix}",
        ) from error


def prepare_resumed(recipe: Recipe, run: RunFolder, state: TrainState, progress: bool) -> Prepared:
    """Prepare the corpora with the vocabulary and the segmenter of a run.

    Content is compared, not paths or versions: the corpora may have moved, and another version of a
    library may prepare them, as long as the model sees the same ids.

    Raises:
        UserError: the run's vocabulary or segmenter is damaged, or the corpora give other ids.
    """
    folder = run.text_dir
    segmenter = load_segmenter(folder)
    require_text(run, state, Vocab.load(folder), segmenter)
    text = stored_text_of_parent(recipe, run)
    prepared = prepare(recipe, progress, text)
    _require_same_content(recipe, state, prepared.content)
    if _is_text_of(state, prepared.vocab, prepared.segmenter):
        return prepared
    if text is None:  # with the segmenter of the run instead of a new one
        prepared = prepare(recipe, progress, segmenter=segmenter)
    if not _is_text_of(state, prepared.vocab, prepared.segmenter):
        raise UserError(
            "the same corpora give other subwords than when this run began, so another version of "
            "nmt, sacremoses, sentencepiece or Python splits their words",
            at=str(folder),
            fix="install the versions that data_report.json and the manifest.json of a checkpoint "
            f"name, {ANOTHER_FOLDER}",
        )
    return prepared


def _require_complete(recipe: Recipe, checkpoint: Checkpoint, types: int) -> None:
    """Raise UserError if a checkpoint lacks a tensor of the model or of its optimizer."""
    model = model_without_memory(recipe, types)
    require_fit(checkpoint.model, shapes_of(model.state_dict()), checkpoint.path / MODEL)
    state = checkpoint.state
    # an optimizer has no tensors before its first step, and RAdam makes none in skipped updates
    skipped = state.skipped_updates + (MAX_HALVINGS if state.precision == "fp16" else 0)
    if checkpoint.optimizer or state.update > skipped:
        expected = optimizer_shapes(recipe.optim.kind, model)
        require_fit(checkpoint.optimizer, expected, checkpoint.path / OPTIMIZER)


def _is_text_of(state: TrainState, vocab: Vocab, segmenter: Segmenter) -> bool:
    return state.text_hash in ("", text_hash(vocab, segmenter))


def _require_same_content(
    recipe: Recipe, state: TrainState, content: Mapping[str, list[str]]
) -> None:
    changed = [role for role in state.content if state.content[role] != content.get(role)]
    if not changed:
        return
    data, segment = recipe.data, recipe.segment
    segment_files = [entry.path for entry in segment.learning_entries] or [segment.file or "learn"]
    files = {
        "train": f"data.train ({', '.join(entry.path for entry in data.train)})",
        "dev": f"data.dev ({', '.join(entry.path for entry in data.dev)})",
        "test": f"data.test ({', '.join(entry.path for entry in data.test or []) or 'none'})",
        "segment": f"segment ({', '.join(segment_files)})",
    }
    lines = ["the data changed since this run began:"]
    for role in changed:
        now, before = (_short(hashes) for hashes in (content[role], state.content[role]))
        lines.append(f"{files[role]}: SHA-256 {now}; at the beginning {before}")
    raise UserError("\n  ".join(lines), fix=f"restore these files, {ANOTHER_FOLDER}")


def _short(hashes: list[str]) -> str:
    return ", ".join(text[:12] for text in hashes) or "no file"
