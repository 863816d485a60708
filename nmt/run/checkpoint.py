"""The checkpoints of a run: their files, which of them are kept, the latest, the best, averages.

A checkpoint is a folder of safetensors and JSON, without pickle::

    u000123/model.safetensors   u000123/optimizer.safetensors   u000123/state.json
    u000123/manifest.json       sizes and SHA-256 of these files, versions that wrote them

It is written under a temporary name, flushed and renamed, so each name is complete. It may come
from another person, so nothing in it is trusted (see ``nmt.run.manifest``).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import shutil
import struct
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from nmt.config.recipe import TrainConfig
from nmt.errors import RunError, UserError, printable
from nmt.model.lora import merge_lora
from nmt.run.folder import CHECKPOINT_NAME, RunFolder, update_of
from nmt.run.manifest import (
    FORMAT,
    MANIFEST,
    MANIFEST_TYPE,
    MODEL,
    OPTIMIZER,
    RESTORE,
    STATE,
    FileEntry,
    Manifest,
    NewerFormat,
    TrainState,
    foreign,
    parse_state,
    read_manifest,
    read_state,
    read_verified,
    weights_hash,
)
from nmt.run.results import as_score
from nmt.run.verify import require_best, require_recipe
from nmt.runtime.files import (
    REPLACED,
    TEMPORARY,
    atomic_folder,
    disk_errors,
    require_space,
    temporary,
    write_synced,
)
from nmt.runtime.progress import counted
from nmt.version import __version__

Shapes: TypeAlias = Mapping[str, tuple[torch.Size, torch.dtype]]


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint on the CPU; ``optimizer`` is empty if it was not requested."""

    state: TrainState
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    path: Path

    @property
    def weights(self) -> dict[str, Tensor]:
        """The weights for use: those of ``model``, with updates of LoRA added to their layers."""
        return merge_lora(self.model)


def read_checkpoint(path: Path, with_optimizer: bool = True) -> Checkpoint:
    """Read a checkpoint folder and verify every file that is used.

    Raises:
        UserError: a file is missing, damaged, not finite or not of this toolkit.
        MachineError: a file cannot be read.
    """
    manifest = read_manifest(path)
    state = parse_state(path, manifest)
    model = _read_tensors(path / MODEL, manifest.files[MODEL])
    optimizer = _read_tensors(path / OPTIMIZER, manifest.files[OPTIMIZER]) if with_optimizer else {}
    return Checkpoint(state, model, optimizer, path)


def read_model(path: Path, shapes: Shapes) -> Checkpoint:
    """Read a checkpoint without its optimizer; see ``read_checkpoint`` and ``require_fit``."""
    checkpoint = read_checkpoint(path, with_optimizer=False)
    require_fit(checkpoint.model, shapes, path / MODEL)
    return checkpoint


def shapes_of(tensors: Mapping[str, Tensor]) -> Shapes:
    """Return the shape and the type of each tensor."""
    return {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}


def require_fit(tensors: Mapping[str, Tensor], expected: Shapes, file: Path) -> None:
    """Raise UserError naming the first tensor of a file that is missing, unknown or different."""
    shapes = shapes_of(tensors)
    for name in [*expected, *(name for name in tensors if name not in expected)]:
        has, wanted = shapes.get(name), expected.get(name)
        if has == wanted:
            continue
        describe = _type if has and wanted and has[0] == wanted[0] else _shape
        what = "is missing" if has is None else f"has {describe(*has)}"
        why = "no tensor of this name" if wanted is None else describe(*wanted)
        raise UserError(
            f"tensor {name} {what}; expected {why}",
            at=str(file),
            fix=f"{RESTORE}; if config.yaml changed, restore it",
        )


def _shape(shape: torch.Size, dtype: torch.dtype) -> str:
    return f"shape {list(shape)}"


def _type(shape: torch.Size, dtype: torch.dtype) -> str:
    return f"type {str(dtype).removeprefix('torch.')}"


def non_finite(tensors: Mapping[str, Tensor]) -> str:
    """Return the names of tensors with NaN or infinity, separated by commas."""
    bad = [n for n, t in tensors.items() if t.is_floating_point() and not _is_finite(t)]
    return ", ".join(bad[:5]) + (f" and {len(bad) - 5} more" if len(bad) > 5 else "")


def _is_finite(tensor: Tensor) -> bool:
    # without a copy of the tensor, as isfinite makes
    return tensor.numel() == 0 or all(end.isfinite() for end in tensor.aminmax())


_TYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


def _header(tensors: Mapping[str, Tensor]) -> tuple[list[str], bytes, int]:
    """Return the order of tensors in a safetensors file, its beginning, and its size."""
    facts = {name: (t.dtype, list(t.shape), t.nbytes) for name, t in tensors.items()}
    # large items first, so that all are aligned
    order = sorted(facts, key=lambda name: (-facts[name][0].itemsize, name))
    entries, end = {}, 0
    for name in order:
        dtype, shape, size = facts[name]
        offsets = [end, end := end + size]
        entries[name] = {"dtype": _TYPES[dtype], "shape": shape, "data_offsets": offsets}
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return order, struct.pack("<Q", len(text)) + text, 8 + len(text) + end


def _write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> FileEntry:
    """Write a safetensors file, one tensor after the other, so that none is in memory twice."""
    order, start, size = _header(tensors)
    digest = hashlib.sha256(start)
    with open(path, "xb") as file:
        file.write(start)
        for name in order:
            tensor = tensors[name].detach().to("cpu").contiguous()
            data = tensor.reshape(-1).view(torch.uint8).numpy().data
            file.write(data)
            digest.update(data)
        file.flush()
        os.fsync(file.fileno())
    return FileEntry(size, digest.hexdigest())


def _read_tensors(path: Path, entry: FileEntry) -> dict[str, Tensor]:
    data = read_verified(path, entry)
    try:
        tensors = safetensors.torch.load(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise foreign(path, "its content is not safetensors") from error
    if bad := non_finite(tensors):
        raise UserError(f"NaN or infinity in {bad}", at=str(path), fix=RESTORE)
    return tensors


def checkpoint_name(update: int) -> str:
    """Return the name of the checkpoint of an update: 123 -> ``u000123``."""
    return f"u{update:06d}"


def checkpoints_to_keep(train: TrainConfig) -> int:
    """Return how many of the newest checkpoints training keeps: ``keep``, or ``average``."""
    return max(train.keep, train.average)


def space_needed(parameters: int, moments: int, keep: int) -> int:
    """Return the bytes of a run's checkpoints: ``keep``, the best, and one in the making.

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
    average: str = "",
) -> Path:
    """Write a checkpoint, then remove old ones except the ``keep`` newest and the best.

    A checkpoint that a stop wrote between two validations does not count as one of ``keep`` once it
    is not the newest. So a resumed run keeps, and averages, what an uninterrupted one does.
    The file ``best`` follows ``state.best_update``; an average becomes best by ``run.set_best``.

    Args:
        run: the locked run folder.
        model, optimizer: tensors by name, on any device; read several times, one by one, so a
            mapping may make each when it is read.
        average: set for averaged weights, such as ``avg5``. The name is then ``u000123-avg5``; such
            a checkpoint is never resumed from or removed, and removes nothing.

    Raises:
        RunError: a tensor is not finite; nothing is written.
        MachineError: the disk is full, or the folder is gone or taken over. Older checkpoints stay.
    """
    run.lock.check()
    name = checkpoint_name(state.update) + (f"-{average}" if average else "")
    if bad := non_finite(model) or non_finite(optimizer):
        raise RunError(
            f"checkpoint {name} is not written: NaN or infinity in {bad}",
            fix="continue from the previous checkpoint with --resume; if it happens again, train "
            "in another folder (out=PATH) with a lower learning rate",
        )
    root, text = run.checkpoints_dir, state.to_json().encode("utf-8")
    needed = len(text) + sum(_header(tensors)[2] for tensors in (model, optimizer))
    with disk_errors(root / name, needed):
        _clear_leftovers(root)
        require_space(root, needed)
        with atomic_folder(root / name, replace=True) as draft:
            entries = {
                MODEL: _write_tensors(draft / MODEL, model),
                OPTIMIZER: _write_tensors(draft / OPTIMIZER, optimizer),
                STATE: FileEntry(len(text), hashlib.sha256(text).hexdigest()),
            }
            manifest = Manifest(FORMAT, __version__, str(torch.__version__), entries)
            write_synced(draft / STATE, text)
            write_synced(draft / MANIFEST, MANIFEST_TYPE.dump_json(manifest, indent=1))
        if not average:
            _remove_abandoned(run, state.update)
            if state.best_update is not None:
                _mark_best(run, checkpoint_name(state.best_update))
            _rotate(run, keep, state)
        _clear_leftovers(root)
    return root / name


def _mark_best(run: RunFolder, name: str) -> None:
    path = run.checkpoints_dir / name
    if path.is_dir() and run.best_and_hash() != (name, weights_hash(path)):
        run.set_best(name)


def _remove_abandoned(run: RunFolder, update: int) -> None:
    """Remove later checkpoints, which were damaged when the run continued from an earlier one."""
    if update_of(run.best() or "") > update:
        run.best_file.unlink()
    for folder in run.checkpoints():
        if update_of(folder.name) > update:
            _remove(folder)


def _rotate(run: RunFolder, keep: int, state: TrainState) -> None:
    # best_update stays even if ``best`` names an average: a longer run goes back to it
    best = {run.best(), checkpoint_name(state.best_update or 0)}
    validated = {checkpoint_name(update) for update, _ in state.history}
    newer = 0
    for folder in reversed(run.checkpoints()):
        if newer == 0 or (folder.name in validated and newer < keep):
            newer += 1
        elif folder.name not in best:
            _remove(folder)


def _remove(folder: Path) -> None:
    # renamed first, so that a half-removed folder never has the name of a checkpoint
    draft = temporary(folder)
    os.rename(folder, draft)
    shutil.rmtree(draft, ignore_errors=True)


def _clear_leftovers(root: Path) -> None:
    """Clean up after a killed save: remove drafts, restore a checkpoint that was being replaced."""
    for folder in list(root.iterdir()):
        if folder.name.startswith(REPLACED):
            final = folder.with_name(folder.name.removeprefix(REPLACED))
            if not final.exists():
                os.rename(folder, final)
                continue
        if folder.name.startswith((TEMPORARY, REPLACED)):
            shutil.rmtree(folder, ignore_errors=True)


# --- load ---------------------------------------------------------------------------------------


def print_note(text: str) -> None:
    """Print a note on standard error."""
    print(f"note: {printable(text)}", file=sys.stderr, flush=True)


def load_checkpoint(
    run: RunFolder,
    which: str = "latest",
    *,
    with_optimizer: bool = True,
    note: Callable[[str], None] = print_note,
) -> Checkpoint:
    """Read and verify a checkpoint of a run.

    Args:
        which: ``latest``, ``best`` or a name such as ``u000123``. While the latest checkpoint is
            damaged, ``latest`` falls back to the previous one. Before the first validation,
            ``best`` is the latest.
        note: receives a line about each fallback.

    Raises:
        UserError: the checkpoint does not exist, is damaged, is not of this toolkit, or was saved
            with another recipe than that of config.yaml.
    """
    if which == "best":
        checkpoint = _load_best(run, with_optimizer, note)
    elif which != "latest":
        checkpoint = read_checkpoint(_find(run, which), with_optimizer)
    else:
        checkpoint = _load_latest(run, with_optimizer, note)
    require_recipe(run, checkpoint.state, checkpoint.path)
    return checkpoint


def _load_best(run: RunFolder, with_optimizer: bool, note: Callable[[str], None]) -> Checkpoint:
    name, digest = run.best_and_hash()
    if name is None:
        note(f"{run.path} has no best checkpoint yet, using the latest")
        return _load_latest(run, with_optimizer, note)
    try:
        path = _find(run, name)
        require_best(run, path, digest)
        return read_checkpoint(path, with_optimizer)
    except UserError:
        if run.best_and_hash() == (name, digest):
            raise
        return _load_best(run, with_optimizer, note)  # a running training has just replaced it


def _find(run: RunFolder, name: str) -> Path:
    known = {p.name.removeprefix(REPLACED): p for p in run.checkpoints()}
    path = known.get(name, run.checkpoints_dir / name)
    if not CHECKPOINT_NAME.fullmatch(name) or not os.path.lexists(path):
        raise UserError(
            f"no checkpoint {name!r}; the run has: {', '.join(known) or 'none'}",
            at=str(run.path),
            fix="use one of these names, latest or best",
        )
    return path


def _load_latest(run: RunFolder, with_optimizer: bool, note: Callable[[str], None]) -> Checkpoint:
    problems: list[UserError] = []
    paths = run.checkpoints()
    for path in reversed(paths):
        try:
            checkpoint = read_checkpoint(path, with_optimizer)
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
        return _load_latest(run, with_optimizer, note)
    raise UserError(
        "no checkpoint of the run can be used:\n  "
        + ("\n  ".join(f"{p.at}: {p.what}" for p in problems) or "none exists"),
        at=str(run.path),
        fix="restore the run folder from a copy, or train again in another folder",
    )


# --- the best -----------------------------------------------------------------------------------


def latest(run: RunFolder, count: int) -> list[Path]:
    """Return the newest ``count`` checkpoints, or fewer if fewer exist, oldest first."""
    return run.checkpoints()[-count:]


def best_checkpoints(run: RunFolder, count: int) -> list[Path]:
    """Return the ``count`` validated checkpoints of the highest dev scores, oldest first."""
    paths = {update_of(path.name): path for path in run.checkpoints()}
    named = dev_scores(list(paths.values()))
    scores = {update_of(name): score for name, score in named.items()}
    return [paths[update] for update in sorted(_by_score(paths, scores)[:count])]


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

    Otherwise a training would notice only at its end, and again after each resume.

    Args:
        run: the locked run folder; its file ``best`` changes.
        state: of the training; ``best_update`` changes.
        shapes: of the model's tensors.
        note: receives what is wrong, and what is now the best.
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
            best = verified if is_verified else read_model(path, shapes)
        except UserError as problem:
            if update == before:
                note(f"the best checkpoint cannot be used: {problem.at}: {problem.what}")
            continue
        if update != before:
            state.best_update = update
            run.set_best(path.name)
            metric = run.recipe().score.select_by
            new, old = (as_score(metric, scores.get(u, math.nan)) for u in (update, before))
            note(
                f"the best checkpoint is now {path.name}, with dev {metric} {new:.2f} instead of "
                f"{old:.2f}"
            )
        return best
    state.best_update = None
    run.best_file.unlink(missing_ok=True)
    note("no other validated checkpoint is kept; the next validation gives the best one")
    return None


def _by_score(updates: Iterable[int], scores: Mapping[int, float]) -> list[int]:
    """Sort the updates with a score, highest first; of equal ones the later first."""
    validated = [update for update in updates if not math.isnan(scores.get(update, math.nan))]
    return sorted(validated, key=lambda update: (scores[update], update), reverse=True)


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


def save_average(
    run: RunFolder, paths: Sequence[Path], suffix: str, progress: bool = False
) -> Path:
    """Save the average of checkpoints as a checkpoint named after the newest of them.

    Args:
        paths: oldest first.
        suffix: ``avg`` for the newest checkpoints, ``best`` for the best on dev; the number of
            checkpoints follows it: ``u000123-avg5``.
    """
    state = read_state(paths[-1])
    require_recipe(run, state, paths[-1])
    counted_paths = counted(paths, "averaging", "checkpoints", len(paths), progress, slow=True)
    with contextlib.closing(counted_paths) as shown:  # also before an error is printed
        weights = average_checkpoints(read_checkpoint(path, with_optimizer=False) for path in shown)
    return save_checkpoint(run, state, weights, {}, average=f"{suffix}{len(paths)}")
