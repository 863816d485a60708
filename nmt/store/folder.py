"""The files of a run folder.

No file contains the folder's own path, so a run folder can be moved. ::

    RUN/config.yaml          resolved recipe         RUN/model/            see nmt.store.model
    RUN/checkpoints/u000123/ see checkpoint.py       RUN/checkpoints/text/ vocabulary, segmenter
    RUN/metrics.jsonl        one object a line       RUN/train.log         the same for people
    RUN/dev/u000123.hyp      dev hypotheses          RUN/test.hyp          test hypotheses
    RUN/dev/u000123.words    the same, tokenized     RUN/test.words        the same, tokenized
    RUN/data_report.json     corpus checks           RUN/summary.json      how the run ended
    RUN/init.json            what the run took from its parent (init.from)
    RUN/checkpoints/parent/  the vocabulary of the parent, unless init.vocab: new
    RUN/report.html          the report              RUN/lock, lock.json   see lock.py
    RUN/confidence.json      of nmt-calibrate, see nmt.decoding.confidence

RUN/model has everything needed for translation; RUN/checkpoints and config.yaml have everything
needed to resume.
"""

from __future__ import annotations

import re
from pathlib import Path

from nmt.config.load import stored_recipe
from nmt.config.merge import MAX_BYTES
from nmt.config.recipe import Recipe
from nmt.errors import UserError
from nmt.runtime.files import REPLACED, disk_errors, read_json, read_text
from nmt.runtime.missing import missing_fix
from nmt.store.lock import FolderLock

CHECKPOINT_NAME = re.compile(r"u(\d{6,12})(-avg\d{1,4})?")
CONFIG_YAML, MODEL_JSON = MARKERS = ("config.yaml", "model.json")


class RunFolder:
    """Paths and small files of a run folder, which need not exist yet; see the module.

    Attributes:
        lock: one process at a time may write into the folder.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.lock = FolderLock(self.path)
        self.config_file = self.path / CONFIG_YAML
        self.checkpoints_dir = self.path / "checkpoints"
        self.text_dir = self.checkpoints_dir / "text"
        self.model_dir = self.path / "model"
        self.metrics_file = self.path / "metrics.jsonl"
        self.log_file = self.path / "train.log"
        self.dev_dir = self.path / "dev"
        self.test_hyp = self.path / "test.hyp"
        self.data_report_file = self.path / "data_report.json"
        self.summary_file = self.path / "summary.json"
        self.report_file = self.path / "report.html"
        self.confidence_file = self.path / "confidence.json"
        self.init_file = self.path / "init.json"
        self.parent_dir = self.checkpoints_dir / "parent"
        self._recipe: Recipe | None = None  # as config.yaml has it, once read

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """Return the folder of a run that has begun to train, for reading; else UserError."""
        run = cls(path)
        if run.config_file.is_file():
            if run.checkpoints() or run.best():
                return run
            raise UserError(
                "the run has no checkpoint yet",
                at=str(run.path),
                fix="wait for its first validation, or continue the run with nmt-train --resume",
            )
        raise wrong_folder(run.path)

    def recipe(self) -> Recipe:
        """Return the resolved recipe of the run; UserError if config.yaml is missing or damaged."""
        if self._recipe is None:
            self._recipe = stored_recipe(self.config_text(), str(self.config_file))
        return self._recipe

    def require_translation(self) -> RunFolder:
        """Return the run; UserError if its model does not translate."""
        require_translation(self.recipe().task, self.path)
        return self

    def config_text(self) -> str:
        """Return the text of config.yaml; UserError if it is missing, too large or not UTF-8."""
        try:
            return read_text(self.config_file, MAX_BYTES)
        except FileNotFoundError:
            raise wrong_folder(self.path) from None
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
        """Return the name of the checkpoint that is the model; None before there is one."""
        for folder in (self.model_dir, self.path / f"{REPLACED}model"):
            name = read_json(folder / MODEL_JSON).get("name")
            if isinstance(name, str) and CHECKPOINT_NAME.fullmatch(name):
                return name
        return None


def require_translation(task: str, path: Path) -> None:
    """Raise UserError if the model of a folder does not translate."""
    if task != "translation":
        raise UserError(
            f"this model is one of task: {task}, and does not translate",
            at=str(path),
            fix="pass a translation model; nmt-train with init.from starts one from this model",
        )


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


def wrong_folder(path: Path, wanted: str = "run folder") -> UserError:
    """Return the error for a path that is not a run folder or, where allowed, a model."""
    if not path.exists():
        return UserError(f"no such {wanted}", at=str(path), fix=missing_fix(path))
    fix = f"pass a {wanted} that nmt wrote"
    if path.is_file():
        what = f"this is a file, not a {wanted}"
        fix += "; for a file of text, use the option of the command, such as --input or --hyp"
        return UserError(what, at=str(path), fix=fix)
    if (path / MODEL_JSON).is_file():
        fix = (
            "pass the run folder that it is from; to score a model, translate with nmt-translate, "
            "and pass --hyp and --ref to nmt-score"
        )
        return UserError(f"a model, not a {wanted}", at=str(path), fix=fix)
    inside = [p for p in children(path) if any((p / name).is_file() for name in MARKERS)]
    parents = [p for p in path.absolute().parents[:2] if (p / CONFIG_YAML).is_file()]
    if parents:
        fix = f"did you mean {parents[0]}?"
    elif inside:
        more = f" and {len(inside) - 3:,} more" if len(inside) > 3 else ""
        fix = f"pass a folder in it: {', '.join(map(str, inside[:3]))}{more}"
    elif (path / "config.json").is_file():
        fix = f"convert a model of transformers first: nmt-convert {path} -o MODEL"
    return UserError(f"not a {wanted}: it has no {' or '.join(MARKERS)}", at=str(path), fix=fix)
