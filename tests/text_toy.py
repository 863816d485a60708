"""Text that a language model learns in seconds: words in the order of a circle."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import yaml

from tests.toy import write_lines

SPLITS = {"train": 240, "dev": 12, "test": 12}
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
LM_RECIPE: dict[str, Any] = {
    "src": "en",
    "device": "cpu",
    "precision": "fp32",
    "data": {"tokenized": True, "batch_tokens": 64, "block": 16, "checks": "off"},
    "segment": {"kind": "whitespace"},
    "model": {"dim": 16, "ffn_dim": 32, "heads": 2, "dropout": 0.1, "word_dropout": 0.0},
    "optim": {"label_smoothing": 0.0},
    "schedule": {"kind": "constant", "lr": 1e-2},
    "train": {"validate_every": 6, "max_validations": 2, "log_every": 3},
}
LAYERS = {
    "causal_lm": {"dec_layers": 1},
    "masked_lm": {"enc_layers": 1},
}


def lines_of_words(count: int, seed: int) -> list[str]:
    """Return lines such as ``two three four``; one in ten is blank and ends a document."""
    rng = Random(seed)
    lines = []
    for number in range(count):
        first, length = rng.randrange(len(WORDS)), rng.randint(3, 9)
        words = [WORDS[(first + i) % len(WORDS)] for i in range(length)]
        lines.append("" if number % 10 == 9 else " ".join(words))
    return lines


def text_corpus(folder: Path, sizes: dict[str, int] | None = None) -> None:
    """Write train, dev and test into ``folder``."""
    for seed, (split, size) in enumerate((sizes or SPLITS).items()):
        write_lines(folder / f"{split}.en", lines_of_words(size, seed))


def text_recipe(folder: Path, task: str, changes: dict[str, Any] | None = None) -> Path:
    """Write ``folder``/TASK.yaml for the corpus in ``folder``; its run folder is ``folder``/TASK.

    Args:
        changes: groups of keys to add to those of LM_RECIPE.
    """
    values: dict[str, Any] = {**LM_RECIPE, "task": task, "out": str(folder / task)}
    values["data"] = {**values["data"], **{split: split for split in SPLITS}}
    values["model"] = {**values["model"], **LAYERS[task]}
    for name, change in (changes or {}).items():
        values[name] = {**values.get(name, {}), **change}
    path = folder / f"{task}.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return path
