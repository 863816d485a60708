"""Choose the exponent of the length penalty on dev by translating it with several values."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

from nmt.apps.evaluate.report import Report
from nmt.data.bitext import read_in_form
from nmt.data.lines import find_side
from nmt.decoding.translator import Translator
from nmt.runtime.progress import progress_bar
from nmt.scoring.systems import Systems, find_set
from nmt.store.folder import RunFolder
from nmt.store.results import as_score

ALPHAS = (0.0, 0.6, 1.0, 1.4, 2.0, 2.5, 3.0)
KEY = "length_alpha"


def with_lengths(systems: Systems, run: RunFolder, split: str) -> Systems:
    """Replace the system of a run by one for each of ALPHAS, the recipe's value first.

    Args:
        split: dev, or ``dev.NAME`` of several sets.

    Raises:
        UserError: the run cannot be loaded.
    """
    own = run.recipe().decode.length_alpha
    texts, words = {}, {}
    for alpha in dict.fromkeys([own, *ALPHAS]):
        name = f"{KEY}={alpha:g}"
        texts[name], words[name] = _translate(run, split, alpha)
    return replace(systems, texts=texts, words=words)


def _translate(run: RunFolder, split: str, length_alpha: float) -> tuple[list[str], list[str]]:
    """Translate a set again; return the translations as text to score and as words."""
    recipe, (_, entry) = run.recipe(), find_set(run, split)
    src, tgt = entry.langs(recipe)
    file, tokenized = find_side(entry.path, src), recipe.data.tokenized
    lines = read_in_form(file, src, entry.is_tokenized(recipe.data), tokenized)
    translator = Translator.load(run.path)
    segmenter = translator.codec.segmenter
    moses, texts, words = segmenter.moses, [], []
    options: dict[str, Any] = {"split": "line", **recipe.options_for(entry), KEY: length_alpha}
    with progress_bar("translating", "lines", len(lines)) as bar:

        def progress(finished: int) -> None:
            bar.update(finished)

        for best, *_ in translator.stream(lines, progress=progress, **options):
            tokens = segmenter.decode_tokenized(best.pieces, tgt)
            words.append(moses.words_to_score(best.text, tokens, tgt))
            texts.append(moses.text_to_score(best.text, words[-1], tgt))
    return texts, words


def choice(result: Report, run: RunFolder) -> str:
    """Describe the best exponent by the metric that selects checkpoints, and how to use it."""
    select_by = run.recipe().score.select_by
    scores = {
        name: {entry.name: entry for entry in entries} for name, entries in result.scores.items()
    }
    own = next(iter(scores))
    metric = select_by if select_by in scores[own] else next(iter(scores[own]))
    best = max(scores, key=lambda name: as_score(metric, scores[name][metric].value))
    value = f"{metric} {scores[best][metric].value:.2f}"
    if best == own:
        return f"{own}, that of the recipe, is the best of these ({value})"
    alpha = best.partition("=")[2]
    certain = "" if scores[best][metric].significant else ", which is not significant"
    return (
        f"{best} is the best of these ({value}, {scores[best][metric].difference:+.2f}{certain}): "
        f"write decode: {{{KEY}: {alpha}}} into the recipe, or run "
        f"nmt-translate {shlex.quote(str(run.path))} --length-alpha {alpha}"
    )
