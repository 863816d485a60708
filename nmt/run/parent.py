"""The parent that a run starts from (``init.from``): its folder, segmentation and vocabulary.

A parent is any run folder. This module reads its small files; ``nmt.training.init`` reads its
weights.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from nmt.config.errors import format_value
from nmt.config.recipe import Recipe, SegmentConfig
from nmt.data.cache import NOISE_KEYS
from nmt.data.prepare import Prepared, prepare
from nmt.data.segmenters import Segmenter, load_segmenter
from nmt.data.vocab import Vocab
from nmt.errors import UserError
from nmt.run.folder import RunFolder, children, is_average, update_of

ANOTHER_PARENT = "set init.from to a run folder that nmt-train wrote"


@dataclass(frozen=True)
class TextOfParent:
    """How a parent represents text: ``init.vocab: parent`` uses it for the corpora of a run."""

    segmenter: Segmenter
    vocab: Vocab

    @classmethod
    def of(cls, parent: RunFolder) -> TextOfParent:
        """Read it from the folder of the parent."""
        return cls(load_segmenter(parent.path), Vocab.load(parent.path))

    @classmethod
    def stored(cls, recipe: Recipe, run: RunFolder) -> TextOfParent | None:
        """Read it from the run itself, which has a copy; None if the recipe does not use it."""
        if recipe.init.vocab != "parent":
            return None
        return cls(load_segmenter(run.path), Vocab.load(run.parent_dir))

    def save(self, run: RunFolder) -> None:
        """Store what a run needs to be resumed without its parent.

        The segmenter is not written, because it is also that of the run. The vocabulary is: the
        run's own has the counts of both trainings.
        """
        run.parent_dir.mkdir(exist_ok=True)
        self.vocab.save(run.parent_dir)


def prepare_with(
    parent_text: TextOfParent | None, recipe: Recipe, progress: bool = True
) -> Prepared:
    """Prepare the corpora of a recipe, with the parent's segmentation and vocabulary if given."""
    if parent_text is None:
        return prepare(recipe, progress)
    return prepare(recipe, progress, parent_text.segmenter, parent_text.vocab)


def open_parent(recipe: Recipe) -> RunFolder:
    """Return the run folder that ``init.from`` names.

    Raises:
        UserError: it is not a run with checkpoints, or it is the folder to train in.
    """
    assert recipe.init.parent is not None
    path = Path(recipe.init.parent)
    if os.path.realpath(path) == os.path.realpath(recipe.out):
        raise UserError(
            f"{path} is the folder that this run is written to, so it cannot be its parent",
            at="init.from",
            fix="train in another folder with out=PATH, or use --resume to continue that run",
        )
    try:
        return RunFolder.open(path)
    except UserError as error:
        no_run = "no such run" in error.what
        fix = f"{error.fix}; {ANOTHER_PARENT}" if no_run else error.fix
        raise UserError(f"{error.at}: {error.what}", at="init.from", fix=fix) from error


def checkpoint_of_parent(run: RunFolder, wanted: str) -> str:
    """Return ``wanted``; for ``avg``, the name of the newest average, which must exist."""
    if wanted != "avg":
        return wanted
    folders = [folder for folder in children(run.checkpoints_dir) if folder.is_dir()]
    averages = [folder.name for folder in folders if is_average(folder.name)]
    if not averages:
        raise UserError(
            f"avg: {run.path} has no average of checkpoints",
            at="init.checkpoint",
            fix=f"make one with: nmt-average {run.path} --last 5; or set init.checkpoint=best",
        )
    return max(averages, key=lambda name: (update_of(name), name))


def with_segment_of_parent(recipe: Recipe, resume: bool) -> Recipe:
    """Return the recipe with the ``segment`` keys that the run uses under ``init.vocab: parent``.

    Keys that the recipe does not set are those of the parent, and so is ``data.normalize``. Only
    segmentation noise may differ. The run's config.yaml stores the result.

    Args:
        resume: an existing run may continue, with its own config.yaml and without the parent.

    Raises:
        UserError: the recipe contradicts the parent, or the parent cannot be read.
    """
    if recipe.init.vocab != "parent":
        return recipe
    own = RunFolder(recipe.out)
    if resume and own.config_file.is_file() and own.checkpoints():
        source = own.recipe()
        if source.init.vocab != "parent":  # refused later, as a changed key
            return recipe
    else:
        source = open_parent(recipe).recipe()
    different = _contradictions(recipe.segment, source.segment)
    if "normalize" not in recipe.data.model_fields_set:
        data = recipe.data.model_copy(update={"normalize": source.data.normalize})
        recipe = recipe.model_copy(update={"data": data})
    for key in ("tokenized", "normalize"):
        here, there = getattr(recipe.data, key), getattr(source.data, key)
        if here != there:
            different[f"data.{key}"] = (there, here)
    if different:
        shown = {key: tuple(map(format_value, values)) for key, values in different.items()}
        lines = "\n  ".join(f"{key}: {old} -> {new}" for key, (old, new) in shown.items())
        as_parent = " ".join(f"{key}={old}" for key, (old, _) in shown.items())
        raise UserError(
            "parent uses the segmentation of the parent, but the recipe sets other values "
            f"(parent -> this recipe):\n  {lines}",
            at="init.vocab",
            fix=f"set them as in the parent: {as_parent}; or set init.vocab=new",
        )
    chosen = recipe.segment.model_fields_set.intersection(NOISE_KEYS)
    own_noise = {key: getattr(recipe.segment, key) for key in chosen}
    resolved = recipe.model_copy(update={"segment": source.segment.model_copy(update=own_noise)})
    try:  # config.yaml stores these keys, and must be a valid recipe
        Recipe.model_validate(resolved.model_dump(by_alias=True))
    except ValidationError as failure:
        rules = "\n  ".join(e["msg"].removeprefix("Value error, ") for e in failure.errors())
        raise UserError(
            f"the recipe does not fit the segment keys of the parent:\n  {rules}",
            at="init.vocab",
            fix="change the recipe (it may set another segment.dropout or segment.sampling_alpha), "
            "or set init.vocab=new",
        ) from failure
    return resolved


def _contradictions(here: SegmentConfig, parent: SegmentConfig) -> dict[str, tuple[Any, Any]]:
    """Return the keys that the recipe sets and the parent has otherwise, with both values."""
    if here.kind != parent.kind and here.model_fields_set:
        return {"segment.kind": (parent.kind, here.kind)}
    ours, theirs = here.model_dump(), parent.model_dump()
    keys = here.model_fields_set.difference(NOISE_KEYS)
    pairs = {key: (theirs.get(key), ours[key]) for key in sorted(keys)}
    return {f"segment.{key}": (old, new) for key, (old, new) in pairs.items() if old != new}
