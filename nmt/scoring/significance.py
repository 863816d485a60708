"""Is the difference between systems more than chance? Paired bootstrap, by sacreBLEU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sacrebleu.significance import PairedTest, Result

from nmt.scoring.metrics import METRICS, RESAMPLES, Score, check_lines

LEVEL = 0.05
"""A p-value below this is called significant."""


@dataclass(frozen=True)
class Compared:
    """One score of one system, beside the baseline's.

    Attributes:
        score: with its 95 % interval.
        difference: value minus the baseline's; None for the baseline itself.
        p_value: how probable a difference at least this large is by chance; None for the baseline.
    """

    score: Score
    difference: float | None = None
    p_value: float | None = None


def paired_bootstrap(
    systems: Mapping[str, Sequence[str]],
    refs: Sequence[str],
    metrics: Sequence[str],
    tgt_lang: str,
    resamples: int = RESAMPLES,
) -> dict[str, list[Compared]]:
    """Compares every system with the first by paired bootstrap resampling (Koehn 2004).

    Args:
        systems: name -> hypotheses, at least two; the first is the baseline. Plain text, or words
            for the metric ``tokenized_bleu``.
        refs: their reference.
        metrics: keys of METRICS.
        tgt_lang: language code; decides BLEU's tokenizer.
        resamples: bootstrap resamples.

    Returns:
        Name -> one entry per metric; the numbers are those of ``sacrebleu --paired-bs``, but for
        equal scores p is 1.

    Raises:
        UserError: the line counts differ, or there are none.
    """
    for name, hyps in systems.items():
        check_lines(hyps, refs, name)
    compared: dict[str, list[Compared]] = {name: [] for name in systems}
    named: list[tuple[str, Sequence[str]]] = [(name, hyps) for name, hyps in systems.items()]
    for metric in metrics:  # one test each: sacreBLEU keys its results by labels like "chrF2"
        maker = METRICS[metric](tgt_lang)
        test = PairedTest(named, {metric: maker}, [list(refs)], "bs", n_samples=resamples)
        signatures, columns = test()
        label, signature = next(iter(signatures.items()))
        results = [result for result in columns[label] if isinstance(result, Result)]
        baseline = results[0].score
        for name, result in zip(systems, results, strict=True):
            compared[name].append(_compared(metric, result, str(signature), baseline))
    return compared


def _compared(metric: str, result: Result, signature: str, baseline: float) -> Compared:
    assert result.mean is not None
    assert result.ci is not None
    low, high = float(result.mean - result.ci), float(result.mean + result.ci)
    score = Score(metric, float(result.score), signature, low, high)
    if result.p_value is None:
        return Compared(score)
    difference = float(result.score - baseline)
    # sacreBLEU counts resamples strictly above the difference, and so calls a system significantly
    # better than its own copy; a difference of 0 or more is certain.
    return Compared(score, difference, float(result.p_value) if difference else 1.0)
