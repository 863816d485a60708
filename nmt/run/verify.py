"""Check that the files of a run folder belong together, before their content is used.

A checkpoint has hashes of its own files, of vocabulary and segmenter, and the recipe. ``best`` has
the hash of the best weights, and summary.json those of the translations that were scored.
"""

from __future__ import annotations

from pathlib import Path

from nmt.config.errors import format_value
from nmt.errors import UserError
from nmt.run.folder import CHECKPOINT_NAME, RunFolder
from nmt.run.lifecycle import fixed_values
from nmt.run.manifest import TrainState, read_state, weights_hash
from nmt.run.results import read_summary
from nmt.runtime.files import file_digest

SCORED = "files"  # key of summary.json


def require_recipe(run: RunFolder, state: TrainState, checkpoint: Path) -> None:
    """Raise UserError if config.yaml differs from the recipe that a checkpoint was saved with.

    Keys that a resumed run may change, such as paths and the device, may differ.
    """
    now = fixed_values(run.recipe()) if state.recipe else {}
    changes = [
        f"{key}: {format_value(value)} -> {format_value(now[key])}"
        for key, value in state.recipe.items()
        if key in now and now[key] != value  # another version may have other keys
    ]
    if changes:
        raise UserError(
            f"differs from the recipe of checkpoint {checkpoint.name} (checkpoint -> config.yaml): "
            + "; ".join(changes),
            at=str(run.config_file),
            fix="set these keys back; to translate with other decode keys, pass options such as "
            "--beam",
        )


def require_best(run: RunFolder, checkpoint: Path, digest: str) -> None:
    """Raise UserError if the SHA-256 in the file ``best`` is not that of its checkpoint."""
    if digest and weights_hash(checkpoint) != digest:
        raise UserError(
            f"checkpoint {checkpoint.name} does not have the weights with the SHA-256 of this file",
            at=str(run.best_file),
            fix="restore the file; or write only the name of a checkpoint into it, to choose that "
            "checkpoint",
        )


def require_scored(run: RunFolder, *files: Path) -> None:
    """Raise UserError if the run cannot be trusted to give its scores again.

    Args:
        files: translations of the run; those that summary.json names must be as they were scored.
    """
    name, digest = run.best_and_hash()
    best = run.checkpoints_dir / (name or "")
    if name is not None and best.is_dir():  # scores outlive checkpoints that the user deletes
        require_best(run, best, digest)
        require_recipe(run, read_state(best), best)
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
