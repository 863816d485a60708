"""Settings and hashes of an exported folder.

nmt.json has the settings that the files of CTranslate2 do not contain. SHA256SUMS has the hash of
each file that decides what is translated, in the format of the command sha256sum.
"""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nmt.config.recipe import DecodeConfig
from nmt.errors import UserError
from nmt.run.folder import EXPORT_FILE
from nmt.runtime.files import file_digest, read_text, write_atomic
from nmt.runtime.memory import require_room

SUMS = "SHA256SUMS"
ENGINE_FILES = ("model.bin", "config.json", "shared_vocabulary.json")  # CTranslate2 reads them
_SUM = re.compile(r"([0-9a-f]{64})  ([\w.-]+)")
_EXPORT_AGAIN = "export the run again with nmt-export, or copy the folder again"


@dataclass(frozen=True)
class Metadata:
    """The contents of nmt.json. The exported ``translate.py`` reads it too.

    Attributes:
        version: of this toolkit.
        src, tgt: language codes, for the tokenizer's rules.
        quantization: CTranslate2's type of the stored weights; None = fp32.
        segmentation: ``kind`` of the segmenter; whether training text was ``tokenized``; Unicode
            form of the input (``data.normalize``); whether words are ``exact``
            (``nmt.data.moses``); whether the segmenter has ``byte_fallback``, and
            gets text ``raw``.
        decode: the recipe's ``decode`` keys.
        length_penalty: CTranslate2's length penalty that is closest to ``decode.length_alpha``.
        suppressed_tokens: tokens that must not be produced, in addition to UNK.
        tags: what a source may begin with, such as ``<bt>``; its token has a space before it.
        tag_targets: target language of the tags for which it is not ``tgt``; "" = no tag.
        always_tagged: whether a tag was before each source of the training data.
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
    length_penalty: float
    tags: list[str] = field(default_factory=list)
    tag_targets: dict[str, str] = field(default_factory=dict)
    always_tagged: bool = False
    sources: list[str] = field(default_factory=list)
    rules: dict[str, str] = field(default_factory=dict)
    usual_line: dict[str, Any] = field(default_factory=dict)

    @property
    def decode_config(self) -> DecodeConfig:
        """Return ``decode`` as the recipe's part."""
        return DecodeConfig.model_validate(self.decode)


def read_metadata(folder: Path) -> Metadata:
    """Return the contents of nmt.json.

    Raises:
        UserError: the file is damaged, or another version wrote other settings into it.
    """
    path = folder / EXPORT_FILE
    try:
        values = json.loads(read_text(path))
        metadata = Metadata(**values)
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
    found = {name: _digest(folder / name) for name in ENGINE_FILES}
    sums = folder / SUMS
    if not sums.exists():
        return found["model.bin"]
    expected = {}
    for number, line in enumerate(read_text(sums, errors="replace").splitlines(), 1):
        match = _SUM.fullmatch(line)
        if match is None:
            raise UserError("not a SHA-256 and a name", at=f"{sums}:{number}", fix=_EXPORT_AGAIN)
        expected[match[2]] = match[1]
    for name in {EXPORT_FILE, *ENGINE_FILES} - expected.keys():
        raise UserError(f"does not list {name}", at=str(sums), fix=_EXPORT_AGAIN)
    for name, digest in expected.items():
        if (found.get(name) or _digest(folder / name)) != digest:
            raise UserError(
                f"damaged or edited: its SHA-256 is not the one in {SUMS}",
                at=str(folder / name),
                fix=f"{_EXPORT_AGAIN}; to use a file that you edited, delete {SUMS}",
            )
    return found["model.bin"]


def _digest(path: Path) -> str:
    try:
        return file_digest(path)
    except OSError as error:
        raise UserError(
            f"cannot be read: {error.strerror}", at=str(path), fix=_EXPORT_AGAIN
        ) from error
