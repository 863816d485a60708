"""Segmenters: split text into pieces and join them, with learned or existing codes.

To add one: a subclass of ``Segmenter`` in a file of this package, one line in SEGMENTERS, and its
recipe keys in nmt/config/recipe.py.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nmt.data.bitext import Chunk
from nmt.data.segmenters.base import Segmenter, Whitespace
from nmt.data.segmenters.bpe import FastBpe
from nmt.data.segmenters.sentencepiece import SentencePiece
from nmt.data.vocab import Vocab
from nmt.errors import UserError
from nmt.runtime.files import file_digest, json_object, read_text, write_atomic
from nmt.text.tokenizer import Moses
from nmt.text.unicode import FORMS

SEGMENTERS: dict[str, type[Segmenter]] = {
    cls.kind: cls for cls in (FastBpe, SentencePiece, Whitespace)
}
FILE = "segmenter.json"
# The file keeps the first name of this kind, because checkpoints store a hash of the file.
_FILE_KINDS = {"whitespace": "plain"}
_KINDS = {stored: kind for kind, stored in _FILE_KINDS.items()}
# Unicode forms as the file of version 0.2 has them, for the same reason.
_OLD_FORMS: dict[str, dict[str, Any]] = {"none": {"nfc": False}, "nfc": {"nfc": True}}


def learn_segmenter(
    config: Any, tokenized: bool, normalize: str, text: Iterable[Chunk], progress: bool = False
) -> Segmenter:
    """Learn the segmentation of the recipe's ``segment``; see ``Segmenter.learn``."""
    moses = Moses(tokenized, normalize, exact=not tokenized)
    return SEGMENTERS[config.kind].learn(config, moses, text, progress)


def save_segmenter(segmenter: Segmenter, folder: Path) -> None:
    """Write the files of a segmenter into a folder, segmenter.json last.

    Raises:
        MachineError: the disk is full, or the folder is not writable.
    """
    for name, data in segmenter.files().items():
        write_atomic(folder / name, data)
    write_atomic(folder / FILE, _description(segmenter))


def segmenter_hash(segmenter: Segmenter) -> str:
    """Return the SHA-256 of segmenter.json, which has the hashes of all other files."""
    return hashlib.sha256(_description(segmenter).encode()).hexdigest()


def text_hash(vocab: Vocab, segmenter: Segmenter) -> str:
    """Compute the SHA-256 of vocabulary and segmenter, which give ids their meaning."""
    parts = vocab.hash + segmenter_hash(segmenter)
    return hashlib.sha256(parts.encode()).hexdigest()


def load_segmenter(folder: Path) -> Segmenter:
    """Read what ``save_segmenter`` wrote.

    Raises:
        UserError: a file is missing or damaged, or has changed since.
    """
    try:
        metadata = json_object(read_text(folder / FILE))
        form = metadata.get("normalize") or ("none", "nfc")[metadata["nfc"]]
        if form not in FORMS:
            raise ValueError(f"normalize: {form!r} is not one of {', '.join(FORMS)}")
        moses = Moses(metadata["tokenised"], form, metadata.get("exact", False))
        for name, digest in metadata["sha256"].items():
            if file_digest(folder / Path(name).name) != digest:
                raise ValueError(f"{name} has changed since it was written")
        kind = _KINDS.get(metadata["kind"], metadata["kind"])
        return SEGMENTERS[kind].load(folder, moses, metadata)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"the segmenter cannot be read: {error}",
            at=str(folder / FILE),
            fix="restore the files that nmt-train wrote",
        ) from error


def _description(segmenter: Segmenter) -> str:
    metadata = {
        "kind": _FILE_KINDS.get(segmenter.kind, segmenter.kind),
        "tokenised": segmenter.moses.tokenized,  # the spelling of the file format
        **_OLD_FORMS.get(segmenter.moses.form, {"normalize": segmenter.moses.form}),
        **({"exact": True} if segmenter.moses.exact else {}),
        "sha256": {
            name: hashlib.sha256(data).hexdigest() for name, data in segmenter.files().items()
        },
        **segmenter.metadata(),
    }
    return json.dumps(metadata, indent=1) + "\n"
