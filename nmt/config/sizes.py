"""Sizes of model, vocabulary and training by amount of data; no other module has these numbers.

Sources: T = "Transformers without Tears", table 1 (settings by number of pairs) and table 6. S =
Sennrich and Zhang 2019, "Revisiting Low-Resource Neural Machine Translation": fewer merges for less
data. A = Araabi and Monz 2020, "Optimizing Transformer for Low-Resource Neural Machine
Translation": fewer layers, narrower feed-forward layers and more dropout for less data. Measured
sizes are those of docs/results.md; the other rows continue them and were not measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nmt.config.recipe import ModelConfig


@dataclass(frozen=True)
class Size:
    """Settings for corpora of up to ``words`` words on the target side."""

    words: float
    dim: int  # the feed-forward layers have 4 x dim units
    heads: int
    layers: int  # of the encoder, and as many of the decoder
    dropout: float
    types: int  # merges of BPE, or the vocabulary of SentencePiece
    batch_tokens: int
    passes: float  # over the training data; on a GPU at most, as stop_patience ends the run
    source: str  # where the row comes from, for a comment in the recipe
    # of a recipe for a CPU
    long_types: int = 0  # types of a long training
    word_dropout: float = 0.0
    beam: int = 4
    length_alpha: float = 1.0
    long: bool = False  # whether ``lengthened`` returned it for a long training

    def holds(self, model: ModelConfig) -> bool:
        """Check that a model is at most as wide and as deep as that of this row."""
        layers = max(model.enc_layers, model.dec_layers)
        return model.dim <= self.dim and model.ffn_dim <= 4 * self.dim and layers <= self.layers


# Small models that a CPU trains in hours, with Muon and a linear schedule. Noise costs more than it
# gives in a short training, and a large vocabulary makes sentences short.
CPU = (
    Size(20_000, 128, 4, 3, 0.3, 1000, 512, 40, "smaller than any size measured here", 1000, 0.1),
    Size(90_000, 192, 4, 3, 0.2, 4000, 1024, 20, "between measured sizes", 3000),
    Size(
        400_000, 256, 4, 3, 0.1, 8000, 2048, 16, "as recipes/pairs/gl-en-cpu.yaml, measured", 5000
    ),
    Size(2_000_000, 256, 4, 3, 0.1, 8000, 2048, 6, "as for 10k pairs, fewer passes", 6000),
    Size(10_000_000, 384, 6, 4, 0.1, 8000, 4096, 3, "larger than any size measured here", 8000),
    Size(math.inf, 512, 8, 6, 0.1, 16000, 4096, 2, "Transformer base", 16000),
)
# The papers' sizes, with Adam and warm-up, until the dev score stops growing.
GPU = (
    Size(40_000, 128, 4, 3, 0.4, 1000, 4096, 1000, "a quarter of the width of T's for 10k pairs"),
    Size(120_000, 256, 4, 4, 0.4, 2000, 4096, 1000, "half the width of T's for 10k pairs"),
    Size(500_000, 512, 4, 4, 0.4, 3000, 4096, 1000, "T table 1, 10k pairs"),
    Size(20_000_000, 512, 8, 6, 0.3, 8000, 4096, 200, "T table 1, 61k to 214k pairs"),
    Size(math.inf, 512, 8, 6, 0.1, 32000, 8192, 40, "T table 6, 4.5M pairs"),
)

# Parameters for each target piece of the training text, above which a model is far too large. T's
# recipe for gl-en has 31.0M parameters for 0.35M pieces, 89 for each, and translates best of all in
# its paper. Transformer base has 44M parameters without embeddings. On 5,000 pairs (S: 0.1M words,
# about 0.14M pieces, over 300 for each) tuned and smaller settings gain up to 7.3 BLEU over it (A).
# No result between the two is known.
TOO_LARGE = 200


# Of a row of CPU, in multiples of its passes. recipes/best/gl-en.yaml has the settings of
# lengthened() and 44 passes, 2.75 times those of recipes/pairs/gl-en-cpu.yaml. On that corpus, the
# settings of a short training are hardly better with twice the passes, and 78 passes with more
# noise are not better (docs/results.md). Other corpora were not measured.
LONG, LONGEST = 2, 2.75


def size_for(words: int, sizes: Sequence[Size]) -> Size:
    """Find the first row whose ``words`` are at least this number."""
    return next(size for size in sizes if words <= size.words)


def lengthened(size: Size, passes: float) -> Size:
    """Give a row of CPU another number of passes, at most ``most_passes``.

    A training of at least LONG times the row's passes gets what recipes/best/gl-en.yaml has: fewer
    types, larger batches, more dropout and a larger beam.
    """
    passes = min(passes, most_passes(size))
    if passes < LONG * size.passes:
        return replace(size, passes=passes)
    return replace(
        size,
        passes=passes,
        types=size.long_types,
        batch_tokens=2 * size.batch_tokens,
        dropout=round(size.dropout + 0.1, 1),
        beam=8,
        length_alpha=1.4,
        long=True,
    )


def smaller(size: Size) -> Size | None:
    """Find the row of CPU before a row; None if there is none."""
    return next((row for row in reversed(CPU) if row.words < size.words), None)


def most_passes(size: Size) -> int:
    """Return the most passes over the data for which a row of CPU is chosen."""
    return int(LONGEST * size.passes)


def advice_on_size(model: ModelConfig, parameters: int, pieces: int) -> str | None:
    """Return advice if a model is far too large for its training text, else None.

    A model that nmt-suggest chooses is never too large: a text has at least as many pieces as
    words, so the row of its pieces is not smaller than that of its words.

    Args:
        parameters: embeddings included.
        pieces: of the target side of the training text, EOS included.
    """
    ratio = parameters / max(1, pieces)
    if ratio <= TOO_LARGE or any(size_for(pieces, rows).holds(model) for rows in (CPU, GPU)):
        return None
    return (
        f"the model is very large for this corpus: {parameters:,} parameters, {ratio:,.0f} for "
        f"each target subword of the training text (the paper's gl-en recipe has 89); with "
        f"over {TOO_LARGE}, a smaller one usually translates better: lower model.dim, "
        "model.ffn_dim, model.enc_layers and model.dec_layers, or see what "
        "nmt-suggest chooses"
    )
