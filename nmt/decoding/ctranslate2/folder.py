"""A model for CTranslate2: its folder in a model, and a model with all that other programs need.

``MODEL/ctranslate2`` is written when a run ends, or when it is first needed. ::

    MODEL/ctranslate2/model.bin, config.json, shared_vocabulary.json    CTranslate2 reads them
    MODEL/ctranslate2/manifest.json                                     an ``EngineFiles``

nmt-export writes a model with such a folder, of which the weights may be quantized, and without
weights for torch. In addition::

    DIR/README.md, translate.py, and the modules it uses    use without this toolkit
    DIR/translate.json                                      what translate.py needs of the model
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from string import Template

from pydantic import TypeAdapter, ValidationError

from nmt.config.model import model_config
from nmt.data.segmenters import Segmenter
from nmt.decoding.codec import TextCodec
from nmt.decoding.ctranslate2.engine import CTranslate2Engine, temporary_folder
from nmt.decoding.ctranslate2.spec import (
    LONGEST_SOURCE,
    TYPICAL_LENGTH,
    check_supported,
    ctranslate2_length_penalty,
    hidden_tokens,
    largest_offset,
    length_penalty_formula,
    require_ctranslate2,
    save_model,
)
from nmt.errors import UserError
from nmt.runtime.files import LARGE, atomic_folder, file_digest, read_text, write_synced
from nmt.store.manifest import MANIFEST, FileEntry, foreign, read_small, require_verified
from nmt.store.model import (
    Description,
    Model,
    check_output,
    complete,
    output_folder,
    save_text,
)
from nmt.text import unicode
from nmt.text.languages import base_language, sentence_space

FOLDER = "ctranslate2"
ENGINE_FILES = ("model.bin", "config.json", "shared_vocabulary.json")
SETTINGS = "translate.json"
TEMPLATES = Path(__file__).with_name("templates")
TEXT_MODULES = Path(unicode.__file__).parent
_BPE_NOTE = "- translate.py does not protect `@@` in the text.\n"


@dataclass(frozen=True)
class EngineFiles:
    """manifest.json of a folder for CTranslate2.

    Attributes:
        model: SHA-256 of what it was made from, see ``_source``.
        quantization: CTranslate2's type of the stored weights; None = fp32.
    """

    model: str
    quantization: str | None
    files: dict[str, FileEntry]


_ENGINE_FILES = TypeAdapter(EngineFiles)


def _function_hash(about: Description) -> str:
    """Return the SHA-256 of what decides the function of a model."""
    values = about.of_recipe() | {"files": {n: f.sha256 for n, f in about.files.items()}}
    del values["decode.quantization"]  # applies when the files are loaded
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def prepare_engine(model: Model) -> EngineFiles:
    """Verify the folder of a model for CTranslate2, and make it if it is missing or damaged.

    Raises:
        UserError: CTranslate2 is not installed or does not support the model, or the folder is
            damaged and the model has no weights.
        OSError: the folder must be made, and cannot be written.
    """
    folder = model.path / FOLDER
    try:
        return _verified(model, folder)
    except UserError:
        if not model.has_weights:
            raise
    check_supported(model_config(model.about.model))  # before torch is imported
    with atomic_folder(folder, replace=True) as draft:
        return write_engine(model, model.about, draft)


def _verified(model: Model, folder: Path) -> EngineFiles:
    path = folder / MANIFEST
    try:
        manifest = _ENGINE_FILES.validate_json(read_small(path))
    except ValidationError as error:
        raise foreign(path, "its content is not a manifest") from error
    if manifest.model != _function_hash(model.about) or manifest.files.keys() != set(ENGINE_FILES):
        what = "belongs to a different model (model.json has changed)"
        raise UserError(what, at=str(folder), fix="delete this folder, or export the model again")
    for name, entry in manifest.files.items():
        require_verified(folder / name, entry)
    return manifest


def write_engine(
    model: Model, about: Description, folder: Path, quantization: str | None = None
) -> EngineFiles:
    """Write a model for CTranslate2 into an empty folder; return its manifest.

    Args:
        about: of the model that the folder is for.
        quantization: one of CTranslate2's types; None = fp32.
    """
    import torch

    from nmt.store.tensors import read_weights

    config, allowed = model_config(about.model), torch.from_numpy(model.allowed)
    weights = read_weights(model)
    save_model(folder, weights, config, allowed, model.vocab, about.decode, quantization)
    files = {
        n: FileEntry((folder / n).stat().st_size, file_digest(folder / n)) for n in ENGINE_FILES
    }
    manifest = EngineFiles(_function_hash(about), quantization, files)
    write_synced(folder / MANIFEST, _ENGINE_FILES.dump_json(manifest, indent=1) + b"\n")
    return manifest


def load_ctranslate2_engine(
    model: Model, codec: TextCodec, device: str, workers: int, quantization: str | None = None
) -> CTranslate2Engine:
    """Load a model for CTranslate2; see ``prepare_engine``.

    If the folder of the model cannot be written, a temporary one is made.

    Args:
        device: auto, cpu, cuda or cuda:N, as CTranslate2 numbers them.
        quantization: fp32 or int8; None = that of the stored weights if they are quantized, else
            ``decode.quantization``.

    Raises:
        UserError: CTranslate2 is not installed or does not support the model, or a file is missing
            or damaged.
        MachineError: no folder can be written.
    """
    decode, config = model.about.decode, model_config(model.about.model)
    with contextlib.ExitStack() as temporary:
        folder = model.path / FOLDER
        try:
            files = prepare_engine(model)
        except OSError as error:
            print(
                f"note: {folder} cannot be written ({error.strerror}), so each start converts the "
                "model again; make the folder writable once, or run: nmt-export "
                f"{model.path} -o DIR",
                file=sys.stderr,
            )
            folder = temporary.enter_context(temporary_folder())
            files = write_engine(model, model.about, folder)
        digest = files.files["model.bin"].sha256
        kind = quantization or ("default" if files.quantization else decode.quantization)
        offset = largest_offset(decode, config)
        try:
            tokens = json.loads(read_text(folder / "shared_vocabulary.json", LARGE))
            engine = CTranslate2Engine(
                folder, codec, model.allowed, offset, device, workers, digest, kind
            )
            if tokens != engine.tokens:
                raise ValueError("vocab.txt and shared_vocabulary.json differ")
        except (OSError, ValueError, RuntimeError, RecursionError) as error:
            raise UserError(
                f"CTranslate2's model cannot be read: {error}",
                at=str(folder),
                fix="delete this folder, or export the model again",
            ) from error
        if files.quantization:
            print(
                f"note: the weights are stored in {files.quantization}; CTranslate2 computes in "
                f"{engine.translator.compute_type} on this {engine.device}",
                file=sys.stderr,
            )
    return engine


# --- for other programs -------------------------------------------------------------------------


def export(
    model: Model, output: Path, quantization: str | None = None, force: bool = False
) -> None:
    """Write a model as a folder for CTranslate2. The folder gets its name when it is complete.

    Args:
        quantization: one of CTranslate2's types; None = fp32.
        force: replace a model of this name.

    Raises:
        UserError: CTranslate2 is not installed or does not support the model, or ``check_output``
            rejects the output.
    """
    require_ctranslate2()
    check_supported(model_config(model.about.model))
    check_output(output, force)
    with output_folder(output, force) as folder:
        write_export(model, folder, quantization)


def write_export(model: Model, folder: Path, quantization: str | None) -> None:
    """Write the exported files of a model into an empty folder; they search by stop rule count."""
    decode = model.about.decode.model_copy(update={"stop_rule": "count"})
    about, segmenter = replace(model.about, decode=decode), model.segmenter
    save_text(folder, model.vocab, segmenter)
    directions = about.trained
    languages = {about.src, about.tgt, *directions.sources, *directions.tag_targets.values()}
    settings = {
        "suppressed_tokens": hidden_tokens(model.vocab, model.allowed),
        "segmentation": {
            "kind": segmenter.kind,
            "tokenized": segmenter.moses.tokenized,
            "normalize": segmenter.moses.form,
            "exact": segmenter.moses.exact,
            "byte_fallback": bool(segmenter.alphabet()),
            "raw": bool(segmenter.metadata().get("raw")),
        },
        # the closest that CTranslate2 has
        "length_penalty": ctranslate2_length_penalty(about.decode),
        "tags": model.vocab.tags,
        "tgt_tags": model.vocab.tgt_tags,
        "tag_targets": directions.tag_targets,
        "always_tagged": directions.always_tagged,
        "tgt_tag_required": directions.tgt_tag_required,
        "default_tags": directions.default_tags,
        "sources": directions.sources,
        # code by which sacremoses knows each language
        "rules": {lang: base_language(lang) for lang in sorted(languages)},
        # what stands between two sentences
        "spaces": {lang: sentence_space(lang) for lang in sorted(languages)},
    }
    text = json.dumps(settings, indent=1, ensure_ascii=False) + "\n"
    (folder / SETTINGS).write_text(text, encoding="utf-8")
    complete(folder, about)
    (folder / FOLDER).mkdir()
    write_engine(model, Model.open(folder).about, folder / FOLDER, quantization)
    (folder / "README.md").write_text(_readme(model, quantization), encoding="utf-8")
    shutil.copyfile(TEMPLATES / "translate.py", folder / "translate.py")
    for name in ("unicode.py", "moses.py", "sentences.py"):
        shutil.copyfile(TEXT_MODULES / name, folder / name)


def packages(segmenter: Segmenter) -> list[str]:
    """List the Python packages that translate.py needs."""
    needed = ["ctranslate2", "regex"]
    if segmenter.kind == "sentencepiece":
        needed.append("sentencepiece")
    if segmenter.kind != "sentencepiece" or segmenter.moses.tokenized:
        needed.append("sacremoses")
    if segmenter.kind == "fastbpe":
        needed.append("subword-nmt")
    return needed


def _readme(model: Model, quantization: str | None) -> str:
    about, segmenter = model.about, model.segmenter
    template = Template((TEMPLATES / "README.md").read_text(encoding="utf-8"))
    positions = LONGEST_SOURCE + largest_offset(about.decode, model_config(about.model))
    text = template.substitute(
        src=about.src,
        tgt=about.tgt,
        quantization=quantization or "fp32",
        packages=" ".join(packages(segmenter)),
        segmenter_files=", ".join(f"`{name}`" for name in ("segmenter.json", *segmenter.files())),
        positions=f"{positions:,}",
        recipe_penalty=length_penalty_formula(about.decode),
        length_penalty=ctranslate2_length_penalty(about.decode),
        typical_length=TYPICAL_LENGTH,
        bpe_note=_BPE_NOTE if segmenter.kind == "fastbpe" else "",
    )
    return text.rstrip() + "\n"
