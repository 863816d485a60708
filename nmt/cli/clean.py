"""nmt-clean: drop bad pairs from parallel text, and show which and why."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.cli.common import add_languages, run_command
from nmt.cli.parsers import command_parser, shorten_help
from nmt.errors import UserError

if TYPE_CHECKING:
    from nmt.data.rules import Rule

EXAMPLES = """\
examples:
  %(prog)s raw/web -o web --src-lang gl --tgt-lang en --held-out dev test
  %(prog)s raw/web -o web --src-lang gl --tgt-lang en --set digits=off
  %(prog)s outputs.shp -o mapped.shp --spelling shp=table.tsv"""


def parser() -> argparse.ArgumentParser:
    """Return the command line of nmt-clean."""
    from data_prep.cleaning.clean import FEW
    from data_prep.cleaning.rules import RULES

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
    add_languages(p, required=False)
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


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return run_command(body, parser, argv)


def body(args: argparse.Namespace) -> None:
    """Clean a parallel text, or map the spelling of one file."""
    if args.src is None and args.tgt is None:
        from data_prep.cleaning.spelling import map_file, spellings

        others = args.set, args.confirm, args.held_out, args.language_model, args.models, args.keep
        tables = [*spellings(args.spelling, ()).values()]
        if len(tables) != 1 or any(others):
            raise UserError(
                "without languages, one --spelling LANG=FILE is applied to one file, and no rule",
                at=str(args.prefix),
                fix="name the languages of a parallel text: --src-lang LANG --tgt-lang LANG",
            )
        map_file(Path(args.prefix), args.output, tables[0], args.force)
        return
    from data_prep.cleaning.clean import Cleaning, clean
    from data_prep.languages import check_choice

    if args.src is None or args.tgt is None:
        raise UserError(
            "--src-lang and --tgt-lang require each other",
            at=str(args.prefix),
            fix="name both languages of a parallel text, or none to map one file by --spelling",
        )
    rules = chosen_rules(args.set)
    for name in args.confirm:
        check_choice(name, [rule.name for rule in rules], "rule", "--confirm")
    _check_models(args)
    clean(
        Cleaning(
            prefix=args.prefix,
            output=args.output,
            langs=(args.src, args.tgt),
            force=args.force,
            rules=rules,
            confirmed=args.confirm,
            held_out=args.held_out,
            spelling=args.spelling,
            language_model=args.language_model,
            models=args.models,
            keep=args.keep or 1.0,
        )
    )


def chosen_rules(settings: Sequence[str]) -> list[Rule]:
    """Return the rules with the thresholds of ``--set``, without those that are off.

    Raises:
        UserError: there is no such rule, or its threshold is not a number of at least 0.
    """
    from data_prep.cleaning.rules import RULES
    from data_prep.languages import check_choice

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
        from data_prep.cleaning.dual import check_direction

        for run, direction in zip(
            args.models, ((args.src, args.tgt), (args.tgt, args.src)), strict=True
        ):
            check_direction(run, *direction)


if __name__ == "__main__":
    sys.exit(main())
