"""Load what translation needs of a run folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from nmt.config.model import model_config
from nmt.data.report import usual_line
from nmt.data.segmenters import load_segmenter, segmenter_hash
from nmt.data.sentences import UsualLine
from nmt.data.vocab import Vocab
from nmt.decoding.codec import TextCodec, text_hash
from nmt.decoding.engine import ModelInfo
from nmt.errors import UserError
from nmt.model.transformer import Transformer
from nmt.run.checkpoint import MODEL, load_checkpoint, require_fit, shapes_of
from nmt.run.folder import RunFolder
from nmt.runtime.files import read_text


def load_run(run: str | Path, checkpoint: str) -> tuple[Transformer, TextCodec, ModelInfo]:
    """Load a checkpoint of a run, in eval mode, on the CPU.

    Args:
        checkpoint: best, latest, or a name such as u001500.

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
    codec = TextCodec(segmenter, vocab, recipe.src, recipe.tgt, usual, recipe.tag_targets)
    info = ModelInfo(recipe.decode, str(saved.path), recipe.always_tagged, recipe.sources)
    return model.eval(), codec, info


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


def check_same_text(runs: Sequence[str | Path], codecs: Sequence[TextCodec]) -> None:
    """Check that the ids of all runs have the same meaning.

    Raises:
        UserError: two runs differ in languages, vocabulary or segmenter.
    """
    first = codecs[0]
    for run, codec in zip(runs[1:], codecs[1:], strict=True):
        for name, what, same in (
            ("config.yaml", "languages", (codec.src, codec.tgt) == (first.src, first.tgt)),
            ("vocab.txt", "contents", codec.vocab.hash == first.vocab.hash),
            (
                "segmenter.json",
                "contents",
                segmenter_hash(codec.segmenter) == segmenter_hash(first.segmenter),
            ),
        ):
            if not same:
                raise UserError(
                    f"its {what} differ from those of the first run, so the runs cannot form an "
                    "ensemble",
                    at=str(Path(run) / name),
                    fix="give runs with the same prepared data, or a single run",
                )
