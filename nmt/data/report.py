"""The report of the corpus checks: its numbers, and warnings and errors that explain them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field, TypeAdapter

from nmt.data.near_duplicates import MIN_WORDS, Recurrence
from nmt.data.sentences import UsualLine, usual_sentences
from nmt.data.text import quantity
from nmt.data.unicode import NOT_NFC, changes
from nmt.errors import UserError

if TYPE_CHECKING:
    from nmt.config.recipe import DataConfig, SegmentConfig

MAX_CHANGES = 5  # characters that a sentence names
MAX_LISTED = 100  # places listed in the report for each finding
MIN_HELD_OUT = 100  # pairs; scores of a smaller split are unreliable
# shares above which there is a warning or an error
LACKING_THRESHOLD = 0.1  # pieces of a side that its training text does not have
UNKNOWN_THRESHOLD = 0.5  # source pieces that are UNK
SMALLEST_VOCAB = 500  # types that the advice about unknown pieces recommends
FIXED_VOCAB_THRESHOLD = 0.02  # training pieces of a side that the parent's vocabulary does not have
ROUND_TRIP_THRESHOLD = 0.01  # target lines that the segmentation changes
RECURRING_THRESHOLD = 0.1  # texts of a side that are in the training data, also nearly


class Suspicion(NamedTuple):
    """A suspicious property of a pair, and the warning about it.

    Attributes:
        threshold: share of the pairs above which there is a warning.
        meaning: what follows "12 pairs" in a sentence.
        fix: the next step.
    """

    threshold: float
    meaning: str
    fix: str


# the keys are part of the format of report.json
ESCAPES = "HTML escapes (&quot; &apos; ...)"
ALREADY_TOKENIZED = "already tokenized (space before a full stop)"
NOT_TOKENIZED = "not tokenized though data.tokenized is true"
SUSPICIONS = {
    "same text on both sides": Suspicion(
        0.1,
        "with the same text on both sides",
        "check that the two files are different, and remove untranslated pairs",
    ),
    "one side over 3 times as long": Suspicion(
        0.05,
        "with one side over 3 times as long as the other",
        "check that line n of one file is the translation of line n of the other",
    ),
    "already BPE-encoded (@@)": Suspicion(
        0.001,
        "containing @@, like text that is already BPE-encoded",
        "use the text before BPE, or undo it: sed -E 's/@@( |$)//g'",
    ),
    ESCAPES: Suspicion(
        0.01,
        "containing HTML escapes such as &quot;",
        "replace them by their characters, or set data.tokenized=true if the text is "
        "Moses-tokenized",
    ),
    ALREADY_TOKENIZED: Suspicion(
        0.3,
        "with a space before the last full stop, like tokenized text",
        "set data.tokenized=true if the corpus is Moses-tokenized",
    ),
    NOT_TOKENIZED: Suspicion(
        0.3,
        "without a space before the last punctuation mark, although data.tokenized is true",
        "set data.tokenized=false if the corpus is plain text",
    ),
}

# the same about one of several entries of data.train, with the key that fixes it
ENTRY_SUSPICIONS = {
    ESCAPES: SUSPICIONS[ESCAPES]._replace(
        fix="replace them by their characters, or set tokenized: true in this entry if the text is "
        "Moses-tokenized",
    ),
    ALREADY_TOKENIZED: SUSPICIONS[ALREADY_TOKENIZED]._replace(
        fix="set tokenized: true in this entry",
    ),
    NOT_TOKENIZED: SUSPICIONS[NOT_TOKENIZED]._replace(
        meaning="without a space before the last punctuation mark, like text that is not tokenized",
        fix="set tokenized: false in this entry",
    ),
}
MIN_FORM = 20  # pairs; in fewer, signs of another form are no error


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
    """Lines of a side that the Unicode form ``clean`` changes.

    Attributes:
        lines: how many.
        changes: lines with each change: NOT_NFC, or a character that is removed.
    """

    lines: Finding = field(default_factory=Finding)
    changes: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, lines: Iterable[str]) -> OtherForm:
        """Return the changes of a text."""
        form = cls()
        for number, line in enumerate(lines, 1):
            if found := changes(line):
                form.add(found, str(number))
        return form

    def add(self, found: list[str], place: str) -> None:
        """Count the changes of one more line."""
        self.lines.add(place)
        for change in found:
            self.changes[change] = self.changes.get(change, 0) + 1

    def __str__(self) -> str:
        """Return the changes, the most frequent first: ``U+00AD SOFT HYPHEN in 12, ...``."""
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
    """Target lines of a sample that are others after they were segmented and joined again.

    Attributes:
        changed, lines: lines that change, and lines of the sample.
        before, after: one of them.
    """

    changed: int = 0
    lines: int = 0
    before: str = ""
    after: str = ""


@dataclass
class CorpusForm:
    """Whether the text of a corpus is in the form that its entry says.

    Attributes:
        name: of the corpus.
        tokenized: whether it should be Moses-tokenized.
        kept: pairs that were checked.
        signs: of another form, by suspicion.
    """

    name: str
    tokenized: bool
    kept: int = 0
    signs: dict[str, Finding] = field(default_factory=dict)

    def is_other(self) -> bool:
        """Return whether the text is evidently in the other form."""
        return self.kept >= MIN_FORM and any(
            finding.count > SUSPICIONS[sign].threshold * self.kept
            for sign, finding in self.signs.items()
            if sign != ESCAPES
        )

    def problems(self, entry: str, unit: str) -> list[str]:
        """Return a sentence for each frequent sign.

        Args:
            entry: key of the corpus.
            unit: what the corpus consists of, as ``CorpusReport.unit``.
        """
        return [
            f"{entry} ({self.name}): "
            f"{_suspicious(finding, self.kept, ENTRY_SUSPICIONS[sign], unit)}"
            for sign, finding in self.signs.items()
            if finding.count > ENTRY_SUSPICIONS[sign].threshold * self.kept
        ]


@dataclass
class SplitReport:
    """The numbers of a split. The pairs of text of one language are its lines.

    Attributes:
        pairs, kept: pairs in the files, and pairs that passed the filters.
        dropped, suspicious: what was found, by name.
        duplicates: pairs that occurred before.
        other_form: lines of a side, "src" or "tgt", that the Unicode form ``clean`` changes.
        normalized: lines with each kind of normalization.
        coverage: by side, "src" and "tgt": of a held-out split, by the training data; of the
            training data, by the vocabulary of the parent (``init.vocab: parent``).
        forms: of each training corpus, if there are several.
        blank: blank lines of text of one language, which stay; None = this is a parallel corpus.
        dropped_later: pairs that were dropped after the checks, which ``suspicious`` includes.
        round_trip: of plain training text; None = not checked.
        sentences: number of sources with each number of sentences, in a sample of a parallel
            training corpus.
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

    @property
    def checked(self) -> int:
        """Return how many pairs the checks saw."""
        return self.kept + self.dropped_later

    def drop(self, reason: str, places: list[str], count: int) -> None:
        """Count pairs as dropped that were kept before; ``places``: the first of them."""
        if count:
            self.kept -= count
            self.dropped_later += count
            self.dropped[reason] = Finding(count, places)

    def describe_drops(self) -> str:
        """Return the filters and how many pairs each dropped, as text."""
        return ", ".join(f"{reason}: {f.count:,}" for reason, f in self.dropped.items())


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
        """Return the lengths of a side, [lines] int; None if all lines are blank."""
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
        splits: train, dev and test.
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
    def monolingual(self) -> bool:
        """Return whether the corpora are text of one language."""
        return any(split.blank is not None for split in self.splits.values())

    @property
    def unit(self) -> str:
        """Return what the splits consist of: pairs, or lines of text."""
        return "line" if self.monolingual else "pair"

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
    """Return what the training lines are like, as far as a stored report of any version says it.

    Raises:
        ValueError: the text is not the JSON of a report.
    """
    values = json.loads(text)
    try:
        lengths = values.get("lengths", {}).get("train", {})
        counts = values["splits"]["train"].get("sentences", {})
        return UsualLine(
            usual_sentences({int(number): int(lines) for number, lines in counts.items()}),
            lengths["tgt"]["total"] / lengths["src"]["total"] if "tgt" in lengths else 1.0,
        )
    except (AttributeError, LookupError, TypeError, ZeroDivisionError) as error:
        raise ValueError(f"a value is missing or has another type: {error}") from error


def raise_on_failures(
    report: CorpusReport,
    data: DataConfig,
    segment: SegmentConfig,
    to_train_anyway: str = "set data.checks=warn",
) -> None:
    """Raise UserError if a check failed and ``data.checks`` is "error"."""
    problems = failures(report, data.max_overlap, segment)
    if problems and data.checks == "error":
        raise UserError(
            "\n  ".join(["corpus checks failed:", *problems]),
            at="data",
            fix=f"fix the corpus, or {to_train_anyway} to train anyway",
        )


def all_warnings(report: CorpusReport, data: DataConfig, segment: SegmentConfig) -> list[str]:
    """Return all warnings; with ``data.checks=warn`` this includes failed checks."""
    if data.checks == "off":
        return []
    found = failures(report, data.max_overlap, segment)
    found += warnings(report, data.max_overlap, data.normalize)
    trip = report.splits["train"].round_trip
    if (
        trip
        and segment.kind != "sentencepiece"
        and trip.changed > ROUND_TRIP_THRESHOLD * trip.lines
    ):
        found.append(
            f"train: {trip.changed / trip.lines:.1%} of {quantity(trip.lines, 'target line')} are "
            "others after they were tokenized and detokenized, for example "
            f"{trip.before!r} becomes {trip.after!r}; a model cannot write them; set "
            "segment.kind=sentencepiece, which changes no line"
        )
    if over := report.over_batch_tokens:
        share = over / report.splits["train"].kept
        found.append(
            f"train: {quantity(over, 'pair')} ({share:.1%}) {'is' if over == 1 else 'are'} longer "
            f"than data.batch_tokens ({quantity(data.batch_tokens, 'piece')}), so each is a batch "
            "of its own; raise "
            "data.batch_tokens or lower data.max_pieces"
        )
    return found


def failures(report: CorpusReport, max_overlap: float, segment: SegmentConfig) -> list[str]:
    """Return the findings that make scores meaningless, one sentence each.

    Args:
        max_overlap: share of a held-out split that may be in the training data.
        segment: keys of the segmentation, which may be the cause of unknown pieces.
    """
    found = [
        f"{name}: {overlap.share:.1%} of the {report.unit}s ({overlap.pairs:,}) are also in the "
        f"training data, for example {overlap.examples[0]}; remove them from the training data, or "
        f"raise data.max_overlap (now {max_overlap:g})"
        for name, overlap in report.overlap.items()
        if overlap.share > max_overlap
    ]
    found += report.languages.failures
    train = report.splits.get("train")
    fixed_vocab = train is not None and train.coverage is not None  # init.vocab: parent
    for name, split in report.splits.items():
        source = split.coverage and split.coverage["src"]
        if name != "train" and source and source.unknown > UNKNOWN_THRESHOLD:
            if fixed_vocab:
                cause = "the vocabulary of the parent does not fit it, so set init.vocab=new"
            else:
                cause = _cause_of_unknown(segment, train.kept if train else 0, report.unit)
            found.append(
                f"{name}: {source.unknown:.0%} of the {_of_side('src', report.unit)}pieces are "
                f"unknown (UNK), for example {' '.join(source.pieces)}; {cause}"
            )
    return found + (_form_problems(report) if _is_mixed(report) else [])


def _cause_of_unknown(segment: SegmentConfig, size: int, unit: str) -> str:
    """Return the likely cause of many unknown pieces, and what to do.

    SentencePiece merges until it has ``vocab_size`` types. In a small corpus it ends with pieces
    that are complete words, and the characters of other words get no embedding.

    Args:
        size: number of training pairs, or lines, each a ``unit``.
    """
    check = "check that its language and script are those of the training data"
    if segment.kind == "sentencepiece" and segment.file is None:
        smaller = max(SMALLEST_VOCAB, size // 200 * 100)
        if segment.vocab_size > max(size, smaller):
            return (
                f"segment.vocab_size ({segment.vocab_size:,}) is probably too large for "
                f"{quantity(size, unit)}, so most pieces are complete words: set "
                f"segment.vocab_size={smaller}; if that does not help, {check}"
            )
        return check
    return f"{check}, and that segment.codes or segment.model fits the corpus"


def _forms(report: CorpusReport) -> list[CorpusForm]:
    """Return the forms of the training corpora, if there are several."""
    return next((split.forms for split in report.splits.values() if split.forms), [])


def _is_mixed(report: CorpusReport) -> bool:
    """Return whether some training corpora, not all, are evidently in the other form."""
    forms = _forms(report)
    others = [form.is_other() for form in forms if form.kept]
    return any(others) and not all(others)


def _form_problems(report: CorpusReport) -> list[str]:
    return [
        text
        for i, form in enumerate(_forms(report))
        for text in form.problems(f"data.train[{i}]", report.unit)
    ]


def warnings(report: CorpusReport, max_overlap: float, form: str = "clean") -> list[str]:
    """Return the findings that a user should check, one sentence each.

    Args:
        max_overlap: share of the test set that may be in dev, and of the texts of a side that may
            be in the training data.
        form: the Unicode form of training and input text, ``data.normalize``.
    """
    found = list(report.languages.warnings)
    shared = report.test_in_dev
    if shared.share > max_overlap:
        found.append(
            f"test: {shared.share:.1%} of the {report.unit}s ({shared.pairs:,}) are also in dev, "
            "which selects the best checkpoint, so test scores are too high; use another data.test"
        )
    for sentence, recurrence in _recurrences(report):
        if recurrence.same > max_overlap * recurrence.of or recurrence.share > RECURRING_THRESHOLD:
            found.append(f"{sentence}, for example {recurrence.examples[0]}")
    for name, split in report.splits.items():
        found += _warnings_of_split(name, split, form)
    return found + ([] if _is_mixed(report) else _form_problems(report))


def _warnings_of_split(name: str, split: SplitReport, form: str) -> list[str]:
    found = []
    unit = "pair" if split.blank is None else "line"
    if name != "train" and split.kept < MIN_HELD_OUT:
        both = "" if unit == "line" else " on both sides"
        found.append(
            f"{name}: only {quantity(split.kept, unit)} with text{both}, so its scores are "
            f"unreliable; use at least {MIN_HELD_OUT}"
        )
    for key, finding in split.suspicious.items():
        if split.forms and key in ENTRY_SUSPICIONS:
            continue  # each entry has its own sentence
        if finding.count / split.checked > SUSPICIONS[key].threshold:
            text = _suspicious(finding, split.checked, SUSPICIONS[key], unit)
            found.append(f"{name}: {text}")
    for side, other in split.other_form.items():
        if sentence := _about_form(name, side, other, split, form):
            found.append(sentence)
    for side, coverage in (split.coverage or {}).items():
        if name == "train":
            if coverage.unknown > FIXED_VOCAB_THRESHOLD:
                found.append(
                    f"train: the vocabulary of the parent lacks {coverage.unknown:.1%} of the "
                    f"{_of_side(side, unit)}pieces, for example {' '.join(coverage.pieces)}; they "
                    "become UNK; set init.vocab=new"
                )
        elif coverage.lacking > LACKING_THRESHOLD:
            found.append(
                f"{name}: {coverage.lacking:.0%} of the {_of_side(side, unit)}pieces are not in "
                f"the training data, for example {' '.join(coverage.pieces)}; expect lower scores, "
                "or add training data of this kind"
            )
    return found


def _about_form(name: str, side: str, other: OtherForm, split: SplitReport, form: str) -> str:
    """Return a warning about lines in another Unicode form than ``clean``, or nothing."""
    unit = "line" if split.blank is not None else "pair"
    count = other.lines.count
    what = (
        f"{name}: {quantity(count, f'{_of_side(side, unit)}line')} ({count / split.checked:.1%}) "
        f"not in the Unicode form clean, first at {other.lines.lines[0]} ({other})"
    )
    if form == "none" or (form == "nfc" and set(other.changes) != {NOT_NFC}):
        return f"{what}: text that looks equal differs for the model; set data.normalize=clean"
    if name == "train" or side == "src" or unit == "line":  # the form of the recipe changes them
        return ""
    return (
        f"{what}: these are references, which are compared as they are, and the model writes the "
        f"form {form}, so scores are too low; convert the file if no published score uses it"
    )


def summary(report: CorpusReport) -> str:
    """Return the report in a few lines for a reader."""
    lines = []
    for name, split in report.splits.items():
        parts = [quantity(split.pairs, report.unit)]
        if split.blank:
            parts.append(f"{split.blank:,} blank, which separate documents")
        if split.dropped:
            drops = split.describe_drops()
            count = sum(finding.count for finding in split.dropped.values())
            kind = "dropped" if name == "train" else "with a blank side, kept for scoring"
            parts.append(f"{count:,} {kind} ({drops})")
        if split.duplicates:
            parts.append(quantity(split.duplicates, "duplicate"))
        parts += [f"{kind} in {quantity(n, 'line')}" for kind, n in split.normalized.items()]
        parts += [
            f"{quantity(other.lines.count, f'{_of_side(side, report.unit)}line')} not in the "
            f"Unicode form clean ({other})"
            for side, other in split.other_form.items()
        ]
        if split.sentences:
            several = 1 - split.sentences.get(1, 0) / sum(split.sentences.values())
            parts.append(f"{several:.1%} of the sources with several sentences")
        if name == "train" and split.coverage:
            src, tgt = (f"{split.coverage[side].unknown:.2%}" for side in ("src", "tgt"))
            sides = f"{src} of source and {tgt} of target" if split.blank is None else f"{src} of"
            parts.append(f"{sides} pieces unknown to the parent")
        lines.append(f"{name}: {'; '.join(parts)}")
    lines += [f"train: {text}" for text in report.draws]
    for name, overlap in report.overlap.items():
        if overlap.pairs:
            lines.append(
                f"{name}: {quantity(overlap.pairs, report.unit)} ({overlap.share:.1%}) also in the "
                "training data"
            )
    for sentence, recurrence in _recurrences(report):
        if recurrence.share and not any(text.startswith(sentence) for text in report.warnings):
            lines.append(sentence)
    lines += [f"warning: {text}" for text in report.warnings]
    return "\n".join(lines)


def _suspicious(finding: Finding, pairs: int, suspicion: Suspicion, unit: str) -> str:
    return (
        f"{quantity(finding.count, unit)} ({finding.count / pairs:.1%}) {suspicion.meaning}, first "
        f"at {finding.lines[0]}; {suspicion.fix}"
    )


def _of_side(side: str, unit: str) -> str:
    """Return ``source`` or ``target`` with a space, or nothing for text of one language."""
    return "" if unit == "line" else {"src": "source ", "tgt": "target "}[side]


def _recurrences(report: CorpusReport) -> Iterator[tuple[str, Recurrence]]:
    """Yield how many texts of a side of a split recur, with a sentence about it."""
    for name, overlap in report.overlap.items():
        for side, found in (("src", overlap.sources), ("tgt", overlap.targets)):
            of_side = _of_side(side, report.unit)
            yield (
                f"{name}: {found.share:.1%} of {quantity(found.of, f'{of_side}text')} of at least "
                f"{MIN_WORDS} words are also in the training data: {found.same:,} exactly, "
                f"{found.near:,} nearly",
                found,
            )
