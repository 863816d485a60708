"""How a run starts: fresh, from a parent or resumed; all is checked before anything is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from nmt.config.recipe import Recipe
from nmt.data.prepare import GivenText, Prepared, prepare
from nmt.data.segmenters import load_segmenter
from nmt.data.vocab import Vocab
from nmt.errors import MachineError, UserError
from nmt.model.base import ModelBase
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
from nmt.store.parent import require_same_parent, stored_text_of_parent, text_of_parent
from nmt.store.tensors import require_fit, shapes_of
from nmt.store.verify import is_text_of, require_text
from nmt.training.optimizer import optimizer_shapes
from nmt.training.tasks import model_without_memory
from nmt.training.transfer import Transfer, describe_transfer, read_parent, start_from

MAX_HALVINGS = 16  # updates that fp16 may skip at first: the first loss scale is 2^16
ANOTHER_FOLDER = "or train in another folder with out=PATH"


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
            require_same_parent(recipe, run)
        require_same_update(state, recipe.optim.accumulate, processes)
        precision = resumed_precision(recipe.precision, state.precision, device)
        prepared = _prepare_resumed(recipe, run, state, progress)
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
        return _prepare_resumed(recipe, run, checkpoint.state, progress=False)
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


def _prepare_resumed(recipe: Recipe, run: RunFolder, state: TrainState, progress: bool) -> Prepared:
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
    if is_text_of(state, prepared.vocab, prepared.segmenter):
        return prepared
    if text is None:  # with the segmenter of the run instead of a new one
        prepared = prepare(recipe, progress, segmenter=segmenter)
    if not is_text_of(state, prepared.vocab, prepared.segmenter):
        raise UserError(
            "the same corpora give other subwords than when this run began, so another version of "
            "nmt, sacremoses, sentencepiece or Python splits their words",
            at=str(folder),
            fix="install the versions that data_report.json and the manifest.json of a checkpoint "
            f"name, {ANOTHER_FOLDER}",
        )
    return prepared


def _require_complete(recipe: Recipe, checkpoint: Checkpoint, model: ModelBase) -> None:
    """Raise UserError if a checkpoint lacks a tensor of the model or of its optimizer."""
    require_fit(checkpoint.model, shapes_of(model.state_dict()), checkpoint.path / MODEL)
    state = checkpoint.state
    # an optimizer has no tensors before its first step, and RAdam makes none in skipped updates
    skipped = state.skipped_updates + (MAX_HALVINGS if state.precision == "fp16" else 0)
    if checkpoint.optimizer or state.update > skipped:
        expected = optimizer_shapes(recipe.optim.kind, model)
        require_fit(checkpoint.optimizer, expected, checkpoint.path / OPTIMIZER)


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
