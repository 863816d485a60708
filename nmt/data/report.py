"""The report of the corpus checks: its numbers, and a summary. ``nmt.data.checks`` judges them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field, TypeAdapter

from nmt.data.near_duplicates import MIN_WORDS, Recurrence
from nmt.data.sentences import UsualLine, usual_sentences
from nmt.data.text import quantity
from nmt.data.unicode import changes

MAX_CHANGES = 5  # characters that a sentence names
MAX_LISTED = 100  # places listed in the report for each finding
MIN_HELD_OUT = 100  # pairs; scores of a smaller split are unreliable


class Wording(NamedTuple):
    """The words for pairs, or for lines of monolingual text, in sentences of a report.

    Attributes:
        unit: "pair" or "line".
        sides: adjective of each side.
        both: follows "has text".
        blank: follows "all pairs" or "all lines".
    """

    unit: str
    sides: dict[str, str]
    both: str
    blank: str
    monolingual: bool

    @classmethod
    def of(cls, monolingual: bool) -> Wording:
        """Return the words for monolingual text, or for pairs."""
        if monolingual:
            return cls("line", {"src": "", "tgt": ""}, "", "are blank", True)
        sides = {"src": "source ", "tgt": "target "}
        return cls("pair", sides, " on both sides", "have a blank side", False)


@dataclass
class Finding:
    """How often something was found, and the first places."""

    count: int = 0
    lines: list[str] = field(default_factory=list)

    def add(self, place: str) -> None:
        """Count one more."""
        self.count += 1
        if len(self.lines) < MAX_LISTED:
            self.lines.append(place)


@dataclass
class OtherForm:
    """Lines of a side that the Unicode form ``clean`` changes, and lines with each change.

    A change is NOT_NFC, or a character that is removed.
    """

    lines: Finding = field(default_factory=Finding)
    changes: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, lines: Iterable[str]) -> OtherForm:
        """Count the changes of a text."""
        form = cls()
        for number, line in enumerate(lines, 1):
            form.add(line, str(number))
        return form

    def add(self, line: str, place: str) -> None:
        """Count the changes of one more line."""
        if found := changes(line):
            self.lines.add(place)
            for change in found:
                self.changes[change] = self.changes.get(change, 0) + 1

    def __str__(self) -> str:
        """List the changes, the most frequent first: ``U+00AD SOFT HYPHEN in 12, ...``."""
        by_count = sorted(self.changes.items(), key=lambda item: -item[1])
        listed = [f"{change} in {count:,}" for change, count in by_count[:MAX_CHANGES]]
        return ", ".join([*listed, "..."] if len(by_count) > MAX_CHANGES else listed)


@dataclass
class Coverage:
    """How well the vocabulary and the training data cover the pieces of one side of a split.

    Attributes:
        unknown: share of the pieces that are UNK.
        lacking: share of the pieces that this side of the training text does not have.
        pieces: the most frequent lacking pieces.
    """

    unknown: float
    lacking: float
    pieces: list[str]


@dataclass
class RoundTrip:
    """How many target lines of a sample change if they are segmented and joined; one of them."""

    changed: int = 0
    lines: int = 0
    before: str = ""
    after: str = ""


@dataclass
class Augmented:
    """What a kind of ``data.augment`` does to a sample of training pairs.

    Attributes:
        pairs, changed: of the sample, and those that the kind changes; the others do not fit it.
        unknown: changed pairs with a piece that a given vocabulary lacks: they stay as they are.
        pieces: some of these pieces.
    """

    pairs: int = 0
    changed: int = 0
    unknown: int = 0
    pieces: list[str] = field(default_factory=list)


@dataclass
class CorpusForm:
    """Signs that a corpus is not ``tokenized`` as its entry says: by name, of ``kept`` pairs."""

    name: str
    tokenized: bool
    kept: int = 0
    signs: dict[str, Finding] = field(default_factory=dict)


@dataclass
class SplitReport:
    """The numbers of a split. The pairs of monolingual text are its lines.

    Attributes:
        pairs, kept: pairs in the files, and pairs that passed the filters.
        dropped, suspicious: what was found, by name.
        duplicates: pairs that occurred before.
        other_form: lines of a side, "src" or "tgt", that the Unicode form ``clean`` changes.
        normalized: lines with each kind of normalization.
        coverage: by side, "src" and "tgt": of a held-out split, by the training data; of the
            training data, by the vocabulary of the parent (``init.vocab: parent``).
        forms: of each training corpus, if there are several.
        blank: blank lines of monolingual text, which stay; None = this is a parallel corpus.
        dropped_later: pairs that were dropped after the checks, which ``suspicious`` includes.
        round_trip: of plain training text; None = not checked.
        sentences: number of sources with each number of sentences, in a sample of a parallel
            training corpus.
        abbreviations: source language -> words whose stop ends no sentence, in small letters.
        augmented: what each kind of ``data.augment`` does to the training data; None = it is off.
    """

    pairs: int
    kept: int
    dropped: dict[str, Finding]
    suspicious: dict[str, Finding]
    duplicates: int
    normalized: dict[str, int]
    coverage: dict[str, Coverage] | None = None
    forms: list[CorpusForm] | None = None
    blank: int | None = None
    dropped_later: int = 0
    round_trip: RoundTrip | None = None
    other_form: Annotated[dict[str, OtherForm], Field(alias="other form")] = field(
        default_factory=dict
    )
    sentences: dict[int, int] | None = None
    abbreviations: dict[str, list[str]] | None = None
    augmented: dict[str, Augmented] | None = None

    @property
    def checked(self) -> int:
        """Return the number of pairs that the checks saw."""
        return self.kept + self.dropped_later

    def drop(self, reason: str, pairs: Finding) -> None:
        """Count pairs as dropped that were kept before."""
        if pairs.count:
            self.kept -= pairs.count
            self.dropped_later += pairs.count
            self.dropped[reason] = pairs

    def describe_drops(self) -> str:
        """Return the filters and how many pairs each dropped, as text."""
        return ", ".join(f"{reason}: {f.count:,}" for reason, f in self.dropped.items())

    def why_empty(self) -> str:
        """Return why no pair with text is left."""
        empty = "all lines are blank" if self.blank else "the files are empty"
        return self.describe_drops() or empty


@dataclass
class Overlap:
    """Distinct pairs of a held-out split that are in the training data."""

    pairs: int
    share: float
    examples: list[str]
    sources: Recurrence
    targets: Recurrence


@dataclass
class Lengths:
    """The lengths of one side of a split in pieces, of lines that are not blank.

    Attributes:
        total: pieces of all lines.
        mean, median, p95, longest: of a line; 95 % of the lines have at most p95 pieces.
    """

    total: int
    mean: float
    median: float
    p95: float
    longest: int

    @classmethod
    def of(cls, lengths: np.ndarray) -> Lengths | None:
        """Describe the lengths of a side, [lines] int; None if all lines are blank."""
        lengths = lengths[lengths > 0]
        if not len(lengths):
            return None
        median, p95 = np.percentile(lengths, [50, 95])
        return cls(
            total=int(lengths.sum(dtype=np.int64)),
            mean=float(lengths.mean()),
            median=float(median),
            p95=float(p95),
            longest=int(lengths.max()),
        )


@dataclass
class SharedPairs:
    """Distinct test pairs that are in dev."""

    pairs: int
    share: float


@dataclass
class LanguageFindings:
    """What the check of languages found, as sentences."""

    failures: list[str]
    warnings: list[str]


@dataclass
class CorpusReport:
    """What the checks found in the corpora of a recipe.

    Attributes:
        overlap: of dev and test with train.
        types: size of the vocabulary.
        inputs: SHA-256 of each file.
        versions: of what decides how text is segmented.
        lengths: of each split, by side ("src" and "tgt").
        draws: a sentence for each training corpus, if the entries have weights or tags.
        over_batch_tokens: training pairs that are longer than a batch.
        warnings: what a user should check.
    """

    splits: dict[str, SplitReport]
    overlap: dict[str, Overlap]
    test_in_dev: Annotated[SharedPairs, Field(alias="test in dev")]
    languages: LanguageFindings
    types: int = 0
    inputs: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    lengths: dict[str, dict[str, Lengths]] = field(default_factory=dict)
    draws: list[str] = field(default_factory=list)
    over_batch_tokens: Annotated[int, Field(alias="over batch_tokens")] = 0
    warnings: list[str] = field(default_factory=list)

    @property
    def wording(self) -> Wording:
        """Return the words for what the splits consist of."""
        return Wording.of(any(split.blank is not None for split in self.splits.values()))

    def to_json(self) -> str:
        """Return JSON text."""
        values = _REPORT.dump_python(self, by_alias=True, exclude_none=True)
        return json.dumps(values, indent=1, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> CorpusReport:
        """Read what ``to_json`` wrote.

        Raises:
            ValueError: the text is not JSON, or a value is missing or has another type.
        """
        return _REPORT.validate_python(json.loads(text))


_REPORT: TypeAdapter[Any] = TypeAdapter(CorpusReport)


def usual_line(text: str) -> UsualLine:
    """Read the usual line of the training data from a stored report of any version.

    Raises:
        ValueError: the text is not the JSON of a report.
    """
    values = json.loads(text)
    try:
        lengths = values.get("lengths", {}).get("train", {})
        train = values["splits"]["train"]
        counts = train.get("sentences", {})
        return UsualLine(
            usual_sentences({int(number): int(lines) for number, lines in counts.items()}),
            lengths["tgt"]["total"] / lengths["src"]["total"] if "tgt" in lengths else 1.0,
            dict(train.get("abbreviations", {})),
        )
    except (AttributeError, LookupError, TypeError, ZeroDivisionError) as error:
        raise ValueError(f"a value is missing or has another type: {error}") from error


def summary(report: CorpusReport) -> str:
    """Return the report in a few lines for a reader."""
    unit, sides = report.wording.unit, report.wording.sides
    lines = []
    for name, split in report.splits.items():
        parts = [quantity(split.pairs, unit)]
        if split.blank:
            parts.append(f"{split.blank:,} blank, which separate documents")
        if split.dropped:
            drops = split.describe_drops()
            count = sum(finding.count for finding in split.dropped.values())
            fate = "dropped" if name == "train" else "with a blank side, kept for scoring"
            parts.append(f"{count:,} {fate} ({drops})")
        if split.duplicates:
            parts.append(quantity(split.duplicates, "duplicate"))
        parts += [f"{kind} in {quantity(n, 'line')}" for kind, n in split.normalized.items()]
        parts += [
            f"{quantity(other.lines.count, f'{sides[side]}line')} not in the Unicode form clean "
            f"({other})"
            for side, other in split.other_form.items()
        ]
        if split.sentences:
            several = 1 - split.sentences.get(1, 0) / sum(split.sentences.values())
            parts.append(f"{several:.1%} of the sources with several sentences")
        if name == "train" and split.coverage:
            unknown = " and ".join(
                f"{coverage.unknown:.2%} of {sides[side]}".rstrip()
                for side, coverage in split.coverage.items()
                if side == "src" or not report.wording.monolingual
            )
            parts.append(f"{unknown} subwords unknown to the parent")
        lines.append(f"{name}: {'; '.join(parts)}")
    lines += [f"train: {text}" for text in report.draws]
    if "train" in report.splits and (augmented := report.splits["train"].augmented):
        parts = [f"{kind} fits {of.changed / of.pairs:.0%}" for kind, of in augmented.items()]
        lines.append(f"train: data.augment, of a sample of pairs: {', '.join(parts)}")
        lines += [
            f"train: data.augment: {of.unknown / of.changed:.0%} of the pairs that {kind} changes "
            f"stay as they are, because the vocabulary lacks {' '.join(of.pieces)}"
            for kind, of in augmented.items()
            if of.unknown
        ]
    for name, overlap in report.overlap.items():
        if overlap.pairs:
            lines.append(
                f"{name}: {quantity(overlap.pairs, unit)} ({overlap.share:.1%}) also in the "
                "training data"
            )
    for sentence, recurrence in recurrences(report):
        if recurrence.share and not any(text.startswith(sentence) for text in report.warnings):
            lines.append(sentence)
    lines += [f"warning: {text}" for text in report.warnings]
    return "\n".join(lines)


def recurrences(report: CorpusReport) -> Iterator[tuple[str, Recurrence]]:
    """Yield how many texts of a side of a split recur, with a sentence about it."""
    for name, overlap in report.overlap.items():
        for side, texts in (("src", overlap.sources), ("tgt", overlap.targets)):
            count = quantity(texts.of, f"{report.wording.sides[side]}text")
            yield (
                f"{name}: {texts.share:.1%} of {count} of at least {MIN_WORDS} words are also in "
                f"the training data: {texts.same:,} exactly, {texts.near:,} nearly",
                texts,
            )
