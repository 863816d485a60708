"""Read and check the corpora of a recipe: one pass over the pairs of all splits.

The pass selects the training pairs, and shows all pairs to the checks of ``nmt.data.checks``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from nmt.data.augment import Augmenter, Draws
from nmt.data.bitext import Bitext, RecipeFiles, TrainingText, pairs_in_form
from nmt.data.checks import CHECKS, NEVER, Scanned, findings
from nmt.data.lines import SIDES, Texts
from nmt.data.pair import Pair
from nmt.data.report import CorpusReport, Drops, Finding, SplitReport, Wording
from nmt.data.rules import Limits, apply_rules, training_rules
from nmt.data.segmenters.base import Segmenter
from nmt.errors import UserError
from nmt.runtime.progress import counted
from nmt.runtime.words import quantity

if TYPE_CHECKING:
    from nmt.config.recipe import DataConfig, Recipe

LENGTHS = "data.max_len and data.max_pieces"
ROUND_TRIPS = 2000  # pairs that are segmented and joined again
AUGMENTED = 500  # pairs that each kind of data.augment changes for the report
SHOWN_PIECES = 10  # of those that the vocabulary lacks


class Scan:
    """Read the splits of a recipe, held-out sets first, and show their pairs to all checks.

    Args:
        data: keys of the recipe; its lengths are the limits of training pairs.
    """

    def __init__(self, data: DataConfig, monolingual: bool) -> None:
        self.scanned = Scanned(data, Wording.of(monolingual))
        self.limits = Limits(data.max_len, data.max_pieces)
        self.checks = [check(self.scanned) for check in CHECKS]

    def split(self, name: str) -> SplitReport:
        """Return the report of a split."""
        return self.scanned.splits.setdefault(name, SplitReport())

    def filter(
        self, split: str, corpus: Bitext, pairs: Iterable[Pair], entry: str = ""
    ) -> Iterator[Pair]:
        """Check the pairs of a corpus; yield those that train (``training_rules``).

        Args:
            split: "train", or a dev or test set.
            entry: names the corpus if training has several.
        """
        report, scanned = self.split(split), self.scanned
        scanned.start(corpus, split, entry or split)
        limits = self.limits if split == "train" else None
        rules = training_rules(limits, corpus.monolingual)
        shown = [check.see for check in self.checks]
        if corpus.monolingual:
            report.blank = report.blank or 0
        for pair in apply_rules(pairs, rules, report.dropped):
            if pair.src:
                report.kept += 1
                scanned.next(pair)
                for see in shown:
                    see(pair, scanned)
            else:  # a blank line of monolingual text
                report.blank = (report.blank or 0) + 1
            yield pair
        dropped = sum(places.count for places in report.dropped.values())
        report.pairs = report.kept + (report.blank or 0) + dropped

    def report(self) -> CorpusReport:
        """Return the report of all splits, with the findings of the checks."""
        splits = self.scanned.splits
        self.scanned.kept["train"] = self.split("train").kept
        found = findings(self.checks, self.scanned)
        return CorpusReport({"train": splits["train"], **splits}, found)


def read_corpora(
    recipe: Recipe, files: RecipeFiles, progress: bool
) -> tuple[CorpusReport, TrainingText, dict[str, list[Texts]]]:
    """Return the report, the training pairs to use, and all pairs of dev and test.

    Raises:
        UserError: a split has no pair with text on both sides, or no training pair is left, in all
            entries or in one.
    """
    data, scan = recipe.data, Scan(recipe.data, not recipe.translates)
    wording, held_out = scan.scanned.wording, scan.scanned.held_out
    for name, corpus in files.held_out.items():
        split = scan.split(name)
        pairs = list(pairs_in_form(corpus, data.tokenized, split.normalized))
        held_out[name] = [pair[:2] for pair in pairs]  # all lines of a set stay
        list(scan.filter(name, corpus, pairs))
        if not split.kept:
            raise UserError(
                f"no {wording.unit} has text{wording.both} ({split.why_empty()})",
                at=f"data.{name} ({corpus})",
                fix="scores need text: check the files",
            )
    text, train = TrainingText(progress), scan.split("train")
    for number, corpus in enumerate(files.train):
        training_pairs = pairs_in_form(corpus, data.tokenized, train.normalized)
        shown = counted(training_pairs, f"checking {corpus.name}", "pairs", show=progress)
        before = train.pairs
        several = f"data.train[{number}] ({corpus.name})" if len(files.train) > 1 else ""
        text.add(corpus, scan.filter("train", corpus, shown, several))
        if several and not scan.scanned.kept[several]:
            too_few = f"all {wording.unit}s {wording.blank} or are too long"
            raise UserError(
                too_few if train.pairs > before else "the files are empty",
                at=f"data.train[{number}] ({corpus})",
                fix=f"check the files, {LENGTHS}, or remove this entry",
            )
    report = scan.report()
    require_training_pairs(report.splits["train"], files)
    return report, text, held_out


def read_to_learn_from(
    corpora: Sequence[Bitext], data: DataConfig, progress: bool, key: str = "segment.learn_from"
) -> TrainingText:
    """Read corpora that are used only to learn the segmentation: filtered, but not checked.

    Raises:
        UserError: no pair is left; ``key`` is where the recipe has the corpora.
    """
    limits = Limits(data.max_len, data.max_pieces)
    text = TrainingText(progress)
    for corpus in corpora:
        pairs = pairs_in_form(corpus, data.tokenized)
        shown = counted(pairs, "reading", "pairs", show=progress)
        rules = training_rules(limits, corpus.monolingual)
        with_text = (pair for pair in shown if pair.src)  # also without blank lines
        text.add(corpus, apply_rules(with_text, rules, Drops()))
    if not any(text.sizes):
        wording = Wording.of(corpora[0].monolingual)
        raise UserError(
            f"no {wording.unit} has text{wording.both}",
            at=f"{key} ({', '.join(str(corpus.sides[0]) for corpus in corpora)})",
            fix=f"check the files, {LENGTHS}",
        )
    return text


def round_trip(segmenter: Segmenter, training: TrainingText) -> Iterator[Finding]:
    """Segment and detokenize some target lines, and count those that change.

    The form of ``data.normalize`` and the kind of white space do not count.
    """
    step = -(-sum(training.sizes) // ROUND_TRIPS)
    lines, changed = 0, []
    for corpus, (_, line) in training.sample("checking the words", step):
        lang = corpus.langs[1]
        before = " ".join(segmenter.moses.normalize(line).split())
        after = segmenter.decode(segmenter.encode(line, lang, "tgt"), lang)
        lines += 1
        if after != before:
            changed.append((before, after))
    if changed:
        before, after = min(changed, key=lambda pair: len(pair[0]))  # a short example
        share, count = len(changed) / lines, len(changed)
        text = (
            f"{share:.1%} of {quantity(lines, 'target line')} change when they are tokenized "
            "and detokenized"
        )
        fix = (
            "the model can never produce these lines; set segment.kind=sentencepiece, which "
            "changes no line"
        )
        examples = [f"{before!r} becomes {after!r}"]
        name = "changed by the segmentation, in a sample"
        yield Finding(name, "train", text, fix, share, 0.01, 0.0, count, examples)


def check_augmented(
    augmenter: Augmenter,
    segmenter: Segmenter,
    known: Collection[str] | None,
    training: TrainingText,
) -> Iterator[Finding]:
    """Apply each kind of ``data.augment`` to some training pairs, and find unknown pieces.

    ``known``: the types of a vocabulary that is given; None = it is made of the changed text.
    """
    step = -(-sum(training.sizes) // AUGMENTED)
    sample = list(training.sample("checking data.augment", step))
    pairs = [pair for _, pair in sample]
    for kind in augmenter.shares:
        count, unknown = 0, 0
        lacking: dict[str, None] = {}
        for i, (corpus, pair) in enumerate(sample):
            changed = augmenter.change(pairs, i, [kind], Draws(i), corpus.langs)
            if changed == pair:
                continue
            count += 1
            if known is None:
                continue
            pieces = [
                piece
                for side, line, lang in zip(SIDES, changed, corpus.langs, strict=True)
                for piece in segmenter.encode(line, lang, side)
                if piece not in known
            ]
            unknown += bool(pieces)
            lacking.update(dict.fromkeys(pieces))
        share, examples = count / len(sample), []
        text = f"data.augment: {kind} fits {share:.0%} of a sample of pairs"
        if unknown:
            examples = [" ".join([*lacking][:SHOWN_PIECES])]
            text += (
                f", of which {unknown / count:.0%} stay as they are, because the vocabulary lacks "
                f"{examples[0]}"
            )
        yield Finding(
            f"data.augment: {kind}", "train", text, "", share, NEVER, 0.0, count, shown=True
        )


def require_training_pairs(train: SplitReport, files: RecipeFiles) -> None:
    """Raise UserError if no training pair is left."""
    if not train.kept:
        unit = Wording.of(files.train[0].monolingual).unit
        raise UserError(
            f"no training {unit} is left ({train.why_empty()})",
            at=f"data.train ({', '.join(map(str, files.train))})",
            fix=f"check the files, {LENGTHS}",
        )
