"""Score translations with sacreBLEU's metrics, with intervals and significance."""

from nmt.scoring.metrics import (
    METRICS,
    MODEL_WORDS,
    RESAMPLES,
    Comparison,
    Score,
    SentenceScores,
    paired_bootstrap,
    score,
    sentence_scores,
    tokenized_bleu,
)

__all__ = [
    "METRICS",
    "MODEL_WORDS",
    "RESAMPLES",
    "Comparison",
    "Score",
    "SentenceScores",
    "paired_bootstrap",
    "score",
    "sentence_scores",
    "tokenized_bleu",
]
