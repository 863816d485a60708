"""Write a package for Argos Translate, which LibreTranslate also uses.

A package is a zip archive, NAME.argosmodel, with one folder::

    translate-sk_en-1_0/metadata.json       languages
    translate-sk_en-1_0/model/              CTranslate2's model
    translate-sk_en-1_0/sentencepiece.model pieces of source and target
    translate-sk_en-1_0/README.md           what is in the package, and how to install it

Argos Translate splits a text into sentences with a model of its own, which it downloads.
"""

from __future__ import annotations

import json
import tempfile
import zipfile
from pathlib import Path
from string import Template

from nmt.config.model import model_config
from nmt.data.segmenters.sentencepiece import MODEL
from nmt.decoding.ctranslate2.folder import ENGINE_FILES, write_engine
from nmt.decoding.ctranslate2.spec import check_supported, require_ctranslate2
from nmt.errors import UserError
from nmt.runtime.files import sync_folder, temporary
from nmt.store.model import Model
from nmt.store.output import check_output_file
from nmt.text.languages import language_name, standard_code

SUFFIX = ".argosmodel"
VERSION = "1.0"  # of the package
ARGOS_VERSION = "1.9"  # of Argos Translate, which reads such a package
TEMPLATE = Path(__file__).parent / "templates" / "argos.md"


def export_argos(model: Model, output: Path, quantization: str | None, force: bool) -> None:
    """Write a translation model as a package file, which gets its name when it is complete.

    Raises:
        UserError: CTranslate2 or Argos Translate cannot compute what the model needs, or the output
            exists or is not a name of a package.
    """
    require_ctranslate2()
    check_supported(model_config(model.about.model))
    if output.suffix != SUFFIX:
        fix = f"choose a name that ends in {SUFFIX}"
        raise UserError("is not the name of a package", at=str(output), fix=fix)
    check_output_file(output, force)
    _check_fits(model)
    draft = temporary(output.absolute())
    try:
        with tempfile.TemporaryDirectory(dir=output.absolute().parent) as folder:
            write_engine(model, model.about, Path(folder), quantization)
            _write_package(model, Path(folder), draft)
        check_output_file(output, force)  # another process may have written it meanwhile
        draft.replace(output)
        sync_folder(output.absolute().parent)
    finally:
        draft.unlink(missing_ok=True)


def _check_fits(model: Model) -> None:
    segmenter, directions = model.segmenter, model.about.trained
    server = "serve it with nmt-serve, which answers the clients of LibreTranslate"
    if list(segmenter.files()) != [MODEL] or segmenter.moses.tokenized:
        raise UserError(
            "Argos Translate needs one SentencePiece model of plain text, and this model has "
            f"{segmenter.kind}{' of tokenized text' if segmenter.moses.tokenized else ''}",
            at=f"segment.kind: {segmenter.kind}",
            fix=f"train with segment.kind=sentencepiece on plain text, or {server}",
        )
    if directions.always_tagged or directions.tgt_tag_required or directions.default_tags:
        raise UserError(
            "Argos Translate cannot put a tag before a text, and this model needs one",
            at="data.train: tag, tgt_tag",
            fix=f"train a model of one direction without tags, or {server}",
        )


def _write_package(model: Model, folder: Path, output: Path) -> None:
    src, tgt = (standard_code(lang) for lang in (model.about.src, model.about.tgt))
    metadata = {
        "package_version": VERSION,
        "argos_version": ARGOS_VERSION,
        "from_code": src,
        "from_name": language_name(src),
        "to_code": tgt,
        "to_name": language_name(tgt),
    }
    name = f"translate-{src}_{tgt}-{VERSION.replace('.', '_')}"
    readme = Template(TEMPLATE.read_text(encoding="utf-8")).substitute(metadata)
    with zipfile.ZipFile(output, "x", zipfile.ZIP_DEFLATED) as package:
        package.writestr(f"{name}/metadata.json", json.dumps(metadata, indent=1) + "\n")
        package.writestr(f"{name}/README.md", readme)
        package.write(model.path / MODEL, f"{name}/sentencepiece.model")
        for file in ENGINE_FILES:
            package.write(folder / file, f"{name}/model/{file}")
