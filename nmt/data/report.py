"""The report of the corpus checks: its numbers, and warnings and errors that explain them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import Field, TypeAdapter

from nmt.data.near_duplicates import MIN_WORDS, Recurrence
from nmt.errors import UserError

if TYPE_CHECKING:
    from nmt.config.recipe import DataConfig

MAX_LISTED = 100  # places listed in the report for each finding
MIN_HELD_OUT = 100  # pairs; scores of a smaller split are unreliable
# shares above which there is a warning or an error
LACKING_THRESHOLD = 0.1  # pieces of a side that its training text does not have
UNKNOWN_THRESHOLD = 0.5  # source pieces that are UNK
FIXED_VOCAB_THRESHOLD = 0.02  # training pieces of a side that the parent's vocabulary does not have
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
    ESCAPES: Suspicion(
        SUSPICIONS[ESCAPES].threshold,
        SUSPICIONS[ESCAPES].meaning,
        "replace them by their characters, or set tokenized: true in this entry if the text is "
        "Moses-tokenized",
    ),
    ALREADY_TOKENIZED: Suspicion(
        SUSPICIONS[ALREADY_TOKENIZED].threshold,
        SUSPICIONS[ALREADY_TOKENIZED].meaning,
        "set tokenized: true in this entry",
    ),
    NOT_TOKENIZED: Suspicion(
        SUSPICIONS[NOT_TOKENIZED].threshold,
        "without a space before the last punctuation mark, like text that is not tokenized",
        "set tokenized: false in this entry",
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
class CorpusForm:
    """Whether the text of a corpus is in the form that its entry says.

    Attributes:
        name: of the corpus.
        tokenized: whether it should be Moses-tokenized.
        kept: pairs that were checked.
        signs: what speaks against it, by suspicion.
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

    def problems(self, entry: str) -> list[str]:
        """Return a sentence for each frequent sign; ``entry`` is the key of the corpus."""
        return [
            f"{entry} ({self.name}): {_suspicious(finding, self.kept, ENTRY_SUSPICIONS[sign])}"
            for sign, finding in self.signs.items()
            if finding.count > ENTRY_SUSPICIONS[sign].threshold * self.kept
        ]


@dataclass
class SplitReport:
    """The numbers of a split.

    Attributes:
        pairs, kept: pairs in the files, and pairs that passed the filters.
        dropped, suspicious: what was found, by name.
        duplicates: pairs that occurred before.
        not_in_nfc: pairs that are not in Unicode NFC.
        normalized: lines with each kind of normalization.
        coverage: by side, "src" and "tgt": of a held-out split, by the training data; of the
            training data, by the vocabulary of the parent (``init.vocab: parent``).
        forms: of each training corpus, if there are several.
    """

    pairs: int
    kept: int
    dropped: dict[str, Finding]
    suspicious: dict[str, Finding]
    duplicates: int
    not_in_nfc: Annotated[Finding, Field(alias="not in NFC")]
    normalized: dict[str, int]
    coverage: dict[str, Coverage] | None = None
    forms: list[CorpusForm] | None = None

    def drop(self, reason: str, places: list[str], count: int) -> None:
        """Count pairs as dropped that were kept before; ``places``: the first of them."""
        if count:
            self.kept -= count
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
    over_batch_tokens: Annotated[int, Field(alias="over batch_tokens")] = 0
    warnings: list[str] = field(default_factory=list)

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


def raise_on_failures(report: CorpusReport, data: DataConfig) -> None:
    """Raise UserError if a check failed and ``data.checks`` is "error"."""
    problems = failures(report, data.max_overlap)
    if problems and data.checks == "error":
        raise UserError(
            "\n  ".join(["corpus checks failed:", *problems]),
            at="data",
            fix="fix the corpus, or set data.checks=warn to train anyway",
        )


def all_warnings(report: CorpusReport, data: DataConfig) -> list[str]:
    """Return all warnings; with ``data.checks=warn`` this includes failed checks."""
    if data.checks == "off":
        return []
    found = [*failures(report, data.max_overlap), *warnings(report, data.max_overlap)]
    if over := report.over_batch_tokens:
        share = over / report.splits["train"].kept
        found.append(
            f"train: {over:,} pairs ({share:.1%}) are longer than data.batch_tokens "
            f"({data.batch_tokens:,} pieces), so each is a batch of its own; raise "
            "data.batch_tokens or lower data.max_pieces"
        )
    return found


def failures(report: CorpusReport, max_overlap: float) -> list[str]:
    """Return the findings that make scores meaningless, one sentence each.

    Args:
        max_overlap: share of a held-out split that may be in the training data.
    """
    found = [
        f"{name}: {overlap.share:.1%} of the pairs ({overlap.pairs:,}) are also in the training "
        f"data, for example {overlap.examples[0]}; remove them from the training data, or raise "
        f"data.max_overlap (now {max_overlap:g})"
        for name, overlap in report.overlap.items()
        if overlap.share > max_overlap
    ]
    found += report.languages.failures
    train = report.splits.get("train")
    fixed_vocab = train is not None and train.coverage is not None  # init.vocab: parent
    for name, split in report.splits.items():
        source = split.coverage and split.coverage["src"]
        if name != "train" and source and source.unknown > UNKNOWN_THRESHOLD:
            found.append(
                f"{name}: {source.unknown:.0%} of the source pieces are unknown (UNK), for example "
                f"{' '.join(source.pieces)}; "
                + (
                    "the vocabulary of the parent does not fit it, so set init.vocab=new"
                    if fixed_vocab
                    else "check that its language and script are those of the training data, and "
                    "that segment.codes or segment.model fits the corpus"
                )
            )
    return found + (_form_problems(report) if _is_mixed(report) else [])


def _forms(report: CorpusReport) -> list[CorpusForm]:
    """Return the forms of the training corpora, if there are several."""
    return next((split.forms for split in report.splits.values() if split.forms), [])


def _is_mixed(report: CorpusReport) -> bool:
    """Return whether some training corpora, not all, are evidently in the other form."""
    forms = _forms(report)
    others = [form.is_other() for form in forms if form.kept]
    return any(others) and not all(others)


def _form_problems(report: CorpusReport) -> list[str]:
    forms = _forms(report)
    return [text for i, form in enumerate(forms) for text in form.problems(f"data.train[{i}]")]


def warnings(report: CorpusReport, max_overlap: float) -> list[str]:
    """Return the findings that a user should check, one sentence each.

    Args:
        max_overlap: share of the test set that may be in dev, and of the texts of a side that may
            be in the training data.
    """
    found = list(report.languages.warnings)
    shared = report.test_in_dev
    if shared.share > max_overlap:
        found.append(
            f"test: {shared.share:.1%} of the pairs ({shared.pairs:,}) are also in dev, which "
            "selects the best checkpoint, so test scores are too high; use another data.test"
        )
    for name, overlap in report.overlap.items():
        for side, recurrence in _sides(overlap):
            if (
                recurrence.same > max_overlap * recurrence.of
                or recurrence.share > RECURRING_THRESHOLD
            ):
                found.append(
                    f"{_describe_recurrence(name, side, recurrence)}, for example "
                    f"{recurrence.examples[0]}"
                )
    for name, split in report.splits.items():
        found += _warnings_of_split(name, split)
    return found + ([] if _is_mixed(report) else _form_problems(report))


def _warnings_of_split(name: str, split: SplitReport) -> list[str]:
    found = []
    if name != "train" and split.kept < MIN_HELD_OUT:
        pairs = "1 pair" if split.kept == 1 else f"{split.kept} pairs"
        found.append(
            f"{name}: only {pairs} with text on both sides, so its scores are unreliable; use at "
            f"least {MIN_HELD_OUT}"
        )
    for key, finding in split.suspicious.items():
        if split.forms and key in ENTRY_SUSPICIONS:
            continue  # each entry has its own sentence
        if finding.count / split.kept > SUSPICIONS[key].threshold:
            found.append(f"{name}: {_suspicious(finding, split.kept, SUSPICIONS[key])}")
    if split.not_in_nfc.count:
        found.append(
            f"{name}: {_count(split.not_in_nfc.count, 'pair')} not in Unicode NFC, first at "
            f"{split.not_in_nfc.lines[0]}, so one letter may have two codes; set "
            "data.normalize=nfc"
        )
    for side, coverage in (split.coverage or {}).items():
        if name == "train":
            if coverage.unknown > FIXED_VOCAB_THRESHOLD:
                found.append(
                    f"train: the vocabulary of the parent lacks {coverage.unknown:.1%} of the "
                    f"{_SIDE_NAMES[side]} pieces, for example {' '.join(coverage.pieces)}; they "
                    "become UNK; set init.vocab=new"
                )
        elif coverage.lacking > LACKING_THRESHOLD:
            found.append(
                f"{name}: {coverage.lacking:.0%} of the {_SIDE_NAMES[side]} pieces are not in the "
                f"training data, for example {' '.join(coverage.pieces)}; expect lower scores, or "
                "add training data of this kind"
            )
    return found


def summary(report: CorpusReport) -> str:
    """Return the report in a few lines for a reader."""
    lines = []
    for name, split in report.splits.items():
        parts = [_count(split.pairs, "pair")]
        if split.dropped:
            drops = split.describe_drops()
            count = sum(finding.count for finding in split.dropped.values())
            kind = "dropped" if name == "train" else "with a blank side, kept for scoring"
            parts.append(f"{count:,} {kind} ({drops})")
        if split.duplicates:
            parts.append(_count(split.duplicates, "duplicate"))
        parts += [f"{kind} in {_count(n, 'line')}" for kind, n in split.normalized.items()]
        if name == "train" and split.coverage:
            src, tgt = (f"{split.coverage[side].unknown:.2%}" for side in ("src", "tgt"))
            parts.append(f"{src} of source and {tgt} of target pieces unknown to the parent")
        lines.append(f"{name}: {'; '.join(parts)}")
    for name, overlap in report.overlap.items():
        if overlap.pairs:
            lines.append(
                f"{name}: {_count(overlap.pairs, 'pair')} ({overlap.share:.1%}) also in the "
                "training data"
            )
        recurring = [
            _describe_recurrence(name, side, recurrence)
            for side, recurrence in _sides(overlap)
            if recurrence.share
        ]
        lines += [t for t in recurring if not any(w.startswith(t) for w in report.warnings)]
    lines += [f"warning: {text}" for text in report.warnings]
    return "\n".join(lines)


def _suspicious(finding: Finding, pairs: int, suspicion: Suspicion) -> str:
    return (
        f"{_count(finding.count, 'pair')} ({finding.count / pairs:.1%}) {suspicion.meaning}, first "
        f"at {finding.lines[0]}; {suspicion.fix}"
    )


_SIDE_NAMES = {"src": "source", "tgt": "target"}


def _sides(overlap: Overlap) -> tuple[tuple[str, Recurrence], tuple[str, Recurrence]]:
    return ("source", overlap.sources), ("target", overlap.targets)


def _describe_recurrence(name: str, side: str, recurrence: Recurrence) -> str:
    return (
        f"{name}: {recurrence.same:,} of {recurrence.of:,} {side} texts are also in the training "
        f"data, and {recurrence.near:,} more as near-duplicates ({recurrence.share:.1%} in total, "
        f"texts under {MIN_WORDS} words not counted)"
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
