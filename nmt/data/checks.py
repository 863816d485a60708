"""Corpus checks before training: one pass over the pairs of all splits.

The pass decides which pairs train, and counts what is suspicious, what is duplicated, and what
occurs in several splits. Memory is bounded: 18 bytes per training pair, and the texts of dev and
test.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING

import numpy as np

from nmt.data.bitext import Bitext, CorpusFiles, read_pairs
from nmt.data.language_codes import base_language
from nmt.data.languages import (
    LanguageProfile,
    Profiles,
    check_languages,
    check_text_languages,
)
from nmt.data.near_duplicates import EXAMPLES, RecurringTexts, is_short
from nmt.data.report import (
    ALREADY_TOKENIZED,
    ESCAPES,
    NOT_TOKENIZED,
    SUSPICIONS,
    CorpusForm,
    CorpusReport,
    Finding,
    LanguageFindings,
    OtherForm,
    Overlap,
    RoundTrip,
    SharedPairs,
    SplitReport,
)
from nmt.data.segmenters.base import Segmenter, TrainingPair
from nmt.data.sentences import split_sentences
from nmt.data.text import Pair, is_blank, quantity
from nmt.data.unicode import changes
from nmt.errors import UserError
from nmt.runtime.progress import counted, progress_bar

if TYPE_CHECKING:
    from nmt.config.recipe import DataConfig, Recipe

# of the checks here, in languages and in near_duplicates; raise it when they find other things, so
# that old caches are not used
VERSION = "5"
MAX_PIECE_LENGTH = 20  # characters per allowed piece; a longer line has too many pieces
PROFILED_PAIRS = 5000  # the letters of so many pairs are counted, then of 1 in PROFILED_ONE_IN
PROFILED_ONE_IN = 64
ROUND_TRIPS = 2000  # pairs that are segmented and joined again

_ESCAPE = re.compile(r"&(?:quot|apos|amp|lt|gt|#91|#93);")
_ENDS = frozenset(".?!")
_SPACE_BEFORE_STOP = re.compile(r"\s\.$")  # French has a space before "?" and "!"
_NO_SPACE_BEFORE_MARK = re.compile(r"\w[.?!]$")


@dataclass(frozen=True)
class Limits:
    """Maximum length of a side of a training pair.

    Attributes:
        words: before segmentation.
        pieces: after segmentation.
    """

    words: int
    pieces: int

    @property
    def characters(self) -> int:
        """Maximum characters of a line: segmenting a longer one could take minutes."""
        return MAX_PIECE_LENGTH * self.pieces


@dataclass(frozen=True)
class TrainingPairs:
    """The training pairs that passed the checks.

    Attributes:
        corpora: the corpora.
        kept: [pairs] bool for each corpus.
        progress: show a bar on a terminal.
    """

    corpora: Sequence[Bitext]
    kept: Sequence[np.ndarray]
    progress: bool

    @property
    def sizes(self) -> list[int]:
        """Number of pairs of each corpus."""
        return [int(kept.sum()) for kept in self.kept]

    def read(self, action: str, copies: np.ndarray | None = None) -> Iterator[TrainingPair]:
        """Yield each pair with the number of its corpus.

        Args:
            action: title of the progress bar.
            copies: [pairs] how often to yield each pair; None = once.
        """
        counts = None if copies is None else iter(copies.tolist())
        with progress_bar(action, "pairs", sum(self.sizes), self.progress) as bar:
            for number, (corpus, kept) in enumerate(zip(self.corpora, self.kept, strict=True)):
                for src, tgt in compress(read_pairs(corpus.sides), kept.tobytes()):
                    bar.update()
                    for _ in range(1 if counts is None else next(counts)):
                        yield src, tgt, number

    def places(self, rows: Sequence[int]) -> list[str]:
        """Return ``NAME:LINE`` of the pairs with these indices among the kept ones."""
        found, first = [], 0
        for corpus, kept in zip(self.corpora, self.kept, strict=True):
            lines = np.flatnonzero(kept)
            found += [
                f"{corpus.name}:{lines[row - first] + 1}"
                for row in rows
                if first <= row < first + len(lines)
            ]
            first += len(lines)
        return found


def check_corpora(
    recipe: Recipe, files: CorpusFiles, progress: bool
) -> tuple[CorpusReport, TrainingPairs, dict[str, list[Pair]]]:
    """Check all pairs of a recipe's corpora.

    Args:
        progress: show a bar on a terminal.

    Returns:
        The report, the training pairs to use, and all pairs of dev and test.

    Raises:
        UserError: a split has no pair with text on both sides, or no training pair is left, in all
            entries or in one.
    """
    data, monolingual = recipe.data, not recipe.translates
    held_out: dict[str, list[Pair]] = {}
    checks: dict[str, SplitCheck] = {}
    for name, corpus in files.held_out.items():
        check = checks[name] = SplitCheck(data.tokenized, monolingual=monolingual)
        pairs, originals = _read(corpus, check)
        held_out[name] = list(pairs)
        check.add(held_out[name], name, corpus.original[1], originals)
        if not check.kept:
            drops = check.report().describe_drops() or "the files are empty"
            at = f"data.{name} ({', '.join(map(str, corpus.original[0]))})"
            if monolingual:
                raise UserError("no line has text", at=at, fix="check the file")
            raise UserError(
                f"no pair has text on both sides ({drops})",
                at=at,
                fix="scores need a source and a reference: check the two files",
            )
    hashes = {name: check.comparable for name, check in checks.items()}
    recurring = [
        RecurringTexts({name: (pair[side] for pair in held_out[name]) for name in held_out})
        for side in (0, 1)
    ]
    train = SplitCheck(
        data.tokenized,
        Limits(data.max_len, data.max_pieces),
        hashes,
        recurring,
        monolingual,
    )
    kept = []
    for corpus in files.train:
        pairs, originals = _read(corpus, train)
        shown = counted(pairs, f"checking {corpus.name}", "pairs", show=progress)
        both_ways = recipe.translates and any(
            corpus.langs == split.langs[::-1] for split in files.held_out.values()
        )
        lang = corpus.langs[0] if recipe.translates else None
        kept.append(train.add(shown, corpus.name, corpus.original[1], originals, both_ways, lang))
        if not train.forms[-1].kept and len(files.train) > 1:
            raise _unused_entry(corpus, kept, monolingual)
    texts = {corpus.name: corpus for corpus in files.train} | files.held_out
    report = CorpusReport(
        splits={"train": train.report(), **{name: c.report() for name, c in checks.items()}},
        overlap=train.overlap(),
        test_in_dev=_test_in_dev(hashes, held_out),
        languages=LanguageFindings(
            *(check_text_languages if monolingual else check_languages)(
                train.profiles,
                {name: c.profiles[name] for name, c in checks.items()},
                {name: text.langs for name, text in texts.items()},
            )
        ),
    )
    require_training_pairs(report.splits["train"], files)
    return report, TrainingPairs(files.train, kept, progress), held_out


def round_trip(segmenter: Segmenter, training: TrainingPairs) -> RoundTrip:
    """Segment some target lines and join them again, and count those that change.

    The form of ``data.normalize`` and the kind of white space do not count.
    """
    found = RoundTrip()
    step = -(-sum(training.sizes) // ROUND_TRIPS)
    for _, line, corpus in itertools.islice(training.read("checking the words"), 0, None, step):
        lang = training.corpora[corpus].langs[1]
        before = " ".join(segmenter.moses.normalize(line).split())
        after = segmenter.decode(segmenter.encode(line, lang), lang)
        found.lines += 1
        if after != before:
            found.changed += 1
            if not found.before or len(before) < len(found.before):  # a short example
                found.before, found.after = before, after
    return found


def _unused_entry(corpus: Bitext, kept: Sequence[np.ndarray], monolingual: bool) -> UserError:
    """Return the error of an entry of data.train that gives nothing to train on.

    Args:
        kept: of the entries up to this one.
    """
    what = "all pairs have a blank side or are too long"
    if monolingual:
        what = "all lines are blank or too long"
    return UserError(
        what if len(kept[-1]) else "the files are empty",
        at=f"data.train[{len(kept) - 1}] ({', '.join(map(str, corpus.original[0]))})",
        fix="check the files, data.max_len and data.max_pieces, or remove this entry",
    )


def pairs_to_learn_from(
    corpora: Sequence[Bitext], data: DataConfig, progress: bool, monolingual: bool
) -> TrainingPairs:
    """Return the pairs of corpora that only the segmentation is learned from, without checks.

    They are filtered like training pairs.

    Args:
        progress: show a bar on a terminal.
        monolingual: whether this is text of one language, whose pairs have no target.

    Raises:
        UserError: no pair is left.
    """
    limits = Limits(data.max_len, data.max_pieces)
    kept = []
    for corpus in corpora:
        pairs = counted(read_pairs(corpus.sides), "reading", "pairs", show=progress)
        usable = [
            not is_blank(src) and not reason_to_drop(src, None if monolingual else tgt, limits)
            for src, tgt in pairs
        ]
        kept.append(np.array(usable, bool))
    if not any(found.any() for found in kept):
        names = ", ".join(str(corpus.original[0][0]) for corpus in corpora)
        raise UserError(
            "no line has text" if monolingual else "no pair has text on both sides",
            at=f"segment.learn_from ({names})",
            fix="check the files, data.max_len and data.max_pieces",
        )
    return TrainingPairs(corpora, kept, progress)


def _read(corpus: Bitext, check: SplitCheck) -> tuple[Iterator[Pair], Iterator[Pair] | None]:
    """Return the pairs of a corpus in the form of the recipe, and the originals of these.

    The originals are None if the corpus was not converted.
    """
    original = read_pairs(corpus.original[0], check.normalized)
    if corpus.sides == corpus.original[0]:
        return original, None
    return read_pairs(corpus.sides), original


def require_training_pairs(train: SplitReport, files: CorpusFiles) -> None:
    """Raise UserError if no training pair is left."""
    if not train.kept:
        paths = [path for text in files.train for path in text.original[0][:1]]
        unit, to_check = "pair", "the files, data.max_len and data.max_pieces"
        if train.blank is not None:
            unit, to_check = "line with text", "the files and data.max_pieces"
        empty = "all lines are blank" if train.blank else "the files are empty"
        raise UserError(
            f"no training {unit} is left ({train.describe_drops() or empty})",
            at=f"data.train ({', '.join(map(str, paths))}{', ...' if unit == 'pair' else ''})",
            fix=f"check {to_check}",
        )


class SplitCheck:
    """Check the pairs of one split.

    Args:
        tokenized: whether the text is Moses-tokenized, so that escapes are normal.
        limits: maximum lengths; None = any, for dev and test.
        held_out: hashes of the pairs of other splits, by name.
        recurring: texts of other splits to find, of the sources and of the targets.
        monolingual: whether this is text of one language. Its pairs have no target, and its blank
            lines stay, because they separate documents.

    Attributes:
        pairs, kept: pairs checked, and pairs with text that passed.
        blank: blank lines of a text.
        hashes: of the pairs that passed.
        comparable: hashes of the pairs that should not be in another split; a short line of text
            may be.
        normalized: for ``read_pairs`` to count into.
        profiles: letter pairs of both sides, by corpus.
        sentences: number of sampled sources with each number of sentences.
    """

    def __init__(
        self,
        tokenized: bool = False,
        limits: Limits | None = None,
        held_out: Mapping[str, set[int]] | None = None,
        recurring: Sequence[RecurringTexts] = (),
        monolingual: bool = False,
    ) -> None:
        self.tokenized, self.limits, self.recurring = tokenized, limits, recurring
        self.held_out = held_out or {}
        self.monolingual = monolingual
        self.pairs = self.kept = self.blank = 0
        self.hashes = array("q")
        self.comparable: set[int] = set()
        self.normalized: Counter[str] = Counter()
        self.dropped: dict[str, Finding] = {}
        self.suspicious = {name: Finding() for name in SUSPICIONS}
        self.forms: list[CorpusForm] = []
        self.other_form: dict[str, OtherForm] = {}
        self.sentences: Counter[int] = Counter()
        self.profiles: defaultdict[str, Profiles] = defaultdict(
            lambda: (LanguageProfile(), LanguageProfile())
        )
        self._shared: dict[str, set[int]] = {name: set() for name in self.held_out}
        self._examples: dict[str, list[str]] = {name: [] for name in self.held_out}

    def add(
        self,
        pairs: Iterable[Pair],
        corpus: str,
        tokenized: bool | None = None,
        originals: Iterable[Pair] | None = None,
        both_ways: bool = False,
        lang: str | None = None,
    ) -> np.ndarray:
        """Check the pairs of a corpus.

        Args:
            corpus: its name, for messages.
            tokenized: whether its files are Moses-tokenized; None = as the split.
            originals: the pairs before they were converted to the form of the split; None = they
                were not. Whether a text is tokenized is checked in these.
            both_ways: compare the pairs with other splits also with their sides exchanged, because
                a split translates in the other direction.
            lang: language of the sources, to count their sentences; None = do not.

        Returns:
            [number of pairs] bool: which pairs have text on both sides and are not too long.
        """
        kept = bytearray()
        form = CorpusForm(corpus, self.tokenized if tokenized is None else tokenized)
        self.forms.append(form)
        both = zip(pairs, itertools.repeat(None) if originals is None else originals, strict=False)
        for number, ((src, tgt), original) in enumerate(both, 1):
            place = f"{corpus}:{number}"
            if self.monolingual and not src:
                self.blank += 1
                kept.append(True)
                continue
            reason = reason_to_drop(src, None if self.monolingual else tgt, self.limits)
            kept.append(reason is None)
            if reason is not None:
                self.dropped.setdefault(reason, Finding()).add(place)
                continue
            self.kept += 1
            self._find_suspicious(src, tgt, place)
            self._check_form(form, *(original or (src, tgt)), place)
            key = pair_hash(src, tgt)
            self.hashes.append(key)
            if not (self.limits or (self.monolingual and is_short(src))):
                self.comparable.add(key)
            if form.kept <= PROFILED_PAIRS or not key % PROFILED_ONE_IN:
                profiles = self.profiles[corpus]
                profiles[0].add(src)
                profiles[1].add(tgt)
                if lang is not None:
                    self.sentences[len(split_sentences(src, base_language(lang)))] += 1
            self._compare(key, src, tgt, place)
            if both_ways:
                self._compare(pair_hash(tgt, src), tgt, src, place)
        self.pairs += len(kept)
        return np.frombuffer(kept, np.bool_) if kept else np.zeros(0, np.bool_)

    def report(self) -> SplitReport:
        """Return the numbers of the split."""
        hashes = np.sort(np.frombuffer(self.hashes, np.int64)) if self.hashes else np.empty(0)
        return SplitReport(
            pairs=self.pairs,
            kept=self.kept,
            dropped=self.dropped,
            suspicious={name: f for name, f in self.suspicious.items() if f.count},
            duplicates=int(np.count_nonzero(hashes[1:] == hashes[:-1])),
            other_form=self.other_form,
            normalized=dict(self.normalized),
            blank=self.blank if self.monolingual else None,
            forms=self.forms if len(self.forms) > 1 else None,
            sentences=dict(sorted(self.sentences.items())) or None,
        )

    def overlap(self) -> dict[str, Overlap]:
        """Return which distinct pairs and texts of each held-out split occur here."""
        return {
            name: Overlap(
                pairs=len(self._shared[name]),
                share=len(self._shared[name]) / max(1, len(hashes)),
                examples=self._examples[name],
                **{
                    side: texts.report(name)
                    for side, texts in zip(("sources", "targets"), self.recurring, strict=True)
                },
            )
            for name, hashes in self.held_out.items()
        }

    def _compare(self, key: int, src: str, tgt: str, place: str) -> None:
        """Find a pair, whose hash is ``key``, and its sides in the other splits."""
        for name, hashes in self.held_out.items():
            if key in hashes:
                shared, examples = self._shared[name], self._examples[name]
                if key not in shared and len(examples) < EXAMPLES:
                    pair = src if self.monolingual else f"{src} ||| {tgt}"
                    examples.append(f"{place}: {pair}")
                shared.add(key)
        for texts, line in zip(self.recurring, (src, tgt), strict=False):
            texts.add(line, place)

    def _find_suspicious(self, src: str, tgt: str, place: str) -> None:
        found, text = self.suspicious, f"{src}\n{tgt}"
        if not self.monolingual:
            if src == tgt:
                found["same text on both sides"].add(place)
            short, long = sorted((len(src), len(tgt)))
            if long > 3 * short + 10:
                found["one side over 3 times as long"].add(place)
        if "@@ " in text:
            found["already BPE-encoded (@@)"].add(place)
        if not text.isascii():
            for side, line in (("src", src), ("tgt", tgt)):
                if in_line := changes(line):
                    self.other_form.setdefault(side, OtherForm()).add(in_line, place)

    def _check_form(self, form: CorpusForm, src: str, tgt: str, place: str) -> None:
        """Find signs that a pair is not in the form that its corpus should have."""
        form.kept += 1
        ends_with_mark = src[-1:] in _ENDS or tgt[-1:] in _ENDS
        signs = []
        if form.tokenized:
            if ends_with_mark and any(map(_NO_SPACE_BEFORE_MARK.search, (src, tgt))):
                signs.append(NOT_TOKENIZED)
        else:
            if ("&" in src or "&" in tgt) and any(map(_ESCAPE.search, (src, tgt))):
                signs.append(ESCAPES)
            if ends_with_mark and any(map(_SPACE_BEFORE_STOP.search, (src, tgt))):
                signs.append(ALREADY_TOKENIZED)
        for sign in signs:
            self.suspicious[sign].add(place)
            form.signs.setdefault(sign, Finding()).add(place)


def pair_hash(src: str, tgt: str) -> int:
    """Return 64 bits of a pair, the same in every process."""
    text = f"{src}\n{tgt}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little", signed=True)


def reason_to_drop(src: str, tgt: str | None, limits: Limits | None) -> str | None:
    """Return why a pair is left out of training, or None if it is not.

    Args:
        tgt: None = a line of text, which may have any number of words: blocks divide it.
    """
    sides = (src,) if tgt is None else (src, tgt)
    if tgt is not None:
        blank = is_blank(src), is_blank(tgt)
        if all(blank):
            return "both sides blank"
        if any(blank):
            return "source blank" if blank[0] else "target blank"
        if limits is not None and any(_has_more_words(side, limits.words) for side in sides):
            return f"longer than {quantity(limits.words, 'word')}"
    if limits is not None and any(len(side) > limits.characters for side in sides):
        return f"longer than {quantity(limits.characters, 'character')}"
    return None


def _has_more_words(line: str, words: int) -> bool:
    return len(line) > 2 * words and len(line.split()) > words  # a short line needs no split


def _test_in_dev(
    hashes: Mapping[str, set[int]], held_out: Mapping[str, Sequence[Pair]]
) -> SharedPairs:
    """Return how many test pairs are in dev, also with their sides exchanged.

    Args:
        hashes: of the pairs of each set that should not be in another one.
        held_out: all pairs of each set.
    """
    dev: set[int] = set()
    test: set[int] = set()
    for name, of_set in hashes.items():
        if name.partition(".")[0] == "test":
            test |= of_set
        else:  # a test set may be of the other direction
            dev |= of_set | {pair_hash(tgt, src) for src, tgt in held_out[name]}
    pairs = len(dev & test)
    return SharedPairs(pairs, pairs / max(1, len(test)))
