"""Saved states of a run: written whole or not at all, verified before a single weight is used.

A checkpoint is a folder of safetensors and JSON, no pickle::

    u000123/model.safetensors   u000123/optimizer.safetensors   u000123/state.json
    u000123/manifest.json       bytes and SHA-256 of the other three, and who wrote them

It is written under a temporary name, flushed, then renamed; so a name that is there is complete.
"""

from __future__ import annotations

import math
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from torch import Tensor

from nmt.errors import RunError, UserError
from nmt.run.folder import CHECKPOINT_NAME, RunFolder, update_of
from nmt.run.state import TrainState
from nmt.run.stored import (
    MODEL,
    Checkpoint,
    NewerFormat,
    Shapes,
    non_finite,
    pack,
    read_checkpoint,
    require_fit,
)
from nmt.runtime.files import (
    REPLACED,
    TEMPORARY,
    atomic_folder,
    disk_errors,
    require_space,
    temporary,
    write_synced,
)

__all__ = [
    "Checkpoint",
    "TrainState",
    "checkpoint_name",
    "load_checkpoint",
    "require_same_update",
    "save_checkpoint",
    "space_needed",
]


def warn(text: str) -> None:
    """A note on standard error."""
    print(f"note: {text}", file=sys.stderr, flush=True)


def checkpoint_name(update: int) -> str:
    """123 -> ``u000123``."""
    return f"u{update:06d}"


def space_needed(parameters: int, keep: int, slots: int = 2) -> int:
    """Bytes that the checkpoints of a training take: ``keep``, the best, and one being written.

    Args:
        parameters: of the model, in fp32.
        keep: newest checkpoints kept.
        slots: values the optimizer keeps per parameter, two for Adam.
    """
    return 4 * parameters * (1 + slots) * (keep + 2)


def save_checkpoint(
    run: RunFolder,
    state: TrainState,
    model: Mapping[str, Tensor],
    optimizer: Mapping[str, Tensor],
    keep: int = 1,
    average: str = "",
) -> Path:
    """Writes a checkpoint, then removes old ones: the ``keep`` newest and the best stay.

    One that a stop wrote between two validations is no longer needed and does not count, so that a
    resumed run keeps, and averages, what one that never stopped does.
    ``state.best_update`` decides what the file ``best`` names; an averaged checkpoint becomes best
    by ``run.set_best(path.name)`` alone.

    Args:
        run: the locked run folder.
        state: gives the name, ``u000123``.
        model, optimizer: tensors by name, on any device.
        keep: newest checkpoints kept, at least 1.
        average: weights are an average, such as ``avg5``: the name is ``u000123-avg5``, it is
            never resumed from, never removed, and removes nothing.

    Returns:
        The checkpoint's folder.

    Raises:
        RunError: a tensor is not finite; nothing is written.
        MachineError: the disk is full, the folder is gone or another training's. Older
            checkpoints are untouched.
    """
    run.check()
    name = checkpoint_name(state.update) + (f"-{average}" if average else "")
    _refuse_non_finite({**model, **optimizer}, name)
    contents = pack(state, model, optimizer)
    root = run.checkpoints_dir
    needed = sum(map(len, contents.values()))
    with disk_errors(root / name, needed):
        _clear_leftovers(root)
        require_space(root, needed)
        with atomic_folder(root / name, replace=True) as draft:
            for file, data in contents.items():
                write_synced(draft / file, data)
        if not average:
            _remove_abandoned(run, state.update)
            if state.best_update is not None:
                _mark_best(run, checkpoint_name(state.best_update))
            _rotate(run, keep, state)
        _clear_leftovers(root)
    return root / name


def load_checkpoint(
    run: RunFolder,
    which: str = "latest",
    *,
    with_optimizer: bool = True,
    say: Callable[[str], None] = warn,
) -> Checkpoint:
    """Reads and verifies a checkpoint.

    Args:
        run: the run folder, locked or not.
        which: ``latest``, ``best`` or a name such as ``u000123``. ``latest`` falls back to the one
            before while a checkpoint is damaged; ``best`` before the first validation is the
            latest.
        with_optimizer: read the optimizer too (translation needs none).
        say: is told about each fallback.

    Raises:
        UserError: there is no such checkpoint, or it is damaged, or not of this toolkit.
    """
    if which == "best":
        named = run.best()
        if named is None:
            say(f"{run.path} has no best checkpoint yet, using the latest")
        else:
            try:
                return read_checkpoint(_named(run, named), with_optimizer)
            except UserError:
                again = run.best()  # a training that goes on may just have replaced the best
                if again in (None, named):
                    raise
                return read_checkpoint(_named(run, str(again)), with_optimizer)
    elif which != "latest":
        return read_checkpoint(_named(run, which), with_optimizer)
    return _load_latest(run, with_optimizer, say)


def secure_best(
    run: RunFolder, state: TrainState, shapes: Shapes, say: Callable[[str], None]
) -> None:
    """Let the best checkpoint that is intact take the place of a best one that is damaged.

    Without this, a training would find out at its end, time and again.

    Args:
        run: the locked run folder.
        state: of the training; ``best_update`` changes, and so does the file ``best``.
        shapes: of the model's tensors.
        say: is told what was wrong, and what is best now.
    """

    def place(update: int) -> Path:
        return run.checkpoints_dir / checkpoint_name(update)

    lost = state.best_update
    if lost is None or not (problem := problem_of(place(lost), shapes)):
        return
    say(f"the best checkpoint cannot be used: {problem.at}: {problem.what}")
    scores = dict(state.history)
    there = (update_of(path.name) for path in run.checkpoints())
    validated = [update for update in there if not math.isnan(scores.get(update, math.nan))]
    ranked = sorted(validated, key=lambda update: -scores[update])  # of equals the earlier
    state.best_update = next((u for u in ranked if not problem_of(place(u), shapes)), None)
    if state.best_update is None:
        run.best_file.unlink(missing_ok=True)
        say("no other validated checkpoint is kept; the next validation gives the best one")
    else:
        run.set_best(checkpoint_name(state.best_update))
        say(
            f"best is {checkpoint_name(state.best_update)} now, of dev score "
            f"{scores[state.best_update]:.2f} against {scores.get(lost, math.nan):.2f}"
        )


def require_same_update(state: TrainState, accumulate: int, processes: int, changed: bool) -> None:
    """Raises UserError when updates of a resumed run would have more or fewer batches.

    ``changed``: whether ``accumulate`` is another than before, which a run of an older version, as
    it does not say how many batches it had, may not have.
    """
    known, batches = state.update_batches, accumulate * processes
    if known == batches or not (known or changed):
        return
    raise UserError(
        f"an update of this run has {known or 'an unknown number of'} batches, and would now have "
        f"{batches}: optim.accumulate = {accumulate}, in {processes} process"
        f"{'es' * (processes > 1)}",
        fix=f"set optim.accumulate so that it is {known} again, or start another number of "
        "processes"
        if known
        else "set optim.accumulate back",
    )


def problem_of(path: Path, shapes: Shapes) -> UserError | None:
    """Say why the model of a checkpoint cannot be used; None when it can."""
    try:
        require_fit(read_checkpoint(path, with_optimizer=False).model, shapes, path / MODEL)
    except UserError as error:
        return error
    return None


def _refuse_non_finite(tensors: Mapping[str, Tensor], name: str) -> None:
    bad = non_finite(tensors)
    if bad:
        raise RunError(
            f"checkpoint {name} is not written: NaN or infinity in {bad}",
            fix="continue from the checkpoint before with --resume; if it happens again, train in "
            "another folder (out=PATH) with a lower learning rate",
        )


def _mark_best(run: RunFolder, name: str) -> None:
    if run.best() != name and (run.checkpoints_dir / name).is_dir():
        run.set_best(name)


def _remove_abandoned(run: RunFolder, update: int) -> None:
    """Checkpoints after ``update`` were damaged: the run fell back and has come here anew."""
    if update_of(run.best() or "") > update:
        run.best_file.unlink()
    for folder in run.checkpoints():
        if update_of(folder.name) > update:
            _remove(folder)


def _rotate(run: RunFolder, keep: int, state: TrainState) -> None:
    # the best one stays although ``best`` may name an average: a longer run goes back to it
    best = {run.best(), checkpoint_name(state.best_update or 0)}
    validated = {checkpoint_name(update) for update, _ in state.history}
    newer = 0
    for folder in reversed(run.checkpoints()):
        if newer == 0 or (folder.name in validated and newer < keep):
            newer += 1
        elif folder.name not in best:
            _remove(folder)


def _remove(folder: Path) -> None:
    # renamed first, so that no half-removed folder ever has a checkpoint's name
    gone = temporary(folder)
    os.rename(folder, gone)
    shutil.rmtree(gone, ignore_errors=True)


def _clear_leftovers(root: Path) -> None:
    """Ends what a killed save began: drafts go, what was being replaced comes back."""
    for folder in list(root.iterdir()):
        if folder.name.startswith(REPLACED):
            final = folder.with_name(folder.name.removeprefix(REPLACED))
            if not final.exists():
                os.rename(folder, final)
                continue
        if folder.name.startswith((TEMPORARY, REPLACED)):
            shutil.rmtree(folder, ignore_errors=True)


def _named(run: RunFolder, name: str) -> Path:
    known = {p.name.removeprefix(REPLACED): p for p in run.checkpoints()}
    path = known.get(name, run.checkpoints_dir / name)
    if not CHECKPOINT_NAME.fullmatch(name) or not os.path.lexists(path):
        there = ", ".join(known) or "none"
        raise UserError(
            f"no checkpoint {name!r}; there are: {there}",
            at=str(run.path),
            fix="name one of them, or latest, or best",
        )
    return path


def _load_latest(run: RunFolder, with_optimizer: bool, say: Callable[[str], None]) -> Checkpoint:
    problems: list[UserError] = []
    found = run.checkpoints()
    for path in reversed(found):
        try:
            checkpoint = read_checkpoint(path, with_optimizer)
        except NewerFormat:  # to fall back would give up what that version has trained
            raise
        except UserError as error:
            problems.append(error)
            continue
        for problem in problems:
            say(f"{problem.at}: {problem.what}")
        drafts = (update_of(p.name) for p in run.checkpoints_dir.glob(TEMPORARY + "u*"))
        unfinished = max(drafts, default=0)
        if unfinished > update_of(path.name):
            say(f"checkpoint {checkpoint_name(unfinished)} is incomplete, using {path.name}")
        elif problems:
            say(f"using checkpoint {path.name} instead")
        return checkpoint
    if run.checkpoints() != found:  # a training that goes on replaced them while we read
        return _load_latest(run, with_optimizer, say)
    raise UserError(
        "no checkpoint of the run can be used:\n  "
        + ("\n  ".join(f"{p.at}: {p.what}" for p in problems) or "there is none"),
        at=str(run.path),
        fix="restore the folder from a copy, or train again in another folder",
    )
