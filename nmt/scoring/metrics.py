"""Corpus scores by sacreBLEU: a number is never without its signature.

Post 2018 (https://aclanthology.org/W18-6319) is the reason: BLEU depends on tokenization, so only a
number with its settings can be compared. BLEU, chrF and TER are therefore taken on plain text with
sacreBLEU's own tokenization. ``tokenized_bleu`` is the other kind, for comparison with papers that
report multi-bleu.perl on tokenized text, as Transformers without Tears does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric

from nmt.errors import UserError

MODEL_WORDS = "model-words"
"""In a signature: words of the model's own pieces, against the reference's words."""

RESAMPLES = 1000
"""Bootstrap resamples, sacreBLEU's default."""


@dataclass(frozen=True)
class Score:
    """One metric over one corpus.

    Attributes:
        name: key of METRICS: ``bleu``, ``chrf``, ``ter`` or ``tokenized_bleu``.
        value: 0 to 100 (TER may exceed 100, and lower is better there).
        signature: sacreBLEU's settings and version, without which the value means nothing.
        low: lower end of the 95 % bootstrap interval, when asked for.
        high: upper end of it.
    """

    name: str
    value: float
    signature: str
    low: float | None = None
    high: float | None = None


def bleu_tokenizer(tgt_lang: str) -> str:
    """The name of sacreBLEU's tokenizer for a language.

    As sacreBLEU chooses it, but ``char`` where its choice needs a package that is not installed
    (MeCab for Japanese and Korean): 13a would take a whole sentence for one word there.
    """
    language = tgt_lang.replace("_", "-").split("-")[0].lower()
    if language in ("ja", "ko"):
        name = f"{language}-mecab"
        try:
            BLEU(tokenize=name)
        except (ImportError, RuntimeError):
            return "char"
        return name
    return "zh" if language == "zh" else "13a"


# Characters that Python's split() takes for white space and Perl's does not -> a private-use plane.
_INSIDE_WORDS = {
    code: 0xF0000 + code
    for code in range(0x3001)
    if chr(code).isspace() and chr(code) not in " \t\n\v\f\r"
}


class _TokenizedBleu(BLEU):
    """BLEU of tokenized text, as multi-bleu.perl computes it: words as given, no smoothing.

    Perl splits bytes, hence at ASCII white space only; Python would also split at a no-break or an
    ideographic space, which Moses leaves inside words. Those are moved out of reach.
    """

    def __init__(self) -> None:
        super().__init__(tokenize="none", smooth_method="none", force=True)

    def _preprocess_segment(self, sent: str) -> str:
        return str(super()._preprocess_segment(sent.translate(_INSIDE_WORDS)))


class _PlainFloats(Metric):
    """Scores as Python floats: sacreBLEU's interval fails when only some are NumPy's.

    Resamples without a match (chrF), or with blank references alone (TER), have Python's.
    """

    def _compute_score_from_stats(self, stats: list[Any]) -> Any:
        result = super()._compute_score_from_stats(stats)  # type: ignore[safe-super]
        result.score = float(result.score)
        return result


class _Chrf(_PlainFloats, CHRF):
    pass


class _Ter(_PlainFloats, TER):
    pass


# name -> metric for a target language. force=True only silences sacreBLEU's warning about tokenized
# text, which nmt.scoring.systems gives with file names.
METRICS: dict[str, Callable[[str], Metric]] = {
    "bleu": lambda tgt_lang: BLEU(tokenize=bleu_tokenizer(tgt_lang), force=True),
    "chrf": lambda tgt_lang: _Chrf(),
    "ter": lambda tgt_lang: _Ter(),
    "tokenized_bleu": lambda tgt_lang: _TokenizedBleu(),
}


def score(
    hyps: Sequence[str],
    refs: Sequence[str],
    metrics: Sequence[str],
    tgt_lang: str,
    intervals: bool = False,
    resamples: int = RESAMPLES,
) -> list[Score]:
    """Scores one system against one reference.

    Args:
        hyps: plain (detokenized) text, one line per segment.
        refs: plain text as the corpus has it, never altered.
        metrics: keys of METRICS.
        tgt_lang: language code; decides BLEU's tokenizer.
        intervals: whether to add 95 % bootstrap intervals, which take seconds.
        resamples: bootstrap resamples for them.

    Returns:
        One score per metric, in their order; equal to what sacreBLEU's command prints.

    Raises:
        UserError: the line counts differ, or there are none.
    """
    check_lines(hyps, refs)
    return [
        _score(name, METRICS[name](tgt_lang), hyps, refs, resamples if intervals else 1)
        for name in metrics
    ]


def tokenized_bleu(
    hyp_words: Sequence[str],
    ref_words: Sequence[str],
    tokenizer: str = "none",
    intervals: bool = False,
    resamples: int = RESAMPLES,
) -> Score:
    """Compute tokenized BLEU, identical to multi-bleu.perl (T appendix A reports it).

    Comparable only between systems scored on the same tokenization.

    Args:
        hyp_words: tokenized text with the segmentation undone, words separated by white space.
        ref_words: the reference, tokenized the same way.
        tokenizer: what made the words of the hypotheses, for the signature.
        intervals: whether to add a 95 % bootstrap interval.
        resamples: bootstrap resamples for it.

    Raises:
        UserError: the line counts differ, or there are none.
    """
    found = score(hyp_words, ref_words, ["tokenized_bleu"], "", intervals, resamples)[0]
    return name_words(found, tokenizer)


def name_words(score: Score, tokenizer: str) -> Score:
    """Return a score whose signature says what made the words; sacreBLEU says ``tok:none``."""
    return replace(score, signature=score.signature.replace("tok:none", f"tok:{tokenizer}"))


def check_lines(hyps: Sequence[str], refs: Sequence[str], hyp_name: str = "hypotheses") -> None:
    """Raises UserError unless both have the same number of lines, at least one."""
    if len(hyps) != len(refs):
        raise UserError(
            f"{len(hyps):,} lines, but the reference has {len(refs):,}",
            at=hyp_name,
            fix="score one hypothesis per reference line, blank ones included",
        )
    if not refs:
        raise UserError(
            "no lines to score", at=hyp_name, fix="give a file with one translation a line"
        )


def _score(
    name: str, metric: Metric, hyps: Sequence[str], refs: Sequence[str], n_bootstrap: int
) -> Score:
    result = metric.corpus_score(list(hyps), [list(refs)], n_bootstrap=n_bootstrap)
    low = high = None
    if n_bootstrap > 1:  # sacreBLEU prints them as "μ = mean ± ci", unless the mean is 0
        low, high = float(result._mean - result._ci), float(result._mean + result._ci)
    return Score(name, float(result.score), str(metric.get_signature()), low, high)
