"""nmt.json of an exported folder: what CTranslate2's own files do not say."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.config.recipe import DecodeConfig
from nmt.errors import UserError

METADATA = "nmt.json"


@dataclass(frozen=True)
class Metadata:
    """The contents of nmt.json.

    Attributes:
        src, tgt: languages, for the tokenizer's rules.
        decode: the recipe's settings.
        never: tokens that must not be produced, beside UNK.
        quantization: of the stored weights, None = fp32.
        version: of this toolkit.
    """

    src: str
    tgt: str
    decode: dict[str, Any]
    never: list[str]
    quantization: str | None
    version: str


def is_export(folder: Path) -> bool:
    """Whether a folder looks like one that nmt-export wrote."""
    return (folder / METADATA).is_file()


def read_metadata(folder: Path) -> tuple[Metadata, DecodeConfig]:
    """nmt.json, and its decode settings as such.

    Raises:
        UserError: it is damaged, or of another version with other settings.
    """
    path = folder / METADATA
    try:
        facts = Metadata(**json.loads(path.read_text(encoding="utf-8")))
        return facts, DecodeConfig.model_validate(facts.decode)
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise UserError(
            f"cannot be read: {str(error).splitlines()[0]}",
            at=str(path),
            fix="export the run again with nmt-export",
        ) from error
