"""Verify files by size and SHA-256, and read the manifest and state of a checkpoint.

A checkpoint or a model may come from an untrusted source, so everything is checked. Sizes and
SHA-256 must match; links, unknown files and non-finite tensors are refused. torch is not imported.
"""

from __future__ import annotations

import hashlib
import json
import math
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from nmt.errors import UserError
from nmt.runtime.files import RESTORE, SMALL, disk_errors, file_digest, read_file
from nmt.runtime.memory import require_room
from nmt.runtime.words import quantity
from nmt.text.sentences import UsualLine
from nmt.version import __version__

FORMAT = 1
MODEL = "model.safetensors"
OPTIMIZER = "optimizer.safetensors"
STATE = "state.json"
MANIFEST = "manifest.json"
SEAL = "sha256"  # key of a file of JSON values: of the others
_CONFIG = ConfigDict(strict=True, ser_json_inf_nan="constants")


@dataclass(frozen=True)
class FileEntry:
    """Size and hash of one file in a manifest."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The files of a checkpoint, and the versions that wrote them."""

    format: int
    nmt: str
    torch: str
    files: dict[str, FileEntry]


MANIFEST_TYPE = TypeAdapter(Manifest)


@dataclass
class IntervalState:
    """Sums since the last log line, so that a resumed run completes the same line.

    Attributes:
        smoothed, nll: sums of the cross-entropies, in nats.
        tokens: their target tokens.
        seconds: training time of the interval.
        lowest_loss: lowest loss of any log line.
        loss_ratio: loss of the last log line over ``lowest_loss``; ends an lr_ramp.
        skipped_before: updates that were skipped before the interval.
        terms: sums of the other losses, by name.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _CONFIG

    smoothed: float = 0.0
    nll: float = 0.0
    tokens: int = 0
    seconds: float = 0.0
    lowest_loss: float = math.inf
    loss_ratio: float = 1.0
    skipped_before: int = 0
    terms: dict[str, float] = field(default_factory=dict)


@dataclass
class TrainState:
    """The progress of a run: state.json of a checkpoint.

    Attributes:
        update: optimizer updates done.
        epoch: number of the batch plan, which is the number of completed passes over the data.
        next_batch: index in that plan of the first batch not used yet.
        history: (update, dev score) of each validation. Higher is better: a perplexity is negated
            (``nmt.store.results.as_score``). A run with a parent also validates at update 0.
        best_update: update of the best dev score.
        seconds: training time of all starts together.
        target_tokens: target tokens trained on, EOS included.
        bad_updates: updates in a row that were skipped for non-finite gradients.
        content: SHA-256 of each file of train, dev, test and segment, which a resumed run must
            match.
        interval: sums since the last log line.
        text_hash: of vocabulary and segmenter; translation must have the same.
        update_batches: batches of an update, of all processes together.
        loss_scale: the factor on the loss in fp16.
        loss_scale_updates: updates in a row with finite gradients at that scale.
        recipe: the keys of config.yaml that must not change, with their values.
        usual_line: of the training data, by which lines are split; None = not known.
        precision: the resolved precision, which ``auto`` keeps in a resumed run.
        skipped_updates: all updates that were skipped for non-finite gradients.
        rolled_back: whether ``train.max_bad_updates`` has halved the learning rate.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _CONFIG

    update: int = 0
    epoch: int = 0
    next_batch: int = 0
    history: list[tuple[int, float]] = field(default_factory=list)
    best_update: int | None = None
    seconds: float = 0.0
    target_tokens: int = 0
    bad_updates: int = 0
    content: dict[str, list[str]] = field(default_factory=dict)
    interval: IntervalState = field(default_factory=IntervalState)
    text_hash: Annotated[str, Field(alias="text_fingerprint")] = ""  # its stored name
    update_batches: int = 0
    loss_scale: float = 2.0**16
    loss_scale_updates: int = 0
    precision: str = ""
    skipped_updates: int = 0
    rolled_back: bool = False
    recipe: dict[str, Any] = field(default_factory=dict)
    usual_line: UsualLine | None = None

    @property
    def validations(self) -> list[tuple[int, float]]:
        """The validations that schedules and stopping rules replay: those after an update.

        The validation at update 0 measures the parent, not the training. It only decides which
        model is the best, so the training is the same as without it.
        """
        return [(update, score) for update, score in self.history if update > 0]

    @property
    def best_score(self) -> float | None:
        """The dev score of ``best_update``; None before there is one."""
        return None if self.best_update is None else dict(self.history).get(self.best_update)

    def to_json(self) -> str:
        """Return JSON text that ``from_json`` reads."""
        absent = None if self.interval.terms else {"interval": {"terms"}}
        return _STATE.dump_json(self, indent=1, by_alias=True, exclude=absent).decode("utf-8")

    @classmethod
    def from_json(cls, text: str | bytes) -> TrainState:
        """Read the state; ValueError if the text is not JSON, or a value has a wrong type."""
        return _STATE.validate_json(text)


_STATE = TypeAdapter(TrainState)


class NewerFormat(UserError):
    """The folder is intact, but was written by a later version of this toolkit."""


def read_state(path: Path) -> TrainState:
    """Read the state of a checkpoint without its tensors; see ``read_checkpoint`` for errors."""
    return parse_state(path, read_manifest(path))


def seal(values: dict[str, Any]) -> dict[str, Any]:
    """Add the SHA-256 of JSON values as another key."""
    return {**values, SEAL: hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()}


def unseal(values: dict[str, Any]) -> bool:
    """Remove the SHA-256 that ``seal`` added; return whether it matches (true if there is none)."""
    return values.pop(SEAL, None) in (None, seal(values)[SEAL])


def require_known_format(path: Path, written: object, known: int, version: object) -> None:
    """Raise NewerFormat if a later version wrote a file in a format of its own."""
    if isinstance(written, int) and written > known:
        raise NewerFormat(
            f"written by version {version} of this toolkit, in a format that version "
            f"{__version__} cannot read",
            at=str(path),
            fix=f"install version {version} or newer",
        )


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of a checkpoint folder; see ``read_checkpoint`` for errors."""
    if path.is_symlink() or not stat.S_ISDIR(_file_mode(path)):
        raise foreign(path, "a checkpoint is a folder")
    try:
        manifest = MANIFEST_TYPE.validate_json(read_small(path / MANIFEST))
    except ValidationError as error:
        raise foreign(path / MANIFEST, "its content is not a manifest") from error
    require_known_format(path, manifest.format, FORMAT, manifest.nmt)
    expected = {MODEL, OPTIMIZER, STATE}
    if set(manifest.files) != expected:  # also refuses names outside of the folder
        names = ", ".join(sorted(manifest.files)[:5])
        required = ", ".join(sorted(expected))
        raise foreign(path / MANIFEST, f"it must list {required}; it lists {names}")
    return manifest


def parse_state(path: Path, manifest: Manifest) -> TrainState:
    """Read the state of a checkpoint with this manifest; see ``read_checkpoint`` for errors."""
    text = read_verified(path / STATE, manifest.files[STATE], SMALL)
    try:
        return TrainState.from_json(text)
    except ValidationError as error:
        raise foreign(path / STATE, quantity(error.error_count(), "wrong value")) from error


def read_verified(path: Path, entry: FileEntry, limit: int | None = None) -> bytes:
    """Return the content of a file, which must have size and hash of ``entry``.

    Args:
        limit: maximum bytes; None = as many as fit in memory.

    Raises:
        UserError: the file is missing, a link, larger, or another one.
        MachineError: it cannot be read, or does not fit in memory.
    """
    data = _read_file(path, limit, entry.bytes)
    _require_digest(path, hashlib.sha256(data).hexdigest(), entry)
    return data


def require_verified(path: Path, entry: FileEntry) -> None:
    """Verify a file as ``read_verified`` does, without keeping its content."""
    _require_file(path, None, entry.bytes)
    with disk_errors(path):
        _require_digest(path, file_digest(path), entry)


def read_small(path: Path) -> bytes:
    """Return the content of a settings file, which has no stored hash."""
    return _read_file(path, SMALL)


def _require_digest(path: Path, digest: str, entry: FileEntry) -> None:
    if digest != entry.sha256:
        what = "damaged or edited: its SHA-256 is not the one that was stored with it"
        raise UserError(what, at=str(path), fix=RESTORE)


def _read_file(path: Path, limit: int | None, expected: int | None = None) -> bytes:
    """Read a regular file of at most ``limit`` and exactly ``expected`` bytes."""
    size = _require_file(path, limit, expected)
    with disk_errors(path):
        return read_file(path, size)


def _require_file(path: Path, limit: int | None, expected: int | None) -> int:
    """Return the size of a file that can be read; see ``read_verified`` for errors."""
    if not stat.S_ISREG(_file_mode(path)):
        raise foreign(path, "special files are refused")
    with disk_errors(path):
        size = path.stat().st_size
    if expected is not None and size != expected:
        what = f"damaged or edited: it has {size} bytes, not {expected}"
        raise UserError(what, at=str(path), fix=RESTORE)
    if limit is not None and size > limit:
        raise foreign(path, f"over {limit} bytes")
    require_room(path, size)
    return size


def _file_mode(path: Path) -> int:
    with disk_errors(path):
        try:
            return path.stat().st_mode  # a link is followed, as in the cache of huggingface_hub
        except (FileNotFoundError, NotADirectoryError):
            what = "missing: the folder is not complete"
            raise UserError(what, at=str(path), fix=RESTORE) from None


def foreign(path: Path, why: str) -> UserError:
    """Return the error of a file or folder that this toolkit did not write."""
    return UserError(f"not written by this toolkit ({why})", at=str(path), fix=RESTORE)
