"""The report of the corpus checks: the sizes of each split, and the list of findings."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from pydantic import TypeAdapter

from nmt.errors import UserError
from nmt.runtime.files import json_object
from nmt.runtime.words import quantity
from nmt.text.sentences import UsualLine, usual_sentences

if TYPE_CHECKING:
    from nmt.config.recipe import DataConfig

MAX_LISTED = 100  # places listed in the report for each finding


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
class Places:
    """A count, and the first places."""

    count: int = 0
    lines: list[str] = field(default_factory=list)

    def add(self, place: str) -> None:
        """Increment the count; an empty place is not listed."""
        self.count += 1
        if place and len(self.lines) < MAX_LISTED:
            self.lines.append(place)


class Drops(defaultdict[str, Places]):
    """Dropped pairs by reason."""

    def __init__(self) -> None:
        super().__init__(Places)

    def __str__(self) -> str:
        return describe(self) or "none"

    def report(self) -> dict[str, dict[str, object]]:
        """Return reason -> count and first places, for MANIFEST.json."""
        return {
            reason: {"count": places.count, "first": " ".join(places.lines)}
            for reason, places in self.items()
        }


def describe(dropped: Mapping[str, Places]) -> str:
    """Return the reasons and their counts as text."""
    return ", ".join(f"{reason}: {places.count:,}" for reason, places in dropped.items())


@dataclass
class Finding:
    """A finding of a check.

    Attributes:
        name: what it is, for tables.
        at: the split, entry of data.train or file.
        text: what is wrong, as a part of a sentence.
        fix: what to do.
        share: of the pairs or subwords; there is a message if it is over ``threshold``,
        overlap: or if this share is over ``data.max_overlap``.
        count: pairs or lines.
        examples: places, or texts with their places.
        error: scores would be meaningless.
        shown: in the summary also if there is no message.
    """

    name: str
    at: str
    text: str
    fix: str = ""
    share: float = 1.0
    threshold: float = 0.0
    overlap: float = 0.0
    count: int = 0
    examples: list[str] = field(default_factory=list)
    error: bool = False
    shown: bool = False

    def message(self, max_overlap: float = 1.0) -> str:
        """Return the sentence for the user; "{max_overlap}" in the fix is replaced."""
        example = f", for example {self.examples[0]}" if self.examples else ""
        fix = self.fix.replace("{max_overlap}", f"{max_overlap:g}")
        return f"{self.at}: {self.text}{example}" + (f"; {fix}" if fix else "")


@dataclass
class SplitReport:
    """The sizes of a split. The pairs of monolingual text are its lines.

    Attributes:
        pairs, kept: pairs in the files, and pairs that passed the filters.
        dropped: pairs that did not, by the reason.
        normalized: lines with each kind of normalization.
        blank: blank lines of monolingual text, which stay; None = this is a parallel corpus.
        sentences: number of sources with each number of sentences, in a sample of a parallel
            training corpus.
        abbreviations: source language -> what ``AbbreviationCounts`` learned.
    """

    pairs: int = 0
    kept: int = 0
    dropped: dict[str, Places] = field(default_factory=dict)
    normalized: Counter[str] = field(default_factory=Counter)
    blank: int | None = None
    sentences: dict[int, int] | None = None
    abbreviations: dict[str, list[str]] | None = None

    def drop(self, reason: str, pairs: Places) -> None:
        """Count pairs that were kept before as dropped."""
        if pairs.count:
            self.kept -= pairs.count
            self.dropped[reason] = pairs

    def why_empty(self) -> str:
        """Return why no pair with text is left."""
        empty = "all lines are blank" if self.blank else "the files are empty"
        return describe(self.dropped) or empty


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
class CorpusReport:
    """The report of the checks on the corpora of a recipe.

    Attributes:
        types: size of the vocabulary.
        inputs: SHA-256 of each file.
        versions: of what decides how text is segmented.
        lengths: of each split, by side ("src" and "tgt").
        draws: a sentence for each training corpus, if the entries have weights or tags.
        warnings: what a user should check.
    """

    splits: dict[str, SplitReport]
    findings: list[Finding] = field(default_factory=list)
    types: int = 0
    inputs: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    lengths: dict[str, dict[str, Lengths]] = field(default_factory=dict)
    draws: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def wording(self) -> Wording:
        """Return the words for what the splits consist of."""
        return Wording.of(any(split.blank is not None for split in self.splits.values()))

    def found(self, name: str, at: str) -> Finding:
        """Return the finding of a name in a split; without one, its count and share are 0."""
        nothing = Finding(name, at, "", share=0.0)
        return next((f for f in self.findings if (f.name, f.at) == (name, at)), nothing)

    def judge(self, data: DataConfig, to_train_anyway: str = "set data.checks=warn") -> None:
        """Set the warnings by ``data.checks`` and ``data.max_overlap``.

        Raises:
            UserError: a finding is an error, and ``data.checks`` is "error".
        """
        limit = data.max_overlap
        over = [f for f in self.findings if f.share > f.threshold or f.overlap > limit]
        failures = [found.message(limit) for found in over if found.error]
        if failures and data.checks == "error":
            raise UserError(
                "\n  ".join(["corpus checks failed:", *failures]),
                at="data",
                fix=f"fix the corpus, or {to_train_anyway} to train anyway",
            )
        others = [found.message(limit) for found in over if not found.error]
        self.warnings = [] if data.checks == "off" else [*failures, *others]

    def to_json(self) -> str:
        """Return JSON text."""
        values = _REPORT.dump_python(self, exclude_none=True)
        return json.dumps(values, indent=1, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> CorpusReport:
        """Read what ``to_json`` wrote.

        Raises:
            ValueError: the text is not JSON, or a value is missing or has another type.
        """
        return _REPORT.validate_python(json_object(text))


_REPORT: TypeAdapter[Any] = TypeAdapter(CorpusReport)


def usual_line(text: str) -> UsualLine:
    """Read the usual line of the training data from a stored report of any version.

    Raises:
        ValueError: the text is not the JSON of a report.
    """
    values = json_object(text)
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
    """Return a summary of a few lines."""
    lines = []
    for name, split in report.splits.items():
        parts = [quantity(split.pairs, report.wording.unit)]
        if split.blank:
            parts.append(f"{split.blank:,} blank, which separate documents")
        if split.dropped:
            count = sum(places.count for places in split.dropped.values())
            fate = "dropped" if name == "train" else "with a blank side, kept for scoring"
            parts.append(f"{count:,} {fate} ({describe(split.dropped)})")
        parts += [f"{kind} in {quantity(n, 'line')}" for kind, n in split.normalized.items()]
        for found in report.findings:
            start = f"{name}: {found.text}"
            if (
                found.shown
                and found.at == name
                and not any(warning.startswith(start) for warning in report.warnings)
            ):
                parts.append(found.text)
        lines.append(f"{name}: {'; '.join(parts)}")
    lines += [f"train: {text}" for text in report.draws]
    lines += [f"warning: {text}" for text in report.warnings]
    return "\n".join(lines)
