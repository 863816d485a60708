"""Collect the facts of a corpus that decide its recipe: size, lengths, scripts, tokenization."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from nmt.apps.suggest.corpus import CorpusPaths
from nmt.config.recipe import Recipe
from nmt.data.bitext import Bitext, CorpusFiles, Sides, pairs_in_form
from nmt.data.checks import (
    ALREADY_TOKENIZED,
    ESCAPES,
    NOT_TOKENIZED,
    PAIR_CHECKS,
    all_warnings,
    raise_on_failures,
)
from nmt.data.languages import UNSPACED, script_of_letter
from nmt.data.report import CorpusReport
from nmt.data.scan import SplitCheck, read_corpora
from nmt.data.text import Pair, find_side

SAMPLE = 20_000  # maximum number of evenly spaced pairs whose characters and pieces are counted
MIN_SHARE = 0.05  # of the letters of a side, for a script to be named
# Where a tokenizer has separated the words of these scripts, each space of a line has 2 to 5
# characters. Raw text has a space between phrases or sentences, and none in a short line.
MAX_WORD = 7
CHARACTERS_PER_WORD = 2  # in Chinese and Japanese, if neither side has spaces


@dataclass(frozen=True)
class SideFacts:
    """One side of the training text.

    Attributes:
        words: number of words, separated by white space.
        mean_words, p99_words: mean and 99th percentile of the words of a line.
        scripts: share of the letters of each script, the largest first.
        spaced: whether spaces separate words.
    """

    lang: str
    words: int
    mean_words: float
    p99_words: int
    scripts: dict[str, float]
    spaced: bool


@dataclass(frozen=True)
class CorpusFacts:
    """What is known of a corpus.

    Attributes:
        pairs: training pairs that pass the checks.
        target_words: words of the target side; estimated if it has no spaces.
        tokenized: whether the text seems to be tokenized.
        characters: number of different characters in the sample.
        report: of the corpus checks.
        sample: evenly spaced training pairs.
    """

    src: SideFacts
    tgt: SideFacts
    pairs: int
    target_words: int
    tokenized: bool
    characters: int
    report: CorpusReport
    sample: list[Pair]


def collect_facts(paths: CorpusPaths, progress: bool) -> CorpusFacts:
    """Check a corpus as nmt-train does, and measure its training text.

    Args:
        progress: show bars on a terminal.

    Raises:
        UserError: the files have different numbers of lines, or a check failed.
    """
    tokenized = looks_tokenized(
        (find_side(paths.train, paths.src), find_side(paths.train, paths.tgt))
    )
    recipe = _bare_recipe(paths, tokenized)
    files = CorpusFiles.of(recipe)
    report, training, _ = read_corpora(recipe, files, progress)
    by_hand = "write a recipe by hand, with data.checks: warn,"  # --suggest takes no key=value
    raise_on_failures(report, recipe.data, recipe.segment, by_hand)
    report.warnings = all_warnings(report, recipe.data, recipe.segment)
    pairs = report.splits["train"].kept
    step = -(-pairs // SAMPLE)
    lengths = np.zeros((2, pairs), np.int32)
    target_characters = 0
    sample: list[Pair] = []
    for row, (source, target) in enumerate(pair for _, pair in training.sample("counting", 1)):
        lengths[:, row] = len(source.split()), len(target.split())
        target_characters += len(target)
        if not row % step:
            sample.append((source, target))
    src, tgt = (
        describe_side(lang, [pair[side] for pair in sample], lengths[side])
        for side, lang in enumerate((paths.src, paths.tgt))
    )
    return CorpusFacts(
        src=src,
        tgt=tgt,
        pairs=pairs,
        target_words=target_words(src, tgt, target_characters),
        tokenized=tokenized,
        characters=len({character for pair in sample for line in pair for character in line}),
        report=report,
        sample=sample,
    )


def _bare_recipe(paths: CorpusPaths, tokenized: bool) -> Recipe:
    """Return a recipe that only names the corpus."""
    data = {"train": paths.train, "dev": paths.dev, "test": paths.test, "tokenized": tokenized}
    return Recipe.model_validate({"src": paths.src, "tgt": paths.tgt, "data": data})


def looks_tokenized(sides: Sides) -> bool:
    """Return whether the checks find that the text is tokenized, from the first pairs."""
    corpus = Bitext("train", sides, ("", ""), None)
    pairs = list(islice(pairs_in_form(corpus, tokenized=False), SAMPLE))
    thresholds = {check.name: check.threshold or 0 for check in PAIR_CHECKS}

    def is_frequent(sign: str, tokenized: bool) -> bool:
        check = SplitCheck()
        checked = sum(1 for _ in check.passed(replace(corpus, tokenized=tokenized), pairs))
        return check.split.suspicious[sign].count > thresholds[sign] * checked

    # text of web pages has escapes too, but no spaces before its full stops
    return is_frequent(ALREADY_TOKENIZED, tokenized=False) or (
        is_frequent(ESCAPES, tokenized=False) and not is_frequent(NOT_TOKENIZED, tokenized=True)
    )


def describe_side(lang: str, lines: Sequence[str], words: np.ndarray) -> SideFacts:
    """Return the facts of one side.

    Args:
        lines: the sample.
        words: [pairs] words of each line of the training text.
    """
    characters: Counter[str] = Counter()
    for line in lines:
        characters.update(line)
    del characters[" "]
    letters: Counter[str] = Counter()
    for character, count in characters.items():
        if character.isalpha():
            letters[script_of_letter(character)] += count
    total = max(1, letters.total())
    scripts = {name: n / total for name, n in letters.most_common() if n / total >= MIN_SHARE}
    unspaced = sum(share for name, share in scripts.items() if name in UNSPACED)
    spaces = sum(max(0, len(line.split()) - 1) for line in lines)
    return SideFacts(
        lang=lang,
        words=int(words.sum()),
        mean_words=float(words.mean()),
        p99_words=int(np.percentile(words, 99)),
        scripts=scripts,
        spaced=unspaced < 0.5 or characters.total() <= MAX_WORD * spaces,
    )


def script_name(script: str) -> str:
    """Return the name of a script for a reader."""
    return "Han" if script == "CJK" else script.capitalize()


def target_words(src: SideFacts, tgt: SideFacts, characters: int) -> int:
    """Return the number of words of the target side.

    A target side without spaces has about as many words as its source.

    Args:
        characters: of the target side.
    """
    if tgt.spaced:
        return tgt.words
    return src.words if src.spaced else characters // CHARACTERS_PER_WORD
