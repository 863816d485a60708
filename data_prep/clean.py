"""nmt clean: drop bad pairs from parallel text, and show what went and why.

The text is read twice. The first pass applies the rules of a pair and finds out what is typical of
the text. The second one applies the rules that compare a pair with the text, and writes. If a rule
that is not sure would drop many pairs, both passes are repeated without it, and the user is asked.
The input is only read.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_prep.languages import check_choice
from nmt.cli.parsers import command_parser, shorten_help
from nmt.data.text import find_side, read_lines
from nmt.errors import RunError, UserError
from nmt.runtime.files import AGAIN, json_object, read_text, write_atomic

if TYPE_CHECKING:
    from data_prep.identify import Identify
    from data_prep.pairs import Pair
    from data_prep.rules import Known
    from data_prep.spelling import Spelling
    from nmt.data.filters import CorpusFilter, Example, Rule

EXAMPLES = """\
examples:
  %(prog)s raw/web -o web --src-lang gl --tgt-lang en --held-out dev test
  %(prog)s raw/web -o web --src-lang gl --tgt-lang en --set digits=off
  %(prog)s outputs.shp -o mapped.shp --spelling shp=table.tsv"""
MANY = 0.1  # share of the pairs under one sure rule that a user should look at
# A rule that is not sure asks before it drops more than this share of the pairs, and over two: in
# a small text, a few bad pairs are a large share.
FEW, FEW_PAIRS = 0.02, 2
MANIFEST = "MANIFEST.json"
ORIGIN = ("corpus", "src", "tgt", "sources", "notes")  # what a cleaned text has from its input
TEMPLATES = Path(__file__).parent / "templates"
SHOWN = 200  # characters of a side in an example on the terminal


def parser() -> argparse.ArgumentParser:
    """Return the command line of nmt-clean."""
    from data_prep.rules import RULES

    p = command_parser(
        "nmt-clean",
        usage="%(prog)s PREFIX -o OUT --src-lang LANG --tgt-lang LANG [options]\n"
        "       %(prog)s FILE -o OUT --spelling LANG=TABLE",
        description="Drop bad pairs of a parallel text. Each rule has a measure and a threshold. "
        "OUT.html shows how many pairs each rule drops, with examples. The input stays as it is.",
        epilog=EXAMPLES,
    )
    p.add_argument(
        "prefix",
        metavar="PREFIX",
        help="parallel text: PREFIX.SRC and PREFIX.TGT; without languages, one text file to which "
        "only --spelling is applied",
    )
    p.add_argument(
        "-o", "--output", type=Path, required=True, metavar="OUT", help="output prefix, or file"
    )
    for side, name, code in (("src", "source", "gl"), ("tgt", "target", "en")):
        p.add_argument(
            f"--{side}-lang", dest=side, metavar="LANG", help=f"{name} language, such as {code}"
        )
    p.add_argument("--force", action="store_true", help="replace files of an earlier command")
    p.add_argument(
        "--spelling",
        nargs="+",
        default=[],
        metavar="LANG=FILE",
        help="before all rules, map the spelling of a language by a table: each line of FILE has "
        "what is written, a tab, and its replacement",
    )
    rules = p.add_argument_group("rules")
    rules.add_argument(
        "--set",
        nargs="+",
        default=[],
        metavar="RULE=X",
        help="threshold of a rule, or off: "
        + " ".join(f"{rule.name}={rule.threshold:g}" for rule in RULES),
    )
    rules.add_argument(
        "--confirm",
        nargs="+",
        default=[],
        metavar="RULE",
        help=f"drop pairs under this rule also if they are over {FEW:.0%}% of the text; without "
        "it, they are kept, and shown with examples",
    )
    rules.add_argument(
        "--held-out",
        nargs="+",
        default=[],
        metavar="PREFIX",
        help="dev and test sets to exclude from the text",
    )
    rules.add_argument(
        "--language-model",
        type=Path,
        metavar="FILE",
        help="fastText model that identifies languages, such as GlotLID or OpenLID; default: the "
        "package lingua, if it is installed and knows both languages",
    )
    rules.add_argument(
        "--models",
        nargs=2,
        type=Path,
        metavar=("FORWARD", "BACKWARD"),
        help="two run folders: keep the pairs that are most likely for both models",
    )
    rules.add_argument(
        "--keep",
        type=float,
        metavar="X",
        help="share of the pairs that --models keeps, such as 0.8",
    )
    shorten_help(p, "prefix", "output", "src", "tgt", "spelling", "set", "confirm", "held_out")
    return p


def body(args: argparse.Namespace) -> None:
    """Clean the text, write the files and print the counts."""
    if args.src is None and args.tgt is None:
        _map_file(args)
        return
    from data_prep.rules import HeldOut, Known
    from data_prep.spelling import spellings
    from nmt.data.bitext import write_pairs
    from nmt.runtime.files import TEMPORARY, disk_errors, replace_together
    from nmt.store.output import CHOOSE_ANOTHER

    if args.src is None or args.tgt is None:
        raise UserError(
            "--src-lang and --tgt-lang require each other",
            at=str(args.prefix),
            fix="name both languages of a parallel text, or none to map one file by --spelling",
        )
    langs = args.src, args.tgt
    rules = chosen_rules(args.set)
    for name in args.confirm:
        check_choice(name, [rule.name for rule in rules], "rule", "--confirm")
    _check_models(args)
    sources, outputs = _files(args)
    tables = spellings(args.spelling, langs)
    identify, notes = _identifier(args, rules)
    held_out = HeldOut(_read_all(args.held_out, langs)) if args.held_out else None
    with disk_errors(args.output, elsewhere=CHOOSE_ANOTHER):
        args.output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=args.output.parent) as folder:
            drafts = {path: Path(folder) / path.name for path in outputs}
            *sides, page = drafts.values()
            questions: list[Question] = []
            while True:
                checked = _select(args, sources, rules, Known(held_out, identify), tables)
                written = write_pairs(checked.kept(), *sides)
                asked = _questions(checked, rules, args.confirm)
                if not asked:
                    break
                questions += asked
                rules = [rule for rule in rules if all(rule is not q.rule for q in asked)]
            if written and args.models:
                rules.append(_keep_best(sides, args, checked))
            if None not in checked.reasons:
                reasons = checked.dropped if checked.reasons else "the text is empty"
                raise RunError(
                    f"no pair is left ({reasons})",
                    at=str(args.output),
                    fix="check --src-lang and --tgt-lang, or turn a rule off: --set RULE=off",
                )
            warnings = [*checked.warnings, *_many(checked)]
            manifest = _manifest(args, sources, sides, rules, checked, questions, tables)
            html = _page(args, rules, checked, [*notes, *warnings], questions)
            page.write_text(html, encoding="utf-8", errors="backslashreplace")
            with page.open("rb+") as file:
                os.fsync(file.fileno())
            replace_together(drafts)
    write_atomic(args.output.with_name(MANIFEST), manifest, CHOOSE_ANOTHER, AGAIN)
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
    """A rule that would drop so many pairs that it may be wrong for this text."""

    rule: Rule
    count: int
    examples: list[Example]

    def text(self, total: int) -> str:
        """Return for people what the rule would drop, with examples, and how to decide."""
        name, shown = self.rule.name, [(e.src[:SHOWN], e.tgt[:SHOWN]) for e in self.examples]
        return "\n".join(
            [
                f"question: are these pairs bad? {name} would drop {self.count:,} pairs "
                f"({self.count / total:.1%}), so they are kept; --confirm {name} drops them",
                *(f"  {src} ||| {tgt}" for src, tgt in shown),
            ]
        )


def _questions(
    checked: CorpusFilter[Pair], rules: Sequence[Rule], confirmed: Sequence[str]
) -> list[Question]:
    """Return the rules that are not sure, and drop many of the pairs that sure ones keep."""
    counts = checked.counts()
    left = len(checked.reasons) - sum(counts.get(rule.name, 0) for rule in rules if rule.sure)
    return [
        Question(rule, count, checked.examples[rule.name])
        for rule in rules
        if not rule.sure and rule.name not in confirmed
        if (count := counts.get(rule.name, 0)) > max(FEW_PAIRS, FEW * left)
    ]


def _map_file(args: argparse.Namespace) -> None:
    """Map the spelling of one file, line by line."""
    from data_prep.spelling import spellings
    from nmt.runtime.files import TEMPORARY, disk_errors
    from nmt.store.output import CHOOSE_ANOTHER, check_output_file

    others = args.set, args.confirm, args.held_out, args.language_model, args.models, args.keep
    tables = [*spellings(args.spelling, ()).values()]
    if len(tables) != 1 or any(others):
        raise UserError(
            "without languages, one --spelling LANG=FILE is applied to one file, and no rule",
            at=str(args.prefix),
            fix="name the languages of a parallel text: --src-lang LANG --tgt-lang LANG",
        )
    check_output_file(args.output, args.force, [args.prefix])
    with disk_errors(args.output, elsewhere=CHOOSE_ANOTHER):
        args.output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=args.output.parent) as folder:
            draft = Path(folder) / args.output.name
            with draft.open("w", encoding="utf-8", newline="\n") as file:
                for line in tables[0].map_all(read_lines(Path(args.prefix), clean=False)):
                    file.write(f"{line}\n")
                file.flush()
                os.fsync(file.fileno())
            draft.replace(args.output)
    print(tables[0].report(), file=sys.stderr)


def chosen_rules(settings: Sequence[str]) -> list[Rule]:
    """Return the rules with the thresholds of ``--set``, without those that are off.

    Raises:
        UserError: there is no such rule, or its threshold is not a number of at least 0.
    """
    from data_prep.rules import RULES

    rules: dict[str, Rule | None] = {rule.name: rule for rule in RULES}
    for setting in settings:
        name, _, value = setting.partition("=")
        rule = rules[check_choice(name, rules, "rule", "--set")]
        try:
            threshold = math.nan if value == "off" else float(value)
        except ValueError:
            threshold = -1
        if value != "off" and not 0 <= threshold < math.inf:
            raise UserError(
                f"{value!r} is not a number of at least 0, or off",
                at=f"--set {name}",
                fix=f"write, for example, --set {name}={rule.threshold if rule else 1:g}",
            )
        rules[name] = replace(rule, threshold=threshold) if rule and value != "off" else None
    return list(filter(None, rules.values()))


def _check_models(args: argparse.Namespace) -> None:
    if (args.models is None) != (args.keep is None):
        raise UserError(
            "--models and --keep require each other",
            at="--models, --keep",
            fix="give both, such as --models FORWARD BACKWARD --keep 0.8, or neither",
        )
    if args.models:
        if not 0 < args.keep < 1:
            raise UserError(
                f"{args.keep:g} is not a share between 0 and 1",
                at="--keep",
                fix="write --keep 0.8 to keep four fifths of the pairs",
            )
        from data_prep.dual import check_direction

        for run, direction in zip(
            args.models, ((args.src, args.tgt), (args.tgt, args.src)), strict=True
        ):
            check_direction(run, *direction)


def _files(args: argparse.Namespace) -> tuple[tuple[Path, Path], list[Path]]:
    """Return the two files to read, and those to write: two sides and the page."""
    if args.src == args.tgt:
        raise UserError(
            "source and target have the same language", at=args.src, fix="give two languages"
        )
    if args.output.is_dir() or args.output.suffix in (f".{args.src}", f".{args.tgt}"):
        raise UserError(
            f"--output takes a prefix, to which .{args.src}, .{args.tgt} and .html are added",
            at=str(args.output),
            fix=f"write, for example, -o {args.output / 'web'}"
            if args.output.is_dir()
            else f"leave out the suffix: -o {args.output.with_suffix('')}",
        )
    sources = find_side(args.prefix, args.src), find_side(args.prefix, args.tgt)
    outputs = [
        args.output.with_name(f"{args.output.name}.{suffix}")
        for suffix in (args.src, args.tgt, "html")
    ]
    if os.path.realpath(args.prefix) == os.path.realpath(args.output) or any(
        path.exists() and path.samefile(source) for path in outputs for source in sources
    ):
        raise UserError(
            "the output is the input, which is never changed",
            at=str(args.output),
            fix="give another --output",
        )
    if not args.force:
        for path in outputs:
            if os.path.lexists(path):
                raise UserError(
                    "exists already", at=str(path), fix="give another --output, or add --force"
                )
    return sources, outputs


def _read_all(prefixes: Iterable[str], langs: tuple[str, str]) -> Iterator[Pair]:
    from data_prep.pairs import read_aligned

    for prefix in prefixes:
        src, tgt = (find_side(prefix, lang) for lang in langs)
        yield from read_aligned(src, tgt, Path(prefix).name)


def _identifier(
    args: argparse.Namespace, rules: Sequence[Rule]
) -> tuple[Identify | None, list[str]]:
    """Return the language identifier, and a sentence if there is none."""
    from data_prep.identify import by_fasttext, by_lingua

    if args.language_model is not None:
        return by_fasttext(args.language_model, (args.src, args.tgt)), []
    if all(rule.name != "language" for rule in rules):
        return None, []
    found = by_lingua((args.src, args.tgt))
    note = (
        "The rule language was not applied: the package lingua is not installed (extra corpora) "
        f"or does not know {args.src} or {args.tgt}. --language-model takes a fastText model."
    )
    return found, [] if found else [note]


def _select(
    args: argparse.Namespace,
    sources: tuple[Path, Path],
    rules: Sequence[Rule],
    known: Known,
    tables: Mapping[str, Spelling],
) -> CorpusFilter[Pair]:
    """Return the filter after its first pass."""
    from data_prep.pairs import read_aligned
    from data_prep.rules import repeats
    from nmt.data.filters import CorpusFilter
    from nmt.runtime.progress import counted

    name, langs = Path(args.prefix).name, (args.src, args.tgt)
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
    sides: Sequence[Path], args: argparse.Namespace, checked: CorpusFilter[Pair]
) -> Rule:
    """Score the pairs of two drafts, and write them again without those that a rule drops."""
    from data_prep.dual import scores, worst_kept
    from data_prep.pairs import read_aligned
    from nmt.data.bitext import write_pairs
    from nmt.data.filters import Rule

    numbers = [number for number, reason in enumerate(checked.reasons) if reason is None]
    values = scores(sides[0], sides[1], args.models, len(numbers))
    remaining = iter(values)
    rule = Rule(
        "cross-entropy",
        lambda *_: next(remaining),
        worst_kept(values, args.keep),
        f"The pair is among the worst {1 - args.keep:.0%} of those that are left: its dual "
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


def _many(checked: CorpusFilter[Pair]) -> list[str]:
    """Return a sentence for each rule that drops a large part of the text."""
    total = len(checked.reasons)
    return [
        f"{name} drops {count / total:.0%} of the pairs: read its examples"
        for name, count in checked.counts().items()
        if count > MANY * total
    ]


def _page(
    args: argparse.Namespace,
    rules: Sequence[Rule],
    checked: CorpusFilter[Pair],
    notes: Sequence[str],
    questions: Sequence[Question],
) -> str:
    from nmt.apps.report.page import page_environment

    return (
        page_environment(TEMPLATES)
        .get_template("clean.html")
        .render(
            title=Path(args.prefix).name,
            langs=(args.src, args.tgt),
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
    args: argparse.Namespace,
    sources: Sequence[Path],
    sides: Sequence[Path],
    rules: Sequence[Rule],
    checked: CorpusFilter[Pair],
    questions: Sequence[Question],
    tables: Mapping[str, Spelling],
) -> str:
    """Return MANIFEST.json of the output folder with an entry for this text.

    A new one takes the origin and the licenses from the manifest of the input.
    """
    from nmt.runtime.files import file_digest

    old: dict[str, Any] = {}
    for folder, names in ((args.output.parent, None), (sources[0].parent, ORIGIN)):
        try:
            found = json_object(read_text(folder / MANIFEST))
            old = {key: found[key] for key in names or found if key in found}
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
    cleaned = {**old.get("cleaned", {}), args.output.name: entry}
    return json.dumps({**old, "cleaned": cleaned}, ensure_ascii=False, indent=2) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    from nmt.cli.common import run_command

    return run_command(body, parser, argv)


if __name__ == "__main__":
    sys.exit(main())
