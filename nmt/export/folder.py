"""Write the exported folder: what CTranslate2 or this toolkit needs to translate.

The folder refers to no file outside, so it can be moved and copied. ::

    DIR/model.bin, config.json, shared_vocabulary.json    CTranslate2's model
    DIR/segmenter.json and the files it names, vocab.txt  text to pieces and back
    DIR/nmt.json                                          languages and settings
    DIR/SHA256SUMS                                        hashes of the files above
    DIR/README.md, translate.py, and the modules it uses  use without this toolkit
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path
from string import Template

import nmt
from nmt.data import unicode
from nmt.data.language_codes import base_language
from nmt.data.segmenters import Segmenter, save_segmenter
from nmt.data.vocab import BOS, PAD
from nmt.decoding.translator import Translator
from nmt.errors import UserError
from nmt.export.fold import fold
from nmt.export.metadata import Metadata, write_hashes
from nmt.export.spec import (
    LONGEST_SOURCE,
    SPECIALS,
    TYPICAL_LENGTH,
    build_spec,
    check_supported,
    ctranslate2_length_penalty,
    largest_offset,
    require_ctranslate2,
)
from nmt.run.folder import EXPORT_FILE
from nmt.runtime.files import atomic_folder

TEMPLATES = Path(__file__).with_name("templates")
TEXT_MODULES = Path(unicode.__file__).parent
_BPE_NOTE = """\
- translate.py does not protect `@@` in the text.
"""


def export(
    translator: Translator, output: Path, quantization: str | None = None, force: bool = False
) -> None:
    """Write a model as a folder for CTranslate2. The folder gets its name when it is complete.

    Args:
        translator: of a run folder, on any device.
        output: the folder.
        quantization: one of CTranslate2's types; None = fp32.
        force: replace an exported folder of this name.

    Raises:
        UserError: CTranslate2 is not installed or does not support the model, or ``check_output``
            rejects the output.
    """
    require_ctranslate2()
    check_supported(translator.transformer.config)
    check_output(output, force)
    with atomic_folder(output.absolute(), replace=force) as folder:
        write_folder(translator, folder, quantization)
        check_output(output, force)  # another process may have written it meanwhile


def write_folder(translator: Translator, folder: Path, quantization: str | None) -> None:
    """Write the exported files of a model into an empty folder."""
    model, codec, info = translator.transformer, translator.codec, translator.info
    vocab, segmenter, decode = codec.vocab, codec.segmenter, info.decode
    config, weights = fold(model.state_dict(), model.config, model.allowed)
    types = vocab.pieces(range(len(SPECIALS), len(vocab)))
    positions = LONGEST_SOURCE + largest_offset(decode)
    spec = build_spec(config, weights, types, positions)
    spec.optimize(quantization)
    spec.save(str(folder))
    vocab.save(folder)
    save_segmenter(segmenter, folder)
    sources = list(info.sources or [codec.src])
    languages = {codec.src, codec.tgt, *sources, *codec.tag_targets.values()}
    metadata = Metadata(
        version=nmt.__version__,
        src=codec.src,
        tgt=codec.tgt,
        quantization=quantization,
        decode=decode.model_dump(),
        suppressed_tokens=[]
        if model.config.logit_mask
        else [SPECIALS[PAD], SPECIALS[BOS], *vocab.pieces(vocab.reserved_ids)],
        segmentation={
            "kind": segmenter.kind,
            "tokenized": segmenter.moses.tokenized,
            "normalize": segmenter.moses.form,
            "exact": segmenter.moses.exact,
            "byte_fallback": bool(segmenter.alphabet()),
            "raw": bool(segmenter.metadata().get("raw")),
        },
        length_penalty=round(ctranslate2_length_penalty(decode.length_alpha), 3),
        tags=vocab.tags,
        tag_targets=dict(codec.tag_targets),
        always_tagged=info.always_tagged,
        sources=sources,
        rules={lang: base_language(lang) for lang in sorted(languages)},
        usual_line=asdict(codec.usual),
    )
    (folder / EXPORT_FILE).write_text(
        json.dumps(asdict(metadata), indent=1) + "\n", encoding="utf-8"
    )
    write_hashes(folder)
    readme = _readme(segmenter, metadata, positions)
    (folder / "README.md").write_text(readme, encoding="utf-8")
    shutil.copyfile(TEMPLATES / "translate.py", folder / "translate.py")
    for name in ("unicode.py", "moses.py", "sentences.py"):
        shutil.copyfile(TEXT_MODULES / name, folder / name)


def check_output(output: Path, force: bool, marker: str = EXPORT_FILE) -> None:
    """Check that a folder can be written here without deleting other files.

    Args:
        marker: the file by which an exported folder of this format is known.

    Raises:
        UserError: the parent folder is missing, the output exists and is not an exported folder,
            or it is one and ``force`` is false.
    """
    if not output.absolute().parent.is_dir():
        raise UserError(
            "no such folder",
            at=str(output.parent),
            fix="create it, or choose another folder",
        )
    if not os.path.lexists(output):
        return
    is_same = (output / marker).is_file()
    replaceable = output.is_dir() and (is_same or not any(output.iterdir()))
    if not replaceable:
        raise UserError(
            "exists and is not an exported model", at=str(output), fix="choose another folder"
        )
    if not force:
        raise UserError(
            "exists already",
            at=str(output),
            fix="choose another folder, or add --force to replace it",
        )


def packages(segmenter: Segmenter) -> list[str]:
    """Return the Python packages that translate.py needs."""
    needed = ["ctranslate2", "sentencex"]
    if segmenter.kind == "sentencepiece":
        needed.append("sentencepiece")
    if segmenter.kind != "sentencepiece" or segmenter.moses.tokenized:
        needed.append("sacremoses")
    if segmenter.kind == "fastbpe":
        needed.append("subword-nmt")
    return needed


def _readme(segmenter: Segmenter, metadata: Metadata, positions: int) -> str:
    """Return the text of README.md."""
    needed = packages(segmenter)
    template = Template((TEMPLATES / "README.md").read_text(encoding="utf-8"))
    text = template.substitute(
        src=metadata.src,
        tgt=metadata.tgt,
        quantization=metadata.quantization or "fp32",
        packages=" ".join(needed),
        segmenter_files=", ".join(f"`{name}`" for name in ("segmenter.json", *segmenter.files())),
        positions=f"{positions:,}",
        length_alpha=f"{metadata.decode['length_alpha']:g}",
        length_penalty=metadata.length_penalty,
        typical_length=TYPICAL_LENGTH,
        bpe_note=_BPE_NOTE if segmenter.kind == "fastbpe" else "",
    )
    return text.rstrip() + "\n"
