"""The corpus checks: one table of what is measured, its threshold, the sentence and the fix.

To add one, add a row: ``_pair_check`` looks at each pair of lines, ``Check`` at the numbers of the
report. Raise VERSION if report.json gets other numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from nmt.data.report import MIN_HELD_OUT, CorpusForm, CorpusReport, Finding, recurrences
from nmt.data.text import quantity
from nmt.data.unicode import NOT_NFC
from nmt.errors import UserError

if TYPE_CHECKING:
    from nmt.config.recipe import DataConfig, SegmentConfig

# of the numbers in report.json, also those of languages and near_duplicates: with another version,
# old caches are not used
VERSION = "5"
SMALLEST_VOCAB = 500  # types that the advice about unknown pieces recommends
MIN_FORM = 20  # pairs; in fewer, signs of another form are no error

_ESCAPE = re.compile(r"&(?:quot|apos|amp|lt|gt|#91|#93);")
_ENDS = frozenset(".?!")
_SPACE_BEFORE_STOP = re.compile(r"\s\.$")  # French has a space before "?" and "!"
_NO_SPACE_BEFORE_MARK = re.compile(r"\w[.?!]$")


@dataclass(frozen=True)
class Checked:
    """What a check measures: a report, and the keys of the recipe that it depends on."""

    report: CorpusReport
    data: DataConfig
    segment: SegmentConfig


# the share that is compared with the threshold, under "share", and what the sentence names
Measured: TypeAlias = dict[str, Any]
Measure: TypeAlias = Callable[[Checked, str], Iterator[Measured]]


@dataclass(frozen=True)
class Check:
    """A row of the table.

    Attributes:
        name: what is found; of a check of pairs also its key in report.json.
        about: what is measured at a time: the "corpus", a "split" or an "entry" of data.train.
        measure: yields what it finds in one of these.
        threshold: share above which there is a message; None = ``data.max_overlap``.
        sentence, fix: templates of the message.
        error: scores would be meaningless; "mixed" = if entries are in different forms.
        pair: whether a source and its target, "" in text of one language, have the property.
        form: the pairs to look at: of text that should be tokenized, or not; None = all.
    """

    name: str
    about: str
    measure: Measure
    threshold: float | None
    sentence: str
    fix: str = ""
    error: bool | Literal["mixed"] = False
    pair: Callable[[str, str], bool] | None = None
    form: bool | None = None

    def messages(self, checked: Checked, subject: str) -> Iterator[str]:
        """Yield the message of each measured share above the threshold."""
        threshold = checked.data.max_overlap if self.threshold is None else self.threshold
        template = f"{self.sentence}; {self.fix}" if self.fix else self.sentence
        wording = checked.report.wording
        for measured in self.measure(checked, subject):
            if measured["share"] > threshold:
                yield template.format(
                    name=subject, unit=wording.unit, both=wording.both, **measured
                )


# ---------------------------------------------------------------- pairs


def _much_longer(src: str, tgt: str) -> bool:
    short, long = sorted((len(src), len(tgt)))
    return tgt != "" and long > 3 * short + 10


def _has_escapes(src: str, tgt: str) -> bool:
    return ("&" in src or "&" in tgt) and any(map(_ESCAPE.search, (src, tgt)))


def _at_end(pattern: re.Pattern[str]) -> Callable[[str, str], bool]:
    """Return whether a side ends as a pattern; the last character decides for most lines."""
    return lambda *sides: any(line[-1:] in _ENDS and pattern.search(line) for line in sides)


def _pair_check(
    name: str,
    pair: Callable[[str, str], bool],
    threshold: float,
    meaning: str,
    fix: str,
    form: bool | None = None,
) -> Check:
    """Return a check of the pairs of each split; ``meaning`` follows "12 pairs" in a sentence."""

    def measure(checked: Checked, split_name: str) -> Iterator[Measured]:
        split = checked.report.splits[split_name]
        by_entry = split.forms and form is not None  # each entry has its own sentence
        if (finding := split.suspicious.get(name)) and not by_entry:
            yield _counted(finding, split.checked, checked.report.wording.unit)

    sentence = f"{{name}}: {{count}} ({{share:.1%}}) {meaning}, first at {{first}}"
    return Check(name, "split", measure, threshold, sentence, fix, pair=pair, form=form)


def _entry_check(check: Check, fix: str) -> Check:
    """Return the same check for each of several entries of data.train."""

    def measure(checked: Checked, entry: str) -> Iterator[Measured]:
        form = _forms(checked.report)[int(entry)]
        if finding := form.signs.get(check.name):
            unit = checked.report.wording.unit
            yield {"corpus": form.name, **_counted(finding, form.kept, unit)}

    sentence = check.sentence.replace("{name}", "data.train[{name}] ({corpus})")
    return Check(check.name, "entry", measure, check.threshold, sentence, fix, error="mixed")


def _counted(finding: Finding, total: int, unit: str) -> Measured:
    count = quantity(finding.count, unit)
    return {"share": finding.count / total, "count": count, "first": finding.lines[0]}


def _forms(report: CorpusReport) -> list[CorpusForm]:
    """Return the forms of the training corpora, if there are several."""
    return next((split.forms for split in report.splits.values() if split.forms), [])


def _is_mixed(report: CorpusReport) -> bool:
    """Return whether some training corpora, not all, are evidently not as their entries say."""
    others = [
        form.kept >= MIN_FORM
        and any(
            form.signs[check.name].count > (check.threshold or 0) * form.kept
            for check in FORM_CHECKS
            if check.name in form.signs and check.name != ESCAPES
        )
        for form in _forms(report)
        if form.kept
    ]
    return any(others) and not all(others)


# ---------------------------------------------------------------- numbers of the report


def _overlap(checked: Checked, _: str) -> Iterator[Measured]:
    for split, overlap in checked.report.overlap.items():
        yield {
            "split": split,
            "share": overlap.share,
            "pairs": overlap.pairs,
            "example": next(iter(overlap.examples), ""),
            "limit": checked.data.max_overlap,
        }


def _sentences(key: str) -> Measure:
    def measure(checked: Checked, _: str) -> Iterator[Measured]:
        for text in getattr(checked.report.languages, key):
            yield {"share": 1.0, "text": text}

    return measure


def _test_in_dev(checked: Checked, _: str) -> Iterator[Measured]:
    shared = checked.report.test_in_dev
    yield {"share": shared.share, "pairs": shared.pairs}


def _recurrence(checked: Checked, _: str) -> Iterator[Measured]:
    for text, found in recurrences(checked.report):
        too_many = found.same > checked.data.max_overlap * found.of
        example = next(iter(found.examples), "")
        yield {"share": 1.0 if too_many else found.share, "text": text, "example": example}


def _few_pairs(checked: Checked, name: str) -> Iterator[Measured]:
    kept = checked.report.splits[name].kept
    if name != "train" and kept < MIN_HELD_OUT:
        yield {"share": 1.0, "count": quantity(kept, checked.report.wording.unit)}


def _other_form(references: bool) -> Measure:
    """Measure the lines that the Unicode form ``clean`` changes.

    The form of the recipe may leave them, or it does not apply: references are scored as they are.
    """

    def measure(checked: Checked, name: str) -> Iterator[Measured]:
        split, form = checked.report.splits[name], checked.data.normalize
        wording = checked.report.wording
        for side, other in split.other_form.items():
            stays = form == "none" or (form == "nfc" and set(other.changes) != {NOT_NFC})
            is_reference = name != "train" and side == "tgt" and not wording.monolingual
            if is_reference and not stays if references else stays:
                yield {
                    **_counted(other.lines, split.checked, f"{wording.sides[side]}line"),
                    "changes": other,
                    "form": form,
                }

    return measure


def _coverage(key: str, in_train: bool) -> Measure:
    """Measure the pieces of each side that are unknown or lacking."""

    def measure(checked: Checked, name: str) -> Iterator[Measured]:
        if in_train == (name == "train"):
            for side, coverage in (checked.report.splits[name].coverage or {}).items():
                yield {
                    "share": getattr(coverage, key),
                    "side": checked.report.wording.sides[side],
                    "pieces": " ".join(coverage.pieces),
                }

    return measure


def _unknown_sources(checked: Checked, name: str) -> Iterator[Measured]:
    for source in islice(_coverage("unknown", in_train=False)(checked, name), 1):
        yield {**source, "cause": _cause_of_unknown(checked)}


def _cause_of_unknown(checked: Checked) -> str:
    """Return the likely cause of many unknown pieces, and what to do.

    In a small corpus, SentencePiece with a large ``vocab_size`` ends with pieces that are complete
    words, and the characters of other words get no embedding.
    """
    segment, train = checked.segment, checked.report.splits.get("train")
    if train is not None and train.coverage is not None:  # init.vocab: parent or extend
        return "the vocabulary of the parent does not fit it, so set init.vocab=new or extend"
    size = train.kept if train else 0
    pairs = quantity(size, checked.report.wording.unit)
    check = "check that its language and script are those of the training data"
    if segment.kind == "sentencepiece" and segment.file is None:
        smaller = max(SMALLEST_VOCAB, size // 200 * 100)
        if segment.vocab_size > max(size, smaller):
            return (
                f"segment.vocab_size ({segment.vocab_size:,}) is probably too large for "
                f"{pairs}, so most pieces are complete words: set segment.vocab_size={smaller}; if "
                f"that does not help, {check}"
            )
        return check
    return f"{check}, and that segment.codes or segment.model fits the corpus"


def _round_trip(checked: Checked, _: str) -> Iterator[Measured]:
    trip = checked.report.splits["train"].round_trip if "train" in checked.report.splits else None
    if trip and checked.segment.kind != "sentencepiece":
        lines = quantity(trip.lines, "target line")
        share = trip.changed / trip.lines
        yield {"share": share, "lines": lines, "before": trip.before, "after": trip.after}


def _over_batch(checked: Checked, _: str) -> Iterator[Measured]:
    if over := checked.report.over_batch_tokens:
        yield {
            "share": over / checked.report.splits["train"].kept,
            "count": quantity(over, "pair"),
            "are": "is" if over == 1 else "are",
            "limit": quantity(checked.data.batch_tokens, "piece"),
        }


# ---------------------------------------------------------------- the table

# the names of checks of pairs are part of the format of report.json
ESCAPES = "HTML escapes (&quot; &apos; ...)"
ALREADY_TOKENIZED = "already tokenized (space before a full stop)"
NOT_TOKENIZED = "not tokenized though data.tokenized is true"
_FORM = "{name}: {count} ({share:.1%}) not in the Unicode form clean, first at {first} ({changes})"

FORM_CHECKS = [
    _pair_check(
        ESCAPES,
        _has_escapes,
        0.01,
        "containing HTML escapes such as &quot;",
        "replace them by their characters, or set data.tokenized=true if the text is "
        "Moses-tokenized",
        form=False,
    ),
    _pair_check(
        ALREADY_TOKENIZED,
        _at_end(_SPACE_BEFORE_STOP),
        0.3,
        "with a space before the last full stop, like tokenized text",
        "set data.tokenized=true if the corpus is Moses-tokenized",
        form=False,
    ),
    _pair_check(
        NOT_TOKENIZED,
        _at_end(_NO_SPACE_BEFORE_MARK),
        0.3,
        "without a space before the last punctuation mark, like text that is not tokenized",
        "set data.tokenized=false if the corpus is plain text",
        form=True,
    ),
]
CHECKS = [
    Check(
        "pairs of a held-out split in the training data",
        "corpus",
        _overlap,
        None,
        "{split}: {share:.1%} of the {unit}s ({pairs:,}) are also in the training data, for "
        "example {example}",
        "remove them from the training data, or raise data.max_overlap (now {limit:g})",
        error=True,
    ),
    Check("wrong languages", "corpus", _sentences("failures"), 0, "{text}", error=True),
    Check(
        "unknown source pieces",
        "split",
        _unknown_sources,
        0.5,
        "{name}: {share:.0%} of the {side}pieces are unknown (UNK), for example {pieces}",
        "{cause}",
        error=True,
    ),
    Check("doubtful languages", "corpus", _sentences("warnings"), 0, "{text}"),
    Check(
        "test pairs in dev",
        "corpus",
        _test_in_dev,
        None,
        "test: {share:.1%} of the {unit}s ({pairs:,}) are also in dev, which selects the best "
        "checkpoint, so test scores are too high",
        "use another data.test",
    ),
    Check(
        "texts of a side in the training data",
        "corpus",
        _recurrence,
        0.1,
        "{text}, for example {example}",
    ),
    Check(
        "a small held-out split",
        "split",
        _few_pairs,
        0,
        "{name}: only {count} with text{both}, so its scores are unreliable",
        f"use at least {MIN_HELD_OUT}",
    ),
    _pair_check(
        "same text on both sides",
        lambda src, tgt: src == tgt,
        0.1,
        "with the same text on both sides",
        "check that the two files are different, and remove untranslated pairs",
    ),
    _pair_check(
        "one side over 3 times as long",
        _much_longer,
        0.05,
        "with one side over 3 times as long as the other",
        "check that line n of one file is the translation of line n of the other",
    ),
    _pair_check(
        "already BPE-encoded (@@)",
        lambda src, tgt: "@@ " in src or "@@ " in tgt,
        0.001,
        "containing @@, like text that is already BPE-encoded",
        "use the text before BPE, or undo it: sed -E 's/@@( |$)//g'",
    ),
    *FORM_CHECKS,
    Check(
        "text in another Unicode form",
        "split",
        _other_form(references=False),
        0,
        f"{_FORM}: text that looks equal differs for the model",
        "set data.normalize=clean",
    ),
    Check(
        "references in another Unicode form",
        "split",
        _other_form(references=True),
        0,
        f"{_FORM}: these are references, which are compared as they are, and the model writes the "
        "form {form}, so scores are too low",
        "convert the file if no published score uses it",
    ),
    Check(
        "pieces that the parent lacks",
        "split",
        _coverage("unknown", in_train=True),
        0.02,
        "train: the vocabulary of the parent lacks {share:.1%} of the {side}pieces, for example "
        "{pieces}; they become UNK",
        "set init.vocab=new or init.vocab=extend",
    ),
    Check(
        "pieces that the training data lacks",
        "split",
        _coverage("lacking", in_train=False),
        0.1,
        "{name}: {share:.0%} of the {side}pieces are not in the training data, for example "
        "{pieces}",
        "expect lower scores, or add training data of this kind",
    ),
    *map(
        _entry_check,
        FORM_CHECKS,
        (
            "replace them by their characters, or set tokenized: true in this entry if the text "
            "is Moses-tokenized",
            "set tokenized: true in this entry",
            "set tokenized: false in this entry",
        ),
    ),
    Check(
        "lines that the tokenizer changes",
        "corpus",
        _round_trip,
        0.01,
        "train: {share:.1%} of {lines} are others after they were tokenized and detokenized, for "
        "example {before!r} becomes {after!r}; a model cannot write them",
        "set segment.kind=sentencepiece, which changes no line",
    ),
    Check(
        "pairs longer than a batch",
        "corpus",
        _over_batch,
        0,
        "train: {count} ({share:.1%}) {are} longer than data.batch_tokens ({limit}), so each is a "
        "batch of its own",
        "raise data.batch_tokens or lower data.max_pieces",
    ),
]
PAIR_CHECKS = [check for check in CHECKS if check.pair is not None]


def failures(report: CorpusReport, data: DataConfig, segment: SegmentConfig) -> list[str]:
    """Return the findings that make scores meaningless."""
    return _messages(Checked(report, data, segment), errors=True)


def warnings(report: CorpusReport, data: DataConfig, segment: SegmentConfig) -> list[str]:
    """Return the findings that a user should check."""
    return _messages(Checked(report, data, segment), errors=False)


def _messages(checked: Checked, errors: bool) -> list[str]:
    """Return the messages in the order of the table, but all about one split or entry together."""
    mixed = _is_mixed(checked.report)
    subjects = {
        "corpus": ["corpus"],
        "split": list(checked.report.splits),
        "entry": [str(number) for number in range(len(_forms(checked.report)))],
    }
    return [
        message
        for about, group in groupby(CHECKS, key=lambda check: check.about)
        for checks in [list(group)]
        for subject in subjects[about]
        for check in checks
        if (mixed if check.error == "mixed" else check.error) == errors
        for message in check.messages(checked, subject)
    ]


def raise_on_failures(
    report: CorpusReport,
    data: DataConfig,
    segment: SegmentConfig,
    to_train_anyway: str = "set data.checks=warn",
) -> None:
    """Raise UserError if a check failed and ``data.checks`` is "error"."""
    problems = failures(report, data, segment)
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
    return [*failures(report, data, segment), *warnings(report, data, segment)]
