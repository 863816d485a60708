"""The parent that a run starts from (``init.from``): its folder, segmentation and vocabulary.

This module reads its small files; ``nmt.training.init`` reads its weights.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from pydantic import ValidationError

from nmt.config.errors import format_value
from nmt.config.recipe import ModelConfig, Recipe, SegmentConfig, stacks_of
from nmt.data.adapt import Adaptation, adapt
from nmt.data.cache import NOISE_KEYS
from nmt.data.segmenters import Segmenter, load_segmenter
from nmt.data.vocab import Vocab
from nmt.errors import UserError
from nmt.store.folder import RunFolder
from nmt.store.model import Description, Model


@final
@dataclass(frozen=True)
class TextOfParent:
    """How a parent represents text, adapted to the corpora of a run if its recipe says so.

    Attributes:
        adaptation: what differs from the parent; a resumed run does not need it.
    """

    segmenter: Segmenter
    vocab: Vocab
    adaptation: Adaptation = Adaptation()  # noqa: RUF009  it cannot change

    @classmethod
    def of(cls, parent: Model) -> TextOfParent:
        """Read it from the parent."""
        return cls(parent.segmenter, parent.vocab)

    def for_recipe(self, recipe: Recipe, progress: bool = True) -> TextOfParent | None:
        """Choose the text processing that a run takes from it; None with ``init.vocab: new``.

        Args:
            progress: show progress bars on a terminal.

        Raises:
            UserError: the corpora cannot be read, or the segmenter cannot be adapted.
        """
        if recipe.init.vocab == "new":
            return None
        if not recipe.init.adapts:
            return self
        return TextOfParent(*adapt(recipe, self.segmenter, self.vocab, progress))

    @classmethod
    def stored(cls, recipe: Recipe, run: RunFolder) -> TextOfParent | None:
        """Read it from the run itself, which has a copy; None if the recipe does not use it."""
        if recipe.init.vocab == "new":
            return None
        return cls(load_segmenter(run.text_dir), Vocab.load(run.parent_dir))

    def save(self, run: RunFolder) -> None:
        """Store what a run needs to be resumed without its parent.

        The segmenter is not written, because it is also that of the run. The vocabulary is: the
        run's own has the counts of both runs.
        """
        run.parent_dir.mkdir(exist_ok=True)
        self.vocab.save(run.parent_dir)


def open_parent(recipe: Recipe) -> Model:
    """Open the model that ``init.from`` names.

    Raises:
        UserError: it is no model, or the run to train.
    """
    assert recipe.init.parent is not None
    path = Path(recipe.init.parent)
    if os.path.realpath(recipe.out) in map(os.path.realpath, (path, path.parent)):
        raise UserError(
            f"{path} is in the folder that this run is written to, so it cannot be its parent",
            at="init.from",
            fix="train in another folder with out=PATH, or use --resume to continue that run",
        )
    try:
        return Model.open(path)
    except UserError as error:
        raise UserError(f"{error.at}: {error.what}", at="init.from", fix=error.fix) from error


# keys of ``model`` that do not decide what weights compute or how many there are, and the preset
# normformer, whose keys are taken one by one
OWN_MODEL_KEYS = {
    "dropout", "attn_dropout", "ffn_dropout", "word_dropout", "init", "logit_mask", "normformer",
}  # fmt: skip


def with_keys_of_parent(recipe: Recipe, resume: bool) -> Recipe:
    """Return the recipe with the keys that it does not set and that its parent decides.

    These are keys of ``model``; with ``init.vocab: parent`` or ``extend`` also those of ``segment``
    and ``data.normalize``. The run's config.yaml stores the result.

    Args:
        resume: an existing run may continue, with its own config.yaml and without the parent.

    Raises:
        UserError: the recipe contradicts the parent, or the parent cannot be read.
    """
    if recipe.init.parent is None:
        return recipe
    own = RunFolder(recipe.out)
    source: Recipe | Description
    if resume and own.config_file.is_file() and own.checkpoints():
        before = source = own.recipe()
        if before.init.parent is None:  # refused later, as a changed key
            return recipe
        new = before.init.vocab == "new"
    else:
        new, source = False, open_parent(recipe).about
    resolved = recipe.model_copy(update={"model": _model_of(recipe, source)})
    # another init.vocab than that of the run to resume is refused later, as a changed key
    if recipe.init.vocab != "new" and not new:
        resolved = _with_segment(resolved, source)
    try:  # config.yaml stores these keys, and must be a valid recipe
        Recipe.model_validate(resolved.model_dump(by_alias=True))
    except ValidationError as failure:
        rules = "\n  ".join(e["msg"].removeprefix("Value error, ") for e in failure.errors())
        raise UserError(
            f"the recipe does not fit the keys of the parent:\n  {rules}",
            at="init.from",
            fix="change these keys of the recipe; segment.dropout and segment.sampling_alpha may "
            "differ from the parent",
        ) from failure
    return resolved


def _model_of(recipe: Recipe, source: Recipe | Description) -> ModelConfig:
    taken = set(ModelConfig.model_fields) - recipe.model.model_fields_set - OWN_MODEL_KEYS
    for stack, key in (("encoder", "enc_layers"), ("decoder", "dec_layers")):
        if stack not in recipe.stacks or stack not in stacks_of(source.task):
            taken.discard(key)
    if recipe.task != source.task:  # another task may have other embeddings
        taken.discard("tie")
    values = {key: getattr(source.model, key) for key in sorted(taken)}
    return recipe.model.model_copy(update=values)


def _with_segment(recipe: Recipe, source: Recipe | Description) -> Recipe:
    """Return a recipe with the segmentation of its parent, except noise, and what it learns from.

    UserError if the recipe sets other values.
    """
    own_keys = (*NOISE_KEYS, *(("learn_from",) if recipe.init.adapts else ()))
    different = _contradictions(recipe.segment, source.segment, own_keys)
    if "normalize" not in recipe.data.model_fields_set:
        data = recipe.data.model_copy(update={"normalize": source.data.normalize})
        recipe = recipe.model_copy(update={"data": data})
    for key in ("tokenized", "normalize"):
        here, there = getattr(recipe.data, key), getattr(source.data, key)
        if here != there:
            different[f"data.{key}"] = (there, here)
    if different:
        lines, as_parent = shown_differences(different)
        raise UserError(
            f"{recipe.init.vocab} uses the segmentation of the parent, but the recipe sets other "
            f"values (parent -> this recipe):{lines}",
            at="init.vocab",
            fix=f"set them as in the parent: {as_parent}; or set init.vocab=new",
        )
    chosen = recipe.segment.model_fields_set.intersection(own_keys)
    own = {key: getattr(recipe.segment, key) for key in chosen}
    if recipe.init.adapts and hasattr(source.segment, "learn_from"):
        own.setdefault("learn_from", None)  # the corpora of the parent may be gone
    return recipe.model_copy(update={"segment": source.segment.model_copy(update=own)})


def shown_differences(values: Mapping[str, tuple[Any, Any]]) -> tuple[str, str]:
    """Show keys and the values of parent and run: in lines, and as words that set the parent's."""
    shown = {key: (format_value(old), format_value(new)) for key, (old, new) in values.items()}
    lines = "".join(f"\n  {key}: {old} -> {new}" for key, (old, new) in shown.items())
    return lines, " ".join(f"{key}={old}" for key, (old, _) in shown.items())


def _contradictions(
    here: SegmentConfig, parent: SegmentConfig, own_keys: Sequence[str]
) -> dict[str, tuple[Any, Any]]:
    """Return the keys that the recipe sets and the parent has otherwise, with both values."""
    if here.kind != parent.kind and here.model_fields_set:
        return {"segment.kind": (parent.kind, here.kind)}
    ours, theirs = here.model_dump(), parent.model_dump()
    keys = here.model_fields_set.difference(own_keys)
    pairs = {key: (theirs.get(key), ours[key]) for key in sorted(keys)}
    return {f"segment.{key}": (old, new) for key, (old, new) in pairs.items() if old != new}
