"""How a training starts in a run folder: new, resumed, or fresh after moving an old run aside."""

from __future__ import annotations

import os
from pathlib import Path

from nmt.config.load import changed_keys, recipe_from_text
from nmt.errors import MachineError, UserError
from nmt.run import lock
from nmt.run.folder import RunFolder, children
from nmt.run.lock import FolderLock
from nmt.run.results import read_summary
from nmt.runtime.files import OTHER_RUN, TEMPORARY, disk_errors, write_atomic

# Keys that a resumed run may change: they decide how long and where it runs, not what it learns.
# The content of corpora is compared separately, so their paths may change.
FREE_ON_RESUME = frozenset(
    {
        "out",
        "device",
        "precision",  # like the device, it decides how sums are rounded
        "time_limit",
        "data.train",
        "data.dev",
        "data.test",
        "segment.codes",
        "segment.model",
        "optim.accumulate",  # together with the number of processes, which is checked
        "train.max_validations",
        "train.stop_patience",
        "train.keep",
        "train.log_every",
        "analysis.every",
        "analysis.observe",
        "decode.batch_tokens",
    }
)
# A finished run may continue when one of these changes.
EXTENDS_RUN = frozenset({"train.max_validations", "train.stop_patience"})


class TrainingFolder(RunFolder):
    """A run folder to train in.

    The constructor checks the folder and writes nothing, so that every error of the recipe and the
    data can be raised first. As a context manager it is locked, created and ready for training.

    Args:
        path: the folder.
        recipe_text: the resolved recipe, as ``dump_recipe`` writes it.
        resume: continue from the newest checkpoint; without one, start a new run and note it.
        fresh: move an existing run aside, to ``NAME.old-1``, and start a new one.

    Attributes:
        resuming: training continues from the newest checkpoint.
        finished: the run to resume has already ended by its own rules.
        changes: ``key: old -> new`` of the keys that a resumed run changes.
        notes: what to tell the user before training starts.

    Raises:
        UserError: the folder holds a run and neither flag is given; the run has another recipe; the
            folder holds other files; both flags are given.
        MachineError: another training uses the folder, or it is not writable.
    """

    def __init__(
        self, path: str | Path, recipe_text: str, *, resume: bool = False, fresh: bool = False
    ) -> None:
        if resume and fresh:
            raise UserError(
                "--resume and --fresh contradict each other",
                fix="give --resume to continue the run, or --fresh to start again",
            )
        super().__init__(path)
        self._recipe_text, self._resume, self._fresh = recipe_text, resume, fresh
        self._check_writable()
        self.lock.refuse_if_held()
        self._check_state()

    def __enter__(self) -> TrainingFolder:
        aside = self._move_aside() if self._fresh and self.config_file.is_file() else None
        with disk_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        self.lock.acquire()
        try:
            self._check_state()  # again, now that no other process can change it
            if aside:
                self.notes.append(f"the old run is now {aside}")
            with disk_errors(self.path):
                self.checkpoints_dir.mkdir(exist_ok=True)
                self.dev_dir.mkdir(exist_ok=True)
                self._remove_drafts()
            if not self.finished:
                write_atomic(self.config_file, self._recipe_text)
                with disk_errors(self.summary_file):
                    self.summary_file.unlink(missing_ok=True)
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
                fix=f"give yourself the permission (chmod), or {OTHER_RUN}",
            )

    def _check_state(self) -> None:
        """Set the attributes from what the folder holds; raise UserError if it must not change."""
        self.resuming = self.finished = False
        self.changes: list[str] = []
        self.notes: list[str] = []
        if not self.config_file.is_file():
            other = [p.name for p in children(self.path) if not _is_leftover(p.name)]
            if other:
                raise UserError(
                    f"the folder holds files but no run: {', '.join(other[:5])}",
                    at=str(self.path),
                    fix=OTHER_RUN,
                )
            if self._resume:
                self.notes.append(f"nothing to resume in {self.path}: starting a new run")
            return
        if self._fresh:
            return
        if not self.checkpoints():
            self.notes.append(f"the run in {self.path} has no checkpoint: starting it again")
            return
        ended = read_summary(self).get("status") == "finished"
        if not self._resume:
            raise UserError(
                f"the run folder holds {'a finished run' if ended else 'a run with checkpoints'}",
                at=str(self.path),
                fix="give --resume to continue it, --fresh to move it aside and start again, "
                "or out=PATH to train in another folder",
            )
        self.resuming = True
        self.changes = self._changed_keys()
        self.notes += [f"resuming with {change}" for change in self.changes]
        self.finished = ended and not any(_key(change) in EXTENDS_RUN for change in self.changes)

    def _changed_keys(self) -> list[str]:
        if self.config_text() == self._recipe_text:
            return []
        new = recipe_from_text(self._recipe_text, "recipe")
        changes = changed_keys(self.recipe(), new)
        refused = [change for change in changes if _key(change) not in FREE_ON_RESUME]
        if refused:
            raise UserError(
                "the run was started with another recipe:\n  " + "\n  ".join(refused),
                at=str(self.path),
                fix="set these keys back, train in another folder with out=PATH, or move this run "
                "aside with --fresh; a resumed run may change " + ", ".join(sorted(FREE_ON_RESUME)),
            )
        return changes

    def _move_aside(self) -> Path:
        base, number = self.path.absolute(), 1
        with self.lock:
            while (aside := base.with_name(f"{base.name}.old-{number}")).exists():
                number += 1
            with disk_errors(self.path):
                os.rename(base, aside)
            self.lock.folder = aside
        self.lock = FolderLock(self.path)
        return aside

    def _remove_drafts(self) -> None:
        """Remove what a killed ``write_atomic`` left."""
        for folder in (self.path, self.dev_dir):
            for draft in folder.glob(f"{TEMPORARY}*"):
                if draft.is_file():
                    draft.unlink(missing_ok=True)


def _key(change: str) -> str:
    return change.partition(":")[0]


def _is_leftover(name: str) -> bool:
    """Return whether a start that was killed at once may leave a file of this name."""
    return name in (lock.NAME, lock.OWNER, "checkpoints", "dev") or name.startswith(TEMPORARY)
