"""nmt.json of an exported folder: settings that the files of CTranslate2 do not contain."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nmt.config.recipe import DecodeConfig
from nmt.errors import UserError
from nmt.run.folder import EXPORT_FILE


@dataclass(frozen=True)
class Metadata:
    """The contents of nmt.json. The exported ``translate.py`` reads it too.

    Attributes:
        version: of this toolkit.
        src, tgt: language codes, for the tokenizer's rules.
        quantization: CTranslate2's type of the stored weights; None = fp32.
        segmentation: ``kind`` of the segmenter; whether training text was ``tokenized``; Unicode
            form of the input (``data.normalize``); whether words are ``exact``
            (``nmt.data.moses``); whether the segmenter has ``byte_fallback``.
            Empty in a folder that version 0.2 wrote.
        decode: the recipe's ``decode`` keys.
        length_penalty: CTranslate2's length penalty that is closest to ``decode.length_alpha``.
            None in a folder that version 0.2 wrote.
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
    length_penalty: float | None
    tags: list[str] = field(default_factory=list)
    tag_targets: dict[str, str] = field(default_factory=dict)
    always_tagged: bool = False
    sources: list[str] = field(default_factory=list)
    rules: dict[str, str] = field(default_factory=dict)
    usual_line: dict[str, Any] = field(default_factory=dict)


def read_metadata(folder: Path) -> tuple[Metadata, DecodeConfig]:
    """Return the contents of nmt.json, and its decode settings as a DecodeConfig.

    Raises:
        UserError: the file is damaged, or another version wrote other settings into it.
    """
    path = folder / EXPORT_FILE
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if "never" in values:  # written by version 0.2
            values["suppressed_tokens"] = values.pop("never")
            values |= {"segmentation": {}, "length_penalty": None}
        metadata = Metadata(**values)
        return metadata, DecodeConfig.model_validate(metadata.decode)
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise UserError(
            f"cannot be read: {str(error).splitlines()[0]}",
            at=str(path),
            fix="export the run again with nmt-export",
        ) from error
