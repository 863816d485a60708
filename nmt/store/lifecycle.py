"""How a run starts in its folder: new, resumed, or new after renaming an old run."""

from __future__ import annotations

import os
from pathlib import Path

from nmt.config.load import dump_recipe
from nmt.config.recipe import Recipe
from nmt.errors import MachineError, UserError
from nmt.runtime.files import OTHER_RUN, TEMPORARY, clear_leftovers, disk_errors, write_atomic
from nmt.store import lock
from nmt.store.folder import RunFolder, children
from nmt.store.lock import FolderLock
from nmt.store.results import read_summary
from nmt.store.same_run import EXTENDS_RUN, allowed_changes


class TrainingFolder(RunFolder):
    """A run folder to train in.

    The constructor checks the folder and writes nothing, so that every error of the recipe and the
    data can be raised first. As a context manager it is locked, created and ready for training.

    Args:
        path: the folder.
        new_recipe: what the run trains from now on.
        resume: continue from the newest checkpoint; without one, start a new run and note it.
        fresh: rename an existing run folder to ``NAME.old-1`` and start a new run.

    Attributes:
        resuming: training continues from the newest checkpoint.
        finished: why the run to resume has already ended by its own rules; empty = it has not.
        changes: the keys that a resumed run changes, each with ``old -> new``.
        notes: notes for the user before training starts.

    Raises:
        UserError: the folder contains a run and neither flag is set, the run has another recipe,
            or the folder contains other files.
        MachineError: another run uses the folder, or it is not writable.
    """

    def __init__(
        self, path: str | Path, new_recipe: Recipe, *, resume: bool = False, fresh: bool = False
    ) -> None:
        super().__init__(path)
        self.new_recipe, self._resume, self._fresh = new_recipe, resume, fresh
        self._check_writable()
        self.lock.refuse_if_held()
        self._check_state()

    def __enter__(self) -> TrainingFolder:
        renamed = self._rename_old_run() if self._fresh and self.config_file.is_file() else None
        with disk_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        self.lock.acquire()
        try:
            self._check_state()  # again, now that no other process can change it
            if renamed:
                self.notes.append(f"the old run is now {renamed}")
            with disk_errors(self.path):
                self.checkpoints_dir.mkdir(exist_ok=True)
                self.dev_dir.mkdir(exist_ok=True)
                self._remove_drafts()
            if not self.finished:
                # in this order: the new recipe next to the old summary would be a finished run
                with disk_errors(self.summary_file):
                    self.summary_file.unlink(missing_ok=True)
                write_atomic(self.config_file, dump_recipe(self.new_recipe))
                self._recipe = None
        except BaseException:
            self.lock.release()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.lock.release()

    def _check_writable(self) -> None:
        folder = self.path.absolute()
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        if not folder.is_dir():
            raise UserError(
                "is a file, so the run folder cannot be here", at=str(folder), fix=OTHER_RUN
            )
        if not os.access(folder, os.W_OK | os.X_OK):
            raise MachineError(
                "no permission to write",
                at=str(folder),
                fix=f"change the permissions (chmod), or {OTHER_RUN}",
            )

    def _check_state(self) -> None:
        """Set the attributes from the content of the folder; see the class for errors."""
        self.resuming, self.finished, self._recipe = False, "", None
        self.changes: dict[str, str] = {}
        self.notes: list[str] = []
        # a run has both; config.yaml alone may be a recipe that the user wrote
        if not (self.config_file.is_file() and self.checkpoints_dir.is_dir()):
            other = [p.name for p in children(self.path) if not _is_leftover(p.name)]
            if other:
                raise UserError(
                    f"the folder contains no run, but other files: {', '.join(other[:5])}",
                    at=str(self.path),
                    fix=OTHER_RUN,
                )
            if self._resume:
                self.notes.append(f"nothing to resume in {self.path}: starting a new run")
            return
        if self._fresh:
            return
        if not self.checkpoints():
            if self.best() is not None:
                raise UserError(
                    "the run has a model, but no checkpoint to continue from",
                    at=str(self.path),
                    fix="add --fresh to rename it and start a new run, or out=PATH to train in "
                    "another folder",
                )
            self.notes.append(f"the run in {self.path} has no checkpoint: starting it again")
            return
        summary = read_summary(self)
        ended = summary.get("status") == "finished"
        if not self._resume:
            kind, resume = "a run with checkpoints", "--resume to continue it, "
            if ended:
                kind, resume = "a finished run", ""
                if str(summary.get("reason")).startswith("train.max_validations"):
                    resume = "--resume and a larger train.max_validations to train longer, "
            raise UserError(
                f"the folder already contains {kind}",
                at=str(self.path),
                fix=f"add {resume}--fresh to rename it and start a new run, or out=PATH to train "
                "in another folder",
            )
        self.resuming = True
        self.changes = allowed_changes(self, self.new_recipe)
        self.notes += [f"resuming with {key}: {change}" for key, change in self.changes.items()]
        if ended and not EXTENDS_RUN & self.changes.keys():
            self.finished = str(summary.get("reason"))

    def _rename_old_run(self) -> Path:
        base, number = self.path.absolute(), 1
        with self.lock:
            while (renamed := base.with_name(f"{base.name}.old-{number}")).exists():
                number += 1
            with disk_errors(self.path):
                os.rename(base, renamed)
            self.lock.folder = renamed
        self.lock = FolderLock(self.path)
        return renamed

    def _remove_drafts(self) -> None:
        """Remove what a killed ``write_atomic`` or ``write_run_model`` left."""
        clear_leftovers(self.path, self.model_dir.name)
        for folder in (self.path, self.dev_dir):
            for draft in folder.glob(f"{TEMPORARY}*"):
                if draft.is_file():
                    draft.unlink(missing_ok=True)


def _is_leftover(name: str) -> bool:
    """Return whether a run that was killed early may leave a file of this name."""
    return name in (lock.NAME, lock.OWNER, "checkpoints", "dev") or name.startswith(TEMPORARY)
