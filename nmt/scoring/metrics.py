"""Compute corpus scores and their significance with sacreBLEU; each score has its signature.

BLEU depends on tokenization, so a score without its settings cannot be compared (Post 2018,
https://aclanthology.org/W18-6319). BLEU, chrF, chrF++ and TER are computed on plain text with
sacreBLEU's own tokenization; ``spbleu`` is BLEU on pieces of words. ``tokenized_bleu`` is for
comparison with papers that report multi-bleu.perl on tokenized text, as Transformers without Tears
does. In languages without spaces, TER and tokenized BLEU count characters.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric as SacrebleuMetric
from sacrebleu.significance import PairedTest, Result

from nmt.errors import UserError
from nmt.runtime.progress import TerminalBar, progress_bar
from nmt.runtime.words import quantity
from nmt.scoring.language import bleu_tokenizer, lacks_spaces
from nmt.scoring.results import Score
from nmt.scoring.spbleu import spbleu
from nmt.text.languages import UNSPACED_CHARACTER

# in a signature: the words of the hypotheses are the model's pieces joined, without retokenizing
MODEL_WORDS = "model-words"
CHARACTERS = "+char"  # in a signature: each character of a script without spaces is a word
MOST_WORDS = 1000  # of a line for TER: in another order, they take 42 seconds of a CPU, 700 take 22
DELAY = 2.0  # seconds after which a bar appears: most scores take less
RESAMPLES = 1000  # of the bootstrap, sacreBLEU's default


# Characters that Python's split() treats as white space and Perl's does not -> a private-use plane.
_INSIDE_WORDS = {
    code: 0xF0000 + code
    for code in range(0x3001)
    if chr(code).isspace() and chr(code) not in " \t\n\v\f\r"
}


class _TokenizedBleu(BLEU):
    """BLEU of tokenized text as multi-bleu.perl computes it: given words, no smoothing.

    Perl splits bytes, so at ASCII white space only. Python would also split at no-break and
    ideographic spaces, which Moses leaves inside words. Those are replaced before splitting.

    Args:
        by_character: each character of a script without spaces is a word.
    """

    def __init__(self, by_character: bool) -> None:
        super().__init__(tokenize="none", smooth_method="none", force=True)
        self._by_character = by_character
        if by_character:
            self.tokenizer_signature += CHARACTERS

    def _preprocess_segment(self, sent: str) -> str:
        if self._by_character:
            sent = UNSPACED_CHARACTER.sub(r" \g<0> ", sent)
        return str(super()._preprocess_segment(sent.translate(_INSIDE_WORDS)))


class _PlainFloats(SacrebleuMetric):
    """A metric whose scores are Python floats: sacreBLEU's interval fails on a mix with NumPy's."""

    # resamples without a match (chrF) or with blank references only (TER) have Python floats

    def _compute_score_from_stats(self, stats: list[Any]) -> Any:
        result = super()._compute_score_from_stats(stats)  # type: ignore[safe-super]
        result.score = float(result.score)
        return result


class _Chrf(_PlainFloats, CHRF):
    pass


class _Ter(_PlainFloats, TER):
    def __init__(self, by_character: bool) -> None:
        super().__init__()
        self._by_character = by_character
        if by_character:
            self.tokenizer_signature += CHARACTERS

    def _preprocess_segment(self, sent: str) -> str:
        words = super()._preprocess_segment(sent)
        words = UNSPACED_CHARACTER.sub(r" \g<0> ", words) if self._by_character else words
        if (count := len(words.split())) > MOST_WORDS:
            what = f"a line has {quantity(count, 'word')}; TER compares at most {MOST_WORDS:,}"
            raise UserError(what, fix="divide the line, or leave ter out: --metrics bleu,chrf")
        return words


@dataclass(frozen=True)
class Metric:
    """How nmt-score computes and shows a metric.

    Attributes:
        label: the name in tables.
        create: returns sacreBLEU's metric for a target language.
        remark: what a reader of the table should know.
        on_words: computed on tokenized text; otherwise on plain text.
        tokenizer: of sacreBLEU, if it needs a SentencePiece model that this toolkit does not have.
    """

    label: str
    create: Callable[[str], SacrebleuMetric]
    remark: str = ""
    on_words: bool = False
    tokenizer: str = ""


def _spbleu(tokenizer: str, file: Path | None = None) -> Metric:
    name = f"spBLEU ({tokenizer})"
    return Metric(name, lambda lang: spbleu(tokenizer, file), tokenizer=tokenizer)


# The names are those of score.metrics in nmt/config/recipe.py. force=True only silences sacreBLEU's
# warning about tokenized text: nmt.scoring.systems gives its own, with file names.
METRICS: dict[str, Metric] = {
    "bleu": Metric("BLEU", lambda lang: BLEU(tokenize=bleu_tokenizer(lang), force=True)),
    "chrf": Metric("chrF2", lambda lang: _Chrf()),
    "chrf++": Metric("chrF2++", lambda lang: _Chrf(word_order=2)),
    "ter": Metric("TER", lambda lang: _Ter(lacks_spaces(lang)), "lower is better"),
    "tokenized_bleu": Metric(
        "tokenized BLEU (multi-bleu.perl)",
        lambda lang: _TokenizedBleu(lacks_spaces(lang)),
        "not comparable with BLEU",
        on_words=True,
    ),
    "spbleu": _spbleu("flores200"),
    "spbleu101": _spbleu("flores101"),
}
# those that need no other file
USUAL_METRICS = [name for name, metric in METRICS.items() if not metric.tokenizer]


def use_spbleu_model(file: Path) -> None:
    """Let the metrics of this process that need a SentencePiece model use that of a file.

    Raises:
        UserError: there is no such file, or it is not a SentencePiece model.
    """
    for name, metric in METRICS.items():
        if metric.tokenizer:
            changed = _spbleu(metric.tokenizer, file)
            changed.create("")
            METRICS[name] = changed


def score(
    hyps: Sequence[str],
    refs: Sequence[str],
    metrics: Sequence[str],
    tgt_lang: str,
    resamples: int = 0,
    other_refs: Sequence[Sequence[str]] = (),
    progress: bool = False,
) -> list[Score]:
    """Score one system.

    Args:
        hyps, refs, other_refs: plain (detokenized) text, one line per segment; words for the metric
            ``tokenized_bleu``.
        metrics: keys of METRICS.
        tgt_lang: language code; decides what a word is (``nmt.scoring.language``).
        resamples: bootstrap resamples for 95 % intervals, which take seconds; 0 = no intervals.
        progress: show a bar on a terminal.

    Returns:
        One score per metric, in their order, equal to those of sacreBLEU's command.

    Raises:
        UserError: the line counts differ, or there are no lines.
    """
    check_lines(hyps, refs)
    references = [list(refs), *map(list, other_refs)]
    scores = []
    steps = len(hyps) + 1 + (resamples if resamples > 1 else 0)
    for name in metrics:
        metric = METRICS[name].create(tgt_lang)
        with _shown(metric, name, steps, progress):
            result = metric.corpus_score(list(hyps), references, n_bootstrap=max(1, resamples))
        low = high = None
        if resamples > 1:  # sacreBLEU prints "μ = mean ± ci"
            low, high = float(result._mean - result._ci), float(result._mean + result._ci)
        signature = str(metric.get_signature())
        scores.append(Score(name, float(result.score), signature, low, high))
    return scores


def tokenized_bleu(
    hyp_words: Sequence[str],
    ref_words: Sequence[str],
    tokenizer: str = "none",
    other_refs: Sequence[Sequence[str]] = (),
    lang: str = "",
) -> Score:
    """Compute tokenized BLEU, identical to multi-bleu.perl (T appendix A reports it).

    Comparable only between systems scored on the same tokenization.

    Args:
        hyp_words, ref_words, other_refs: text tokenized in the same way, words separated by white
            space.
        tokenizer: what produced the words, for the signature.
        lang: of text that was not tokenized before; its characters are words if it lacks spaces.

    Raises:
        UserError: the line counts differ, or there are no lines.
    """
    (bleu,) = score(hyp_words, ref_words, ["tokenized_bleu"], lang, other_refs=other_refs)
    return with_tokenizer(bleu, tokenizer)


def with_tokenizer(score: Score, tokenizer: str) -> Score:
    """Name the tokenizer in a signature where sacreBLEU says ``tok:none``."""
    return replace(score, signature=score.signature.replace("tok:none", f"tok:{tokenizer}"))


@dataclass(frozen=True)
class SentenceScores:
    """The values of one metric on each line; otherwise as ``Score``."""

    name: str
    values: list[float]
    signature: str


def sentence_scores(
    hyps: Sequence[str],
    refs: Sequence[str],
    metrics: Sequence[str],
    tgt_lang: str,
    other_refs: Sequence[Sequence[str]] = (),
) -> list[SentenceScores]:
    """Score each line by itself, as ``sacrebleu --sentence-level`` does.

    BLEU counts only the n-gram orders that a line has (``eff:yes`` in its signature), so a correct
    line of two words has 100. Arguments and errors are those of ``score``, on plain text.
    """
    check_lines(hyps, refs)
    scores = []
    for name in metrics:
        metric = METRICS[name].create(tgt_lang)
        if isinstance(metric, BLEU):
            metric.effective_order = True
        values = [
            float(metric.sentence_score(hyp, list(line_refs)).score)
            for hyp, *line_refs in zip(hyps, refs, *other_refs, strict=True)
        ]
        scores.append(SentenceScores(name, values, str(metric.get_signature())))
    return scores


def paired_bootstrap(
    systems: Mapping[str, Sequence[str]],
    refs: Sequence[str],
    metrics: Sequence[str],
    tgt_lang: str,
    resamples: int = RESAMPLES,
    other_refs: Sequence[Sequence[str]] = (),
    progress: bool = False,
) -> dict[str, list[Score]]:
    """Compare every system with the first by paired bootstrap resampling (Koehn 2004).

    The numbers equal those of ``sacrebleu --paired-bs``, except that p is 1 for equal scores.
    ``two_sided_p`` adds a p-value of the same resamples. The other arguments and errors are those
    of ``score``.

    Args:
        systems: name -> hypotheses, at least two; the first is the baseline.

    Returns:
        Name -> one score per metric.
    """
    for name, hyps in systems.items():
        check_lines(hyps, refs, name)
    references = [list(refs), *map(list, other_refs)]
    scores: dict[str, list[Score]] = {name: [] for name in systems}
    compared = len(systems) - 1  # with the baseline
    # of the baseline once, then of both for each other system
    steps = len(systems) * (len(refs) + 1) + (2 * len(systems) - 1) * resamples
    for name in metrics:  # one test each: sacreBLEU keys its results by labels such as "chrF2"
        metric = METRICS[name].create(tgt_lang)
        computed = _record_scores(metric)
        with _shown(metric, name, steps, progress):
            named = list(systems.items()), {name: metric}
            signatures, columns = PairedTest(*named, references, "bs", n_samples=resamples)()
        label, signature = next(iter(signatures.items()))
        results = [result for result in columns[label] if isinstance(result, Result)]
        # for each system but the first: its score, the resamples of the first, and its own
        parts = np.array(computed).reshape(-1)[-compared * (1 + 2 * resamples) :]
        resampled = parts.reshape(compared, -1)[:, 1:].reshape(compared, 2, resamples)
        differences = [None, *(resampled[:, 1] - resampled[:, 0])]
        for system, result, sampled in zip(systems, results, differences, strict=True):
            entry = _compared(name, str(signature), result, results[0].score)
            if sampled is not None and entry.difference is not None:
                entry = replace(entry, p_two_sided=two_sided_p(sampled, entry.difference))
            scores[system].append(entry)
    return scores


def two_sided_p(sampled: np.ndarray, observed: float) -> float:
    """Return the p-value of a two-sided test whose null distribution is a centered bootstrap.

    It is the share of resamples, and of 1 added to both counts, whose difference is as far from the
    mean difference of all of them as the observed one is from 0. sacreBLEU takes the absolute value
    of each difference before it subtracts the mean, so its p-value is about half of this.

    Args:
        sampled: [R], the difference in each resample.
    """
    centered = np.abs(sampled - sampled.mean())
    return float((np.sum(centered >= abs(observed)) + 1) / (len(sampled) + 1))


def _record_scores(metric: SacrebleuMetric) -> list[float]:
    """Return a list that receives each corpus score that a metric computes from now on."""
    computed: list[float] = []
    compute = metric._compute_score_from_stats

    def recorded(stats: list[Any]) -> Any:
        result = compute(stats)
        computed.append(float(result.score))
        return result

    metric._compute_score_from_stats = recorded  # type: ignore[method-assign]
    return computed


@contextlib.contextmanager
def _shown(metric: SacrebleuMetric, name: str, steps: int, progress: bool) -> Iterator[None]:
    """Show how many of ``steps``, sentences and resamples, a metric has counted in the block."""
    action = f"computing {name}"
    with progress_bar(action, total=steps, show=progress, slow=True, delay=DELAY) as bar:
        if not bar.disable:
            for method in ("_compute_segment_statistics", "_compute_score_from_stats"):
                setattr(metric, method, _counting(getattr(metric, method), bar))
        yield


def _counting(compute: Callable[..., Any], bar: TerminalBar) -> Callable[..., Any]:
    def counted(*args: Any) -> Any:
        bar.update()
        return compute(*args)

    return counted


def _compared(metric: str, signature: str, result: Result, baseline: float) -> Score:
    assert result.mean is not None
    assert result.ci is not None
    low, high = float(result.mean - result.ci), float(result.mean + result.ci)
    score = Score(metric, float(result.score), signature, low, high)
    if result.p_value is None:
        return score
    difference = float(result.score - baseline)
    # sacreBLEU counts resamples strictly above the difference, so it calls a system significantly
    # better than its own copy. A difference of at least 0 is certain.
    p_value = float(result.p_value) if difference else 1.0
    return replace(score, difference=difference, p_value=p_value)


def check_lines(hyps: Sequence[str], refs: Sequence[str], hyp_name: str = "hypotheses") -> None:
    """Raise a UserError unless both have the same number of lines, at least one."""
    if len(hyps) != len(refs):
        raise UserError(
            f"{quantity(len(hyps), 'line')}, but the reference has {len(refs):,}",
            at=hyp_name,
            fix="give one hypothesis for each reference line; keep blank lines",
        )
    if not refs:
        fix = "give a file with one translation a line"
        raise UserError("no lines to score", at=hyp_name, fix=fix)
