"""Minimum Bayes risk: of several translations, the one that is most like all others.

Kumar and Byrne 2004; the utility is a sentence-level metric of sacreBLEU, and each candidate is
the reference of every other, itself among them, as often as it was found (Eikema and Aziz 2020).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

# what is known of a text alone; (of a hypothesis, of its reference) -> 0 to 100
Describe = Callable[[str], Any]
Compare = Callable[[Any, Any], float]


def chrf(tgt: str) -> tuple[Describe, Compare]:
    """Sentence-level chrF2, as ``CHRF().sentence_score`` has it."""
    from sacrebleu.metrics import CHRF

    metric = CHRF()

    def describe(text: str) -> list[Counter[str]]:
        grams: list[Counter[str]] = metric._extract_reference_info([text])["ref_ngrams"][0]
        return grams

    def compare(hyp: list[Counter[str]], ref: list[Counter[str]]) -> float:
        pairs = zip(hyp, ref, strict=True)
        counts = [n for pair in pairs for n in metric._get_match_statistics(*pair)]
        return float(metric._compute_f_score(counts))

    return describe, compare


def bleu(tgt: str) -> tuple[Describe, Compare]:
    """Sentence-level BLEU of effective order, as ``BLEU().sentence_score`` has it."""
    from sacrebleu.metrics import BLEU

    from nmt.scoring.metrics import bleu_tokenizer

    metric = BLEU(tokenize=bleu_tokenizer(tgt), effective_order=True)
    orders = range(metric.max_ngram_order)

    def describe(text: str) -> tuple[Counter[tuple[str, ...]], int]:
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

    return describe, compare


UTILITIES = {"chrf": chrf, "bleu": bleu}


class Mbr:
    """Ranks translations of a sentence by expected utility.

    sacreBLEU would take both texts apart for each of n^2 pairs; here each text is taken apart once.

    Args:
        utility: a key of UTILITIES.
        tgt: language of the texts.
    """

    def __init__(self, utility: str, tgt: str) -> None:
        self.describe, self.compare = UTILITIES[utility](tgt)

    def rank(self, texts: Sequence[str]) -> list[int]:
        """Places of the texts, without repetition, highest expected utility first.

        Equal ones keep their order.
        """
        counts = Counter(texts)
        described = {text: self.describe(text) for text in counts}
        utility = {
            text: sum(
                n * self.compare(described[text], described[ref]) for ref, n in counts.items()
            )
            for text in counts
        }
        return sorted(map(texts.index, counts), key=lambda place: -utility[texts[place]])
