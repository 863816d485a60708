"""BLEU, chrF, TER and tokenised "paper" BLEU, with signatures, intervals and significance."""

from nmt.scoring.metrics import METRICS, Score, paper_bleu, score
from nmt.scoring.significance import Compared, paired_bootstrap

__all__ = ["METRICS", "Compared", "Score", "paired_bootstrap", "paper_bleu", "score"]
