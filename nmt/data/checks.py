"""The corpus checks: PAIR_CHECKS look at each pair of lines, CHECKS at the numbers of the report.

To add one, add a row to one of these tables. Raise VERSION if report.json gets other numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from nmt.data.report import (
    MIN_HELD_OUT,
    CorpusForm,
    CorpusReport,
    Finding,
    SplitReport,
    recurrences,
)
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

# ---------------------------------------------------------------- pairs

_ESCAPE = re.compile(r"&(?:quot|apos|amp|lt|gt|#91|#93);")
_ENDS = frozenset(".?!")
_SPACE_BEFORE_STOP = re.compile(r"\s\.$")  # French has a space before "?" and "!"
_NO_SPACE_BEFORE_MARK = re.compile(r"\w[.?!]$")


@dataclass(frozen=True)
class PairCheck:
    """A property of some pairs.

    Attributes:
        name: its key in report.json.
        pair: whether a source and its target, "" in monolingual text, have it.
        threshold: share of the pairs above which there is a message.
        meaning: follows "12 pairs" in the message.
        fix: what to do.
        form: look only at text that should be tokenized, or not, as the files have it; None = at
            all text, in the form of the recipe.
        entry_fix: what to do if there are several entries of data.train; each has a message.
    """

    name: str
    pair: Callable[[str, str], bool]
    threshold: float
    meaning: str
    fix: str
    form: bool | None = None
    entry_fix: str = ""


def _much_longer(src: str, tgt: str) -> bool:
    short, long = sorted((len(src), len(tgt)))
    return tgt != "" and long > 3 * short + 10


def _has_escapes(src: str, tgt: str) -> bool:
    return ("&" in src or "&" in tgt) and any(map(_ESCAPE.search, (src, tgt)))


def _at_end(pattern: re.Pattern[str]) -> Callable[[str, str], bool]:
    """Look at the end of both sides; the last character decides for most lines."""
    return lambda *sides: any(line[-1:] in _ENDS and pattern.search(line) for line in sides)


ESCAPES = "HTML escapes (&quot; &apos; ...)"
ALREADY_TOKENIZED = "already tokenized (space before a full stop)"
NOT_TOKENIZED = "not tokenized though data.tokenized is true"

PAIR_CHECKS = [
    PairCheck(
        "same text on both sides",
        lambda src, tgt: src == tgt,
        0.1,
        "with the same text on both sides",
        "check that the two files are different, and remove untranslated pairs",
    ),
    PairCheck(
        "one side over 3 times as long",
        _much_longer,
        0.05,
        "with one side over 3 times as long as the other",
        "check that line n of one file is the translation of line n of the other",
    ),
    PairCheck(
        "already BPE-encoded (@@)",
        lambda src, tgt: "@@ " in src or "@@ " in tgt,
        0.001,
        "containing @@, like text that is already BPE-encoded",
        "use the text before BPE, or undo it: sed -E 's/@@( |$)//g'",
    ),
    PairCheck(
        ESCAPES,
        _has_escapes,
        0.01,
        "containing HTML escapes such as &quot;",
        "replace them by their characters, or set data.tokenized=true if the text is "
        "Moses-tokenized",
        form=False,
        entry_fix="replace them by their characters, or set tokenized: true in this entry if the "
        "text is Moses-tokenized",
    ),
    PairCheck(
        ALREADY_TOKENIZED,
        _at_end(_SPACE_BEFORE_STOP),
        0.3,
        "with a space before the last full stop, like tokenized text",
        "set data.tokenized=true if the corpus is Moses-tokenized",
        form=False,
        entry_fix="set tokenized: true in this entry",
    ),
    PairCheck(
        NOT_TOKENIZED,
        _at_end(_NO_SPACE_BEFORE_MARK),
        0.3,
        "without a space before the last punctuation mark, like text that is not tokenized",
        "set data.tokenized=false if the corpus is plain text",
        form=True,
        entry_fix="set tokenized: false in this entry",
    ),
]

# ---------------------------------------------------------------- numbers of the report


@dataclass(frozen=True)
class Checked:
    """What a check looks at: a report, and the keys of the recipe that it depends on."""

    report: CorpusReport
    data: DataConfig
    segment: SegmentConfig


# of a split, an entry of data.train or the corpus, with its name: shares that are compared with
# the threshold of the check, each with a message
Found: TypeAlias = Iterator[tuple[float, str]]


def _overlap(checked: Checked, *_: Any) -> Found:
    unit, limit = checked.report.wording.unit, checked.data.max_overlap
    for split, overlap in checked.report.overlap.items():
        message = (
            f"{split}: {overlap.share:.1%} of the {unit}s ({overlap.pairs:,}) are also in the "
            f"training data, for example {next(iter(overlap.examples), '')}; remove them from the "
            f"training data, or raise data.max_overlap (now {limit:g})"
        )
        yield overlap.share, message


def _wrong_languages(checked: Checked, *_: Any) -> Found:
    for text in checked.report.languages.failures:
        yield 1.0, text


def _doubtful_languages(checked: Checked, *_: Any) -> Found:
    for text in checked.report.languages.warnings:
        yield 1.0, text


def _unknown_sources(checked: Checked, name: str, split: SplitReport) -> Found:
    if name != "train" and split.coverage:
        side, coverage = next(iter(split.coverage.items()))
        message = (
            f"{name}: {coverage.unknown:.0%} of the {checked.report.wording.sides[side]}subwords "
            f"are unknown (UNK), for example {' '.join(coverage.pieces)}; "
            f"{_cause_of_unknown(checked)}"
        )
        yield coverage.unknown, message


def _cause_of_unknown(checked: Checked) -> str:
    """Return the likely cause of many unknown pieces, and what to do.

    In a small corpus, SentencePiece with a large ``vocab_size`` ends with pieces that are complete
    words, and the characters of other words get no embedding.
    """
    segment, train = checked.segment, checked.report.splits.get("train")
    if train is not None and train.coverage is not None:  # init.vocab: parent or extend
        return "the vocabulary of the parent does not fit it, so set init.vocab=new or extend"
    check = "check that its language and script are those of the training data"
    if segment.kind != "sentencepiece" or segment.file is not None:
        return f"{check}, and that segment.codes or segment.model fits the corpus"
    size = train.kept if train else 0
    smaller = max(SMALLEST_VOCAB, size // 200 * 100)
    if segment.vocab_size <= max(size, smaller):
        return check
    pairs = quantity(size, checked.report.wording.unit)
    return (
        f"segment.vocab_size ({segment.vocab_size:,}) is probably too large for {pairs}, so most "
        f"subwords are complete words: set segment.vocab_size={smaller}; if that does not help, "
        f"{check}"
    )


def _test_in_dev(checked: Checked, *_: Any) -> Found:
    shared = checked.report.test_in_dev
    message = (
        f"test: {shared.share:.1%} of the {checked.report.wording.unit}s ({shared.pairs:,}) are "
        "also in dev, which selects the best checkpoint, so test scores are too high; use another "
        "data.test"
    )
    yield shared.share, message


def _recurring_texts(checked: Checked, *_: Any) -> Found:
    for text, found in recurrences(checked.report):
        too_many = found.same > checked.data.max_overlap * found.of
        example = next(iter(found.examples), "")
        yield 1.0 if too_many else found.share, f"{text}, for example {example}"


def _few_pairs(checked: Checked, name: str, split: SplitReport) -> Found:
    if name != "train" and split.kept < MIN_HELD_OUT:
        wording = checked.report.wording
        message = (
            f"{name}: only {quantity(split.kept, wording.unit)} with text{wording.both}, so its "
            f"scores are unreliable; use at least {MIN_HELD_OUT}"
        )
        yield 1.0, message


def _frequency(finding: Finding, total: int, noun: str, meaning: str) -> tuple[float, str]:
    share = finding.count / total
    count = f"{quantity(finding.count, noun)} ({share:.1%})"
    return share, f"{count} {meaning}, first at {finding.lines[0]}"


def _of_pairs(check: PairCheck) -> Callable[[Checked, str, SplitReport], Found]:
    """Report a property of the pairs of a split."""

    def find(checked: Checked, name: str, split: SplitReport) -> Found:
        finding = split.suspicious.get(check.name)
        if finding and not (split.forms and check.entry_fix):
            unit = checked.report.wording.unit
            share, text = _frequency(finding, split.checked, unit, check.meaning)
            yield share, f"{name}: {text}; {check.fix}"

    return find


def _of_entries(check: PairCheck) -> Callable[[Checked, str, CorpusForm], Found]:
    """Report a property of the pairs of an entry of data.train."""

    def find(checked: Checked, name: str, form: CorpusForm) -> Found:
        if finding := form.signs.get(check.name):
            unit = checked.report.wording.unit
            share, text = _frequency(finding, form.kept, unit, check.meaning)
            yield share, f"{name} ({form.name}): {text}; {check.entry_fix}"

    return find


def _other_form(checked: Checked, name: str, split: SplitReport) -> Found:
    """Report the lines that the Unicode form ``clean`` changes.

    The form of the recipe may leave them, or it does not apply: references are scored as they are.
    """
    form, wording = checked.data.normalize, checked.report.wording
    for side, other in split.other_form.items():
        stays = form == "none" or (form == "nfc" and set(other.changes) != {NOT_NFC})
        if stays:
            reason = "text that looks equal differs for the model; set data.normalize=clean"
        elif name != "train" and side == "tgt" and not wording.monolingual:
            reason = (
                "these are references, which are compared as they are, and the model writes the "
                f"form {form}, so scores are too low; convert the file if no published score uses "
                "it"
            )
        else:
            continue
        noun = f"{wording.sides[side]}line"
        meaning = "not in the Unicode form clean"
        share, text = _frequency(other.lines, split.checked, noun, meaning)
        yield share, f"{name}: {text} ({other}): {reason}"


def _lacked_by_parent(checked: Checked, name: str, split: SplitReport) -> Found:
    for side, coverage in (split.coverage or {}).items() if name == "train" else ():
        message = (
            f"train: the vocabulary of the parent lacks {coverage.unknown:.1%} of the "
            f"{checked.report.wording.sides[side]}subwords, for example "
            f"{' '.join(coverage.pieces)}; they become UNK; set init.vocab=new or init.vocab=extend"
        )
        yield coverage.unknown, message


def _lacked_by_training(checked: Checked, name: str, split: SplitReport) -> Found:
    for side, coverage in (split.coverage or {}).items() if name != "train" else ():
        message = (
            f"{name}: {coverage.lacking:.0%} of the {checked.report.wording.sides[side]}subwords "
            f"are not in the training data, for example {' '.join(coverage.pieces)}; expect lower "
            "scores, or add training data of this kind"
        )
        yield coverage.lacking, message


def _round_trip(checked: Checked, *_: Any) -> Found:
    trip = checked.report.splits["train"].round_trip if "train" in checked.report.splits else None
    if trip and checked.segment.kind != "sentencepiece":
        share = trip.changed / trip.lines
        message = (
            f"train: {share:.1%} of {quantity(trip.lines, 'target line')} are others after they "
            f"were tokenized and detokenized, for example {trip.before!r} becomes {trip.after!r}; "
            "a model cannot write them; set segment.kind=sentencepiece, which changes no line"
        )
        yield share, message


def _over_batch(checked: Checked, *_: Any) -> Found:
    if over := checked.report.over_batch_tokens:
        share = over / checked.report.splits["train"].kept
        are = "is" if over == 1 else "are"
        limit = quantity(checked.data.batch_tokens, "subword")
        message = (
            f"train: {quantity(over, 'pair')} ({share:.1%}) {are} longer than data.batch_tokens "
            f"({limit}), so each is a batch of its own; raise data.batch_tokens or lower "
            "data.max_pieces"
        )
        yield share, message


# ---------------------------------------------------------------- the table


@dataclass(frozen=True)
class Check:
    """A row of the table.

    Attributes:
        about: what ``find`` looks at, one at a time: the "corpus", a "split", or an "entry" of
            several of data.train.
        threshold: share above which there is a message; None = ``data.max_overlap``.
        error: scores would be meaningless; "mixed" = if entries are in different forms.
    """

    about: Literal["corpus", "split", "entry"]
    find: Callable[[Checked, str, Any], Found]
    threshold: float | None
    error: bool | Literal["mixed"] = False


CHECKS = [
    Check("corpus", _overlap, None, error=True),
    Check("corpus", _wrong_languages, 0, error=True),
    Check("split", _unknown_sources, 0.5, error=True),
    Check("corpus", _doubtful_languages, 0),
    Check("corpus", _test_in_dev, None),
    Check("corpus", _recurring_texts, 0.1),
    Check("split", _few_pairs, 0),
    *(Check("split", _of_pairs(check), check.threshold) for check in PAIR_CHECKS),
    Check("split", _other_form, 0),
    Check("split", _lacked_by_parent, 0.02),
    Check("split", _lacked_by_training, 0.1),
    *(
        Check("entry", _of_entries(check), check.threshold, error="mixed")
        for check in PAIR_CHECKS
        if check.entry_fix
    ),
    Check("corpus", _round_trip, 0.01),
    Check("corpus", _over_batch, 0),
]


def _entries(report: CorpusReport) -> list[CorpusForm]:
    """Return the forms of the entries of data.train, if there are several."""
    return next((split.forms for split in report.splits.values() if split.forms), [])


def _is_mixed(report: CorpusReport) -> bool:
    """Return whether some entries, not all, are evidently not as they say."""
    others = [
        form.kept >= MIN_FORM
        and any(
            form.signs[check.name].count > check.threshold * form.kept
            for check in PAIR_CHECKS
            if check.name in form.signs and check.name != ESCAPES
        )
        for form in _entries(report)
        if form.kept
    ]
    return any(others) and not all(others)


def failures(report: CorpusReport, data: DataConfig, segment: SegmentConfig) -> list[str]:
    """Return the findings that make scores meaningless."""
    return _messages(Checked(report, data, segment), errors=True)


def warnings(report: CorpusReport, data: DataConfig, segment: SegmentConfig) -> list[str]:
    """Return the findings that a user should check."""
    return _messages(Checked(report, data, segment), errors=False)


def _messages(checked: Checked, errors: bool) -> list[str]:
    """Return the messages in the order of the table, but all about one split or entry together."""
    report, messages = checked.report, []
    mixed = _is_mixed(report)
    subjects: dict[str, dict[str, Any]] = {
        "corpus": {"corpus": report},
        "split": report.splits,
        "entry": {f"data.train[{number}]": form for number, form in enumerate(_entries(report))},
    }
    for about, group in groupby(CHECKS, key=lambda check: check.about):
        checks = list(group)
        for name, subject in subjects[about].items():
            for check in checks:
                if (mixed if check.error == "mixed" else check.error) != errors:
                    continue
                limit = checked.data.max_overlap if check.threshold is None else check.threshold
                found = check.find(checked, name, subject)
                messages += [message for share, message in found if share > limit]
    return messages


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
