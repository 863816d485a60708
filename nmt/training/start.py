"""How a run starts: fresh, from a parent or resumed; all is checked before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from nmt.config.recipe import Recipe
from nmt.data.prepare import GivenText, Prepared, prepare
from nmt.errors import MachineError, UserError
from nmt.model.base import ModelBase
from nmt.runtime.device import resolve_precision
from nmt.store.checkpoint import MODEL, OPTIMIZER, Checkpoint, load_checkpoint
from nmt.store.folder import RunFolder
from nmt.store.lifecycle import TrainingFolder
from nmt.store.parent import stored_text_of_parent, text_of_parent
from nmt.store.same_run import prepare_resumed, require_same_parent, require_same_update
from nmt.store.tensors import require_fit, shapes_of
from nmt.training.optimizer import optimizer_shapes
from nmt.training.tasks import model_without_memory
from nmt.training.transfer import Transfer, describe_transfer, read_parent, start_from

MAX_HALVINGS = 16  # updates that fp16 may skip at first: the first loss scale is 2^16


@dataclass
class Start:
    """How a run starts: from a checkpoint (resumed), from a parent, or fresh.

    Attributes:
        precision: resolved.
        model: without memory, for the names and shapes of its tensors.
        checkpoint: where a resumed run continues: the newest that is not damaged, with the
            optimizer state.
        existing: all checkpoints of a resumed run.
        transfer: what a new run loads from its parent.
        text: the segmentation and the vocabulary of that parent, unless ``init.vocab: new``.
        record: what the run takes from that parent, for init.json.
        notes: the same for people; of a resumed run, why an older checkpoint than the newest is
            used.
    """

    prepared: Prepared
    precision: str
    model: ModelBase
    checkpoint: Checkpoint | None = None
    existing: Sequence[Path] = ()
    transfer: Transfer | None = None
    text: GivenText | None = None
    record: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def start_of(
    run: TrainingFolder, processes: int, device: torch.device, precision: str, progress: bool
) -> Start:
    """Read and check everything that a run starts with.

    Args:
        precision: of a new run, resolved.
        progress: show progress bars on a terminal.

    Raises:
        UserError: the data is wrong, does not fit the parent, or is not that of the run to resume;
            or the batches of an update or the tensors of the checkpoint are not those of that run.
        MachineError: the device lacks the precision of the run to resume.
    """
    recipe, notes = run.new_recipe, list[str]()
    if run.resuming:
        existing, checkpoint = run.checkpoints(), load_checkpoint(run, note=notes.append)
        state = checkpoint.state
        if "init.from" in run.changes:
            require_same_parent(run, recipe)
        require_same_update(state, recipe.optim.accumulate, processes)
        precision = resumed_precision(recipe.precision, state.precision, device)
        prepared = prepare_resumed(run, recipe, state, progress)
        model = _model_for(recipe, prepared)
        _require_complete(recipe, checkpoint, model)
        return Start(prepared, precision, model, checkpoint, existing, notes=notes)
    if recipe.init.parent is None:
        prepared = prepare(recipe, progress)
        return Start(prepared, precision, _model_for(recipe, prepared))
    parent, tensors = read_parent(recipe)
    text = text_of_parent(recipe, parent, progress)
    prepared = prepare(recipe, progress, text)
    model = _model_for(recipe, prepared)
    transfer, record = start_from(recipe, model, prepared.vocab, parent, tensors, text)
    notes = describe_transfer(recipe, record, text)
    return Start(
        prepared, precision, model, transfer=transfer, text=text, record=record, notes=notes
    )


def prepare_again(recipe: Recipe, run: RunFolder, checkpoint: Checkpoint | None) -> Prepared:
    """Return the data of ``start_of`` in another process, when the main one has written the run."""
    if checkpoint is not None:
        return prepare_resumed(run, recipe, checkpoint.state, progress=False)
    return prepare(recipe, False, stored_text_of_parent(recipe, run))


def _model_for(recipe: Recipe, prepared: Prepared) -> ModelBase:
    """Return the model without memory; UserError if a line of dev or test is too long for it."""
    model = model_without_memory(recipe, len(prepared.vocab))
    if not recipe.translates or model.longest is None:
        return model
    for held_out in prepared.held_out:
        corpus = held_out.corpus
        longest = 2 + int(max(corpus.src_len.max(), corpus.tgt_len.max()))  # EOS, and a tag
        if longest > model.longest:
            raise UserError(
                f"a line of {held_out.name} has {longest:,} tokens; model.max_positions is "
                f"{model.longest:,}",
                at=f"data.{held_out.name.partition('.')[0]}",
                fix="split this line into sentences, or leave it out",
            )
    return model


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


def _require_complete(recipe: Recipe, checkpoint: Checkpoint, model: ModelBase) -> None:
    """Raise UserError if a checkpoint lacks a tensor of the model or of its optimizer."""
    require_fit(checkpoint.model, shapes_of(model.state_dict()), checkpoint.path / MODEL)
    state = checkpoint.state
    # an optimizer has no tensors before its first step, and RAdam makes none in skipped updates
    skipped = state.skipped_updates + (MAX_HALVINGS if state.precision == "fp16" else 0)
    if checkpoint.optimizer or state.update > skipped:
        expected = optimizer_shapes(recipe.optim.kind, model)
        require_fit(checkpoint.optimizer, expected, checkpoint.path / OPTIMIZER)
