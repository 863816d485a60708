"""Load what translation needs of a run folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from nmt.config.model import model_config
from nmt.config.recipe import Recipe
from nmt.data.report import usual_line
from nmt.data.segmenters import Segmenter, load_segmenter, segmenter_hash
from nmt.data.sentences import UsualLine
from nmt.data.vocab import Vocab
from nmt.decoding.codec import text_hash
from nmt.errors import UserError
from nmt.model.transformer import Transformer
from nmt.run.checkpoint import MODEL, load_checkpoint, require_fit, shapes_of
from nmt.run.folder import RunFolder
from nmt.runtime.files import read_text


@dataclass(frozen=True)
class LoadedRun:
    """The contents of a run folder that translation needs.

    Attributes:
        path: the run folder.
        model: in eval mode, on the CPU.
        checkpoint: the folder of the checkpoint.
        usual: what the lines of the training data are like.
    """

    path: Path
    recipe: Recipe
    model: Transformer
    segmenter: Segmenter
    vocab: Vocab
    checkpoint: Path
    usual: UsualLine


def load_run(run: str | Path, checkpoint: str) -> LoadedRun:
    """Load a checkpoint of a run: best, latest, or a name such as u001500.

    Raises:
        UserError: the folder is not a run, the checkpoint does not exist or is damaged, or files of
            the folder do not match it.
    """
    folder = RunFolder.open(run)
    folder.require_translation()
    recipe = folder.recipe()
    segmenter, vocab = load_segmenter(folder.path), Vocab.load(folder.path)
    saved = load_checkpoint(folder, checkpoint, with_optimizer=False)
    rows = len(saved.model["embed.weight"])
    if rows != len(vocab):
        raise UserError(
            f"the vocabulary has {len(vocab):,} types, but the checkpoint has {rows:,}",
            at=str(folder.path),
            fix="restore the vocab.txt that nmt-train wrote",
        )
    types = torch.from_numpy(vocab.types_of("tgt"))
    with torch.device("meta"):  # a wrong config.yaml may describe a model larger than the memory
        empty = Transformer(model_config(recipe.model), len(vocab), initialize=False)
    require_fit(saved.model, shapes_of(empty.state_dict()), saved.path / MODEL)
    model = Transformer(model_config(recipe.model), len(vocab), types, initialize=False)
    model.load_state_dict(saved.model)
    trained, here = saved.state.text_hash, text_hash(vocab, segmenter)
    if trained and trained != here:  # empty if the checkpoint is not from a training run
        raise UserError(
            f"vocab.txt or segmenter.json differs from those that checkpoint {saved.path.name} was "
            f"trained with: SHA-256 {here[:12]}, not {trained[:12]}",
            at=str(folder.path),
            fix="restore the files that nmt-train wrote",
        )
    usual = saved.state.usual_line or _usual_line(folder)
    return LoadedRun(folder.path, recipe, model.eval(), segmenter, vocab, saved.path, usual)


def _usual_line(run: RunFolder) -> UsualLine:
    """Return what the training lines of a run are like, as far as its folder says it.

    Raises:
        UserError: the report of the corpus checks is damaged.
    """
    if not run.data_report_file.exists():
        return UsualLine()
    try:
        return usual_line(read_text(run.data_report_file))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(
            f"cannot be read: {str(error).splitlines()[0]}",
            at=str(run.data_report_file),
            fix="restore the file that nmt-train wrote, or delete it; without it, lines are not "
            "split into sentences",
        ) from error


def check_same_text(runs: Sequence[LoadedRun]) -> None:
    """Check that the ids of all runs have the same meaning.

    Raises:
        UserError: two runs differ in languages, vocabulary or segmenter.
    """
    first = runs[0]
    for other in runs[1:]:
        for name, what, of_run in (
            ("config.yaml", "languages", lambda run: (run.recipe.src, run.recipe.tgt)),
            ("vocab.txt", "contents", lambda run: run.vocab.hash),
            ("segmenter.json", "contents", lambda run: segmenter_hash(run.segmenter)),
        ):
            if of_run(first) != of_run(other):
                raise UserError(
                    f"its {what} differ from those of the first run, so the runs cannot form an "
                    "ensemble",
                    at=str(other.path / name),
                    fix="give runs with the same prepared data, or a single run",
                )
