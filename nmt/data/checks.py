# ruff: noqa: D102 (the classes Check and Sign describe the methods)
"""Checks of the corpora: find what would make the training or its scores wrong.

A check sees each pair of all splits, dev and test first, and returns findings at the end. To add
one, write a class and add it to CHECKS. Raise VERSION if the findings of a check change.
"""

from __future__ import annotations

import hashlib
import math
import re
from abc import ABC, abstractmethod
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import regex

from nmt.data.bitext import Bitext
from nmt.data.lines import SIDES, Texts, length_ratio
from nmt.data.pair import Pair
from nmt.data.report import CorpusReport, Coverage, Finding, Places, SplitReport, Wording
from nmt.runtime.words import quantity
from nmt.text.languages import (
    LONGEST_WORD,
    MIN_SCRIPT_SHARE,
    SPACE_INSIDE,
    UNSPACED_CHARACTER,
    UNSPACED_LETTER,
    WORD,
    LanguageProfile,
    Profiles,
    base_language,
    script_of,
)
from nmt.text.near_duplicates import EXAMPLES, MIN_WORDS, RecurringTexts, is_short
from nmt.text.sentences import AbbreviationCounts, split_sentences
from nmt.text.unicode import NOT_NFC, changes

if TYPE_CHECKING:
    from nmt.config.recipe import DataConfig, SegmentConfig

# of the findings, including those from languages and near_duplicates: caches of other versions #
# are not used
VERSION = "7"
MIN_HELD_OUT = 100  # pairs; scores of a smaller split are unreliable
MIN_FORM = 20  # pairs; with fewer, signs of another form are not an error
PROFILED_PAIRS = 5000  # the letters of so many pairs are counted, then of 1 in PROFILED_ONE_IN
PROFILED_ONE_IN = 64
COUNTED_PAIRS = 50_000  # of a corpus: abbreviations are learned from their sources and the same few
MAX_CHANGES = 5  # characters that a sentence names
NEVER = 1.0  # threshold: no share is over it


def pair_hash(src: str, tgt: str) -> int:
    """Return 64 bits of a pair, the same in every process."""
    text = f"{src}\n{tgt}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little", signed=True)


@dataclass
class Scanned:
    """The state of a scan that checks use besides the pair.

    Attributes:
        splits: the numbers so far.
        kept: number of pairs that passed, by split and by entry.
        held_out: all pairs of dev and test.
        langs: source and target language of each corpus, by its name.
        corpus: that of the pair.
        split: "train", or the dev or test set.
        entry: the same, or the entry of data.train if there are several.
        both_ways: some split has the other direction.
        number: of the pair in its entry, from 1, without those that were dropped.
        key: ``pair_hash`` of the pair.
        sampled: whether the pair is one of the first, or of a few others.
    """

    data: DataConfig
    wording: Wording
    splits: dict[str, SplitReport] = field(default_factory=dict)
    kept: Counter[str] = field(default_factory=Counter)
    held_out: dict[str, list[Texts]] = field(default_factory=dict)
    langs: dict[str, tuple[str, str]] = field(default_factory=dict)
    corpus: Bitext = field(init=False)
    split: str = field(init=False)
    entry: str = field(init=False)
    both_ways: bool = field(init=False)
    number: int = field(init=False)
    key: int = field(init=False)
    sampled: bool = field(init=False)

    def start(self, corpus: Bitext, split: str, entry: str) -> None:
        """Start a corpus."""
        self.corpus, self.split, self.entry, self.number = corpus, split, entry, 0
        others = [self.langs[name] for name in self.held_out if name in self.langs]
        self.both_ways = not corpus.monolingual and corpus.langs[::-1] in others
        self.langs[corpus.name] = corpus.langs

    def next(self, pair: Pair) -> None:
        """Count a pair of the corpus that passed."""
        self.kept[self.entry] += 1
        self.number += 1
        self.key = pair_hash(pair.src, pair.tgt)
        self.sampled = self.number <= PROFILED_PAIRS or not self.key % PROFILED_ONE_IN

    def directions(self, pair: Pair) -> list[Texts]:
        """Return the pair, and its sides exchanged if a split has the other direction."""
        return [pair[:2], (pair.tgt, pair.src)] if self.both_ways else [pair[:2]]


class Check:
    """A check of the pairs of a corpus.

    Attributes:
        name: of its findings, for tables.
        threshold: share above which there is a message.
        fix: what to do.
    """

    name: ClassVar[str] = ""
    threshold: ClassVar[float] = 0.0
    fix: ClassVar[str] = ""

    def __init__(self, scanned: Scanned) -> None:
        self.scanned = scanned

    def see(self, pair: Pair, scanned: Scanned) -> None:
        """Count a pair."""

    def findings(self) -> Iterator[Finding]:
        """Yield what was found in all pairs."""
        yield from ()

    def frequent(self, at: str, places: Places, noun: str, meaning: str, fix: str) -> Finding:
        """Return a finding: how many pairs or lines of a split have a property."""
        share, count = places.count / self.scanned.kept[at], places.count
        text = f"{quantity(count, noun)} ({share:.1%}) {meaning}"
        return Finding(
            self.name, at, text, fix, share, self.threshold, count=count, examples=places.lines
        )


# ---------------------------------------------------------------- repeated text


class HeldOutPairs(Check):
    """Dev and test pairs that are also in the training data, and test pairs that are also in
    dev."""

    name = "also in the training data"

    def __init__(self, scanned: Scanned) -> None:
        super().__init__(scanned)
        self.hashes: defaultdict[str, set[int]] = defaultdict(set)
        self.exchanged: set[int] = set()  # of dev: a test set may be of the other direction
        self.shared: defaultdict[str, dict[int, str]] = defaultdict(dict)  # first place and text

    def see(self, pair: Pair, scanned: Scanned) -> None:
        if scanned.split != "train":
            if not (scanned.corpus.monolingual and is_short(pair.src)):  # as any corpus has
                self.hashes[scanned.split].add(scanned.key)
                if scanned.split.startswith("dev"):
                    self.exchanged.add(pair_hash(pair.tgt, pair.src))
            return
        for src, tgt in scanned.directions(pair):
            key = scanned.key if src is pair.src else pair_hash(src, tgt)
            for split, hashes in self.hashes.items():
                if key in hashes and key not in self.shared[split]:
                    text = f"{src} ||| {tgt}" if tgt else src
                    self.shared[split][key] = f"{pair.place}: {text}"

    def findings(self) -> Iterator[Finding]:
        for split, shared in self.shared.items():
            if shared:
                fix = "remove them from the training data"
                found = self._overlap(self.name, split, len(shared), self.hashes[split], fix)
                found.examples = list(shared.values())[:EXAMPLES]
                found.error = found.shown = True
                yield found
        test: set[int] = set().union(*(h for n, h in self.hashes.items() if n.startswith("test")))
        dev = self.exchanged.union(*(h for n, h in self.hashes.items() if n.startswith("dev")))
        if both := dev & test:
            name = "also in dev"
            fix = "dev selects checkpoints, so test scores are too high: use another data.test"
            yield self._overlap(name, "test", len(both), test, fix)

    def _overlap(self, name: str, at: str, count: int, of: set[int], fix: str) -> Finding:
        share = count / len(of)
        text = f"{share:.1%} of the {self.scanned.wording.unit}s ({count:,}) are {name}"
        fix += ", or raise data.max_overlap (now {max_overlap})"
        return Finding(name, at, text, fix, share, NEVER, overlap=share, count=count)


class HeldOutTexts(Check):
    """Sides of dev and test that are in the training data, exactly or nearly."""

    def __init__(self, scanned: Scanned) -> None:
        super().__init__(scanned)
        self.texts: list[RecurringTexts] = []

    def see(self, pair: Pair, scanned: Scanned) -> None:
        if scanned.split != "train":
            return
        if not self.texts:
            sets = scanned.held_out
            self.texts = [
                RecurringTexts({n: (p[s] for p in sets[n]) for n in sets}) for s in (0, 1)
            ]
        for sides in scanned.directions(pair):
            for texts, line in zip(self.texts, sides, strict=True):
                texts.add(line, pair.place)

    def findings(self) -> Iterator[Finding]:
        for at in self.scanned.held_out if self.texts else ():
            for side, texts in zip(SIDES, self.texts, strict=True):
                found, noun = texts.report(at), f"{self.scanned.wording.sides[side]}text"
                text = (
                    f"{found.share:.1%} of {quantity(found.of, noun)} of at least {MIN_WORDS} "
                    f"words are also in the training data: {found.same:,} exactly, {found.near:,} "
                    "nearly"
                )
                if found.share:
                    yield Finding(
                        f"{noun}s also in the training data",
                        at,
                        text,
                        share=found.share,
                        threshold=0.1,
                        overlap=found.same / found.of,
                        count=found.same + found.near,
                        examples=found.examples,
                        shown=True,
                    )


class Duplicates(Check):
    """Duplicate pairs within a split."""

    name = "duplicates"

    def __init__(self, scanned: Scanned) -> None:
        super().__init__(scanned)
        self.hashes: defaultdict[str, array[int]] = defaultdict(lambda: array("q"))

    def see(self, pair: Pair, scanned: Scanned) -> None:
        self.hashes[scanned.split].append(scanned.key)

    def findings(self) -> Iterator[Finding]:
        for at, stored in self.hashes.items():
            hashes = np.sort(np.frombuffer(stored, np.int64))
            if count := int(np.count_nonzero(hashes[1:] == hashes[:-1])):
                text, share = quantity(count, "duplicate"), count / len(hashes)
                yield Finding(self.name, at, text, "", share, NEVER, count=count, shown=True)


# ---------------------------------------------------------------- languages

SWAPPED_THRESHOLD = 0.05  # sides are swapped if the other side overlaps by this much more
OVERLAP_THRESHOLD = 0.4  # below it, a side differs in language from its training text
SAME_THRESHOLD = 0.8  # above it, source and target are in the same language, or very close ones


class Languages(Check):
    """Sides whose language does not match their code or that of the training text."""

    def __init__(self, scanned: Scanned) -> None:
        super().__init__(scanned)
        self.train: dict[str, Profiles] = {}
        self.held_out: dict[str, Profiles] = {}

    def see(self, pair: Pair, scanned: Scanned) -> None:
        if scanned.sampled:
            of_corpora = self.train if scanned.split == "train" else self.held_out
            sides = (pair.src,) if scanned.corpus.monolingual else (pair.src, pair.tgt)
            if (profiles := of_corpora.get(scanned.corpus.name)) is None:
                profiles = of_corpora[scanned.corpus.name] = tuple(LanguageProfile() for _ in sides)
            for profile, line in zip(profiles, sides, strict=True):
                profile.add(line)

    def findings(self) -> Iterator[Finding]:
        return language_findings(self.train, self.held_out, self.scanned.langs)


def language_findings(
    train: Mapping[str, Profiles],
    held_out: Mapping[str, Profiles],
    langs: Mapping[str, tuple[str, str]],
) -> Iterator[Finding]:
    """Yield findings on the languages of the files, from their letters.

    A held-out split is compared with the corpora of the same two languages.

    Args:
        train: profiles by corpus.
        held_out: profiles by split.
        langs: source and target language of each corpus and split.
    """
    for name, sides in {**train, **held_out}.items():
        yield from _check_codes(name, sides, langs[name])
    for name, sides in train.items():
        is_pair = len(set(langs[name])) == 2 and all(side.enough for side in sides)
        if is_pair and (common := sides[0].overlap(sides[1])) > SAME_THRESHOLD:
            yield Finding(
                "languages",
                name,
                f"source and target seem to be the same language ({common:.0%} of their character "
                "bigrams are the same)",
                "check that the two files are different",
            )
    for corpus, trained in train.items():
        for split, sides in held_out.items():
            same_langs = langs[corpus] == langs[split]
            if same_langs and all(profile.enough for profile in (*trained, *sides)):
                yield from _compare(corpus, trained, split, sides, langs[split])


def _check_codes(name: str, sides: Profiles, langs: Sequence[str]) -> Iterator[Finding]:
    """Compare a text with what its language codes imply: the script, and the English article."""
    for side, other, lang in zip(sides, sides[::-1], langs, strict=False):
        script = script_of(lang)
        if side.enough and script and (share := side.script(script)) < MIN_SCRIPT_SHARE:
            text = f"only {share:.0%} of the letters of the {lang} side are "
            text += script.split()[0].capitalize()
            yield Finding("languages", name, text, f"check that the file {name}.{lang} is right")
        english = base_language(lang) == "en" and other.enough
        if english and other.english > max(0.01, 4 * side.english):
            text = f"the other side seems to be English, not the {lang} side"
            yield Finding("languages", name, text, "check that the two files are not swapped")


def _compare(
    corpus: str, train: Profiles, split: str, held_out: Profiles, langs: Sequence[str]
) -> Iterator[Finding]:
    same = [side.overlap(other) for side, other in zip(held_out, train, strict=True)]
    crossed = [side.overlap(other) for side, other in zip(held_out, train[::-1], strict=True)]
    swapped = [c > s + SWAPPED_THRESHOLD for s, c in zip(same, crossed, strict=True)]
    if all(swapped):
        text = (
            f"source and target are swapped in {split} or in {corpus}: the source side of "
            f"{split} shares {crossed[0]:.0%} of its character bigrams with the target side of "
            f"{corpus} and {same[0]:.0%} with its source side, and the target side {crossed[1]:.0%}"
            f" and {same[1]:.0%} vice versa"
        )
        yield Finding("languages", split, text, "swap the two files of one of them", error=True)
        return
    for side, lang, other in zip(range(len(same)), langs, langs[::-1], strict=False):
        if swapped[side]:
            text = (
                f"the {lang} side is more like the {other} side of {corpus} ({crossed[side]:.0%} "
                f"of its character bigrams) than like its {lang} side ({same[side]:.0%})"
            )
            yield Finding("languages", split, text, f"check that the file {split}.{lang} is right")
        elif same[side] < OVERLAP_THRESHOLD:
            text = (
                f"the {lang} side shares only {same[side]:.0%} of its character bigrams with the "
                f"{lang} side of {corpus}"
            )
            yield Finding("languages", split, text, "check that both are in the same language")


# ---------------------------------------------------------------- held-out text that differs

# Letters that differ, without those that differ by chance. Dev and test sets like their training
# text have at most 2 %, and eight sets of AmericasNLP 2025, in another spelling, 6 to 24 %.
OTHER_LETTERS = 0.05
# A letter of one spelling only, such as the typographic apostrophe: at least 2 in 1,000 letters of
# one text, and a tenth of that in the other.
OWN_LETTER, OWN_RATIO = 0.002, 10
CLUSTERED = 2.0  # times the variance of letters that are independent: a word has them together
NEW_WORDS = (
    0.1  # share of the words of a set that are not in train, beyond 1.5 times the normal one
)
OTHER_LENGTH = 1.5
LIKE_TRAIN = "like train"
MIN_LETTERS = 500  # of a set
_LETTER = regex.compile(r"[\p{L}\p{M}'\u2018\u2019`\u00b4]")


@dataclass
class TextProfile:
    """Counts of a text: its characters, its lines and all their words, and each of some words."""

    characters: Counter[str] = field(default_factory=Counter)
    lines: int = 0
    size: int = 0
    words: Counter[str] = field(default_factory=Counter)

    def add(self, line: str, words: Sequence[str], counted: bool) -> None:
        """Add a line in small letters; ``counted``: also count each of its words."""
        self.characters.update(line)
        self.lines += 1
        self.size += len(words)
        if counted:
            self.words.update(words)

    def letters(self) -> dict[str, int]:
        """Return the number of each letter, sign on a letter and apostrophe."""
        return {c: count for c, count in self.characters.items() if _LETTER.match(c)}


class OtherText(Check):
    """Dev and test sets that differ from the training text in spelling, words or lengths."""

    def __init__(self, scanned: Scanned) -> None:
        super().__init__(scanned)
        self.train: defaultdict[str, TextProfile] = defaultdict(TextProfile)  # by language
        self.held_out: defaultdict[tuple[str, int, str], TextProfile] = defaultdict(TextProfile)
        self.new: dict[str, set[str]] = {}  # by language: words of the sets that train lacks

    def see(self, pair: Pair, scanned: Scanned) -> None:
        counted = scanned.sampled or scanned.number <= COUNTED_PAIRS
        sides = (pair.src,) if scanned.corpus.monolingual else (pair.src, pair.tgt)
        for side, (line, lang) in enumerate(zip(sides, scanned.corpus.langs, strict=False)):
            line = line.lower()
            words = WORD.findall(line)
            if scanned.split != "train":
                self.held_out[scanned.split, side, lang].add(line, words, True)
                continue
            self.train[lang].add(line, words, counted)
            if lang not in self.new:
                sets = (text for (*_, other), text in self.held_out.items() if other == lang)
                self.new[lang] = set().union(*(text.words for text in sets))
            self.new[lang].difference_update(words)

    def findings(self) -> Iterator[Finding]:
        unlike: defaultdict[str, bool] = defaultdict(bool)
        for (at, side, lang), text in self.held_out.items():
            train = self.train.get(lang)
            if train is None or min(sum(t.letters().values()) for t in (text, train)) < MIN_LETTERS:
                continue
            noun = self.scanned.wording.sides[SIDES[side]]
            found = [self._letters(at, noun, lang, train, text)]
            if side or self.scanned.wording.monolingual:
                found += (
                    self._words(at, noun, lang, train, text),
                    self._length(at, noun, train, text),
                )
            yield from found
            unlike[at] |= any(finding.share > finding.threshold for finding in found)
        for at in (at for at, other in unlike.items() if not other):
            what = "like train in letters, words and length, so scores say nothing about other text"
            yield Finding(LIKE_TRAIN, at, what, "", 1.0, NEVER, shown=True)

    def _letters(
        self, at: str, noun: str, lang: str, train: TextProfile, text: TextProfile
    ) -> Finding:
        of_train, of_text = train.letters(), text.letters()
        size, of = sum(of_text.values()), sum(of_train.values())
        shares = {
            c: (of_train.get(c, 0) / of, of_text.get(c, 0) / size) for c in of_train | of_text
        }
        # expected difference of a sample of this size, by the normal distribution
        by_chance = sum(math.sqrt(2 / math.pi * CLUSTERED * p / size) for p, _ in shares.values())
        distance = (sum(abs(p - q) for p, q in shares.values()) - by_chance) / 2
        scores = {c: (p - q) ** 2 / (p + q) for c, (p, q) in shares.items()}
        shown = sorted(scores, key=scores.__getitem__, reverse=True)[:MAX_CHANGES]
        own = any(self._is_own(*shares[c], size) for c in shown)
        per_mille = ((c, *(1000 * share for share in shares[c])) for c in shown)
        listed = ", ".join(f"{c} {p:.1f} / {q:.1f}" for c, p, q in per_mille)
        return Finding(
            f"{noun}letters unlike train",
            at,
            f"the {noun}letters differ from train by {max(0.0, distance):.0%}; most of all, per "
            f"1,000 letters of train / {at}: {listed}",
            f"in another spelling, map one to the other (nmt-clean --spelling {lang}=FILE), for "
            "train, dev and input alike; in other text, expect lower scores",
            1.0 if own else distance,
            OTHER_LETTERS,
        )

    @staticmethod
    def _is_own(first: float, second: float, size: int) -> bool:
        high, low = max(first, second), min(first, second)
        return high > OWN_LETTER and high > OWN_RATIO * low and high * size > 30

    def _words(
        self, at: str, noun: str, lang: str, train: TextProfile, text: TextProfile
    ) -> Finding:
        # in the order of the text, so that words of one count always stand in the same order
        lacking = Counter({word: n for word, n in text.words.items() if word in self.new[lang]})
        share = lacking.total() / max(1, text.size)
        # Good and Turing: expected share of new words in more text of this kind
        single = sum(count == 1 for count in train.words.values())
        expected = single / max(1, train.words.total())
        return Finding(
            f"{noun}words that train lacks",
            at,
            f"{share:.0%} of the {noun}words are not in train; {expected:.0%} would be normal",
            "it has another spelling, or is about other things: expect lower scores than on text "
            "like train, and add text of this kind",
            share,
            1.5 * expected + NEW_WORDS,
            examples=[" ".join(word for word, _ in lacking.most_common(MAX_CHANGES))],
        )

    def _length(self, at: str, noun: str, train: TextProfile, text: TextProfile) -> Finding:
        mean, usual = (max(1, t.size) / t.lines for t in (text, train))
        ratio = max(mean / usual, usual / mean)
        return Finding(
            f"length of the {noun}lines",
            at,
            f"a {noun}line has {mean:.1f} words, and in train {usual:.1f}",
            "a model writes lines as long as those that it has seen: tune decode.length_alpha on "
            "lines of this length, or add such lines to train",
            ratio,
            OTHER_LENGTH,
        )


class WordSpaces(Check):
    """Sets of Chinese, Thai and similar text of which only some have spaces between words."""

    name = "spaces between words"

    def __init__(self, scanned: Scanned) -> None:
        super().__init__(scanned)
        self.counts: defaultdict[tuple[str, int], Counter[tuple[str, str]]]
        self.counts = defaultdict(Counter)

    def see(self, pair: Pair, scanned: Scanned) -> None:
        for side, line in enumerate((pair.src, pair.tgt)):
            if scanned.sampled and not line.isascii() and UNSPACED_CHARACTER.search(line):
                counts = self.counts[scanned.corpus.langs[side], side]
                counts[scanned.entry, "letters"] += len(UNSPACED_LETTER.findall(line))
                counts[scanned.entry, "spaces"] += len(SPACE_INSIDE.findall(line))

    def findings(self) -> Iterator[Finding]:
        for (lang, _), counts in self.counts.items():
            of_sets = {
                at: counts[at, "spaces"] / counts[at, "letters"]
                for at, kind in counts
                if kind == "letters" and counts[at, kind] >= MIN_LETTERS
            }
            spaced = [at for at, share in of_sets.items() if share > 1 / LONGEST_WORD]
            plain = [at for at in of_sets if at not in spaced]
            if spaced and plain and 2 * max(of_sets[at] for at in plain) < of_sets[spaced[0]]:
                yield Finding(
                    self.name,
                    spaced[0],
                    f"the {lang} text has spaces between words in {', '.join(spaced)}, and not in "
                    f"{', '.join(plain)}; scores do not show it",
                    "a model writes text as in train: remove the spaces, sed 's/ //g'",
                )


# ---------------------------------------------------------------- sizes and signs of wrong text


class Sentences(Check):
    """Statistics of the training sources for translation: sentences per line, and abbreviations."""

    name = "several sentences"

    def __init__(self, scanned: Scanned) -> None:
        super().__init__(scanned)
        self.lines: defaultdict[str, list[str]] = defaultdict(list)  # by language
        self.counts: defaultdict[str, AbbreviationCounts] = defaultdict(AbbreviationCounts)

    def see(self, pair: Pair, scanned: Scanned) -> None:
        if scanned.split == "train" and not scanned.corpus.monolingual:
            language = base_language(scanned.corpus.langs[0])
            if scanned.sampled:
                self.lines[language].append(pair.src)
            if scanned.sampled or scanned.number <= COUNTED_PAIRS:
                self.counts[language].add(pair.src)

    def findings(self) -> Iterator[Finding]:
        if not self.lines:
            return
        train = self.scanned.splits["train"]
        learned = {lang: counts.learned() for lang, counts in self.counts.items()}
        sentences = Counter(
            len(split_sentences(line, lang, known))
            for lang, lines in self.lines.items()
            for known in [frozenset(learned[lang])]
            for line in lines
        )
        train.sentences = dict(sorted(sentences.items()))
        train.abbreviations = learned
        share = 1 - sentences[1] / sentences.total()
        text = f"{share:.1%} of the sources with several sentences"
        yield Finding(self.name, "train", text, "", share, NEVER, shown=True)


class FewPairs(Check):
    """Dev and test sets that are too small."""

    def findings(self) -> Iterator[Finding]:
        wording = self.scanned.wording
        for at, split in self.scanned.splits.items():
            if at != "train" and split.kept < MIN_HELD_OUT:
                pairs = quantity(split.kept, wording.unit)
                text = f"only {pairs} with text{wording.both}, so its scores are unreliable"
                fix = f"use at least {MIN_HELD_OUT}"
                yield Finding("size", at, text, fix, count=split.kept)


class Sign(Check, ABC):
    """A sign that the text of a pair is wrong."""

    threshold: ClassVar[float]
    meaning: ClassVar[str]  # follows "12 pairs"

    def __init__(self, scanned: Scanned) -> None:
        super().__init__(scanned)
        self.places: defaultdict[str, Places] = defaultdict(Places)  # by split or entry

    @staticmethod
    @abstractmethod
    def has(src: str, tgt: str) -> bool:
        """Return whether a source and its target, "" in monolingual text, have the sign."""

    def see(self, pair: Pair, scanned: Scanned) -> None:
        if self.has(pair.src, pair.tgt):
            self.places[scanned.split].add(pair.place)

    def findings(self) -> Iterator[Finding]:
        for at, places in self.places.items():
            yield self.frequent(at, places, self.scanned.wording.unit, self.meaning, self.fix)


class SameText(Sign):
    """Pairs that are not translated."""

    name = "same text on both sides"
    threshold = 0.1
    meaning = "with the same text on both sides"
    fix = "check that the two files are different, and remove untranslated pairs"

    def see(self, pair: Pair, scanned: Scanned) -> None:
        if len(set(scanned.corpus.langs)) == 2:  # otherwise the recipe asks for copies
            super().see(pair, scanned)

    @staticmethod
    def has(src: str, tgt: str) -> bool:
        return src == tgt


class MuchLonger(Sign):
    """Lines that are probably not translations of each other."""

    name = "one side over 3 times as long"
    threshold = 0.05
    meaning = "with one side over 3 times as long as the other"
    fix = "check that line n of one file is the translation of line n of the other"

    @staticmethod
    def has(src: str, tgt: str) -> bool:
        return tgt != "" and length_ratio(src, tgt) > 3


class BpeMarks(Sign):
    """Text that is already segmented."""

    name = "already BPE-encoded (@@)"
    threshold = 0.001
    meaning = "containing @@, like text that is already BPE-encoded"
    fix = "use the text before BPE, or undo it: sed -E 's/@@( |$)//g'"

    @staticmethod
    def has(src: str, tgt: str) -> bool:
        return "@@ " in src or "@@ " in tgt


class FormSign(Sign):
    """A sign that the entry's ``tokenized`` is wrong.

    Attributes:
        in_tokenized: what the entry says.
    """

    in_tokenized: ClassVar[bool] = False

    def see(self, pair: Pair, scanned: Scanned) -> None:
        original = pair.original or pair[:2]
        if scanned.corpus.tokenized == self.in_tokenized and self.has(*original):
            self.places[scanned.entry].add(pair.place)

    def findings(self) -> Iterator[Finding]:
        for at, places in self.places.items():
            value, form = ("false", "plain") if self.in_tokenized else ("true", "Moses-tokenized")
            key = f"data.tokenized={value}"
            if at not in self.scanned.splits:
                key = f"tokenized: {value} in this entry"
            fix = f"{self.fix}set {key} if the text is {form}"
            yield self.frequent(at, places, self.scanned.wording.unit, self.meaning, fix)


class Escapes(FormSign):
    """HTML escapes, which Moses makes too."""

    name = "HTML escapes (&quot; &apos; ...)"
    threshold = 0.01
    meaning = "containing HTML escapes such as &quot;"
    fix = "replace them by their characters, or "
    pattern = re.compile(r"&(?:quot|apos|amp|lt|gt|#91|#93);")

    @classmethod
    def has(cls, src: str, tgt: str) -> bool:
        return ("&" in src or "&" in tgt) and any(map(cls.pattern.search, (src, tgt)))


class EndSign(FormSign):
    """A sign in the last two characters of a line."""

    threshold = 0.3
    pattern: ClassVar[re.Pattern[str]]

    @classmethod
    def has(cls, src: str, tgt: str) -> bool:
        return any(map(cls.pattern.fullmatch, (src[-2:], tgt[-2:])))


class AlreadyTokenized(EndSign):
    """Plain text that is tokenized; French has a space before "?" and "!"."""

    name = "already tokenized (space before a full stop)"
    meaning = "with a space before the last full stop, like tokenized text"
    pattern = re.compile(r"\s\.")


class NotTokenized(EndSign):
    """Tokenized text that is plain."""

    name = "not tokenized though data.tokenized is true"
    meaning = "without a space before the last punctuation mark, like text that is not tokenized"
    in_tokenized = True
    pattern = re.compile(r"\w[.?!]")


class UnicodeForm(Check):
    """Lines that the Unicode form ``clean`` changes.

    The recipe may have another form; references are scored unchanged.
    """

    name = "not in the Unicode form clean"

    def __init__(self, scanned: Scanned) -> None:
        super().__init__(scanned)
        self.lines: defaultdict[tuple[str, int], OtherForm] = defaultdict(OtherForm)

    def see(self, pair: Pair, scanned: Scanned) -> None:
        for side, line in enumerate((pair.src, pair.tgt)):
            if not line.isascii():
                self.lines[scanned.split, side].add(line, pair.place)

    def findings(self) -> Iterator[Finding]:
        form, wording = self.scanned.data.normalize, self.scanned.wording
        for (at, side), other in self.lines.items():
            if not other.changes:
                continue
            reference = at != "train" and side == 1 and not wording.monolingual
            fix = "text that looks equal differs for the model; set data.normalize=clean"
            threshold = 0.0
            if form != "none" and (form == "clean" or set(other.changes) == {NOT_NFC}):
                threshold = 0.0 if reference else NEVER
                fix = (
                    "these are references, which are compared as they are, and the model writes "
                    f"the form {form}, so scores are too low; convert the file if no published "
                    "score uses it"
                )
            noun = f"{wording.sides[SIDES[side]]}line"
            found = self.frequent(at, other.lines, noun, f"{self.name} ({other})", fix)
            found.name, found.threshold, found.shown = f"{noun}s {self.name}", threshold, True
            yield found


class OtherForm:
    """Lines that the Unicode form ``clean`` changes, and the number of lines with each change.

    A change is NOT_NFC, or a character that is removed.
    """

    def __init__(self, lines: Iterable[str] = ()) -> None:
        self.lines = Places()
        self.changes: Counter[str] = Counter()
        for number, line in enumerate(lines, 1):
            self.add(line, str(number))

    def add(self, line: str, place: str) -> None:
        """Count the changes of one more line."""
        if found := changes(line):
            self.lines.add(place)
            self.changes.update(found)

    def __str__(self) -> str:
        """List the changes, the most frequent first: ``U+00AD SOFT HYPHEN in 12, ...``."""
        listed = [f"{change} in {count:,}" for change, count in self.changes.most_common()]
        more = ["..."] if len(listed) > MAX_CHANGES else []
        return ", ".join(listed[:MAX_CHANGES] + more)


CHECKS: list[type[Check]] = [
    HeldOutPairs,
    HeldOutTexts,
    Duplicates,
    Languages,
    OtherText,
    WordSpaces,
    Sentences,
    FewPairs,
    SameText,
    MuchLonger,
    BpeMarks,
    Escapes,
    AlreadyTokenized,
    NotTokenized,
    UnicodeForm,
]


def findings(checks: Iterable[Check], scanned: Scanned) -> list[Finding]:
    """Return what all checks found.

    A wrong ``tokenized`` is an error if it is evidently wrong for some entries, but not for all.
    """
    found = [finding for check in checks for finding in check.findings()]
    entries = scanned.kept.keys() - scanned.splits.keys()
    of_form = [finding for finding in found if finding.at in entries]
    wrong = {
        finding.at
        for finding in of_form
        if finding.share > finding.threshold and finding.name != Escapes.name
        if scanned.kept[finding.at] >= MIN_FORM
    }
    for finding in of_form:
        finding.error = 0 < len(wrong) < len(entries)
    return found


# ---------------------------------------------------------------- after the segmentation

SMALLEST_VOCAB = 500  # types that the advice about unknown pieces recommends


def lacked_by_parent(coverage: Mapping[str, Coverage], wording: Wording) -> Iterator[Finding]:
    """Yield the share of the training subwords that are not in the parent's vocabulary."""
    for side, found in coverage.items():
        noun = f"{wording.sides[side]}subwords"
        text = f"the vocabulary of the parent lacks {found.unknown:.2%} of the {noun}"
        fix = "they become UNK; set init.vocab=new or init.vocab=extend"
        share, pieces = found.unknown, [" ".join(found.pieces)]
        name = f"unknown {noun}"
        yield Finding(name, "train", text, fix, share, 0.02, examples=pieces, shown=True)


def lacked_by_training(
    at: str, coverage: Mapping[str, Coverage], report: CorpusReport, segment: SegmentConfig
) -> Iterator[Finding]:
    """Yield the shares of a set's subwords that are UNK, or not in the training data."""
    for number, (side, found) in enumerate(coverage.items()):
        noun, pieces = f"{report.wording.sides[side]}subwords", [" ".join(found.pieces)]
        if found.unknown:
            text = f"{found.unknown:.0%} of the {noun} are unknown (UNK)"
            fix, share = _cause_of_unknown(report, segment), found.unknown
            threshold = NEVER if number else 0.5  # references may have unknown subwords
            name = f"unknown {noun}"
            yield Finding(name, at, text, fix, share, threshold, examples=pieces, error=True)
        if found.lacking:
            text = f"{found.lacking:.0%} of the {noun} are not in the training data"
            fix = (
                "they are never trained: map another spelling (nmt-clean --spelling), or add "
                "training data of this kind"
            )
            share = found.lacking
            yield Finding(f"new {noun}", at, text, fix, share, 0.1, examples=pieces)


def _cause_of_unknown(report: CorpusReport, segment: SegmentConfig) -> str:
    """Return the likely cause of many unknown pieces, and what to do.

    In a small corpus, SentencePiece with a large ``vocab_size`` ends with pieces that are complete
    words, and the characters of other words get no embedding.
    """
    if any(f.at == "train" and f.name.startswith("unknown ") for f in report.findings):
        return "the vocabulary of the parent does not fit it, so set init.vocab=new or extend"
    check = "check that its language and script are those of the training data"
    if segment.kind != "sentencepiece" or segment.file is not None:
        return f"{check}, and that segment.codes or segment.model fits the corpus"
    size = report.splits["train"].kept
    smaller = max(SMALLEST_VOCAB, size // 200 * 100)
    if segment.vocab_size <= max(size, smaller):
        return check
    pairs = quantity(size, report.wording.unit)
    return (
        f"segment.vocab_size ({segment.vocab_size:,}) is probably too large for {pairs}, so most "
        f"subwords are complete words: set segment.vocab_size={smaller}; if that does not help, "
        f"{check}"
    )


def over_batch(lengths: np.ndarray, batch_tokens: int) -> Iterator[Finding]:
    """Yield how many training pairs are longer than a batch; ``lengths`` [pairs] int, with EOS."""
    if over := int(np.count_nonzero(lengths > batch_tokens)):
        share, are = over / len(lengths), "is" if over == 1 else "are"
        text = (
            f"{quantity(over, 'pair')} ({share:.1%}) {are} longer than data.batch_tokens "
            f"({quantity(batch_tokens, 'subword')}), so each is a batch of its own"
        )
        fix = "raise data.batch_tokens or lower data.max_pieces"
        yield Finding("longer than a batch", "train", text, fix, share, count=over)
