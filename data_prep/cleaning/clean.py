"""nmt-clean: drop bad pairs from parallel text, and show which and why.

The text is read twice. The first pass applies the rules for single pairs and measures what is
typical of the text. The second one applies the rules that compare a pair with the text, and writes.
If a rule that is not certain would drop many pairs, both passes are repeated without it, and the
user is asked. The input is only read.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_prep.cleaning.dual import scores, worst_kept
from data_prep.cleaning.identify import Identify, by_fasttext, by_lingua
from data_prep.cleaning.rules import HeldOut, Known, repeats
from data_prep.cleaning.spelling import Spelling, spellings
from data_prep.pairs import read_aligned
from nmt.data.bitext import write_pairs
from nmt.data.corpus_manifest import MANIFEST
from nmt.data.filters import CorpusFilter, Example
from nmt.data.lines import find_side
from nmt.data.pair import Pair
from nmt.data.rules import Rule
from nmt.errors import RunError, UserError
from nmt.runtime.files import (
    AGAIN,
    TEMPORARY,
    disk_errors,
    file_digest,
    json_object,
    read_text,
    replace_together,
    write_atomic,
)
from nmt.runtime.progress import counted
from nmt.store.output import CHOOSE_ANOTHER

MANY = 0.1  # share of the pairs that one certain rule drops, above which there is a warning
# A rule that is not sure asks before it drops more than this share of the pairs, and over two: in
# a small text, a few bad pairs are a large share.
FEW, FEW_PAIRS = 0.02, 2
ORIGIN = (
    "corpus",
    "src",
    "tgt",
    "sources",
    "notes",
)  # keys that a cleaned text inherits from its input
TEMPLATES = Path(__file__).parent / "templates"
SHOWN = 200  # characters of a side in an example on the terminal


@dataclass(frozen=True)
class Cleaning:
    """The settings of a cleaning.

    Attributes:
        prefix: of the text to read.
        output: prefix of the files to write.
        force: replace them if they exist.
        confirmed: names of rules that may drop many pairs.
        held_out: prefixes of dev and test sets.
        spelling: LANG=FILE of each table.
        language_model: fastText model; None = lingua, if it knows both languages.
        models: two run folders, of both directions.
        keep: share of the pairs that they keep.
    """

    prefix: str
    output: Path
    langs: tuple[str, str]
    force: bool
    rules: Sequence[Rule]
    confirmed: Sequence[str]
    held_out: Sequence[str]
    spelling: Sequence[str]
    language_model: Path | None
    models: tuple[Path, Path] | None
    keep: float


def clean(job: Cleaning) -> None:
    """Clean the text, write the files and print the counts.

    Raises:
        UserError: a file cannot be read, or exists already.
        RunError: no pair is left.
    """
    rules = [*job.rules]
    sources, outputs = _files(job)
    tables = spellings(job.spelling, job.langs)
    identify, notes = _identifier(job)
    held_out = HeldOut(_read_all(job.held_out, job.langs)) if job.held_out else None
    with disk_errors(job.output, elsewhere=CHOOSE_ANOTHER):
        job.output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=job.output.parent) as folder:
            drafts = {path: Path(folder) / path.name for path in outputs}
            *sides, page = drafts.values()
            questions: list[Question] = []
            while True:
                checked = _select(job, sources, rules, Known(held_out, identify), tables)
                written = write_pairs(checked.kept(), *sides)
                asked = _questions(checked, rules, job.confirmed)
                if not asked:
                    break
                questions += asked
                rules = [rule for rule in rules if all(rule is not q.rule for q in asked)]
            if written and job.models:
                rules.append(_keep_best(sides, job.models, job.keep, checked))
            if None not in checked.reasons:
                reasons = checked.dropped if checked.reasons else "the text is empty"
                raise RunError(
                    f"no pair is left ({reasons})",
                    at=str(job.output),
                    fix="check --src-lang and --tgt-lang, or turn a rule off: --set RULE=off",
                )
            warnings = [*checked.warnings, *_many(checked)]
            manifest = _manifest(job, sources, sides, rules, checked, questions, tables)
            html = _page(job, rules, checked, [*notes, *warnings], questions)
            page.write_text(html, encoding="utf-8", errors="backslashreplace")
            with page.open("rb+") as file:
                os.fsync(file.fileno())
            replace_together(drafts)
    write_atomic(job.output.with_name(MANIFEST), manifest, CHOOSE_ANOTHER, AGAIN)
    for note in [*notes, *(f"warning: {warning}" for warning in warnings)]:
        print(note, file=sys.stderr)
    for question in questions:
        print(question.text(len(checked.reasons)), file=sys.stderr)
    for table in tables.values():
        print(table.report(), file=sys.stderr)
    print(checked.summary(outputs[:2]))
    print(f"rules and examples: {outputs[2]}")


@dataclass(frozen=True)
class Question:
    """A rule that would drop suspiciously many pairs."""

    rule: Rule
    count: int
    examples: list[Example]

    def text(self, total: int) -> str:
        """Return a question to the user: what the rule would drop, with examples, and how to
        decide."""
        name = self.rule.name
        shown = [(e.pair.src[:SHOWN], e.pair.tgt[:SHOWN]) for e in self.examples]
        return "\n".join(
            [
                f"question: are these pairs bad? {name} would drop {self.count:,} pairs "
                f"({self.count / total:.1%}), so they are kept; --confirm {name} drops them",
                *(f"  {src} ||| {tgt}" for src, tgt in shown),
            ]
        )


def _questions(
    checked: CorpusFilter, rules: Sequence[Rule], confirmed: Sequence[str]
) -> list[Question]:
    """Return the uncertain rules that drop many of the pairs that the certain rules keep."""
    counts = checked.counts()
    left = len(checked.reasons) - sum(counts.get(rule.name, 0) for rule in rules if rule.sure)
    return [
        Question(rule, count, checked.examples[rule.name])
        for rule in rules
        if not rule.sure and rule.name not in confirmed
        if (count := counts.get(rule.name, 0)) > max(FEW_PAIRS, FEW * left)
    ]


def _files(job: Cleaning) -> tuple[tuple[Path, Path], list[Path]]:
    """Return the two files to read, and those to write: two sides and the page."""
    src, tgt = job.langs
    if src == tgt:
        raise UserError(
            "source and target have the same language", at=src, fix="give two languages"
        )
    if job.output.is_dir() or job.output.suffix in (f".{src}", f".{tgt}"):
        raise UserError(
            f"--output takes a prefix, to which .{src}, .{tgt} and .html are added",
            at=str(job.output),
            fix=f"write, for example, -o {job.output / 'web'}"
            if job.output.is_dir()
            else f"leave out the suffix: -o {job.output.with_suffix('')}",
        )
    sources = find_side(job.prefix, src), find_side(job.prefix, tgt)
    outputs = [
        job.output.with_name(f"{job.output.name}.{suffix}") for suffix in (*job.langs, "html")
    ]
    if os.path.realpath(job.prefix) == os.path.realpath(job.output) or any(
        path.exists() and path.samefile(source) for path in outputs for source in sources
    ):
        raise UserError(
            "the output is the input, which is never changed",
            at=str(job.output),
            fix="give another --output",
        )
    if not job.force:
        for path in outputs:
            if os.path.lexists(path):
                raise UserError(
                    "exists already", at=str(path), fix="give another --output, or add --force"
                )
    return sources, outputs


def _read_all(prefixes: Iterable[str], langs: tuple[str, str]) -> Iterator[Pair]:
    for prefix in prefixes:
        src, tgt = (find_side(prefix, lang) for lang in langs)
        yield from read_aligned(src, tgt, Path(prefix).name)


def _identifier(job: Cleaning) -> tuple[Identify | None, list[str]]:
    """Return the language identifier, and a note if there is none."""
    if job.language_model is not None:
        return by_fasttext(job.language_model, job.langs), []
    if all(rule.name != "language" for rule in job.rules):
        return None, []
    identifier = by_lingua(job.langs)
    note = (
        "The rule language was not applied: the package lingua is not installed (extra corpora) "
        f"or does not know {' or '.join(job.langs)}. --language-model takes a fastText model."
    )
    return identifier, [] if identifier else [note]


def _select(
    job: Cleaning,
    sources: tuple[Path, Path],
    rules: Sequence[Rule],
    known: Known,
    tables: Mapping[str, Spelling],
) -> CorpusFilter:
    """Return the filter after its first pass."""
    name, langs = Path(job.prefix).name, job.langs
    total: int | None = None  # known after the first pass

    def pairs() -> Iterator[Pair]:
        action = "reading" if total is None else "cleaning"
        for table in tables.values():
            table.start()
        read = counted(read_aligned(*sources, name), action, "pairs", total)
        return (_mapped(pair, langs, tables) for pair in read) if tables else read

    checked = CorpusFilter(pairs, rules, langs, name, repeats=repeats(), known=known)
    total = len(checked.reasons)
    return checked


def _mapped(pair: Pair, langs: Sequence[str], tables: Mapping[str, Spelling]) -> Pair:
    sides = zip(pair[:2], langs, strict=True)
    src, tgt = (tables[lang].map(line) if lang in tables else line for line, lang in sides)
    return pair._replace(src=src, tgt=tgt)


def _keep_best(
    sides: Sequence[Path], models: tuple[Path, Path], keep: float, checked: CorpusFilter
) -> Rule:
    """Score the pairs of two drafts, and rewrite them without the worst."""
    numbers = [number for number, reason in enumerate(checked.reasons) if reason is None]
    values = scores(sides[0], sides[1], models, len(numbers))
    remaining = iter(values)
    rule = Rule(
        "cross-entropy",
        lambda *_: next(remaining),
        worst_kept(values, keep),
        f"The pair is among the worst {1 - keep:.0%} of those that are left: its dual "
        "conditional cross-entropy by the two models is over {:.3g}.",
    )

    def best() -> Iterator[Pair]:
        pairs = read_aligned(sides[0], sides[1], "kept")
        for checked.number, pair in zip(numbers, pairs, strict=True):
            if not checked.drops(pair, [rule]):
                yield pair

    better = [path.with_name(f"best-{path.name}") for path in sides]
    write_pairs(best(), *better)
    for draft, path in zip(better, sides, strict=True):
        os.replace(draft, path)
    return rule


def _many(checked: CorpusFilter) -> list[str]:
    """Return a sentence for each rule that drops a large part of the text."""
    total = len(checked.reasons)
    return [
        f"{name} drops {count / total:.0%} of the pairs: read its examples"
        for name, count in checked.counts().items()
        if count > MANY * total
    ]


def _page(
    job: Cleaning,
    rules: Sequence[Rule],
    checked: CorpusFilter,
    notes: Sequence[str],
    questions: Sequence[Question],
) -> str:

    from nmt.apps.report.page import page_environment

    return (
        page_environment(TEMPLATES)
        .get_template("clean.html")
        .render(
            title=Path(job.prefix).name,
            langs=job.langs,
            total=len(checked.reasons),
            kept=checked.reasons.count(None),
            rules=rules,
            dropped=checked.counts(),
            examples=checked.examples,
            notes=notes,
            questions=questions,
        )
    )


def _manifest(
    job: Cleaning,
    sources: Sequence[Path],
    sides: Sequence[Path],
    rules: Sequence[Rule],
    checked: CorpusFilter,
    questions: Sequence[Question],
    tables: Mapping[str, Spelling],
) -> str:
    """Return MANIFEST.json of the output folder with an entry for this text.

    A new one takes the origin and the licenses from the manifest of the input.
    """

    old: dict[str, Any] = {}
    for folder, names in ((job.output.parent, None), (sources[0].parent, ORIGIN)):
        try:
            manifest = json_object(read_text(folder / MANIFEST))
            old = {key: manifest[key] for key in names or manifest if key in manifest}
            break
        except (OSError, ValueError, TypeError):  # there is none, or it is another program's
            continue
    entry = {
        "input": {path.name: file_digest(path) for path in sources},
        "pairs": {"read": len(checked.reasons), "kept": checked.reasons.count(None)},
        "rules": {rule.name: rule.text for rule in rules},
        "dropped": checked.dropped.report(),
        "questions": {question.rule.name: question.count for question in questions},
        "spelling": {lang: file_digest(table.path) for lang, table in tables.items()},
        "sha256": {path.name: file_digest(path) for path in sides},
    }
    cleaned = {**old.get("cleaned", {}), job.output.name: entry}
    return json.dumps({**old, "cleaned": cleaned}, ensure_ascii=False, indent=2) + "\n"
