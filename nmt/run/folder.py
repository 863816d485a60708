"""The run folder: where its files are, who may train in it, and what a new start may do to it.

Nothing inside refers to its own place, so a run folder can be moved and still translates. ::

    RUN/config.yaml          resolved recipe         RUN/checkpoints/u000123/  see checkpoint.py
    RUN/vocab.txt, ...       vocabulary, segmenter   RUN/best                  name of a checkpoint
    RUN/metrics.jsonl        one object a line       RUN/train.log             the same for people
    RUN/dev/u000123.hyp      dev hypotheses          RUN/test.hyp              test hypotheses
    RUN/dev/u000123.words    the same as words       RUN/test.words            the same as words
    RUN/data_report.json     corpus checks           RUN/summary.json          how the run ended
    RUN/lock, RUN/lock.json  see lock.py
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nmt.config.load import changed_keys, recipe_from_text
from nmt.config.recipe import Recipe
from nmt.errors import MachineError, UserError
from nmt.run.lock import NAME as LOCK_NAME
from nmt.run.lock import OWNER as LOCK_OWNER
from nmt.run.lock import FolderLock
from nmt.runtime.files import REPLACED, TEMPORARY, disk_errors, write_atomic

CHECKPOINT_NAME = re.compile(r"u(\d{6,12})(-(?:avg|best)\d{1,4})?")

# Keys that a resumed run may change: they say how long and where to work, not what is learned.
# That corpora at another place have the same content is checked by itself.
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
        "optim.accumulate",  # with as many fewer processes, which is checked
        "train.max_validations",
        "train.stop_patience",
        "train.keep",
        "train.log_every",
        "analysis.every",
        "analysis.observe",
        "decode.batch_tokens",
    }
)
# With one of these changed, a finished run may have more to do.
_PROLONGS = frozenset({"train.max_validations", "train.stop_patience"})


class RunFolder:
    """A run folder; as a context manager it is locked, created and ready for training.

    Attributes:
        path: the folder.
        resuming: training goes on from the newest checkpoint.
        finished: the run that was asked to resume has ended by its own rules already.
        changes: ``key: old -> new`` of the keys that the resumed run changes.
        notes: what the user should be told before training starts.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.resuming = False
        self.finished = False
        self.changes: list[str] = []
        self.notes: list[str] = []
        self._lock = FolderLock(self.path)
        self._recipe_text = ""
        self._resume = self._fresh = False

    @classmethod
    def for_training(
        cls, path: str | Path, recipe_text: str, *, resume: bool = False, fresh: bool = False
    ) -> RunFolder:
        """A folder to train in, checked but not touched: ``with`` on it locks and creates it.

        So every error of the recipe and of the data can be raised before anything is written.

        Args:
            path: the folder.
            recipe_text: the resolved recipe, as ``dump_recipe`` writes it.
            resume: go on from the newest checkpoint; without one, start and say so.
            fresh: move a run that is there aside, to ``NAME.old-1``, and start.

        Raises:
            UserError: there is a run and no flag says what to do with it; it has another recipe;
                the folder holds other files; both flags.
            MachineError: another training uses it, or it cannot be written.
        """
        if resume and fresh:
            raise UserError(
                "--resume and --fresh contradict each other",
                fix="--resume goes on with the run, --fresh starts over; give one of them",
            )
        run = cls(path)
        run._recipe_text, run._resume, run._fresh = recipe_text, resume, fresh
        run._refuse_unwritable()
        run._lock.refuse_if_held()
        run._inspect()
        return run

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """The folder of a run with at least one checkpoint, for reading.

        Raises:
            UserError: it is not there, is no run folder, or has no checkpoint yet.
        """
        run = cls(path)
        if run.config_file.is_file():
            if run.checkpoints():
                return run
            raise UserError(
                "the run has no checkpoint yet",
                at=str(run.path),
                fix="wait for its first validation, or train with nmt-train",
            )
        if not run.path.exists():
            raise UserError("no such run folder", at=str(run.path), fix="check the path")
        above = [p for p in run.path.absolute().parents[:2] if (p / "config.yaml").is_file()]
        raise UserError(
            "not a run folder: it has no config.yaml",
            at=str(run.path),
            fix=f"did you mean {above[0]}?" if above else "give the folder that nmt-train wrote",
        )

    @property
    def config_file(self) -> Path:
        """The resolved recipe."""
        return self.path / "config.yaml"

    @property
    def checkpoints_dir(self) -> Path:
        """One folder per checkpoint."""
        return self.path / "checkpoints"

    @property
    def best_file(self) -> Path:
        """A text file with the name of the best checkpoint."""
        return self.path / "best"

    @property
    def metrics_file(self) -> Path:
        """One JSON object per line."""
        return self.path / "metrics.jsonl"

    @property
    def log_file(self) -> Path:
        """The lines for people, with times."""
        return self.path / "train.log"

    @property
    def dev_dir(self) -> Path:
        """Hypotheses of the dev set, ``u000123.hyp`` each."""
        return self.path / "dev"

    @property
    def test_hyp(self) -> Path:
        """Hypotheses of the test set, by the best checkpoint."""
        return self.path / "test.hyp"

    @property
    def data_report_file(self) -> Path:
        """What the corpus checks found."""
        return self.path / "data_report.json"

    @property
    def summary_file(self) -> Path:
        """How the run ended: status, reason, scores."""
        return self.path / "summary.json"

    def recipe(self) -> Recipe:
        """The resolved recipe of the run.

        Raises:
            UserError: config.yaml is missing, damaged or of another version of the toolkit.
        """
        return recipe_from_text(self._config_text(), str(self.config_file))

    def checkpoints(self) -> list[Path]:
        """Complete checkpoints by update, averaged ones left out; not yet verified."""
        found: dict[int, Path] = {}
        for folder in self._children(self.checkpoints_dir):  # sorted: .old-u... before u...
            match = CHECKPOINT_NAME.fullmatch(folder.name.removeprefix(REPLACED))
            if match and not match[2] and folder.is_dir():
                found[int(match[1])] = folder
        return [found[update] for update in sorted(found)]

    def best(self) -> str | None:
        """Name of the best checkpoint; None before the first validation.

        Raises:
            UserError: the file ``best`` holds something else than a checkpoint's name.
        """
        try:
            with open(self.best_file, encoding="utf-8", errors="replace") as file:
                name = file.read(100).strip()
        except FileNotFoundError:
            return None
        if not CHECKPOINT_NAME.fullmatch(name):
            raise UserError(
                f"names no checkpoint of this run: {name!r}",
                at=str(self.best_file),
                fix="write the name of a folder in checkpoints into it",
            )
        return name

    def set_best(self, name: str) -> None:
        """Makes the checkpoint ``name`` the best one."""
        assert CHECKPOINT_NAME.fullmatch(name), name
        write_atomic(self.best_file, name + "\n")

    def summary(self) -> dict[str, Any]:
        """How the run ended; empty while it has not."""
        try:
            values = json.loads(self.summary_file.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError, RecursionError):
            return {}
        return values if isinstance(values, dict) else {}

    def write_summary(self, values: dict[str, Any]) -> None:
        """Writes summary.json; ``status`` is "finished" (by its own rules), stopped or diverged."""
        write_atomic(self.summary_file, json.dumps(values, indent=2, ensure_ascii=False) + "\n")

    def in_use(self) -> bool:
        """Whether a training is under way in it."""
        return self._lock.in_use()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of a run that is there, to add something to it beside training.

        Raises:
            MachineError: a training, or another such command, uses the folder.
        """
        self._lock.acquire()
        try:
            yield
        finally:
            self._lock.release()

    def check(self) -> None:
        """Before a write: raises MachineError when the folder is gone or taken over."""
        self._lock.check()

    def __enter__(self) -> RunFolder:
        aside = self._move_aside() if self._fresh and self.config_file.is_file() else None
        with disk_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        self._lock.acquire()
        try:
            self._inspect()  # again, now that nobody else can change it
            if aside:
                self.notes.append(f"the old run is now {aside}")
            with disk_errors(self.path):
                self.checkpoints_dir.mkdir(exist_ok=True)
                self.dev_dir.mkdir(exist_ok=True)
                self._clear_drafts()
            if not self.finished:
                write_atomic(self.config_file, self._recipe_text)
                with disk_errors(self.summary_file):
                    self.summary_file.unlink(missing_ok=True)
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._lock.release()

    def _inspect(self) -> None:
        self.resuming = self.finished = False
        self.changes, self.notes = [], []
        if not self.config_file.is_file():
            foreign = [p.name for p in self._children(self.path) if not _leftover(p.name)]
            if foreign:
                raise UserError(
                    f"the folder holds files but no run: {', '.join(sorted(foreign)[:5])}",
                    at=str(self.path),
                    fix="choose another folder with out=PATH",
                )
            if self._resume:
                self.notes.append(f"nothing to resume in {self.path}: starting a new run")
            return
        if self._fresh:
            return
        if not self.checkpoints():
            self.notes.append(f"the run in {self.path} has no checkpoint: starting it over")
            return
        ended = self.summary().get("status") == "finished"
        if not self._resume:
            state = "a finished run" if ended else "a run with checkpoints"
            raise UserError(
                f"the run folder holds {state}",
                at=str(self.path),
                fix="--resume goes on with it, --fresh moves it aside and starts over, "
                "out=PATH chooses another folder",
            )
        self.resuming = True
        self.changes = self._changes()
        self.notes += [f"resuming with {change}" for change in self.changes]
        self.finished = ended and not any(_key(change) in _PROLONGS for change in self.changes)

    def _clear_drafts(self) -> None:
        """What a killed ``write_atomic`` left."""
        for folder in (self.path, self.dev_dir):
            for draft in folder.glob(f"{TEMPORARY}*"):
                if draft.is_file():
                    draft.unlink(missing_ok=True)

    def _changes(self) -> list[str]:
        old = self._config_text()
        if old == self._recipe_text:
            return []
        new = recipe_from_text(self._recipe_text, "recipe")
        changes = changed_keys(recipe_from_text(old, str(self.config_file)), new)
        refused = [change for change in changes if _key(change) not in FREE_ON_RESUME]
        if refused:
            raise UserError(
                "the run was started with another recipe:\n  " + "\n  ".join(refused),
                at=str(self.path),
                fix="set these keys back, or choose another folder with out=PATH, or move this run "
                f"aside with --fresh; a resumed run may change {', '.join(sorted(FREE_ON_RESUME))}",
            )
        return changes

    def _config_text(self) -> str:
        try:
            with open(self.config_file, encoding="utf-8") as file:
                return file.read(1 << 20)
        except FileNotFoundError:
            raise UserError(
                "not a run folder: it has no config.yaml",
                at=str(self.path),
                fix="give the folder that nmt-train wrote",
            ) from None
        except UnicodeDecodeError as error:
            raise UserError(
                f"not UTF-8: {error.reason}",
                at=str(self.config_file),
                fix="restore the config.yaml that nmt-train wrote",
            ) from error

    def _refuse_unwritable(self) -> None:
        place = self.path.absolute()
        while not place.exists() and place != place.parent:
            place = place.parent
        if not place.is_dir():
            raise UserError(
                "the run folder would be inside a file",
                at=str(place),
                fix="choose another folder with out=PATH",
            )
        if not os.access(place, os.W_OK | os.X_OK):
            raise MachineError(
                "no permission to write",
                at=str(place),
                fix="give yourself the permission, or choose another folder with out=PATH",
            )

    def _move_aside(self) -> Path:
        self._lock.acquire()
        number = 1
        base = self.path.absolute()
        while (aside := base.with_name(f"{base.name}.old-{number}")).exists():
            number += 1
        with disk_errors(self.path):
            try:
                os.rename(base, aside)
                self._lock.follow(aside)
            finally:
                self._lock.release()
        self._lock = FolderLock(self.path)
        return aside

    @staticmethod
    def _children(folder: Path) -> list[Path]:
        if not folder.exists():
            return []
        with disk_errors(folder):
            return sorted(folder.iterdir())


def update_of(name: str) -> int:
    """The update in a checkpoint's name: ``u000123`` -> 123; drafts of it too."""
    match = re.search(r"u(\d+)", name)
    return int(match[1]) if match else 0


def _key(change: str) -> str:
    return change.partition(":")[0]


def _leftover(name: str) -> bool:
    """What a start that was killed at once leaves in an otherwise empty folder."""
    return name in (LOCK_NAME, LOCK_OWNER, "checkpoints", "dev") or name.startswith(TEMPORARY)
