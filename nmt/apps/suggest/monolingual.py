"""Use monolingual text of the target language, which lies next to a corpus, as copied pairs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from nmt.apps.suggest.choices import Choice, Suggestion
from nmt.apps.suggest.corpus import CorpusPaths
from nmt.apps.suggest.facts import CorpusFacts, looks_tokenized
from nmt.data.lines import find_side, read_lines
from nmt.runtime.words import quantity

SHARE = (
    0.5  # copied lines for each pair in an epoch, at most, about as in recipes/public/chr-en.yaml
)


def with_copied_text(suggestion: Suggestion, paths: CorpusPaths, facts: CorpusFacts) -> Suggestion:
    """Add monolingual text to the entries of train, on both sides (Currey et al. 2017).

    It keeps names and numbers, and the target side of another domain (docs/experiments/
    public-benchmarks.md).
    """
    if paths.mono is None:
        return suggestion
    file = find_side(paths.mono, paths.tgt)
    lines = sum(1 for line in read_lines(file) if line.strip())
    if not lines:
        return suggestion
    entry: dict[str, Any] = {"path": paths.mono, "src": paths.tgt, "tgt": paths.tgt}
    if (form := bool(looks_tokenized([file, file]))) != facts.tokenized:
        entry["tokenized"] = form
    if (weight := round(SHARE * facts.pairs / lines, 2)) < 1:
        entry["weight"] = max(weight, 0.01)

    def added(choice: Choice) -> Choice:
        if choice.key != "data.train":
            return choice
        own = choice.value if isinstance(choice.value, list) else [choice.value]
        entries = [each if isinstance(each, dict) else {"path": each} for each in own]
        why = f"{quantity(lines, 'line')} of {Path(file).name} copied to both sides"
        return replace(choice, value=[*entries, entry], why=f"{choice.why}; {why}")

    return replace(suggestion, choices=[added(choice) for choice in suggestion.choices])
