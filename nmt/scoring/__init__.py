"""BLEU, chrF, TER and tokenized "paper" BLEU, with signatures, intervals and significance."""

from nmt.scoring.metrics import METRICS, MODEL_WORDS, Score, score, tokenized_bleu
from nmt.scoring.significance import Compared, paired_bootstrap

__all__ = [
    "METRICS",
    "MODEL_WORDS",
    "Compared",
    "Score",
    "paired_bootstrap",
    "score",
    "tokenized_bleu",
]
