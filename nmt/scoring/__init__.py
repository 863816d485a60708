"""BLEU, chrF, TER and tokenised "paper" BLEU, with signatures, intervals and significance."""

from nmt.scoring.metrics import METRICS, MODEL_WORDS, Score, paper_bleu, score
from nmt.scoring.significance import Compared, paired_bootstrap

__all__ = ["METRICS", "MODEL_WORDS", "Compared", "Score", "paired_bootstrap", "paper_bleu", "score"]
