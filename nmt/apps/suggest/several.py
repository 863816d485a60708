"""One recipe for several corpora: together they determine the sizes, and each has its entries."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nmt.apps.suggest.choices import Choice, Suggestion
from nmt.apps.suggest.corpus import CorpusPaths
from nmt.apps.suggest.facts import SAMPLE, CorpusFacts, collect_facts, forms_of
from nmt.config.entries import MAX_WEIGHT


def collect_all(corpora: Sequence[CorpusPaths], progress: bool) -> list[CorpusFacts]:
    """Collect the facts of each corpus; the recipe is tokenized if all files are."""
    tokenized = all(form for paths in corpora for form in forms_of(paths).values())
    return [collect_facts(paths, progress, tokenized) for paths in corpora]


def joined(parts: Sequence[CorpusFacts]) -> CorpusFacts:
    """Return the facts of all corpora as those of one, with the languages of the first."""
    if len(parts) == 1:
        return parts[0]
    first, pairs = parts[0], sum(facts.pairs for facts in parts)
    rate = min(SAMPLE / pairs, *(len(facts.sample) / facts.pairs for facts in parts))
    sample = [pair for facts in parts for pair in _spread(facts, math.ceil(rate * facts.pairs))]
    sizes: Counter[str] = Counter()
    for facts in parts:
        sizes.update({name: split.pairs for name, split in facts.report.splits.items()})
    splits = {
        name: replace(split, pairs=sizes[name]) for name, split in first.report.splits.items()
    }
    return replace(
        first,
        pairs=pairs,
        target_words=sum(facts.target_words for facts in parts),
        characters=len({character for pair in sample for line in pair for character in line}),
        report=replace(first.report, splits=splits),
        sample=sample,
    )


def _spread(facts: CorpusFacts, count: int) -> list[tuple[str, str]]:
    return [facts.sample[i * len(facts.sample) // count] for i in range(count)]


def with_all_corpora(
    suggestion: Suggestion, corpora: Sequence[CorpusPaths], parts: Sequence[CorpusFacts]
) -> Suggestion:
    """Give each corpus its entries of train, dev and test, and select for all target languages.

    An epoch has each corpus in proportion to the square root of its size. With several target
    languages, each target begins with a tag (docs/howto/related-languages.md).
    """
    entries: dict[str, list[dict[str, Any]]] = {}
    several = len({paths.tgt for paths in corpora}) > 1
    # paths of each split and direction -> the first corpus that has it, as corpora of one folder
    # share dev and test
    sets: defaultdict[tuple[str, str, str], dict[str, int]] = defaultdict(dict)
    for number, paths in enumerate(corpora, 1):
        for split, path in paths.splits.items():
            sets[split, paths.src, paths.tgt].setdefault(path, number)
    largest = max(facts.pairs for facts in parts)
    for number, (paths, facts) in enumerate(zip(corpora, parts, strict=True), 1):
        keys: dict[str, Any] = {}
        for side in ("src", "tgt"):
            if getattr(paths, side) != getattr(corpora[0], side):
                keys[side] = getattr(paths, side)
        if several:
            keys["tgt_tag"] = f"<{paths.tgt}>"
        for split, path in paths.splits.items():
            same = sets[split, paths.src, paths.tgt]
            if split != "train" and same[path] != number:
                continue
            entry = {"path": path, **keys}
            if facts.forms[split] != facts.tokenized:
                entry["tokenized"] = facts.forms[split]
            weight = min(MAX_WEIGHT, round(math.sqrt(largest / facts.pairs), 1))
            if split == "train" and weight != 1:
                entry["weight"] = weight
            if split != "train" and len(same) > 1:
                entry["name"] = f"{paths.src}-{paths.tgt}-{number}"
            entries.setdefault(split, []).append(entry)
    sizes = ", ".join(
        f"{paths.src}-{paths.tgt} {facts.pairs:,}"
        for paths, facts in zip(corpora, parts, strict=True)
    )
    reasons = {
        "train": f"pairs: {sizes}; weights by the square root of the sizes",
        "dev": "the mean of several sets chooses the best checkpoint"
        if len(entries["dev"]) > 1
        else "chooses the best checkpoint",
        "test": "scored once, at the end",
    }
    changed = {
        f"data.{split}": Choice(f"data.{split}", of_split, reasons[split])
        for split, of_split in entries.items()
    }
    choices = [changed.pop(choice.key, choice) for choice in suggestion.choices]
    after = max(i for i, choice in enumerate(choices) if choice.key.startswith("data."))
    choices[after + 1 : after + 1] = changed.values()  # the first corpus has no test set
    return replace(suggestion, choices=choices)
