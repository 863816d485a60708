"""The checkpoints of a run: their files, rotation, the latest, the best, averages.

Only a resumed run reads them; all else reads ``RUN/model``. A checkpoint is a folder of safetensors
and JSON, without pickle::

    u000123/model.safetensors   u000123/optimizer.safetensors   u000123/state.json
    u000123/manifest.json       sizes and SHA-256 of these files, versions that wrote them

It is written under a temporary name, flushed and renamed, so each name is complete. It may come
from an untrusted source, so everything is checked (see ``nmt.store.manifest``).
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from nmt.config.recipe import TrainConfig
from nmt.data.segmenters import Segmenter, load_segmenter
from nmt.data.vocab import Vocab
from nmt.errors import RunError, UserError, printable
from nmt.model.lora import merge_lora
from nmt.runtime.files import (
    REPLACED,
    TEMPORARY,
    atomic_folder,
    clear_leftovers,
    disk_errors,
    require_space,
    temporary,
    write_synced,
)
from nmt.runtime.progress import counted
from nmt.store.folder import RunFolder, update_of
from nmt.store.manifest import (
    FORMAT,
    MANIFEST,
    MANIFEST_TYPE,
    MODEL,
    OPTIMIZER,
    STATE,
    FileEntry,
    Manifest,
    NewerFormat,
    TrainState,
    parse_state,
    read_manifest,
    read_state,
)
from nmt.store.model import (
    WEIGHTS,
    Description,
    complete,
    link,
    output_folder,
    read_provenance,
    save_text,
)
from nmt.store.results import as_score, rank
from nmt.store.same_run import require_same_config, require_text
from nmt.store.tensors import (
    Shapes,
    non_finite,
    read_tensors,
    require_fit,
    safetensors_header,
    shapes_of,
    write_tensors,
)
from nmt.version import __version__


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint on the CPU; ``optimizer`` is empty if it was not requested."""

    state: TrainState
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    path: Path

    @property
    def weights(self) -> dict[str, Tensor]:
        """The weights of ``model``, with LoRA updates merged into their layers."""
        return merge_lora(self.model)


def read_checkpoint(path: Path, with_optimizer: bool = True) -> Checkpoint:
    """Read a checkpoint folder and verify every file that is used.

    Raises:
        UserError: a file is missing, damaged, not finite or not of this toolkit.
        MachineError: a file cannot be read.
    """
    manifest = read_manifest(path)
    state = parse_state(path, manifest)
    model = read_tensors(path / MODEL, manifest.files[MODEL])
    optimizer = read_tensors(path / OPTIMIZER, manifest.files[OPTIMIZER]) if with_optimizer else {}
    return Checkpoint(state, model, optimizer, path)


def read_fitting(path: Path, shapes: Shapes) -> Checkpoint:
    """Read a checkpoint without its optimizer; see ``read_checkpoint`` and ``require_fit``."""
    checkpoint = read_checkpoint(path, with_optimizer=False)
    require_fit(checkpoint.model, shapes, path / MODEL)
    return checkpoint


def checkpoint_name(update: int) -> str:
    """Return the name of the checkpoint of an update: 123 -> ``u000123``."""
    return f"u{update:06d}"


def checkpoints_to_keep(train: TrainConfig) -> int:
    """Return how many of the newest checkpoints training keeps: ``keep``, or ``average``."""
    return max(train.keep, train.average)


def space_needed(parameters: int, moments: int, keep: int) -> int:
    """Return the bytes of a run's checkpoints: ``keep``, the best, and the one being written.

    Args:
        moments: values of the optimizer's state.
    """
    return 4 * (parameters + moments) * (keep + 2)


# --- save ---------------------------------------------------------------------------------------


def save_checkpoint(
    run: RunFolder,
    state: TrainState,
    model: Mapping[str, Tensor],
    optimizer: Mapping[str, Tensor],
    keep: int = 1,
) -> Path:
    """Write a checkpoint, then remove old ones except the ``keep`` newest and the best.

    A checkpoint that a stop wrote between two validations does not count towards ``keep``, and the
    next one replaces it. So a resumed run keeps and averages the same checkpoints as an
    uninterrupted one.

    Args:
        run: the locked run folder.
        model, optimizer: tensors by name, on any device; read several times, one by one, so a
            mapping may make each when it is read.

    Raises:
        RunError: a tensor is not finite; nothing is written.
        MachineError: the disk is full, or the folder is gone or taken over. Older checkpoints stay.
    """
    run.lock.check()
    name = checkpoint_name(state.update)
    if bad := non_finite(model) or non_finite(optimizer):
        raise RunError(
            f"checkpoint {name} is not written: NaN or infinity in {bad}",
            fix="continue from the previous checkpoint with --resume; if it happens again, train "
            "in another folder (out=PATH) with a lower learning rate",
        )
    root, text = run.checkpoints_dir, state.to_json().encode("utf-8")
    needed = len(text) + sum(safetensors_header(tensors)[2] for tensors in (model, optimizer))
    with disk_errors(root / name, needed):
        clear_leftovers(root)
        require_space(root, needed)
        with atomic_folder(root / name, replace=True) as draft:
            entries = {
                MODEL: write_tensors(draft / MODEL, model),
                OPTIMIZER: write_tensors(draft / OPTIMIZER, optimizer),
                STATE: FileEntry(len(text), hashlib.sha256(text).hexdigest()),
            }
            manifest = Manifest(FORMAT, __version__, str(torch.__version__), entries)
            write_synced(draft / STATE, text)
            write_synced(draft / MANIFEST, MANIFEST_TYPE.dump_json(manifest, indent=1))
        _remove_abandoned(run, state.update)
        rotate(run, keep, state)
    return root / name


def _remove_abandoned(run: RunFolder, update: int) -> None:
    """Remove later checkpoints, which were damaged when the run continued from an earlier one."""
    for folder in run.checkpoints():
        if update_of(folder.name) > update:
            _remove(folder)


def rotate(run: RunFolder, keep: int, state: TrainState) -> None:
    """Remove the old checkpoints that ``save_checkpoint`` does not keep."""
    others = {checkpoint_name(update) for update in (state.best_update or 0, state.update)}
    validated = {checkpoint_name(update) for update, _ in state.history}
    newer = 0
    for folder in reversed(run.checkpoints()):
        if folder.name in validated and newer < keep:
            newer += 1
        elif folder.name not in others:
            _remove(folder)
    clear_leftovers(run.checkpoints_dir)


def _remove(folder: Path) -> None:
    # renamed first, so that a half-removed folder never has the name of a checkpoint
    draft = temporary(folder)
    os.rename(folder, draft)
    shutil.rmtree(draft, ignore_errors=True)


# --- load ---------------------------------------------------------------------------------------


def print_note(text: str) -> None:
    """Print a note on standard error."""
    print(f"note: {printable(text)}", file=sys.stderr, flush=True)


def load_checkpoint(run: RunFolder, note: Callable[[str], None] = print_note) -> Checkpoint:
    """Read and verify the latest intact checkpoint of a run.

    Args:
        note: receives a line about each fallback.

    Raises:
        UserError: none is usable, or it was saved with a recipe that differs from config.yaml.
    """
    checkpoint = _load_latest(run, note)
    require_same_config(run, checkpoint.state, checkpoint.path)
    return checkpoint


def find_checkpoint(run: RunFolder, name: str) -> Path:
    """Return the folder of a checkpoint; UserError if there is none of this name."""
    known = {path.name.removeprefix(REPLACED): path for path in run.checkpoints()}
    if name not in known:
        raise UserError(
            f"no checkpoint {name!r}; the run has: {', '.join(known) or 'none'}",
            at=str(run.path),
            fix="use these names",
        )
    return known[name]


def _load_latest(run: RunFolder, note: Callable[[str], None]) -> Checkpoint:
    problems: list[UserError] = []
    paths = run.checkpoints()
    for path in reversed(paths):
        try:
            checkpoint = read_checkpoint(path)
        except NewerFormat:  # a fallback would lose what the newer version has trained
            raise
        except UserError as error:
            problems.append(error)
            continue
        for problem in problems:
            note(f"{problem.at}: {problem.what}")
        drafts = (update_of(p.name) for p in run.checkpoints_dir.glob(TEMPORARY + "u*"))
        unfinished = max(drafts, default=0)
        if unfinished > update_of(path.name):
            note(f"checkpoint {checkpoint_name(unfinished)} is incomplete, using {path.name}")
        elif problems:
            note(f"using checkpoint {path.name} instead")
        return checkpoint
    if run.checkpoints() != paths:  # a running training replaced them meanwhile
        return _load_latest(run, note)
    raise UserError(
        "no checkpoint of the run can be used:\n  "
        + ("\n  ".join(f"{p.at}: {p.what}" for p in problems) or "none exists"),
        at=str(run.path),
        fix="restore the run folder from a copy, or train again in another folder",
    )


# --- the best -----------------------------------------------------------------------------------


def latest(run: RunFolder, count: int) -> list[Path]:
    """Return the newest ``count`` checkpoints (or fewer) after an update, oldest first."""
    return [path for path in run.checkpoints() if update_of(path.name)][-count:]


def dev_scores(paths: Sequence[Path]) -> dict[str, float]:
    """Return the dev score of each validated checkpoint by name; ``paths`` are oldest first."""
    if not paths:
        return {}
    history = dict(read_state(paths[-1]).history)
    updates = {path.name: update_of(path.name) for path in paths}
    return {name: history[update] for name, update in updates.items() if update in history}


def replace_damaged_best(
    run: RunFolder,
    state: TrainState,
    shapes: Shapes,
    note: Callable[[str], None],
    verified: Checkpoint | None = None,
) -> Checkpoint | None:
    """Read the best checkpoint; if it is damaged, make the best intact one the best.

    Otherwise a run would fail only at its end, and again after each resume.

    Args:
        state: of the training; ``best_update`` changes.
        shapes: of the model's tensors.
        note: receives a description of the damage and of the new best checkpoint.
        verified: a checkpoint that was read already.

    Returns:
        The best checkpoint; None if no validated one is kept.
    """
    if (before := state.best_update) is None:
        return None
    scores = dict(state.history)
    kept = _by_score((update_of(path.name) for path in run.checkpoints()), scores)
    for update in [before, *(other for other in kept if other != before)]:
        path = run.checkpoints_dir / checkpoint_name(update)
        try:
            is_verified = verified is not None and verified.path.name == path.name
            best = verified if is_verified else read_fitting(path, shapes)
        except UserError as problem:
            if update == before:
                note(f"the best checkpoint cannot be used: {problem.at}: {problem.what}")
            continue
        if update != before:
            state.best_update = update
            metric = run.recipe().score.select_by
            new, old = (as_score(metric, scores.get(u, math.nan)) for u in (update, before))
            note(
                f"the best checkpoint is now {path.name}, with dev {metric} {new:.2f} instead of "
                f"{old:.2f}"
            )
        return best
    state.best_update = None
    note("no other validated checkpoint is kept; the next validation gives the best one")
    return None


def _by_score(updates: Iterable[int], scores: Mapping[int, float]) -> list[int]:
    """Sort the updates with a score, the best first."""
    validated = [update for update in updates if not math.isnan(scores.get(update, math.nan))]
    return sorted(validated, key=lambda update: rank(update, scores[update]), reverse=True)


# --- averages -----------------------------------------------------------------------------------


def average_checkpoints(checkpoints: Iterable[Checkpoint]) -> dict[str, Tensor]:
    """Return the mean of the weights of several checkpoints (V section 6.1).

    Sums are fp64, so that the order does not change the result.

    Raises:
        UserError: their tensors differ in name, shape or type.
    """
    sums: dict[str, Tensor] = {}
    shapes: Shapes = {}
    count = 0
    for checkpoint in checkpoints:
        weights = checkpoint.weights
        shapes = shapes or shapes_of(weights)
        if shapes_of(weights) != shapes:
            raise UserError(
                "its tensors differ from those of the first checkpoint",
                at=str(checkpoint.path),
                fix="average checkpoints of one run",
            )
        for name, tensor in weights.items():
            if name in sums:
                sums[name] += tensor.double()
            else:
                sums[name] = tensor.double()
        count += 1
    return {name: (total / count).to(shapes[name][1]) for name, total in sums.items()}


# --- the model ----------------------------------------------------------------------------------


def write_run_model(
    run: RunFolder,
    name: str,
    state: TrainState,
    weights: Mapping[str, Tensor],
    vocab: Vocab,
    segmenter: Segmenter,
    score: float | None,
) -> None:
    """Replace ``RUN/model``.

    Args:
        name: of the checkpoint, or of an average.
        state: of the training.
        weights: those of a checkpoint with this name are linked, not copied.
        score: on dev.
    """
    needed = sum(tensor.nbytes for tensor in weights.values())
    with disk_errors(run.model_dir, needed), atomic_folder(run.model_dir, replace=True) as draft:
        entry = save_weights(draft, weights, run.checkpoints_dir / name)
        save_text(draft, vocab, segmenter)
        complete(draft, run_description(run, name, state, score), {WEIGHTS: entry})


def average(
    run: RunFolder, paths: Sequence[Path], output: Path, force: bool, progress: bool = False
) -> None:
    """Write a model with the averaged weights of checkpoints, or with those of a single one.

    Args:
        paths: of ``run.checkpoints()``.
        force: replace a model at the output.

    Raises:
        UserError: a checkpoint is damaged or of another recipe, the text files of the run are not
            those that it was trained with, or the output exists.
    """
    segmenter, vocab = load_segmenter(run.text_dir), Vocab.load(run.text_dir)
    last = max(paths, key=lambda path: update_of(path.name))
    state, name = read_state(last), last.name
    require_same_config(run, state, last)
    require_text(run, state, vocab, segmenter)
    shown = counted(paths, "averaging", "checkpoints", len(paths), progress, slow=True)
    with contextlib.closing(shown):  # also before an error is printed
        weights = average_checkpoints(read_checkpoint(path, with_optimizer=False) for path in shown)
    if len(paths) > 1:
        name += f"-avg{len(paths)}"
    score = dict(state.history).get(state.update) if len(paths) == 1 else None
    with output_folder(output, force) as draft:
        save_text(draft, vocab, segmenter)
        entries = {WEIGHTS: write_tensors(draft / WEIGHTS, weights)}
        complete(draft, run_description(run, name, state, score), entries)


def save_weights(draft: Path, weights: Mapping[str, Tensor], checkpoint: Path) -> FileEntry:
    """Write the weights of a model, or link those of a checkpoint if it has them in this form."""
    if merged := any(".lora." in name for name in weights):
        weights = merge_lora(weights)
    if merged or not checkpoint.is_dir():
        return write_tensors(draft / WEIGHTS, weights)
    link(checkpoint / MODEL, draft / WEIGHTS)
    return read_manifest(checkpoint).files[MODEL]


def run_description(
    run: RunFolder, name: str, state: TrainState, score: float | None
) -> Description:
    """Describe a model of a run; see ``write_run_model`` for the arguments."""
    recipe = run.recipe()
    metric = recipe.score.select_by
    known = score is not None and not math.isnan(score)
    scores = {f"dev {metric}": as_score(metric, score)} if known and score is not None else {}
    parent, origin = read_provenance(run)
    return Description.of(recipe, name, state.usual_line, scores, origin, parent)
