"""Minimum Bayes risk: choose the candidate with the highest average similarity to all candidates.

Kumar and Byrne 2004. The utility is a sentence-level metric of sacreBLEU. Each candidate is a
reference of every candidate, including itself, as often as it was found (Eikema and Aziz 2020).
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

# text -> its n-grams; (n-grams of a hypothesis, of a reference) -> score from 0 to 100
Extract = Callable[[str], Any]
Compare = Callable[[Any, Any], float]


@functools.cache
def chrf(tgt: str) -> tuple[Extract, Compare]:
    """Return the two halves of sentence-level chrF2, equal to ``CHRF().sentence_score``."""
    from sacrebleu.metrics import CHRF

    metric = CHRF()

    def extract(text: str) -> list[Counter[str]]:
        grams: list[Counter[str]] = metric._extract_reference_info([text])["ref_ngrams"][0]
        return grams

    def compare(hyp: list[Counter[str]], ref: list[Counter[str]]) -> float:
        pairs = zip(hyp, ref, strict=True)
        counts = [n for pair in pairs for n in metric._get_match_statistics(*pair)]
        return float(metric._compute_f_score(counts))

    return extract, compare


@functools.cache
def bleu(tgt: str) -> tuple[Extract, Compare]:
    """Return the two halves of sentence-level BLEU with effective order.

    They equal ``BLEU(effective_order=True).sentence_score``.
    """
    from sacrebleu.metrics import BLEU

    from nmt.scoring.language import bleu_tokenizer

    metric = BLEU(tokenize=bleu_tokenizer(tgt), effective_order=True)
    orders = range(metric.max_ngram_order)

    def extract(text: str) -> tuple[Counter[tuple[str, ...]], int]:
        info = metric._extract_reference_info([metric._preprocess_segment(text)])
        return info["ref_ngrams"], info["ref_lens"][0]

    def compare(hyp: tuple[Counter, int], ref: tuple[Counter, int]) -> float:
        (grams, length), (ref_grams, ref_length) = hyp, ref
        correct = [0] * len(orders)
        for gram, count in grams.items():
            correct[len(gram) - 1] += min(count, ref_grams.get(gram, 0))
        total = [max(length - order, 0) for order in orders]
        score = metric._compute_score_from_stats([length, ref_length, *correct, *total])
        return float(score.score)

    return extract, compare


UTILITIES = {"chrf": chrf, "bleu": bleu}


def rank(texts: Sequence[str], utility: str, tgt: str) -> list[int]:
    """Return the indices of the distinct texts, highest expected utility first.

    Equal utilities keep the order of the texts. sacreBLEU would extract the n-grams of both texts
    for each of the n^2 pairs. This function extracts those of each text once.

    Args:
        texts: candidates for one input.
        utility: a key of UTILITIES.
        tgt: language of the texts.
    """
    from nmt.scoring.language import language_of_text

    extract, compare = UTILITIES[utility](language_of_text(tgt, texts))
    counts = Counter(texts)
    grams = {text: extract(text) for text in counts}
    utility_of = {
        text: sum(n * compare(grams[text], grams[ref]) for ref, n in counts.items())
        for text in counts
    }
    return sorted(map(texts.index, counts), key=lambda index: -utility_of[texts[index]])
