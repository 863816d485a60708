"""A run folder as a model with its text sides, checked to belong together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import torch

from nmt.config.recipe import Recipe
from nmt.data.segment import Segmenter, load_segmenter
from nmt.data.segment import fingerprint as segmenter_fingerprint
from nmt.data.vocab import Vocab
from nmt.decoding.codec import text_fingerprint
from nmt.errors import UserError
from nmt.model.transformer import Transformer
from nmt.run.checkpoint import load_checkpoint
from nmt.run.folder import RunFolder

Run: TypeAlias = str | Path


@dataclass(frozen=True)
class Loaded:
    """What a run folder holds for translation."""

    path: Path
    recipe: Recipe
    model: Transformer
    segmenter: Segmenter
    vocab: Vocab
    checkpoint: Path


def load_run(run: Run, checkpoint: str) -> Loaded:
    """A checkpoint of a run: best, latest, or a name such as u001500.

    Raises:
        UserError: no run, no such checkpoint, a damaged one, or files that do not match it.
    """
    folder = RunFolder.open(run)
    recipe = folder.recipe()
    segmenter, vocab = load_segmenter(folder.path), Vocab.load(folder.path)
    saved = load_checkpoint(folder, checkpoint, with_optimizer=False)
    rows = len(saved.model["embed.weight"])
    if rows != len(vocab):
        raise UserError(
            f"the vocabulary has {len(vocab):,} types, the checkpoint {rows:,}",
            at=str(folder.path),
            fix="vocab.txt is not the one that this model was trained with; restore it",
        )
    types = torch.from_numpy(vocab.types_of("tgt"))
    model = Transformer(recipe.model, len(vocab), types, initialize=False)
    try:
        model.load_state_dict(saved.model)
    except RuntimeError as error:
        raise UserError(
            f"config.yaml describes another model than checkpoint {saved.path.name}: "
            f"{str(error).splitlines()[1].strip()}",
            at=str(folder.path),
            fix="restore the config.yaml that nmt-train wrote",
        ) from error
    trained, here = saved.state.text_fingerprint, text_fingerprint(vocab, segmenter)
    if trained and trained != here:  # a checkpoint without a training knows none
        raise UserError(
            f"vocab.txt or segmenter.json is not what checkpoint {saved.path.name} was trained "
            f"with: SHA-256 {here[:12]}, not {trained[:12]}",
            at=str(folder.path),
            fix="restore the files that nmt-train wrote",
        )
    return Loaded(folder.path, recipe, model.eval(), segmenter, vocab, saved.path)


def require_same_text(runs: Sequence[Loaded]) -> None:
    """
    Raises:
        UserError: ids of one run mean something else in another.
    """
    first = runs[0]
    for other in runs[1:]:
        differ = {
            "config.yaml": (first.recipe.src, first.recipe.tgt)
            != (other.recipe.src, other.recipe.tgt),
            "vocab.txt": first.vocab.fingerprint != other.vocab.fingerprint,
            "segmenter.json": segmenter_fingerprint(first.segmenter)
            != segmenter_fingerprint(other.segmenter),
        }
        for name in filter(differ.__getitem__, differ):
            raise UserError(
                f"its {'languages' if name == 'config.yaml' else 'contents'} are not those of the "
                "first run, so the two cannot be an ensemble",
                at=str(other.path / name),
                fix="give runs of the same prepared data, or one run alone",
            )
