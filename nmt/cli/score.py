"""nmt-score: score translations with intervals and significance."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.cli.common import enable_gc, run_command
from nmt.cli.parsers import command_parser, shorten_help
from nmt.errors import RunError, UserError

if TYPE_CHECKING:
    from nmt.apps.evaluate.external import ExternalMetric
    from nmt.apps.evaluate.report import Report
    from nmt.scoring.systems import Systems
    from nmt.store.folder import RunFolder

EXAMPLES = """\
examples:
  %(prog)s runs/gl-en                          # its test set
  %(prog)s runs/layernorm runs/scalenorm       # is one of them better?
  %(prog)s --hyp a.en b.en --ref test.en --tgt-lang en"""


def parser() -> argparse.ArgumentParser:
    """Return the command line of nmt-score."""
    from nmt.apps.evaluate.external import EXAMPLE
    from nmt.scoring.metrics import METRICS, RESAMPLES, USUAL_METRICS

    p = command_parser(
        "nmt-score",
        usage="%(prog)s RUN [RUN ...] [--split test|dev] [options]\n"
        "       %(prog)s --hyp F [F ...] --ref F [--ref F ...] [options]",
        description="Score translations with sacreBLEU. Several systems are compared with the "
        "first one by paired bootstrap.",
        epilog=EXAMPLES,
    )
    p.add_argument("runs", nargs="*", metavar="RUN", help="run folders that nmt-train wrote")
    p.add_argument(
        "--split",
        type=_split,
        metavar="SPLIT",
        help="set of the runs to score: test or dev; for several sets, test.NAME or dev.NAME; "
        "default: test",
    )
    p.add_argument(
        "--hyp",
        action="extend",
        nargs="+",
        metavar="F",
        help="hypotheses as plain text, one file per system",
    )
    p.add_argument(
        "--ref",
        action="append",
        metavar="F",
        help="reference; repeat the option for further ones; default for runs: those of the recipe",
    )
    p.add_argument(
        "--src",
        metavar="F",
        help="source, for external metrics and --sentences, and to count hypotheses that copy it",
    )
    p.add_argument(
        "--tgt-lang",
        metavar="LANG",
        help="language of the files, for tokenization; default: by the name or script of --ref",
    )
    p.add_argument(
        "--tokenized", action="store_true", help="the files are Moses-tokenized, not plain text"
    )
    p.add_argument(
        "--metrics",
        type=_metrics,
        default=USUAL_METRICS,
        metavar="M,M",
        help=f"comma-separated list of {', '.join(METRICS)}; default: all but spBLEU, which needs "
        "a SentencePiece model (ter is slow)",
    )
    p.add_argument(
        "--spbleu-model",
        metavar="F",
        help="SentencePiece model of spbleu; default: the one in sacreBLEU's folder, ~/.sacrebleu "
        "or $SACREBLEU",
    )
    p.add_argument(
        "--resamples",
        type=_resamples,
        default=RESAMPLES,
        metavar="N",
        help="bootstrap resamples, at least 100; 0 = no intervals, only for one system; default: "
        "%(default)s",
    )
    p.add_argument("--sentences", metavar="F", help="write the scores of each line as a TSV file")
    p.add_argument("--force", action="store_true", help="replace an existing file of --sentences")
    p.add_argument(
        "--metric",
        action="append",
        type=_external,
        default=[],
        metavar="NAME=CMD",
        help="add a metric that a command computes, which prints a score for each line; {src}, "
        f"{{hyp}} and {{ref}} in it are replaced by file names, as in comet='{EXAMPLE}'",
    )
    p.add_argument(
        "--tune-length",
        action="store_true",
        help="score dev of a run with several values of length_alpha, and name the best",
    )
    p.add_argument("--json", action="store_true", help="print one JSON object")
    shorten_help(
        p, "runs", "split", "hyp", "ref", "tgt_lang", "metrics", "sentences", "force", "json"
    )
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return run_command(body, parser, argv)


def body(args: argparse.Namespace) -> None:
    """Read the systems, print notes on their text, then score and print."""
    from nmt.apps.evaluate.report import report
    from nmt.scoring.metrics import METRICS, use_spbleu_model

    enable_gc()
    tuned = _run_to_tune(args)
    if args.sentences:
        from nmt.store.output import check_output_file

        inputs = [*(args.hyp or []), *(args.ref or []), args.src]
        check_output_file(Path(args.sentences), args.force, inputs)
    external = _external_metrics(args)
    if args.spbleu_model is not None:
        use_spbleu_model(Path(args.spbleu_model))
    for name in args.metrics:
        METRICS[name].create("")  # the model of spBLEU may be missing
    systems = _read_systems(args)
    if tuned:
        from nmt.apps.evaluate.tuning import with_lengths

        systems = with_lengths(systems, tuned, args.split)
    for note in systems.notes():
        print(f"note: {note}", file=sys.stderr)
    if external and systems.other_refs:
        names = ", ".join(metric.name for metric in external)
        print(f"note: {names}: the command gets the first reference only", file=sys.stderr)
    result = report(systems, args.metrics, args.resamples, progress=True)
    failure = None
    for metric in external:
        try:
            result = result.with_external(metric, args.resamples, progress=True)
        except RunError as error:
            failure = failure or error  # the other scores are printed first
    try:
        if args.json:
            print(result.json(), flush=True)
        else:
            print(result.table() if sys.stdout.isatty() else result.tsv(), flush=True)
        if failure:
            raise failure
        if tuned:
            from nmt.apps.evaluate.tuning import choice

            print(f"note: {choice(result, tuned)}", file=sys.stderr)
    finally:  # after the scores, so that a full disk does not lose them
        if args.sentences:
            _write_sentences(args, systems, result)


def _run_to_tune(args: argparse.Namespace) -> RunFolder | None:
    """Return the run of --tune-length, and set the split; None without this option.

    Raises:
        UserError: there is not one run, or the set is not dev.
    """
    if not args.tune_length:
        return None
    from nmt.store.folder import RunFolder

    args.split = args.split or "dev"
    if len(args.runs) != 1 or args.hyp or args.split.partition(".")[0] != "dev":
        raise UserError(
            "--tune-length takes one run, and its dev set",
            fix="pass one run folder, without --hyp; with several dev sets, choose "
            "one with --split dev.NAME",
        )
    return RunFolder.open(args.runs[0])


def _external_metrics(args: argparse.Namespace) -> list[ExternalMetric]:
    from nmt.apps.evaluate.external import ExternalMetric
    from nmt.scoring.metrics import METRICS

    metrics: list[ExternalMetric] = []
    for name, command in args.metric:
        metric = ExternalMetric(name, command)
        metric.check([*METRICS, *(other.name for other in metrics)])
        if args.hyp and metric.needs_source and not args.src:
            raise UserError(f"--metric {name} requires --src with --hyp", fix="add --src FILE")
        metrics.append(metric)
    return metrics


def _write_sentences(args: argparse.Namespace, systems: Systems, result: Report) -> None:
    from nmt.apps.evaluate.report import sentence_table
    from nmt.runtime.files import AGAIN, replace_surrogates, write_atomic
    from nmt.runtime.words import quantity

    table = sentence_table(systems, args.metrics, result.segments)
    text = replace_surrogates(table)
    write_atomic(Path(args.sentences), text, "pass another file to --sentences", AGAIN)
    lines = quantity(len(systems.texts) * len(systems.refs), "line")
    print(f"note: wrote the scores of {lines} to {args.sentences}", file=sys.stderr)


def _read_systems(args: argparse.Namespace) -> Systems:
    from nmt.scoring.systems import from_files, from_runs

    _refuse_stray_words(args)
    if bool(args.runs) == bool(args.hyp):
        raise UserError(
            "run folders and --hyp cannot be combined" if args.runs else "nothing to score",
            fix="pass either run folders, or --hyp and --ref",
        )
    refs = args.ref or []
    if args.runs:
        for name in ("src", "tgt_lang", "tokenized"):
            if getattr(args, name):
                flag = f"--{name.replace('_', '-')}"
                raise UserError(
                    f"{flag} is only for --hyp; the recipe of a run defines it",
                    fix=f"leave out {flag}",
                )
        return from_runs(
            args.runs,
            args.split or "test",
            refs,
            sources=bool(args.metric or args.sentences),
        )
    for wrong, what, fix in (
        (args.split, "--split is only for run folders", "leave out --split, or pass a run folder"),
        (not refs, "--hyp requires --ref", "add --ref FILE"),
    ):
        if wrong:
            raise UserError(what, fix=fix)
    return from_files(args.hyp, refs, args.tgt_lang or "", args.tokenized, args.src)


def _refuse_stray_words(args: argparse.Namespace) -> None:
    """Refuse words that stand where run folders do, and belong to an option before them."""
    from nmt.scoring.metrics import METRICS

    for word in args.runs:
        is_metric = word.replace(",", "").strip() and {*word.split(",")} - {""} <= {*METRICS}
        if is_metric and not Path(word).exists():
            known = ",".join(dict.fromkeys([*args.metrics, *filter(None, word.split(","))]))
            raise UserError(
                f"{word!r} is a metric, not a run folder",
                at="--metrics",
                fix=f"separate metrics by commas, without spaces: --metrics {known}",
            )
        if Path(word).is_file():
            raise UserError(
                f"{word!r} is a file, not a run folder",
                at=word,
                fix=f"repeat the option for each reference: --ref {word}; hypotheses are files "
                "after --hyp",
            )


def _metrics(text: str) -> list[str]:
    from nmt.scoring.metrics import METRICS

    names = list(dict.fromkeys(text.split(",")))
    if unknown := [name for name in names if name not in METRICS]:
        raise argparse.ArgumentTypeError(
            f"{unknown[0]!r} is not a metric; choose from {', '.join(METRICS)}"
        )
    return names


def _external(text: str) -> tuple[str, str]:
    name, equals, command = text.partition("=")
    if equals:
        return name, command
    raise argparse.ArgumentTypeError(f"{text!r} is not NAME=COMMAND")


def _resamples(text: str) -> int:
    if text.isdecimal() and (int(text) == 0 or int(text) >= 100):
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not 0 or an integer of at least 100")


def _split(text: str) -> str:
    if text.partition(".")[0] in ("test", "dev"):
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is not test, dev, test.NAME or dev.NAME")


if __name__ == "__main__":
    sys.exit(main())
