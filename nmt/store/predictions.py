"""Find runs whose perplexities are not comparable, because they predict different tokens."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from nmt.config.load import changed_keys
from nmt.data.cache import NOISE_KEYS
from nmt.data.vocab import Vocab
from nmt.errors import UserError
from nmt.store.folder import RunFolder

# keys that decide what a model predicts, besides the group segment
PREDICTIONS = ("task", "data.block", "data.tokenized", "data.normalize")
VOCABULARY = "vocabulary"


def different_predictions(folders: Sequence[str | Path]) -> list[str]:
    """Return the keys that make the predictions of runs differ, or VOCABULARY, or nothing.

    The same keys can give another vocabulary, because it is learned from the training text.
    """
    if len(folders) < 2:
        return []
    runs = [RunFolder(folder) for folder in folders]
    first, *others = (run.recipe() for run in runs)
    noise = [f"segment.{key}" for key in NOISE_KEYS]
    changed = [key for other in others for key in changed_keys(first, other) if key not in noise]
    names = ("segment" if key.startswith("segment.") else key for key in changed)
    if keys := [key for key in dict.fromkeys(names) if key in ("segment", *PREDICTIONS)]:
        return keys
    vocabularies: set[frozenset[str]] = set()
    for run in runs:
        with contextlib.suppress(UserError):
            vocab = Vocab.load(run.text_dir)
            types = vocab.pieces(range(len(vocab)))
            vocabularies.add(frozenset(types).difference(vocab.pieces(vocab.reserved_ids)))
    return [VOCABULARY] if len(vocabularies) > 1 else []


def not_comparable(what: str, differ: Sequence[str]) -> str:
    """Return a note on runs (``what``) that ``different_predictions`` tells apart."""
    return (
        f"the {what} differ in {', '.join(differ)}: they predict other tokens, so their ppl does "
        "not compare"
    )
