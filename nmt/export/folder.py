"""The exported folder: what CTranslate2 or this toolkit needs to translate.

The folder refers to no file outside, so it can be moved and copied. ::

    DIR/model.bin, config.json, shared_vocabulary.json    CTranslate2's model
    DIR/segmenter.json and the files it names, vocab.txt  text to pieces and back
    DIR/nmt.json                                          languages and settings
    DIR/SHA256SUMS                                        hashes of the files above
    DIR/README.md, translate.py, and the modules it uses  use without this toolkit
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from string import Template
from typing import Any

from nmt.config.recipe import DecodeConfig
from nmt.data import unicode
from nmt.data.languages import base_language
from nmt.data.segmenters import Segmenter, save_segmenter
from nmt.data.vocab import BOS, PAD
from nmt.decoding.translator import Translator
from nmt.errors import UserError
from nmt.export.spec import (
    LONGEST_SOURCE,
    SPECIALS,
    TYPICAL_LENGTH,
    build_spec,
    check_supported,
    ctranslate2_length_penalty,
    largest_offset,
    length_penalty_formula,
    require_ctranslate2,
)
from nmt.run.folder import EXPORT_FILE
from nmt.runtime.files import atomic_folder, file_digest, read_text, write_atomic
from nmt.runtime.memory import require_room
from nmt.version import __version__

SUMS = "SHA256SUMS"
ENGINE_FILES = ("model.bin", "config.json", "shared_vocabulary.json")  # CTranslate2 reads them
_SUM = re.compile(r"([0-9a-f]{64})  ([\w.-]+)")
_EXPORT_AGAIN = "export the run again with nmt-export, or copy the folder again"
TEMPLATES = Path(__file__).with_name("templates")
TEXT_MODULES = Path(unicode.__file__).parent
_BPE_NOTE = "- translate.py does not protect `@@` in the text.\n"


@dataclass(frozen=True)
class Metadata:
    """The contents of nmt.json. The exported ``translate.py`` reads it too.

    Attributes:
        version: of this toolkit.
        src, tgt: language codes, for the tokenizer's rules.
        quantization: CTranslate2's type of the stored weights; None = fp32.
        segmentation: ``kind`` of the segmenter; whether training text was ``tokenized``; Unicode
            form of the input (``data.normalize``); whether words are ``exact``
            (``nmt.data.moses``); whether the segmenter has ``byte_fallback``, and gets text
            ``raw``.
        decode: the recipe's ``decode`` keys.
        largest_offset: the highest ``max_len_offset`` for which there are positions.
        length_penalty: CTranslate2's length penalty that is closest to that of ``decode``.
        suppressed_tokens: tokens that must not be produced, in addition to UNK.
        tags: what a source may begin with, such as ``<bt>``; its token has a space before it.
        tgt_tags: what a target may begin with.
        tag_targets: target language of the tags for which it is not ``tgt``; "" = no tag. That of
            the target decides, or that of the source if there is none.
        always_tagged: whether a tag was before each source of the training data.
        tgt_tag_required: whether all targets of the training data began with tags, of several.
        default_tags: ``tag`` and ``tgt_tag`` of all training data, if it had only one.
        sources: source languages of the training data, for the tokenizer's rules; empty = unknown.
        rules: code by which sacremoses knows each language of the model, for translate.py.
        usual_line: the fields of the ``UsualLine`` of the training data; empty = not known.
    """

    version: str
    src: str
    tgt: str
    quantization: str | None
    decode: dict[str, Any]
    suppressed_tokens: list[str]
    segmentation: dict[str, Any]
    largest_offset: int
    length_penalty: float
    tags: list[str] = field(default_factory=list)
    tag_targets: dict[str, str] = field(default_factory=dict)
    always_tagged: bool = False
    tgt_tags: list[str] = field(default_factory=list)
    tgt_tag_required: bool = False
    default_tags: dict[str, str] = field(default_factory=dict)
    sources: list[str] = field(default_factory=list)
    rules: dict[str, str] = field(default_factory=dict)
    usual_line: dict[str, Any] = field(default_factory=dict)

    @property
    def decode_config(self) -> DecodeConfig:
        """``decode`` as the recipe's part."""
        return DecodeConfig.model_validate(self.decode)


def export(
    translator: Translator, output: Path, quantization: str | None = None, force: bool = False
) -> None:
    """Write a model as a folder for CTranslate2. The folder gets its name when it is complete.

    Args:
        translator: of a run folder, on any device.
        quantization: one of CTranslate2's types; None = fp32.
        force: replace an exported folder of this name.

    Raises:
        UserError: CTranslate2 is not installed or does not support the model, or ``check_output``
            rejects the output.
    """
    require_ctranslate2()
    check_supported(translator.transformer.config)
    check_output(output, force)
    with output_folder(output, force) as folder:
        write_folder(translator, folder, quantization)


def write_folder(translator: Translator, folder: Path, quantization: str | None) -> None:
    """Write the exported files of a model into an empty folder."""
    from nmt.export.fold import fold

    model, codec, info = translator.transformer, translator.codec, translator.info
    vocab, segmenter, decode = codec.vocab, codec.segmenter, info.decode
    config, weights = fold(model.state_dict(), model.config, model.allowed)
    types = vocab.pieces(range(len(SPECIALS), len(vocab)))
    offset = largest_offset(decode, config)
    spec = build_spec(config, weights, types, LONGEST_SOURCE + offset)
    spec.optimize(quantization)
    spec.save(str(folder))
    vocab.save(folder)
    save_segmenter(segmenter, folder)
    hidden = {i: SPECIALS[i] for i in (PAD, BOS)}  # types that no output shows
    hidden |= dict(zip(vocab.reserved_ids, vocab.pieces(vocab.reserved_ids), strict=True))
    sources = list(info.sources or [codec.src])
    languages = {codec.src, codec.tgt, *sources, *codec.tag_targets.values()}
    metadata = Metadata(
        version=__version__,
        src=codec.src,
        tgt=codec.tgt,
        quantization=quantization,
        decode=decode.model_dump(),
        suppressed_tokens=[name for i, name in hidden.items() if model.allowed[i]],
        segmentation={
            "kind": segmenter.kind,
            "tokenized": segmenter.moses.tokenized,
            "normalize": segmenter.moses.form,
            "exact": segmenter.moses.exact,
            "byte_fallback": bool(segmenter.alphabet()),
            "raw": bool(segmenter.metadata().get("raw")),
        },
        largest_offset=offset,
        length_penalty=ctranslate2_length_penalty(decode),
        tags=vocab.tags,
        tag_targets=dict(codec.tag_targets),
        always_tagged=info.always_tagged,
        tgt_tags=vocab.tgt_tags,
        tgt_tag_required=info.tgt_tag_required,
        default_tags=dict(info.default_tags),
        sources=sources,
        rules={lang: base_language(lang) for lang in sorted(languages)},
        usual_line=asdict(codec.usual),
    )
    (folder / EXPORT_FILE).write_text(
        json.dumps(asdict(metadata), indent=1) + "\n", encoding="utf-8"
    )
    write_hashes(folder)
    readme = _readme(segmenter, metadata, LONGEST_SOURCE + offset)
    (folder / "README.md").write_text(readme, encoding="utf-8")
    shutil.copyfile(TEMPLATES / "translate.py", folder / "translate.py")
    for name in ("unicode.py", "moses.py", "sentences.py"):
        shutil.copyfile(TEXT_MODULES / name, folder / name)


def check_output(output: Path, force: bool, marker: str = EXPORT_FILE) -> None:
    """Check that a folder can be written here without deleting other files.

    Args:
        marker: the file by which an exported folder of this format is known.

    Raises:
        UserError: the output exists and is not an exported folder, or it is one and ``force`` is
            false.
    """
    if not os.path.lexists(output):
        return
    is_same = (output / marker).is_file()
    replaceable = output.is_dir() and (is_same or not any(output.iterdir()))
    if not replaceable:
        what = "exists and is not an exported model"
        raise UserError(what, at=str(output), fix="choose another folder")
    if not force:
        fix = "choose another folder, or add --force to replace it"
        raise UserError("exists already", at=str(output), fix=fix)


@contextlib.contextmanager
def output_folder(output: Path, force: bool, marker: str = EXPORT_FILE) -> Iterator[Path]:
    """Yield a new folder, which gets the name ``output`` when the block ends without an error.

    Parents of the output are created.

    Raises:
        UserError: as ``check_output``, if another process has written the output meanwhile.
    """
    output.absolute().parent.mkdir(parents=True, exist_ok=True)
    with atomic_folder(output.absolute(), replace=force) as folder:
        yield folder
        check_output(output, force, marker)


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


def _readme(segmenter: Segmenter, metadata: Metadata, positions: int) -> str:
    template = Template((TEMPLATES / "README.md").read_text(encoding="utf-8"))
    text = template.substitute(
        src=metadata.src,
        tgt=metadata.tgt,
        quantization=metadata.quantization or "fp32",
        packages=" ".join(packages(segmenter)),
        segmenter_files=", ".join(f"`{name}`" for name in ("segmenter.json", *segmenter.files())),
        positions=f"{positions:,}",
        recipe_penalty=length_penalty_formula(metadata.decode_config),
        length_penalty=metadata.length_penalty,
        typical_length=TYPICAL_LENGTH,
        bpe_note=_BPE_NOTE if segmenter.kind == "fastbpe" else "",
    )
    return text.rstrip() + "\n"


# ---------------------------------------------------------------- reading and checking it


def read_metadata(folder: Path) -> Metadata:
    """Read nmt.json.

    Raises:
        UserError: the file is damaged, or another version wrote other settings into it.
    """
    path = folder / EXPORT_FILE
    try:
        metadata = Metadata(**json.loads(read_text(path)))
        metadata.decode_config  # noqa: B018  an error if it is damaged
        return metadata
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise UserError(
            f"cannot be read: {str(error).splitlines()[0]}",
            at=str(path),
            fix="export the run again with nmt-export",
        ) from error


def write_hashes(folder: Path) -> None:
    """Write SHA256SUMS of all files of a folder."""
    lines = [f"{file_digest(file)}  {file.name}\n" for file in sorted(folder.iterdir())]
    write_atomic(folder / SUMS, "".join(lines))


def verify_files(folder: Path) -> str:
    """Compare the files of an exported folder with SHA256SUMS; return the hash of model.bin.

    Without SHA256SUMS, which a user may delete, they are not compared. What CTranslate2 reads must
    be regular files in any case.

    Raises:
        UserError: a file is missing, is not a regular file, or is not the one that was exported.
    """
    with contextlib.suppress(OSError):
        require_room(folder / "model.bin", (folder / "model.bin").stat().st_size)
    digests = {name: _digest(folder / name) for name in ENGINE_FILES}
    sums = folder / SUMS
    if not sums.exists():
        return digests["model.bin"]
    expected = {}
    for number, line in enumerate(read_text(sums, errors="replace").splitlines(), 1):
        match = _SUM.fullmatch(line)
        if match is None:
            raise UserError("not a SHA-256 and a name", at=f"{sums}:{number}", fix=_EXPORT_AGAIN)
        expected[match[2]] = match[1]
    for name in {EXPORT_FILE, *ENGINE_FILES} - expected.keys():
        raise UserError(f"does not list {name}", at=str(sums), fix=_EXPORT_AGAIN)
    for name, digest in expected.items():
        if (digests.get(name) or _digest(folder / name)) != digest:
            raise UserError(
                f"damaged or edited: its SHA-256 is not the one in {SUMS}",
                at=str(folder / name),
                fix=f"{_EXPORT_AGAIN}; to use a file that you edited, delete {SUMS}",
            )
    return digests["model.bin"]


def _digest(path: Path) -> str:
    try:
        return file_digest(path)
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise UserError(what, at=str(path), fix=_EXPORT_AGAIN) from error
