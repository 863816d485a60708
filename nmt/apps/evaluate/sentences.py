"""Write the scores of every line as tab-separated values, for spreadsheets and pandas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nmt.scoring.metrics import METRICS, sentence_scores
from nmt.scoring.systems import Systems

HEADER = "system\tline\t"  # each table begins with it


def sentence_table(
    systems: Systems, metrics: Sequence[str], documents: Sequence[str]
) -> Iterator[str]:
    """Yield a header and one row for each line and system, with their texts, without line ends.

    The columns are system, line (from 1), document, one for each metric, source, reference and
    hypothesis. Those of documents and sources are left out if these are unknown. Tabs and line
    ends inside a text become spaces. With several references, scores count all of them, and the
    column has the first.

    Args:
        metrics: keys of METRICS; those on words are left out, as tokenized BLEU is not smoothed.
        documents: the document id of each line; empty = not known.
    """
    on_text = [name for name in metrics if not METRICS[name].on_words]
    ids = [documents] if documents else []
    sources = [systems.sources] if systems.sources else []
    names = [*["document"] * len(ids), *on_text, *["source"] * len(sources)]
    yield HEADER + "\t".join([*names, "reference", "hypothesis"])
    for system, hyps in systems.texts.items():
        scores = sentence_scores(hyps, systems.refs, on_text, systems.tgt_lang, systems.other_refs)
        values = ([f"{value:.4f}" for value in result.values] for result in scores)
        columns = [*ids, *values, *sources, systems.refs, hyps]
        for number, cells in enumerate(zip(*columns, strict=True), 1):
            yield "\t".join(" ".join(cell.split()) for cell in (system, str(number), *cells))
