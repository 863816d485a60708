"""The outputs of the runs on a test or dev set: their scores, their faults, and examples.

Examples are compared with the reference word by word.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from random import Random
from statistics import fmean
from typing import Any, NamedTuple

from nmt.apps.report.runs import ReportedRun
from nmt.data.bitext import Split, held_out_entries, read_in_form
from nmt.data.lines import find_side, is_blank
from nmt.errors import NmtError
from nmt.scoring.metrics import check_lines, sentence_scores
from nmt.scoring.systems import Systems, from_runs, hypotheses_file
from nmt.store.folder import is_average, update_of
from nmt.text.languages import UNSPACED_CHARACTER
from nmt.text.letters import repetitions
from nmt.text.tokenizer import Moses

EXAMPLES = 5  # of each kind
FAULTY_LINES = 50  # shown of each fault and run
EXAMPLES_SEED = 1  # of the random ones
MIN_WORDS = 4  # of the reference of an example; shorter ones say little about a system
LENGTH_FACTOR = 2  # an output is called long or short beyond this factor of its reference
LOOP = 3  # times that a phrase occurs in a row


class Part(NamedTuple):
    """A part of a text that differs from another text, or does not."""

    text: str
    differs: bool


@dataclass(frozen=True)
class Output:
    """The output of a run for a line."""

    label: str  # of the run
    parts: list[Part]  # the text, with the words marked that the reference lacks
    score: float  # chrF of the sentence


@dataclass(frozen=True)
class Example:
    """A line with its reference and the outputs of all runs."""

    line: int  # its number, from 1
    source: str
    reference: list[Part]  # with the words marked that the output lacks, if there is one run
    outputs: list[Output]


@dataclass(frozen=True)
class Fault:
    """Outputs with a certain fault."""

    name: str
    meaning: str  # what counts as one
    counts: list[int | None]  # of each run; None = the run has not recorded it
    lines: list[list[Example]]  # the first ones of each run; empty if only their number is known


@dataclass(frozen=True)
class Row:
    """A line of the list of all translations."""

    number: int  # from 1
    source: str
    outputs: list[str]  # of each run
    scores: list[float]  # chrF of each output
    reference: str


class Outputs:
    """The outputs of runs on one set: test, dev, or test.NAME of several sets.

    Raises:
        UserError: outputs or references are missing, or the runs have different references.
    """

    def __init__(self, runs: Sequence[ReportedRun], split: str) -> None:
        self.runs, self.split = runs, split
        self.systems: Systems = from_runs([run.name for run in runs], split)
        self.texts = [self.systems.texts[run.name] for run in runs]
        role: Split = "dev" if split.startswith("dev") else "test"
        self._entry = held_out_entries(runs[0].recipe, role)[split]
        self.src_lang, self.tgt_lang = self._entry.langs(runs[0].recipe)

    @functools.cached_property
    def sources(self) -> list[str]:
        """The source lines of the first run as plain text."""
        data, entry = self.runs[0].recipe.data, self._entry
        file = find_side(entry.path, self.src_lang)
        lines = read_in_form(file, self.src_lang, entry.is_tokenized(data), data.tokenized)
        check_lines(lines, self.systems.refs, entry.path)
        moses = Moses(data.tokenized)
        return [moses.detokenize_reference(line, self.src_lang) for line in lines]

    @functools.cached_property
    def scores(self) -> list[list[float]]:
        """chrF of each sentence, of each run."""
        refs, others = self.systems.refs, self.systems.other_refs
        return [
            sentence_scores(hyps, refs, ["chrf"], self.tgt_lang, others)[0].values
            for hyps in self.texts
        ]

    def faults(self) -> list[Fault]:
        """Find likely errors in the outputs, with their number in each run."""
        long = "over twice as many words as a reference of at least 4"
        short = "under half as many words as a reference of at least 4"
        repeated = "a phrase three times in a row that the reference does not have"
        refs = self.systems.refs
        faults = [
            self._fault("Empty", "the output is blank and the reference is not", refs, _is_empty),
            self._recorded("Cut off", "cut at the length limit", "cut_off"),
            self._recorded("Unknown", "contains the unknown token", "unknown"),
            self._fault("Repetition", repeated, refs, _repeats),
            self._fault("Too long", long, refs, _is_long),
            self._fault("Too short", short, refs, _is_short),
        ]
        with contextlib.suppress(NmtError):  # the source is missing
            copied = "the output is the source, and the reference is not"
            lines = list(zip(self.sources, refs, strict=True))
            faults.append(self._fault("Source", copied, lines, _is_copy))
        return faults

    def _fault(
        self, name: str, meaning: str, lines: Sequence[Any], has: Callable[[str, Any], bool]
    ) -> Fault:
        """Compare each output with its line: the reference, or source and reference."""
        counts: list[int | None] = []
        shown = []
        for hyps in self.texts:
            rows = [i for i, pair in enumerate(zip(hyps, lines, strict=True)) if has(*pair)]
            counts.append(len(rows))
            with contextlib.suppress(NmtError):  # without its source, a line is only counted
                shown.append([self._example(row) for row in rows[:FAULTY_LINES]])
        return Fault(name, meaning, counts, shown)

    def _recorded(self, name: str, meaning: str, key: str) -> Fault:
        """Read a fault that only the training could count from its log."""
        role, _, set_name = self.split.partition(".")
        counts: list[int | None] = []
        for run in self.runs:
            best = run.folder.best() or ""
            if role == "test":
                record = run.metrics.last("test")
            elif is_average(best):
                record = run.metrics.last("average")
            else:
                record = run.metrics.last("dev", update_of(best))
            value = record.get(f"{set_name}/{key}" if set_name else key)
            counts.append(None if value is None else int(value))
        return Fault(name, meaning, counts, [])

    def examples(self) -> dict[str, list[Example]]:
        """Choose the best, the worst and random outputs; of several runs, also where they differ.

        Lines with short references are left out, if there are enough others.
        """
        refs = self.systems.refs
        rows = [i for i, ref in enumerate(refs) if len(split_words(ref)) >= MIN_WORDS]
        if len(rows) < 4 * EXAMPLES:
            rows = [i for i, ref in enumerate(refs) if not is_blank(ref)]
        line_scores = {i: [scores[i] for scores in self.scores] for i in rows}
        ranked = sorted(rows, key=lambda i: (-fmean(line_scores[i]), i))
        groups = {
            "Random": sorted(Random(EXAMPLES_SEED).sample(rows, min(EXAMPLES, len(rows)))),
            "Best": ranked[:EXAMPLES],
            "Worst": ranked[::-1][:EXAMPLES],
        }
        if len(self.runs) > 1:
            gap = {i: max(scores) - min(scores) for i, scores in line_scores.items()}
            groups["Largest difference"] = sorted(rows, key=lambda i: (-gap[i], i))[:EXAMPLES]
        return {name: [self._example(i) for i in indices] for name, indices in groups.items()}

    def rows(self) -> list[Row]:
        """Return all lines, with the outputs of all runs."""
        columns = zip(*self.texts, strict=True), zip(*self.scores, strict=True)
        lines = zip(self.sources, *columns, self.systems.refs, strict=True)
        return [
            Row(number, source, list(texts), list(scores), reference)
            for number, (source, texts, scores, reference) in enumerate(lines, 1)
        ]

    def _example(self, row: int) -> Example:
        reference = self.systems.refs[row]
        compared = [compare(hyps[row], reference) for hyps in self.texts]
        outputs = [
            Output(run.label, parts, scores[row])
            for run, (parts, _), scores in zip(self.runs, compared, self.scores, strict=True)
        ]
        marked = compared[0][1] if len(self.runs) == 1 else [Part(reference, differs=False)]
        return Example(row + 1, self.sources[row], marked, outputs)


def text_direction(lines: Iterable[str]) -> str:
    """Return the direction of most letters, as HTML writes it: rtl or ltr, or auto.

    A single line may begin with a word in another script, by which ``auto`` would decide.
    """
    letters = Counter("".join(lines))
    sizes = {"ltr": 0, "rtl": 0}
    for char, count in letters.items():
        kind = unicodedata.bidirectional(char)
        if kind in ("L", "R", "AL"):
            sizes["ltr" if kind == "L" else "rtl"] += count
    return max(sizes, key=sizes.__getitem__) if any(sizes.values()) else "auto"


def splits_of(runs: Sequence[ReportedRun]) -> list[str]:
    """Return the test sets that all runs have translated with their best checkpoints, else dev."""
    for role in ("test", "dev"):
        names = list(held_out_entries(runs[0].recipe, role))
        names = [n for n in names if all(hypotheses_file(r.folder, n).is_file() for r in runs)]
        if names:
            return names
    return []


def _is_empty(hyp: str, ref: str) -> bool:
    return is_blank(hyp) and not is_blank(ref)


def _is_copy(hyp: str, line: tuple[str, str]) -> bool:
    src, ref = line
    return hyp == src != ref and not is_blank(src)


def _repeats(hyp: str, ref: str) -> bool:
    return repetitions(hyp) >= LOOP > repetitions(ref)


def _is_long(hyp: str, ref: str) -> bool:
    words = len(split_words(ref))
    return words >= MIN_WORDS and len(split_words(hyp)) > LENGTH_FACTOR * words


def _is_short(hyp: str, ref: str) -> bool:
    words = len(split_words(ref))
    return words >= MIN_WORDS and 0 < LENGTH_FACTOR * len(split_words(hyp)) < words


def compare(text: str, other: str) -> tuple[list[Part], list[Part]]:
    """Mark the words of each text that are missing from the other at their place.

    A word is text between spaces without its punctuation, which is compared separately. Text of
    scripts without spaces is compared character by character. The parts of a text add up to it,
    with runs of white space as one space.
    """
    words, others = split_words(text), split_words(other)
    matcher = SequenceMatcher(None, words, others, autojunk=False)
    kept, kept_other = [False] * len(words), [False] * len(others)
    for start, start_other, size in matcher.get_matching_blocks():
        kept[start : start + size] = [True] * size
        kept_other[start_other : start_other + size] = [True] * size
    return _parts(text, words, kept), _parts(other, others, kept_other)


def split_words(text: str) -> list[str]:
    """Split a text into words, punctuation marks, and characters of scripts without spaces."""
    words = [""]
    for char in text:
        if char.isspace():
            words.append("")
        elif _is_alone(char):
            words += [char, ""]
        else:
            words[-1] += char
    return list(filter(None, words))


@functools.cache
def _is_alone(char: str) -> bool:
    if char.isascii():
        return not char.isalnum()
    return unicodedata.category(char)[0] in "PS" or bool(UNSPACED_CHARACTER.match(char))


def _parts(text: str, words: Sequence[str], kept: Sequence[bool]) -> list[Part]:
    text = " ".join(text.split())
    marked: list[Part] = []  # words, and the spaces between them
    start = 0
    for word, same in zip(words, kept, strict=True):
        begin = text.index(word, start)
        if begin > start:  # a space between two words that differ belongs to their part
            marked.append(Part(text[start:begin], differs=marked[-1].differs and not same))
        marked.append(Part(word, not same))
        start = begin + len(word)
    return [
        Part("".join(part.text for part in parts), differs)
        for differs, parts in itertools.groupby(marked, key=lambda part: part.differs)
    ]
