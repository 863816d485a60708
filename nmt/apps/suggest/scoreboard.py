"""Measured scores by amount of data: the table "What to expect" of docs/results.md.

``python -m nmt.apps.suggest.scoreboard`` prints the table; a test checks that docs/results.md has
it.
"""

from __future__ import annotations

import math
from typing import NamedTuple


class Row(NamedTuple):
    """A run whose scores are in docs/results.md."""

    pair: str  # source and target language
    text: str  # its kind
    pairs: int
    words: int  # of the target side
    recipe: str  # of this repository
    hours: float  # of training and scoring on the machine
    machine: str
    bleu: str  # test score with its 95 % interval, as docs/results.md prints it


ROWS = (
    Row(
        "gl-en", "TED talks", 11_233, 237_317, "recipes/pairs/gl-en-cpu.yaml", 0.7,
        "one core of an EPYC", "15.81 [14.99, 16.63]",
    ),
    Row(
        "gl-en", "TED talks", 11_233, 237_317, "recipes/best/gl-en.yaml", 1.75,
        "one core of an EPYC", "18.22 [17.29, 19.17]",
    ),
    Row(
        "az-en", "TED talks", 6_414, 135_357, "recipes/sweeps/paper-or-ours.yaml", 0.25,
        "one core of an EPYC", "4.02 [3.57, 4.44]",
    ),
    Row(
        "en-de", "image captions", 29_000, 360_706, "recipes/best/multi30k-en-de.yaml", 2.12,
        "one core of an EPYC", "41.09 [39.46, 42.68]",
    ),
    Row(
        "sk-en", "user interfaces", 21_779, 119_309, "recipes/quickstart.yaml", 0.06,
        "two cores of a Xeon", "21.50 [19.65, 23.35]",
    ),
    Row(
        "sw-en", "news", 30_780, 563_100, "recipes/pairs/sw-en-cpu.yaml", 0.3,
        "one core of a Xeon", "7.29 [6.82, 7.76]",
    ),
    Row(
        "en-sw", "news", 30_780, 576_219, "recipes/sweeps/paper-or-ours.yaml", 0.59,
        "one core of a Xeon", "8.44 [8.01, 8.87]",
    ),
    Row(
        "ja-en", "everyday sentences", 50_000, 391_047, "recipes/sweeps/paper-or-ours.yaml", 0.3,
        "one core of a Xeon", "31.19 [28.10, 34.00]",
    ),
    Row(
        "en-vi", "news and health", 43_372, 1_148_182, "recipes/sweeps/paper-or-ours.yaml", 0.34,
        "one core of a Xeon", "9.86 [9.33, 10.41]",
    ),
    Row(
        "en-tl", "Bible verses", 29_099, 771_989, "recipes/sweeps/paper-or-ours.yaml", 0.32,
        "one core of a Xeon", "31.87 [30.83, 32.91]",
    ),
    Row(
        "ar-en", "everyday sentences", 11_061, 62_862, "recipes/sweeps/paper-or-ours.yaml", 0.27,
        "one core of a Xeon", "28.21 [26.18, 30.32]",
    ),
    Row(
        "en-chr", "Bible and novels", 11_639, 134_009, "recipes/public/en-chr.yaml", 0.76,
        "one core of a Xeon", "8.58 [7.75, 9.37]",
    ),
    Row(
        "chr-en", "Bible and novels; copied news", 11_639, 219_239, "recipes/public/chr-en.yaml",
        1.37, "one core of a Xeon", "13.10 [12.22, 13.97]",
    ),
)  # fmt: skip


def nearest(words: int) -> list[Row]:
    """Find the three rows with the most similar numbers of target words, the nearest first."""
    return sorted(ROWS, key=lambda row: abs(math.log(max(1, words) / row.words)))[:3]


def table() -> str:
    """Write all rows as a Markdown table, sorted by words."""
    head = "| pair | text | pairs | target words | recipe | hours | machine | test BLEU |"
    rows = [
        f"| {r.pair} | {r.text} | {r.pairs:,} | {r.words:,} | {r.recipe} | {r.hours:g} | "
        f"{r.machine} | {r.bleu} |"
        for r in sorted(ROWS, key=lambda row: row.words)
    ]
    return "\n".join([head, "|---|---|---:|---:|---|---:|---|---|", *rows])


if __name__ == "__main__":
    print(table())
