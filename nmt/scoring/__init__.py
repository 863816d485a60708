"""Score translations: BLEU, chrF, TER and tokenized BLEU, with intervals and significance."""

from nmt.scoring.metrics import (
    METRICS,
    MODEL_WORDS,
    RESAMPLES,
    Comparison,
    Score,
    paired_bootstrap,
    score,
    tokenized_bleu,
)

__all__ = [
    "METRICS",
    "MODEL_WORDS",
    "RESAMPLES",
    "Comparison",
    "Score",
    "paired_bootstrap",
    "score",
    "tokenized_bleu",
]
