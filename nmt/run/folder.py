"""The files of a run folder.

No file contains the folder's own path, so a run folder can be moved and still translates. ::

    RUN/config.yaml          resolved recipe         RUN/checkpoints/u000123/  see checkpoint.py
    RUN/vocab.txt, ...       vocabulary, segmenter   RUN/best                  name of a checkpoint
    RUN/metrics.jsonl        one object a line       RUN/train.log             the same for people
    RUN/dev/u000123.hyp      dev hypotheses          RUN/test.hyp              test hypotheses
    RUN/dev/u000123.words    the same, tokenized     RUN/test.words            the same, tokenized
    RUN/data_report.json     corpus checks           RUN/summary.json          how the run ended
    RUN/init.json            what the run took from  RUN/parent/vocab.txt      the parent's, unless
                             its parent (init.from)                            init.vocab: new
    RUN/report.html          the report              RUN/lock, RUN/lock.json   see lock.py
    RUN/confidence.json      of nmt-score --calibrate, see nmt.decoding.confidence
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from nmt.config.load import stored_recipe
from nmt.config.recipe import Recipe
from nmt.errors import UserError
from nmt.run.lock import FolderLock
from nmt.run.manifest import weights_hash
from nmt.runtime.files import REPLACED, disk_errors, read_text, write_atomic
from nmt.runtime.missing import missing_fix

CHECKPOINT_NAME = re.compile(r"u(\d{6,12})(-(?:avg|best)\d{1,4})?")
CONFIG = "config.yaml"
EXPORT_FILE = "nmt.json"  # an exported folder has this file, a run folder does not


class RunFolder:
    """Paths and small files of a run folder, which need not exist yet; see the module.

    Attributes:
        lock: one process at a time may write into the folder.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.lock = FolderLock(self.path)
        self.config_file = self.path / CONFIG
        self.checkpoints_dir = self.path / "checkpoints"
        self.best_file = self.path / "best"
        self.metrics_file = self.path / "metrics.jsonl"
        self.log_file = self.path / "train.log"
        self.dev_dir = self.path / "dev"
        self.test_hyp = self.path / "test.hyp"
        self.data_report_file = self.path / "data_report.json"
        self.summary_file = self.path / "summary.json"
        self.report_file = self.path / "report.html"
        self.confidence_file = self.path / "confidence.json"
        self.init_file = self.path / "init.json"
        self.parent_dir = self.path / "parent"
        self._recipe: Recipe | None = None  # as config.yaml has it, once read

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """Return the folder of a run with at least one checkpoint, for reading; else UserError."""
        run = cls(path)
        if run.config_file.is_file():
            if run.checkpoints():
                return run
            raise UserError(
                "the run has no checkpoint yet",
                at=str(run.path),
                fix="wait for its first validation, or continue the run with nmt-train --resume",
            )
        if not run.path.exists():
            raise UserError("no such run folder", at=str(run.path), fix=missing_fix(run.path))
        parents = [p for p in run.path.absolute().parents[:2] if (p / CONFIG).is_file()]
        raise not_a_run_folder(run.path, f"did you mean {parents[0]}?" if parents else None)

    def recipe(self) -> Recipe:
        """Return the resolved recipe of the run; UserError if config.yaml is missing or damaged."""
        if self._recipe is None:
            self._recipe = stored_recipe(self.config_text(), str(self.config_file))
        return self._recipe

    def require_translation(self) -> None:
        """Raise UserError if the run's model does not translate."""
        task = self.recipe().task
        if task != "translation":
            raise UserError(
                f"this run has task: {task}, and its model does not translate",
                at=str(self.path),
                fix="pass a translation run; nmt-train with init.from starts one from this model",
            )

    def config_text(self) -> str:
        """Return the text of config.yaml; UserError if it is missing or not UTF-8."""
        try:
            return read_text(self.config_file)
        except FileNotFoundError:
            raise not_a_run_folder(self.path) from None
        except UnicodeDecodeError as error:
            raise UserError(
                f"not UTF-8: {error.reason}",
                at=str(self.config_file),
                fix="restore the config.yaml that nmt-train wrote",
            ) from error

    def checkpoints(self) -> list[Path]:
        """Return the complete checkpoints by update, without averages; they are not verified."""
        by_update: dict[int, Path] = {}
        for folder in children(self.checkpoints_dir):  # sorted: .old-u... before u...
            match = CHECKPOINT_NAME.fullmatch(folder.name.removeprefix(REPLACED))
            if match and not match[2] and folder.is_dir():
                by_update[int(match[1])] = folder
        return [by_update[update] for update in sorted(by_update)]

    def best(self) -> str | None:
        """Return the name of the best checkpoint; None before the first validation."""
        return self.best_and_hash()[0]

    def best_and_hash(self) -> tuple[str | None, str]:
        """Return the name of the best checkpoint, and the SHA-256 of its weights.

        The hash is empty if the user wrote the file.

        Raises:
            UserError: the file ``best`` does not contain the name of a checkpoint.
        """
        try:
            text = read_text(self.best_file, errors="replace")[:200].strip()
        except FileNotFoundError:
            return None, ""
        name, _, digest = text.partition(" ")
        if not CHECKPOINT_NAME.fullmatch(name):
            raise UserError(
                f"{name!r} is not the name of a checkpoint",
                at=str(self.best_file),
                fix="write the name of a folder in checkpoints into this file, such as u000123",
            )
        return name, digest

    def set_best(self, name: str) -> None:
        """Make the checkpoint ``name`` the best one."""
        assert CHECKPOINT_NAME.fullmatch(name), name
        digest = ""
        with contextlib.suppress(UserError):  # a damaged one is refused when it is loaded
            digest = weights_hash(self.checkpoints_dir / name)
        write_atomic(self.best_file, f"{name} {digest}".rstrip() + "\n")


def update_of(name: str) -> int:
    """Return the update in the name of a checkpoint or of its draft: ``u000123`` -> 123."""
    match = re.search(r"u(\d+)", name)
    return int(match[1]) if match else 0


def is_average(name: str) -> bool:
    """Return whether a checkpoint with this name is an average: ``u000123-avg5``."""
    match = CHECKPOINT_NAME.fullmatch(name)
    return match is not None and bool(match[2])


def children(folder: Path) -> list[Path]:
    """Return the sorted content of a folder; empty if it does not exist."""
    if not folder.exists():
        return []
    with disk_errors(folder):
        return sorted(folder.iterdir())


def is_export(folder: Path) -> bool:
    """Return whether nmt-export wrote this folder."""
    return (folder / EXPORT_FILE).is_file()


def not_a_run_folder(path: Path, fix: str | None = None) -> UserError:
    """Return the error for a path that is not a run folder; it names run folders inside it."""
    if path.is_file():
        return UserError(
            "this is a file, not a run folder",
            at=str(path),
            fix=fix
            or "pass a folder that nmt-train wrote; for a file of text, use the option of the "
            "command, such as --input or --hyp",
        )
    if is_export(path):
        return UserError(
            "an exported folder, not a run folder",
            at=str(path),
            fix="pass the run folder that was exported; in Python, nmt.load_translator loads "
            "exported folders",
        )
    runs = [str(p) for p in children(path) if (p / CONFIG).is_file()] if path.is_dir() else []
    if runs and fix is None:
        more = f" and {len(runs) - 3:,} more" if len(runs) > 3 else ""
        fix = f"pass a run folder in it: {', '.join(runs[:3])}{more}"
    return UserError(
        f"not a run folder: it has no {CONFIG}",
        at=str(path),
        fix=fix or "pass a run folder that nmt-train wrote",
    )
