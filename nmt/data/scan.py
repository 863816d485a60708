"""Read and check the corpora of a recipe: one pass over the pairs of all splits.

The pass decides which pairs train, and counts what is suspicious, what is duplicated, and what
occurs in several splits. ``nmt.data.checks`` judges the numbers.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nmt.data.augment import Augmenter, Draws
from nmt.data.bitext import Bitext, CorpusPair, RecipeFiles, TrainingText, pairs_in_form
from nmt.data.checks import PAIR_CHECKS
from nmt.data.languages import LanguageProfile, Profiles, base_language, check_languages
from nmt.data.near_duplicates import EXAMPLES, RecurringTexts, is_short
from nmt.data.report import (
    Augmented,
    CorpusForm,
    CorpusReport,
    Finding,
    LanguageFindings,
    OtherForm,
    Overlap,
    RoundTrip,
    SharedPairs,
    SplitReport,
    Wording,
)
from nmt.data.segmenters.base import Segmenter
from nmt.data.sentences import AbbreviationCounts, split_sentences
from nmt.data.text import SIDES, Pair, is_blank, quantity
from nmt.errors import UserError
from nmt.runtime.progress import counted

if TYPE_CHECKING:
    from nmt.config.recipe import DataConfig, Recipe

MAX_PIECE_LENGTH = 20  # characters per allowed piece; a longer line has too many pieces
PROFILED_PAIRS = 5000  # the letters of so many pairs are counted, then of 1 in PROFILED_ONE_IN
PROFILED_ONE_IN = 64
COUNTED_PAIRS = 50_000  # of a corpus: abbreviations are learned from their sources and the same few
LENGTHS = "data.max_len and data.max_pieces"
ROUND_TRIPS = 2000  # pairs that are segmented and joined again
AUGMENTED = 500  # pairs that each kind of data.augment changes for the report
SHOWN_PIECES = 10  # of those that the vocabulary lacks


class Limits(NamedTuple):
    """Maximum length of a side of a training pair: words, and pieces after segmentation."""

    words: int
    pieces: int

    @property
    def characters(self) -> int:
        """Maximum characters of a line: segmenting a longer one could take minutes."""
        return MAX_PIECE_LENGTH * self.pieces


def read_corpora(
    recipe: Recipe, files: RecipeFiles, progress: bool
) -> tuple[CorpusReport, TrainingText, dict[str, list[Pair]]]:
    """Return the report, the training pairs to use, and all pairs of dev and test.

    Raises:
        UserError: a split has no pair with text on both sides, or no training pair is left, in all
            entries or in one.
    """
    data, wording = recipe.data, Wording.of(not recipe.translates)
    held_out: dict[str, list[Pair]] = {}
    checks: dict[str, SplitCheck] = {}
    for name, corpus in files.held_out.items():
        check = checks[name] = SplitCheck()
        pairs = list(pairs_in_form(corpus, data.tokenized, check.normalized))
        held_out[name] = [found.pair for found in pairs]  # all lines of a set stay
        list(check.filter(corpus, pairs))
        if not check.split.kept:
            raise UserError(
                f"no {wording.unit} has text{wording.both} ({check.report().why_empty()})",
                at=f"data.{name} ({corpus})",
                fix="scores need text: check the files",
            )
    hashes = {name: check.comparable for name, check in checks.items()}
    recurring = [
        RecurringTexts({name: (pair[side] for pair in held_out[name]) for name in held_out})
        for side in (0, 1)
    ]
    train = SplitCheck(Limits(data.max_len, data.max_pieces), hashes, recurring)
    text = TrainingText(progress)
    for corpus in files.train:
        training_pairs = pairs_in_form(corpus, data.tokenized, train.normalized)
        shown = counted(training_pairs, f"checking {corpus.name}", "pairs", show=progress)
        both_ways = not corpus.monolingual and any(
            corpus.langs == split.langs[::-1] for split in files.held_out.values()
        )
        before = train.split.pairs
        text.add(corpus, train.filter(corpus, shown, both_ways))
        if not train.forms[-1].kept and len(files.train) > 1:
            too_few = f"all {wording.unit}s {wording.blank} or are too long"
            raise UserError(
                too_few if train.split.pairs > before else "the files are empty",
                at=f"data.train[{len(text.corpora) - 1}] ({corpus})",
                fix=f"check the files, {LENGTHS}, or remove this entry",
            )
    corpora = {corpus.name: corpus for corpus in files.train} | files.held_out
    report = CorpusReport(
        splits={"train": train.report(), **{name: c.report() for name, c in checks.items()}},
        overlap=train.overlap(),
        test_in_dev=_test_in_dev(hashes, held_out),
        languages=LanguageFindings(
            *check_languages(
                train.profiles,
                {name: c.profiles[name] for name, c in checks.items()},
                {name: corpus.langs for name, corpus in corpora.items()},
            )
        ),
    )
    require_training_pairs(report.splits["train"], files)
    return report, text, held_out


def read_to_learn_from(
    corpora: Sequence[Bitext], data: DataConfig, progress: bool, key: str = "segment.learn_from"
) -> TrainingText:
    """Read corpora that only the segmentation is learned from: filtered, and not checked.

    Raises:
        UserError: no pair is left; ``key`` is where the recipe has the corpora.
    """
    limits = Limits(data.max_len, data.max_pieces)
    text = TrainingText(progress)
    for corpus in corpora:
        pairs = pairs_in_form(corpus, data.tokenized)
        shown = counted(pairs, "reading", "pairs", show=progress)
        usable = (
            found
            for found in shown
            if not is_blank(found.pair[0]) and not _reason(corpus, found.pair, limits)
        )
        text.add(corpus, usable)
    if not any(text.sizes):
        wording = Wording.of(corpora[0].monolingual)
        raise UserError(
            f"no {wording.unit} has text{wording.both}",
            at=f"{key} ({', '.join(str(corpus.sides[0]) for corpus in corpora)})",
            fix=f"check the files, {LENGTHS}",
        )
    return text


def round_trip(segmenter: Segmenter, training: TrainingText) -> RoundTrip:
    """Segment some target lines and join them again, and count those that change.

    The form of ``data.normalize`` and the kind of white space do not count.
    """
    trip = RoundTrip()
    step = -(-sum(training.sizes) // ROUND_TRIPS)
    for corpus, (_, line) in training.sample("checking the words", step):
        lang = corpus.langs[1]
        before = " ".join(segmenter.moses.normalize(line).split())
        after = segmenter.decode(segmenter.encode(line, lang, "tgt"), lang)
        trip.lines += 1
        if after != before:
            trip.changed += 1
            if not trip.before or len(before) < len(trip.before):  # a short example
                trip.before, trip.after = before, after
    return trip


def check_augmented(
    augmenter: Augmenter,
    segmenter: Segmenter,
    known: Collection[str] | None,
    training: TrainingText,
) -> dict[str, Augmented]:
    """Change some training pairs by each kind of ``data.augment``, and find unknown pieces.

    ``known``: the types of a vocabulary that is given; None = it is made of the changed text.
    """
    found = {kind: Augmented() for kind in augmenter.shares}
    step = -(-sum(training.sizes) // AUGMENTED)
    sample = list(training.sample("checking data.augment", step))
    pairs = [pair for _, pair in sample]
    for i, (corpus, pair) in enumerate(sample):
        for kind, result in found.items():
            changed = augmenter.change(pairs, i, [kind], Draws(i), corpus.langs)
            result.pairs += 1
            if changed == pair:
                continue
            result.changed += 1
            if known is None:
                continue
            pieces = [
                piece
                for side, line, lang in zip(SIDES, changed, corpus.langs, strict=True)
                for piece in segmenter.encode(line, lang, side)
                if piece not in known
            ]
            result.unknown += bool(pieces)
            result.pieces = list(dict.fromkeys([*result.pieces, *pieces]))[:SHOWN_PIECES]
    return found


def require_training_pairs(train: SplitReport, files: RecipeFiles) -> None:
    """Raise UserError if no training pair is left."""
    if not train.kept:
        unit = Wording.of(files.train[0].monolingual).unit
        raise UserError(
            f"no training {unit} is left ({train.why_empty()})",
            at=f"data.train ({', '.join(map(str, files.train))})",
            fix=f"check the files, {LENGTHS}",
        )


class SplitCheck:
    """Check the pairs of one split.

    Args:
        limits: maximum lengths of training pairs; None = any, for dev and test.
        held_out: hashes of the pairs of other splits, by name.
        recurring: texts of other splits to find, of the sources and of the targets.

    Attributes:
        split: the numbers so far.
        hashes: of the pairs that passed.
        comparable: hashes of pairs that should not be in another split, as a short line may be.
        normalized: for ``read_pairs`` to count into.
        profiles: character bigrams of both sides, by corpus.
        sources: sampled lines of each source language, to count their sentences.
        abbreviations: counts of the words of each source language.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        held_out: Mapping[str, set[int]] | None = None,
        recurring: Sequence[RecurringTexts] = (),
    ) -> None:
        self.limits, self.recurring = limits, recurring
        self.held_out = held_out or {}
        self.hashes = array("q")
        self.comparable: set[int] = set()
        self.normalized: Counter[str] = Counter()
        self.split = SplitReport(
            pairs=0,
            kept=0,
            dropped={},
            suspicious={check.name: Finding() for check in PAIR_CHECKS},
            duplicates=0,
            normalized=self.normalized,
            other_form={side: OtherForm() for side in SIDES},
        )
        self.forms: list[CorpusForm] = []
        self.sources: defaultdict[str, list[str]] = defaultdict(list)
        self.abbreviations: defaultdict[str, AbbreviationCounts] = defaultdict(AbbreviationCounts)
        self.profiles: dict[str, Profiles] = {}
        # hashes of the pairs of each split that occur here, with the first place and its text
        self._shared: dict[str, dict[int, str]] = {name: {} for name in self.held_out}

    def filter(
        self, corpus: Bitext, pairs: Iterable[CorpusPair], both_ways: bool = False
    ) -> Iterator[CorpusPair]:
        """Count what is wrong with the pairs of a corpus; yield those with text, not too long.

        Args:
            pairs: whether a text is tokenized is checked in the originals.
            both_ways: compare the pairs with other splits also with their sides exchanged: some
                split has the other direction.
        """
        split, monolingual = self.split, corpus.monolingual
        if monolingual:
            split.blank = split.blank or 0
        new = (LanguageProfile(),) if monolingual else (LanguageProfile(), LanguageProfile())
        profiles = self.profiles.setdefault(corpus.name, new)
        language = base_language(corpus.langs[0])
        splits = self.limits is not None and not monolingual  # translation may split such sources
        form = CorpusForm(corpus.name, corpus.tokenized)
        self.forms.append(form)
        for found in pairs:
            src, tgt = found.pair
            split.pairs += 1
            if monolingual and not src:
                split.blank = (split.blank or 0) + 1
                yield found
                continue
            place = f"{corpus.name}:{found.number}"
            if reason := _reason(corpus, found.pair, self.limits):
                split.dropped.setdefault(reason, Finding()).add(place)
                continue
            split.kept += 1
            self._find_suspicious(form, found, place)
            key = pair_hash(src, tgt)
            self.hashes.append(key)
            if not (self.limits or (monolingual and is_short(src))):
                self.comparable.add(key)
            sampled = not key % PROFILED_ONE_IN
            if splits and (sampled or form.kept <= COUNTED_PAIRS):
                self.abbreviations[language].add(src)
            if sampled or form.kept <= PROFILED_PAIRS:
                for profile, line in zip(profiles, (src, tgt), strict=False):
                    profile.add(line)
                if splits:
                    self.sources[language].append(src)
            self._compare(key, src, tgt, place)
            if both_ways:
                self._compare(pair_hash(tgt, src), tgt, src, place)
            yield found

    def report(self) -> SplitReport:
        """Return the numbers of the split."""
        hashes = np.sort(np.frombuffer(self.hashes, np.int64)) if self.hashes else np.empty(0)
        split = self.split
        learned = {lang: counts.learned() for lang, counts in self.abbreviations.items()}
        sentences = Counter(
            len(split_sentences(line, lang, learned[lang]))
            for lang, lines in self.sources.items()
            for line in lines
        )
        return replace(
            split,
            suspicious={name: f for name, f in split.suspicious.items() if f.count},
            duplicates=int(np.count_nonzero(hashes[1:] == hashes[:-1])),
            other_form={side: form for side, form in split.other_form.items() if form.changes},
            forms=self.forms if len(self.forms) > 1 else None,
            sentences=dict(sorted(sentences.items())) or None,
            abbreviations={lang: words for lang, words in learned.items() if words} or None,
        )

    def overlap(self) -> dict[str, Overlap]:
        """Return which distinct pairs and texts of each held-out split occur here."""
        found = {}
        for name, hashes in self.held_out.items():
            shared = self._shared[name]
            sources, targets = (texts.report(name) for texts in self.recurring)
            share = len(shared) / max(1, len(hashes))
            examples = list(shared.values())[:EXAMPLES]
            found[name] = Overlap(len(shared), share, examples, sources, targets)
        return found

    def _find_suspicious(self, form: CorpusForm, found: CorpusPair, place: str) -> None:
        form.kept += 1
        for check in PAIR_CHECKS:
            if check.form is None:
                if check.pair(*found.pair):
                    self.split.suspicious[check.name].add(place)
            elif check.form == form.tokenized and check.pair(*found.original):
                self.split.suspicious[check.name].add(place)
                form.signs.setdefault(check.name, Finding()).add(place)
        for side, line in zip(SIDES, found.pair, strict=True):
            self.split.other_form[side].add(line, place)

    def _compare(self, key: int, src: str, tgt: str, place: str) -> None:
        """Find a pair, whose hash is ``key``, and its sides in the other splits."""
        for name, hashes in self.held_out.items():
            if key in hashes and key not in self._shared[name]:
                text = f"{src} ||| {tgt}" if tgt else src
                self._shared[name][key] = f"{place}: {text}"
        for texts, line in zip(self.recurring, (src, tgt), strict=False):
            texts.add(line, place)


def pair_hash(src: str, tgt: str) -> int:
    """Return 64 bits of a pair, the same in every process."""
    text = f"{src}\n{tgt}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little", signed=True)


def reason_to_drop(src: str, tgt: str | None, limits: Limits | None) -> str | None:
    """Return why a pair is left out of training, or None if it is not.

    A line of text, with ``tgt`` None, may have any number of words: blocks divide it.
    """
    sides = [src] if tgt is None else [src, tgt]
    if tgt is not None and any(blank := [is_blank(side) for side in sides]):
        return "both sides blank" if all(blank) else f"{'source' if blank[0] else 'target'} blank"
    if limits is None:
        return None
    for side in sides if tgt is not None else ():
        if len(side) > 2 * limits.words and len(side.split()) > limits.words:
            return f"longer than {quantity(limits.words, 'word')}"
    if any(len(side) > limits.characters for side in sides):
        return f"longer than {quantity(limits.characters, 'character')}"
    return None


def _reason(corpus: Bitext, pair: Pair, limits: Limits | None) -> str | None:
    src, tgt = pair
    return reason_to_drop(src, None if corpus.monolingual else tgt, limits)


def _test_in_dev(
    hashes: Mapping[str, set[int]], held_out: Mapping[str, Sequence[Pair]]
) -> SharedPairs:
    """Count the test pairs that are in dev, also with their sides exchanged."""
    dev: set[int] = set()
    test: set[int] = set()
    for name, set_hashes in hashes.items():
        if name.startswith("test"):
            test |= set_hashes
        else:  # a test set may be of the other direction
            dev |= set_hashes | {pair_hash(tgt, src) for src, tgt in held_out[name]}
    pairs = len(dev & test)
    return SharedPairs(pairs, pairs / max(1, len(test)))
