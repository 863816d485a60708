"""The cache of prepared data: a folder named by a hash of everything that determines it."""

from __future__ import annotations

import atexit
import hashlib
import importlib.metadata
import json
import os
import shutil
import sys
import tempfile
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt.data import checks
from nmt.data.bitext import held_out_entries
from nmt.data.segmenters import Segmenter, segmenter_hash
from nmt.runtime.files import AGAIN, atomic_folder, clear_drafts, disk_errors

if TYPE_CHECKING:
    from nmt.config.recipe import Recipe
    from nmt.data.vocab import Vocab

VERSION = "9"  # of the format and of Moses' rules; after a change, old caches are not used
NOISE_KEYS = ("dropout", "sampling_alpha", "draws")
PACKAGES = ("sacremoses", "sentencepiece", "subword-nmt")  # their versions decide how text is split


def versions() -> dict[str, str]:
    """Return the versions of what decides how text is split: packages, and Unicode's tables."""
    found = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {**found, "Unicode": unicodedata.unidata_version}


def data_hash(
    recipe: Recipe,
    content: Mapping[str, list[str]],
    segmenter: Segmenter | None,
    vocab: Vocab | None = None,
) -> str:
    """Return the SHA-256 of everything that determines the prepared data.

    That is the content of the files by role, some keys of the recipe, and the versions of the
    checks and of what splits the text. Paths are not part of it, so a corpus may move.
    """
    data, segment = recipe.data, recipe.segment
    is_learned = bool(segment.file_key) and segment.file is None
    parts = {
        "version": VERSION,
        "checks": checks.VERSION,
        "versions": versions(),
        "content": content,
        "segmenter": segmenter and segmenter_hash(segmenter),
        "languages": [recipe.src, recipe.tgt],
        "segment": segment.model_dump(exclude={"codes", "model", "learn_from", *NOISE_KEYS}),
        "data": [data.tokenized, data.max_len, data.max_pieces, data.normalize],
        **_entry_parts(recipe, learned=segmenter is None and is_learned),
    }
    if vocab is not None:
        parts["vocab"] = vocab.hash
    if recipe.has_noise:
        augment = {kind: share for kind, share in data.augment.items() if share}
        noise = {name: getattr(segment, name, None) for name in NOISE_KEYS}
        parts["noise"] = noise | {"augment": augment}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _entry_parts(recipe: Recipe, learned: bool) -> dict[str, Any]:
    """Return the settings of entries that change the data; nothing for path prefixes alone.

    ``learned``: the segmentation is learned, on the weighted mixture of the entries.
    """
    data = recipe.data
    parts: dict[str, Any] = {}
    entries = {
        role: [
            [*e.langs(recipe), e.direction(recipe).tag, e.is_tokenized(data)] for e in role_entries
        ]
        for role, role_entries in data.entries.items()
    }
    plain = [recipe.src, recipe.tgt, None, data.tokenized]
    if any(entry != plain for role_entries in entries.values() for entry in role_entries):
        parts["entries"] = entries
    if any(entry.tgt_tag for entry in data.train):
        parts["tgt_tags"] = {
            role: [entry.direction(recipe).tgt_tag for entry in role_entries]
            for role, role_entries in data.entries.items()
        }
    dev, test = list(held_out_entries(recipe, "dev")), list(held_out_entries(recipe, "test"))
    if (dev, test) not in ((["dev"], ["test"]), (["dev"], [])):
        parts["sets"] = {"dev": dev, "test": test}
    if learn_from := recipe.segment.learning_entries:
        parts["learn_from"] = [
            [*e.langs(recipe), e.weight, e.is_tokenized(data)] for e in learn_from if learned
        ]
    weights = [entry.weight for entry in data.train]
    if data.temperature != 1 or any(weight != 1 for weight in weights):
        # without learning, it only matters that the rows of each entry are counted
        parts["weights"] = [data.temperature, weights] if learned else True
    return parts


def build_cache(folder: Path, size: int, build: Callable[[Path], None]) -> Path:
    """Create a cache folder, complete or not at all.

    Leftovers of killed processes are removed first.

    Args:
        size: estimated bytes, for the message about a full disk.
        build: writes the files into an empty folder.

    Returns:
        The folder. If it cannot be written, a temporary folder, which is removed when the process
        ends.

    Raises:
        MachineError: the disk is full.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent):
            pass
    except OSError as error:
        elsewhere = Path(tempfile.mkdtemp(prefix="nmt-data-"))
        atexit.register(shutil.rmtree, elsewhere, ignore_errors=True)
        print(
            f"note: {folder.parent}: {error.strerror}; preparing in {elsewhere}, which is removed "
            "when the command ends",
            file=sys.stderr,
        )
        folder = elsewhere / folder.name
    with disk_errors(folder, size, again=AGAIN):
        clear_drafts(folder.parent)
        try:
            with atomic_folder(folder) as draft:
                build(draft)
        except FileExistsError:
            if not os.path.isdir(folder):  # otherwise another process was faster
                raise
    return folder
