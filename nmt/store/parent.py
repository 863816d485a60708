"""The parent that a run starts from (``init.from``): its folder, keys, segmentation and vocabulary.

``nmt.training.transfer`` takes its weights.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import ValidationError

from nmt.config.errors import format_value
from nmt.config.model import PRESET
from nmt.config.recipe import ModelConfig, Recipe, stacks_of
from nmt.data.adapt import adapt
from nmt.data.cache import NOISE_KEYS
from nmt.data.prepare import GivenText
from nmt.data.segmenters import load_segmenter
from nmt.data.vocab import Vocab
from nmt.errors import UserError
from nmt.model.config import ONLY_TRAINING
from nmt.store.folder import RunFolder
from nmt.store.model import Description, Model

Differences: TypeAlias = dict[str, tuple[Any, Any]]  # key -> value of the parent, of the recipe
# keys of ``model`` that do not decide what weights compute or how many there are, and the preset
OWN_MODEL_KEYS = {*ONLY_TRAINING, "logit_mask", PRESET}
# keys that may differ: the lines of a start say which tensors are not loaded, and the epsilon of a
# norm hardly changes what it computes
MAY_DIFFER = ("enc_layers", "dec_layers", "tie", "out_bias", "norm_eps")
# parts that a model may have in addition to its parent, but not lack
ADDITIONS = ("bias", "head_scale", "post_attn_norm", "ffn_norm", "qkv_norm")
# other keys that must be the same if the parent has what they describe
WHERE_USED: dict[str, Callable[[ModelConfig], bool]] = {
    "scalenorm_gain": lambda parent: parent.scalenorm_gain == "learned",
    "res_scale": lambda parent: parent.res_scale != "none",
    "head_scale_place": lambda parent: parent.head_scale,
    "extra_norm": lambda parent: parent.post_attn_norm or parent.ffn_norm or parent.qkv_norm,
}


def open_parent(recipe: Recipe) -> Model:
    """Open the model that ``init.from`` names.

    Raises:
        UserError: it is not a model, or it is the run to train.
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


def text_of_parent(recipe: Recipe, parent: Model, progress: bool = True) -> GivenText | None:
    """Return the segmentation and the vocabulary that a run takes; None with ``init.vocab: new``.

    Args:
        progress: show progress bars on a terminal.

    Raises:
        UserError: the corpora cannot be read, or the segmenter cannot be adapted to them.
    """
    if recipe.init.vocab == "new":
        return None
    text = GivenText(parent.segmenter, parent.vocab)
    return adapt(recipe, text, progress) if recipe.init.adapts else text


def stored_text_of_parent(recipe: Recipe, run: RunFolder) -> GivenText | None:
    """Read the parent's segmentation and vocabulary from the run; None with ``init.vocab: new``.

    The segmenter is also that of the run. The vocabulary is not: the run's has the counts of both.
    """
    if recipe.init.vocab == "new":
        return None
    return GivenText(load_segmenter(run.text_dir), Vocab.load(run.parent_dir))


def with_keys_of_parent(recipe: Recipe, resume: bool) -> Recipe:
    """Return the recipe, with unset keys filled in from its parent.

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
    if isinstance(source, Description):  # changed keys of a run to resume are refused later
        require_same_function(source.model, resolved.model)
    return resolved


def require_same_function(parent: ModelConfig, child: ModelConfig) -> None:
    """Raise UserError if the parent's weights compute something else with the keys of the child.

    A key that no list of this module names must be the same.
    """
    listed = {*OWN_MODEL_KEYS, *MAY_DIFFER, *ADDITIONS, *WHERE_USED}
    keys = {**type(parent).model_fields, **type(child).model_fields}
    same = [key for key in keys if key not in listed]
    added = [key for key in ADDITIONS if getattr(parent, key)]
    used = [key for key, is_used in WHERE_USED.items() if is_used(parent)]
    _refuse(
        _differences("model", parent, child, [*same, *added, *used]),
        "the weights of the parent do not fit this model",
        "init.from",
        "leave them out",
    )


def _differences(group: str, parent: object, child: object, keys: Iterable[str]) -> Differences:
    values = {key: (getattr(parent, key, None), getattr(child, key, None)) for key in keys}
    return {f"{group}.{key}": pair for key, pair in values.items() if pair[0] != pair[1]}


def _refuse(different: Differences, what: str, at: str, otherwise: str) -> None:
    """Raise UserError if keys differ from the parent."""
    if not different:
        return
    shown = {key: (format_value(old), format_value(new)) for key, (old, new) in different.items()}
    lines = "".join(f"\n  {key}: {old} -> {new}" for key, (old, new) in shown.items())
    as_parent = " ".join(f"{key}={old}" for key, (old, _) in shown.items())
    raise UserError(
        f"{what} (parent -> this recipe):{lines}",
        at=at,
        fix=f"set these keys as in the parent: {as_parent}; or {otherwise}",
    )


def _model_of(recipe: Recipe, source: Recipe | Description) -> ModelConfig:
    inherited = set(ModelConfig.model_fields) - recipe.model.model_fields_set - OWN_MODEL_KEYS
    for stack, key in (("encoder", "enc_layers"), ("decoder", "dec_layers")):
        if stack not in recipe.stacks or stack not in stacks_of(source.task):
            inherited.discard(key)
    if recipe.task != source.task:  # another task may have other embeddings
        inherited.discard("tie")
    values = {key: getattr(source.model, key) for key in sorted(inherited)}
    return recipe.model.model_copy(update=values)


def _with_segment(recipe: Recipe, source: Recipe | Description) -> Recipe:
    """Return a recipe with the segmentation of its parent, except noise, and what it learns from.

    UserError if the recipe sets other values.
    """
    here, there = recipe.segment, source.segment
    own_keys = {*NOISE_KEYS, *(("learn_from",) if recipe.init.adapts else ())}
    if "normalize" not in recipe.data.model_fields_set:
        data = recipe.data.model_copy(update={"normalize": source.data.normalize})
        recipe = recipe.model_copy(update={"data": data})
    if here.kind != there.kind and here.model_fields_set:
        different: Differences = {"segment.kind": (there.kind, here.kind)}
    else:
        different = _differences("segment", there, here, sorted(here.model_fields_set - own_keys))
    different |= _differences("data", source.data, recipe.data, ("tokenized", "normalize"))
    _refuse(
        different,
        f"{recipe.init.vocab} uses the segmentation of the parent, but the recipe sets other "
        "values",
        "init.vocab",
        "set init.vocab=new",
    )
    own = {key: getattr(here, key) for key in here.model_fields_set & own_keys}
    if recipe.init.adapts and hasattr(there, "learn_from"):
        own.setdefault("learn_from", None)  # the corpora of the parent may be gone
    return recipe.model_copy(update={"segment": there.model_copy(update=own)})
