"""Check that the files of a run folder belong together before they are used.

A checkpoint has hashes of its own files, of vocabulary and segmenter, and the recipe; model.json
has the recipe's description of the model; summary.json has the hashes of the scored translations.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmt.config.errors import format_value
from nmt.data.segmenters import Segmenter, text_hash
from nmt.data.vocab import Vocab
from nmt.errors import UserError
from nmt.runtime.files import file_digest
from nmt.store.folder import CHECKPOINT_NAME, RunFolder
from nmt.store.lifecycle import fixed_values
from nmt.store.manifest import TrainState
from nmt.store.model import Description, Model
from nmt.store.results import read_summary

SCORED = "files"  # key of summary.json


def require_recipe(run: RunFolder, state: TrainState, checkpoint: Path) -> None:
    """Raise UserError if config.yaml differs from the recipe that a checkpoint was saved with.

    Keys that a resumed run may change, such as paths and the device, may differ.
    """
    now = fixed_values(run.recipe()) if state.recipe else {}
    require_equal(run, f"checkpoint {checkpoint.name}", state.recipe, now)


def is_text_of(state: TrainState, vocab: Vocab, segmenter: Segmenter) -> bool:
    """Return whether a run began with this vocabulary and segmenter, if its state records them."""
    return state.text_hash in ("", text_hash(vocab, segmenter))


def require_text(run: RunFolder, state: TrainState, vocab: Vocab, segmenter: Segmenter) -> None:
    """Raise UserError if vocabulary or segmenter are not those that a run began with."""
    if not is_text_of(state, vocab, segmenter):
        raise UserError(
            "vocab.txt or segmenter.json is not the one that this run began with",
            at=str(run.text_dir),
            fix="restore the files that nmt-train wrote, or train in another folder with out=PATH",
        )


def require_equal(
    run: RunFolder, what: str, before: Mapping[str, Any], now: Mapping[str, Any]
) -> None:
    """Raise UserError if keys of config.yaml have other values than before."""
    changes = [
        f"{key}: {format_value(value)} -> {format_value(now[key])}"
        for key, value in before.items()
        if key in now and now[key] != value  # another version may have other keys
    ]
    if changes:
        raise UserError(
            f"differs from the recipe of {what} (before -> config.yaml): " + "; ".join(changes),
            at=str(run.config_file),
            fix="set these keys back; to translate with other decode keys, pass options such as "
            "--beam",
        )


def require_scored(run: RunFolder, *files: Path) -> None:
    """Raise UserError if the files of a run are not those that were scored.

    Args:
        files: translations of the run; those that summary.json names must be as they were scored.
    """
    if run.best() is not None:
        model = Model.open(run.path)
        before, now = model.about.of_recipe(), Description.of(run.recipe(), "", None).of_recipe()
        require_equal(run, f"{model.path.name} of the run", before, now)
    hashes = read_summary(run).get(SCORED, {})
    for file in files:
        expected = hashes.get(file.relative_to(run.path).as_posix())
        if expected is not None and not (file.is_file() and file_digest(file) == expected):
            raise UserError(
                "not the file that the run scored: its SHA-256 is not the one in summary.json",
                at=str(file),
                fix="restore the file; to score an edited one, use nmt-score --hyp FILE --ref FILE",
            )


def scored_hashes(run: RunFolder, best: str) -> dict[str, str]:
    """Return the SHA-256 of the translations of dev and test by the checkpoint ``best``."""
    assert CHECKPOINT_NAME.fullmatch(best), best
    files: list[Path] = []
    for ending in ("hyp", "words"):
        files += run.path.glob(f"{run.test_hyp.stem}*.{ending}")
        files += run.dev_dir.glob(f"{best}*.{ending}")
    return {file.relative_to(run.path).as_posix(): file_digest(file) for file in sorted(files)}
