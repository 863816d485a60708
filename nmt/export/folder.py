"""The exported folder: all that translating needs, for the package ctranslate2 or for this one.

It refers to nothing outside, so it can be moved and copied. ::

    DIR/model.bin, config.json, shared_vocabulary.json    CTranslate2's model
    DIR/segmenter.json and what it names, vocab.txt       text to pieces and back
    DIR/nmt.json                                          languages and decode settings
    DIR/README.md, translate.py                           how to use it without this toolkit
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

import nmt
from nmt.data.segment import save_segmenter
from nmt.data.vocab import BOS, PAD
from nmt.decoding.codec import LONGEST
from nmt.decoding.translator import Translator
from nmt.errors import UserError
from nmt.export.fold import fold
from nmt.export.metadata import METADATA, Metadata, is_export
from nmt.export.program import program
from nmt.export.readme import readme
from nmt.export.spec import SPECIALS, build_spec, check_expressible, require_ctranslate2
from nmt.runtime.files import atomic_folder

POSITIONS = 2048  # a sentence's pieces with EOS, source or target, unless decode asks for more


def export(
    translator: Translator, output: Path, quantization: str | None = None, force: bool = False
) -> None:
    """Write a model as a folder for CTranslate2; it has its name when it is whole.

    Args:
        translator: of a run folder, on any device.
        output: the folder.
        quantization: one of CTranslate2's types, None = fp32.
        force: an export that is there may be replaced.

    Raises:
        UserError: CTranslate2 is not installed or cannot express the model; the output is refused.
    """
    require_ctranslate2()
    check_expressible(translator.transformer.config)
    check_output(output, force)
    with atomic_folder(output.absolute(), replace=force) as folder:
        write(translator, folder, quantization)
        check_output(output, force)  # another process may have written it meanwhile


def write(translator: Translator, folder: Path, quantization: str | None) -> None:
    """Fill an empty folder."""
    model, vocab, segmenter = translator.transformer, translator.vocab, translator.segmenter
    decode = translator.decode
    config, weights = fold(model.state_dict(), model.config, model.allowed)
    types = vocab.pieces(range(len(SPECIALS), len(vocab)))
    positions = max(POSITIONS, LONGEST + 1 + decode.max_len_offset)
    spec = build_spec(config, weights, types, positions)
    spec.optimize(quantization)
    spec.save(str(folder))
    vocab.save(folder)
    save_segmenter(segmenter, folder)
    facts = Metadata(
        src=translator.src,
        tgt=translator.tgt,
        decode=decode.model_dump(),
        never=[] if model.config.logit_mask else [SPECIALS[PAD], SPECIALS[BOS]],
        quantization=quantization,
        version=nmt.__version__,
    )
    script, packages = program(segmenter, facts.src, facts.tgt, decode, facts.never)
    about = readme(
        segmenter, facts.src, facts.tgt, decode, script, packages, quantization, positions
    )
    for name, text in (
        (METADATA, json.dumps(asdict(facts), indent=1) + "\n"),
        ("translate.py", script),
        ("README.md", about),
    ):
        (folder / name).write_text(text, encoding="utf-8")


def check_output(output: Path, force: bool) -> None:
    """Refuse a place that holds something, or that cannot be.

    Raises:
        UserError: it is refused.
    """
    if not output.absolute().parent.is_dir():
        raise UserError("no such folder", at=str(output.parent), fix="create it")
    if not os.path.lexists(output):
        return
    ours = output.is_dir() and (is_export(output) or not any(output.iterdir()))
    if not ours:  # never delete what somebody else put there
        raise UserError(
            "exists and is no exported model", at=str(output), fix="choose another --output"
        )
    if not force:
        raise UserError("exists already", at=str(output), fix="choose another, or give --force")
