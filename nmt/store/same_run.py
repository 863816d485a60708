"""Whether a resumed run is the run that it continues: what may change, and each refusal.

A checkpoint records its run (``record_run``). A resumed run is compared with it in this order:

1. the keys of the recipe, before anything is read: ``allowed_changes``
2. config.yaml, by all that reads a checkpoint: ``require_same_config``
3. the parent and the batches of an update: ``require_same_parent``, ``require_same_update``
4. vocabulary and segmenter of the run, the content of its corpora, their subwords:
   ``prepare_resumed``

``nmt.training.start`` calls 3 and 4. It also refuses a device that lacks the precision of the run,
and a checkpoint whose tensors are not those of the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmt.config.errors import format_value
from nmt.config.load import changed_keys, recipe_values
from nmt.config.recipe import Recipe
from nmt.data.prepare import Prepared, prepare
from nmt.data.segmenters import Segmenter, load_segmenter, text_hash
from nmt.data.vocab import Vocab
from nmt.errors import UserError
from nmt.store.folder import RunFolder
from nmt.store.manifest import TrainState
from nmt.store.model import Model, read_provenance
from nmt.store.parent import stored_text_of_parent

# Keys that a resumed run may change: they decide where, how long and how precisely it runs.
# The content of corpora is compared separately, so the paths of their entries may change.
FREE_ON_RESUME = {
    "out",
    "device",
    "precision",  # like the device, it changes rounding, and may change dropout masks
    "graphs",  # without them, batches are not padded, so dropout masks differ
    "time_limit",
    "data.train",
    "data.dev",
    "data.test",
    "data.checks",  # newer checks may find more
    "data.max_overlap",
    "segment.codes",
    "segment.model",
    "segment.learn_from",
    "optim.accumulate",  # together with the number of processes, which is checked
    "train.max_validations",
    "train.stop_patience",
    "train.keep",
    "train.shard",  # sums are rounded differently; checkpoints are the same
    "train.log_every",
    "train.tensorboard",
    "train.wandb",
    "analysis.every",
    "analysis.observe",
    "decode.batch_tokens",
}
# A finished run may continue when one of these changes.
EXTENDS_RUN = {"train.max_validations", "train.stop_patience"}
ANOTHER_FOLDER = "or train in another folder with out=PATH"


def record_run(
    state: TrainState, recipe: Recipe, prepared: Prepared, precision: str, processes: int
) -> None:
    """Write into the state of a run what a resumed run must match."""
    state.content, state.precision = prepared.content, precision
    state.text_hash = text_hash(prepared.vocab, prepared.segmenter)
    state.recipe = _fixed_values(recipe)
    state.update_batches = recipe.optim.accumulate * processes


def refused_changes(old: Recipe, new: Recipe) -> list[str]:
    """List the changes that a resumed run must not make: ``key: old -> new`` each."""
    free = set(FREE_ON_RESUME)
    if new.init.parent and old.init.parent:
        free.add("init.from")  # the same parent may have moved; its weights are compared later
    changes = changed_keys(old, new)
    return [f"{key}: {change}" for key, change in changes.items() if key not in free]


def _fixed_values(recipe: Recipe) -> dict[str, Any]:
    """Return the values of the keys that a resumed run must not change, by names with dots."""
    values = recipe_values(recipe)
    return {key: v for key, v in values.items() if key not in {*FREE_ON_RESUME, "init.from"}}


def allowed_changes(run: RunFolder, new: Recipe) -> dict[str, str]:
    """Return the keys that a resumed run changes: ``old -> new`` each; UserError if it must not."""
    if refused := refused_changes(run.recipe(), new):
        raise UserError(
            "the run was started with another recipe:\n  " + "\n  ".join(refused),
            at=str(run.path),
            fix="undo these changes, train in another folder with out=PATH, or add --fresh to "
            "rename this run and start a new one; a resumed run may only change "
            + ", ".join(sorted(FREE_ON_RESUME)),
        )
    return changed_keys(run.recipe(), new)


def require_same_config(run: RunFolder, state: TrainState, checkpoint: Path) -> None:
    """Raise UserError if config.yaml differs from the recipe that a checkpoint was saved with.

    Keys that a resumed run may change, such as paths and the device, may differ.
    """
    now = _fixed_values(run.recipe()) if state.recipe else {}
    require_equal(run, f"checkpoint {checkpoint.name}", state.recipe, now)


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


def require_same_parent(run: RunFolder, recipe: Recipe) -> None:
    """Raise UserError if ``init.from`` now leads to another model than when the run began.

    A resumed run does not need its parent, which may be gone if ``init.from`` did not change.
    """
    assert recipe.init.parent is not None
    before, _ = read_provenance(run)
    if before and Model.open(recipe.init.parent).weights_hash != before:
        raise UserError(
            f"{recipe.init.parent} is not the parent that this run started from",
            at="init.from",
            fix=f"undo this change, {ANOTHER_FOLDER}",
        )


def require_same_update(state: TrainState, accumulate: int, processes: int) -> None:
    """Raise UserError if updates would have more or fewer batches."""
    before, batches = state.update_batches, accumulate * processes
    if before != batches:
        raise UserError(
            f"an update of this run has {before} batch{'es' * (before > 1)}, and would now "
            f"have {batches}: optim.accumulate = {accumulate}, processes = {processes}",
            at="optim.accumulate",
            fix="choose optim.accumulate and the number of processes so that their product is "
            f"{before}",
        )


def _is_text_of(state: TrainState, vocab: Vocab, segmenter: Segmenter) -> bool:
    return state.text_hash in ("", text_hash(vocab, segmenter))  # empty: not recorded


def require_text(run: RunFolder, state: TrainState, vocab: Vocab, segmenter: Segmenter) -> None:
    """Raise UserError if vocabulary or segmenter are not those that a run began with."""
    if not _is_text_of(state, vocab, segmenter):
        raise UserError(
            "vocab.txt or segmenter.json is not the one that this run began with",
            at=str(run.text_dir),
            fix=f"restore the files that nmt-train wrote, {ANOTHER_FOLDER}",
        )


def prepare_resumed(run: RunFolder, recipe: Recipe, state: TrainState, progress: bool) -> Prepared:
    """Prepare the corpora of a resumed run with its vocabulary and its segmenter.

    Content is compared, not paths or versions: the corpora may have moved, and another version of a
    library may prepare them, as long as the model sees the same ids.

    Raises:
        UserError: the run's vocabulary or segmenter is damaged, or the corpora give other ids.
    """
    folder = run.text_dir
    segmenter = load_segmenter(folder)
    require_text(run, state, Vocab.load(folder), segmenter)
    text = stored_text_of_parent(recipe, run)
    prepared = prepare(recipe, progress, text)
    _require_same_content(recipe, state, prepared.content)
    if text is None and not _is_text_of(state, prepared.vocab, prepared.segmenter):
        # with the segmenter of the run instead of a new one
        prepared = prepare(recipe, progress, segmenter=segmenter)
    if not _is_text_of(state, prepared.vocab, prepared.segmenter):
        raise UserError(
            "the same corpora give other subwords than when this run began, so another version of "
            "nmt, sacremoses, sentencepiece or Python splits their words",
            at=str(folder),
            fix="install the versions that data_report.json and the manifest.json of a checkpoint "
            f"name, {ANOTHER_FOLDER}",
        )
    return prepared


def _require_same_content(
    recipe: Recipe, state: TrainState, content: Mapping[str, list[str]]
) -> None:
    learned_from = [entry.path for entry in recipe.segment.learning_entries]
    files = {"segment": learned_from or [recipe.segment.file or "learn"]}
    for role, entries in recipe.data.entries.items():
        files[role] = [entry.path for entry in entries]
    lines = ["the data changed since this run began:"]
    for role, hashes in content.items():
        if hashes == state.content.get(role, hashes):
            continue
        key = role if role == "segment" else f"data.{role}"
        paths = ", ".join(files[role]) or "none"
        now, before = (
            ", ".join(digest[:12] for digest in digests) or "no file"
            for digests in (hashes, state.content[role])
        )
        lines.append(f"{key} ({paths}): SHA-256 {now}; at the beginning {before}")
    if len(lines) > 1:
        raise UserError("\n  ".join(lines), fix=f"restore these files, {ANOTHER_FOLDER}")
