"""What a resumed run must have in common with its beginning, checked before anything is written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from nmt.config.recipe import Recipe
from nmt.data.prepare import Prepared, prepare
from nmt.data.segmenters import load_segmenter
from nmt.data.vocab import Vocab
from nmt.decoding.codec import text_hash
from nmt.errors import MachineError, UserError
from nmt.model.transformer import Transformer
from nmt.run.checkpoint import MODEL, OPTIMIZER, Checkpoint, TrainState, require_fit, shapes_of
from nmt.runtime.device import resolve_precision
from nmt.training.optimizer import optimizer_shapes

LOWERINGS = 16  # updates that fp16 may skip at first, as 2^16 is its first loss scale
ELSEWHERE = "or train in another folder with out=PATH"


def require_same_update(state: TrainState, accumulate: int, processes: int, changed: bool) -> None:
    """Raise UserError if updates of a resumed run would have more or fewer batches.

    Args:
        accumulate: ``optim.accumulate``.
        processes: that train together.
        changed: whether ``accumulate`` differs from before; a run of an older version, which does
            not store the number of batches, must not change it.
    """
    known, batches = state.update_batches, accumulate * processes
    if known == batches or not (known or changed):
        return
    raise UserError(
        f"an update of this run has {known or 'an unknown number of'} batches, and would now have "
        f"{batches}: optim.accumulate = {accumulate}, in {processes} process"
        f"{'es' * (processes > 1)}",
        fix=f"choose optim.accumulate and the number of processes so that their product is {known}"
        if known
        else "set optim.accumulate back",
    )


def model_without_memory(recipe: Recipe, types: int) -> Transformer:
    """Build the model of a recipe without memory for its weights."""
    with torch.device("meta"):
        return Transformer(recipe.model, types)


def prepare_resumed(
    recipe: Recipe, folder: Path, state: TrainState, progress: bool = True
) -> Prepared:
    """Prepare the corpora for a run that has begun, with its own segmentation.

    What is prepared is compared with what the run began with, so the corpora may have moved, and
    another version of a library may prepare them, as long as the model sees the same.

    Args:
        folder: the run folder.

    Raises:
        UserError: the run's vocabulary or segmenter is damaged, or the corpora give other ids.
    """
    _require_own_text(folder, state)
    prepared = prepare(recipe, progress)
    _require_same_content(recipe, state, prepared.content)
    if _is_of(state, prepared):
        return prepared
    prepared = prepare(recipe, progress, load_segmenter(folder))
    if not _is_of(state, prepared):
        raise UserError(
            "the same corpora give other pieces than when this run began, so another version of "
            "sacremoses, sentencepiece or Python splits their words",
            at=str(folder),
            fix=f"install the versions that the run began with, {ELSEWHERE}",
        )
    return prepared


def resumed_precision(wanted: str, began: str, device: torch.device) -> str:
    """Resolve the precision of a resumed run: ``auto`` keeps the one that it began with.

    Args:
        wanted: by the recipe.
        began: resolved; auto = not known, in a run of an older version.

    Raises:
        MachineError: the device lacks it.
    """
    if wanted != "auto":
        return resolve_precision(wanted, device)
    try:
        return resolve_precision(began, device)
    except MachineError as error:
        raise MachineError(
            f"{error.what}, and this run began in {began}",
            at="precision",
            fix=f"resume on a device that has {began}, or continue in fp32 with precision=fp32",
        ) from error


def require_complete(recipe: Recipe, checkpoint: Checkpoint, types: int) -> None:
    """Raise UserError when a checkpoint lacks a tensor of the model or of its optimizer."""
    model = model_without_memory(recipe, types)
    require_fit(checkpoint.model, shapes_of(model.state_dict()), checkpoint.path / MODEL)
    state = checkpoint.state
    # before its first step an optimizer has no tensors: RAdam makes none in skipped updates
    skipped = state.bad_updates + (LOWERINGS if state.precision == "fp16" else 0)
    if checkpoint.optimizer or state.update > skipped:
        expected = optimizer_shapes(recipe.optim.kind, model)
        require_fit(checkpoint.optimizer, expected, checkpoint.path / OPTIMIZER)


def _is_of(state: TrainState, prepared: Prepared) -> bool:
    here = text_hash(prepared.vocab, prepared.segmenter)
    return state.text_hash in ("", here)


def _require_own_text(folder: Path, state: TrainState) -> None:
    here = text_hash(Vocab.load(folder), load_segmenter(folder))
    if state.text_hash not in ("", here):
        raise UserError(
            "vocab.txt or segmenter.json is not the one that this run began with",
            at=str(folder),
            fix=f"restore the files that nmt-train wrote, {ELSEWHERE}",
        )


def _require_same_content(
    recipe: Recipe, state: TrainState, content: Mapping[str, list[str]]
) -> None:
    changed = [role for role in state.content if state.content[role] != content.get(role)]
    if changed:
        data, segment = recipe.data, recipe.segment
        files = {
            "train": f"data.train ({', '.join(data.train)})",
            "dev": f"data.dev ({data.dev})",
            "test": f"data.test ({data.test or 'none'})",
            "segment": f"segment ({getattr(segment, 'codes', getattr(segment, 'model', ''))})",
        }
        lines = ["the data changed since this run began:"]
        for role in changed:
            now, before = (_short(hashes) for hashes in (content[role], state.content[role]))
            lines.append(f"{files[role]}: SHA-256 {now}; at the beginning {before}")
        raise UserError("\n  ".join(lines), fix=f"restore these files, {ELSEWHERE}")


def _short(hashes: list[str]) -> str:
    return ", ".join(text[:12] for text in hashes) or "no file"
