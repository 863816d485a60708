"""Collect the facts of a corpus that determine its recipe: size, lengths, scripts, tokenization.

A sample is segmented, to know lengths in pieces and to time updates with real batches.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from nmt.apps.suggest.characters import LackingCharacters, lacking_characters
from nmt.apps.suggest.corpus import CorpusPaths
from nmt.config.entries import Direction
from nmt.config.recipe import Recipe, SegmentConfig, SentencePieceConfig
from nmt.data.bitext import Bitext, Chunk, RecipeFiles, read_pairs
from nmt.data.checks import Escapes
from nmt.data.encoded import SIDES
from nmt.data.lines import find_side
from nmt.data.report import CorpusReport
from nmt.data.scan import read_corpora
from nmt.data.segmenters import Segmenter, learn_segmenter
from nmt.data.vocab import UNK, Vocab
from nmt.text.languages import UNSPACED, scripts_of

SAMPLE = 20_000  # maximum number of evenly spaced pairs whose characters and pieces are counted
MIN_SHARE = 0.05  # of the letters of a side, for a script to be named
FEW_MARKS = 0.02  # a pair; with fewer full stops and commas, they do not show the form of a text
_APART, _JOINED = (re.compile(rf"(?<={before})[.,。\uff0c،](?=\s|$)") for before in (r"\s", r"\w"))
# Where a tokenizer has separated the words of these scripts, each space of a line has 2 to 5
# characters. Raw text has a space between phrases or sentences, and none in a short line.
MAX_WORD = 7
CHARACTERS_PER_WORD = 2  # in Chinese and Japanese, if neither side has spaces


@dataclass(frozen=True)
class SideFacts:
    """One side of the training text."""

    lang: str
    words: int  # separated by white space
    mean_words: float  # of a line
    p99_words: int  # 99th percentile
    scripts: dict[str, float]  # share of the letters of each script, the largest first
    spaced: bool  # whether spaces separate words


@dataclass(frozen=True)
class CorpusFacts:
    """The facts of a corpus."""

    src: SideFacts
    tgt: SideFacts
    pairs: int  # of train, that pass the checks
    target_words: int  # estimated if the target side has no spaces
    tokenized: bool  # ``data.tokenized`` of the recipe
    forms: Mapping[str, bool]  # train, dev and test -> whether the files seem to be tokenized
    characters: int  # different ones in the sample
    lacking: Sequence[LackingCharacters]  # of dev and test, where train lacks many
    report: CorpusReport
    sample: list[tuple[str, str]]  # evenly spaced pairs of train


def collect_facts(paths: CorpusPaths, progress: bool, in_form: bool | None = None) -> CorpusFacts:
    """Check a corpus as nmt-train does, and measure its training text.

    Args:
        progress: show bars on a terminal.
        in_form: ``data.tokenized`` of the recipe, to which the text is converted; None = true if
            all files are tokenized.

    Raises:
        UserError: the files have different numbers of lines, or a check failed.
    """
    forms = forms_of(paths)
    tokenized = all(forms.values()) if in_form is None else in_form
    recipe = _bare_recipe(paths, forms, tokenized)
    report, training, _ = read_corpora(recipe, RecipeFiles.of(recipe), progress)
    # nmt-suggest takes no key=value
    report.judge(recipe.data, "write a recipe by hand, with data.checks: warn,")
    pairs = report.splits["train"].kept
    step = -(-pairs // SAMPLE)
    lengths = np.zeros((2, pairs), np.int32)
    target_characters = 0
    seen: tuple[set[str], set[str]] = (set(), set())
    sample: list[tuple[str, str]] = []
    for row, (source, target) in enumerate(pair for _, pair in training.sample("counting", 1)):
        lengths[:, row] = len(source.split()), len(target.split())
        target_characters += len(target)
        seen[0].update(source)
        seen[1].update(target)
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
        forms=forms,
        characters=len({character for pair in sample for line in pair for character in line}),
        lacking=list(lacking_characters(paths, *seen)),
        report=report,
        sample=sample,
    )


def forms_of(paths: CorpusPaths) -> dict[str, bool]:
    """Return whether the files of train, dev and test seem to be tokenized."""
    seen = {
        name: looks_tokenized(find_side(prefix, lang) for lang in (paths.src, paths.tgt))
        for name, prefix in paths.splits.items()
    }
    return {name: bool(seen["train"] if form is None else form) for name, form in seen.items()}


def _bare_recipe(paths: CorpusPaths, forms: Mapping[str, bool], tokenized: bool) -> Recipe:
    entries = {
        name: {"path": path, "tokenized": forms[name]} for name, path in paths.splits.items()
    }
    data = {**entries, "tokenized": tokenized}
    return Recipe.model_validate({"src": paths.src, "tgt": paths.tgt, "data": data})


def looks_tokenized(sides: Iterable[Path]) -> bool | None:
    """Check whether the first pairs are tokenized; None = undecided.

    Most full stops and commas of tokenized text stand apart. In French, other marks do so too.
    """
    pairs = [pair for pair in islice(read_pairs(tuple(sides)), SAMPLE) if all(map(str.strip, pair))]
    apart, joined = (
        sum(len(pattern.findall(line)) for pair in pairs for line in pair)
        for pattern in (_APART, _JOINED)
    )
    if apart + joined > FEW_MARKS * len(pairs):
        return apart > joined
    return sum(Escapes.has(*pair) for pair in pairs) > Escapes.threshold * len(pairs) or None


def describe_side(lang: str, lines: Sequence[str], words: np.ndarray) -> SideFacts:
    """Measure one side.

    Args:
        lines: the sample.
        words: [pairs] words of each line of the training text.
    """
    characters: Counter[str] = Counter()
    for line in lines:
        characters.update(line)
    del characters[" "]
    letters = scripts_of(characters)
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
    """Name a script for a reader."""
    return "Han" if script == "CJK" else script.capitalize()


def target_words(src: SideFacts, tgt: SideFacts, characters: int) -> int:
    """Estimate the words of the target side, which has so many characters."""
    if tgt.spaced:
        return tgt.words
    return src.words if src.spaced else characters // CHARACTERS_PER_WORD  # about as many as src


class EncodedSample:
    """The sample of a corpus as ids in memory, from which batches are made.

    Args:
        config: keys of the segmentation.
        vocab: of a parent, whose types it uses; None = all pieces of the sample.

    Attributes:
        src_len, tgt_len: [pairs] int64, pieces without EOS.
        draws: versions of each pair.
    """

    draws = 1

    def __init__(
        self,
        facts: CorpusFacts,
        config: SegmentConfig,
        segmenter: Segmenter,
        vocab: Vocab | None = None,
    ) -> None:
        self.config, self.segmenter = config, segmenter
        langs = facts.src.lang, facts.tgt.lang
        sides = [
            [segmenter.encode(pair[number], lang, side) for pair in facts.sample]
            for number, (lang, side) in enumerate(zip(langs, SIDES, strict=True))
        ]
        src, tgt = (Counter(p for line in side for p in line) for side in sides)
        self.vocab = vocab.with_counts(src, tgt) if vocab else Vocab.build(src, tgt)
        self._ids = [[np.array(self.vocab.ids(line)) for line in side] for side in sides]
        self.src_len, self.tgt_len = (np.array([len(line) for line in side]) for side in self._ids)

    @classmethod
    def learned(cls, facts: CorpusFacts, types: int, byte_fallback: bool) -> EncodedSample:
        """Learn the pieces from the sample.

        SentencePiece learns BPE, even if the recipe has fastBPE. It learns in one second instead of
        twenty, and makes 4 % more pieces of TED talks with the same number of types.
        """
        config = SentencePieceConfig(vocab_size=types, byte_fallback=byte_fallback)
        corpus = Bitext("sample", (), Direction(facts.src.lang, facts.tgt.lang))
        text = Chunk.of(corpus, facts.sample)
        segmenter = learn_segmenter(config, facts.tokenized, "none", [text])
        return cls(facts, config, segmenter)

    def __len__(self) -> int:
        return len(self.src_len)

    def src(self, row: int) -> np.ndarray:
        """Return the source ids of a pair."""
        return self._ids[0][row]

    def tgt(self, row: int) -> np.ndarray:
        """Return the target ids of a pair."""
        return self._ids[1][row]

    @property
    def unknown(self) -> tuple[float, float]:
        """The share of the pieces of each side, source and target, that are not types."""
        sides = (np.concatenate(ids) for ids in self._ids)
        src, tgt = (np.count_nonzero(side == UNK) / max(1, len(side)) for side in sides)
        return src, tgt

    @property
    def target_pieces(self) -> int:
        """The number of pieces of the target side, EOS included."""
        return int(self.tgt_len.sum()) + len(self)
