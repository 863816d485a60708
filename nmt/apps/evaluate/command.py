"""nmt-score: score translations with intervals and significance."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.cli.common import enable_gc, positive, resamples, run_command
from nmt.cli.parsers import command_parser, shorten_help
from nmt.errors import RunError, UserError

if TYPE_CHECKING:
    from nmt.scoring.systems import Systems

EXAMPLES = """\
examples:
  %(prog)s runs/gl-en                          # its test set
  %(prog)s runs/layernorm runs/scalenorm       # is one of them better?
  %(prog)s --hyp a.en b.en --ref test.en --tgt-lang en"""


def parser() -> argparse.ArgumentParser:
    """Return the command line of nmt-score."""
    from nmt.apps.evaluate.comet import TIMEOUT
    from nmt.scoring.metrics import METRICS, RESAMPLES

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
        help="source, for COMET and --glossary, and to count hypotheses that copy it",
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
        default=list(METRICS),
        metavar="M,M",
        help=f"comma-separated list of {', '.join(METRICS)}; default: all (ter is slow)",
    )
    p.add_argument(
        "--resamples",
        type=resamples,
        default=RESAMPLES,
        metavar="N",
        help="bootstrap resamples, at least 100; 0 = no intervals, only for one system; default: "
        "%(default)s",
    )
    p.add_argument(
        "--buckets",
        action="store_true",
        help="also score by length of the reference, and words by their count in the training text",
    )
    p.add_argument(
        "--train",
        action="extend",
        nargs="+",
        metavar="F",
        help="target side of the training text, for --buckets with --hyp",
    )
    p.add_argument(
        "--documents",
        metavar="F",
        help="file with the document id of each line: also score documents (d-BLEU)",
    )
    p.add_argument(
        "--glossary",
        metavar="F",
        help="file with terms, as for nmt-translate: also count the translations that have them; "
        "runs are translated again with it",
    )
    p.add_argument("--sentences", metavar="F", help="write the scores of each line as a TSV file")
    p.add_argument("--force", action="store_true", help="replace an existing file of --sentences")
    p.add_argument(
        "--comet-command",
        metavar="CMD",
        help="add the score that a command prints; {src}, {hyp} and {ref} in it are replaced by "
        "file names",
    )
    p.add_argument(
        "--comet-timeout",
        type=positive,
        default=TIMEOUT,
        metavar="S",
        help="seconds that the command may take for one system; default: %(default).0f",
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
    from nmt.apps.evaluate.comet import ExternalMetric
    from nmt.apps.evaluate.report import read_documents, report
    from nmt.apps.evaluate.terms import count_terms, with_glossary
    from nmt.data.glossary import read_glossary

    enable_gc()
    if args.sentences:
        from nmt.cli.output import check_output_file

        inputs = [*(args.hyp or []), *(args.ref or []), *(args.train or [])]
        inputs += [args.src, args.documents, args.glossary]
        check_output_file(Path(args.sentences), args.force, inputs)
    external = None
    if args.comet_command is not None:
        external = ExternalMetric(args.comet_command, args.comet_timeout)
        external.check()
    glossary = [] if args.glossary is None else read_glossary(Path(args.glossary))
    systems = _read_systems(args)
    if glossary and args.runs:
        systems = with_glossary(systems, args.split or "test", args.glossary, glossary)
    for note in systems.notes():
        print(f"note: {note}", file=sys.stderr)
    if external is not None and systems.other_refs:
        print("note: COMET gets the first reference only", file=sys.stderr)
    documents = read_documents(args.documents, len(systems.refs)) if args.documents else []
    terms = count_terms(systems, glossary)
    if glossary and not terms:
        print(f"note: no term of {args.glossary} occurs in the source", file=sys.stderr)
    result = report(
        systems,
        args.metrics,
        args.resamples,
        documents=documents,
        buckets=args.buckets,
        terms=terms,
        progress=True,
    )
    failure = None
    if external is not None:
        try:
            result = result.with_external(external)
        except RunError as error:
            failure = error  # the other scores are printed first
    try:
        if args.json:
            print(result.json(), flush=True)
        else:
            print(result.table() if sys.stdout.isatty() else result.tsv(), flush=True)
        if failure:
            raise failure
    finally:  # after the scores, so that a full disk does not lose them
        if args.sentences:
            _write_sentences(args, systems, documents)


def _write_sentences(args: argparse.Namespace, systems: Systems, documents: list[str]) -> None:
    from nmt.apps.evaluate.report import sentence_table
    from nmt.data.text import quantity
    from nmt.runtime.files import AGAIN, replace_surrogates, write_atomic

    rows = sentence_table(systems, args.metrics, documents)
    text = replace_surrogates("".join(row + "\n" for row in rows))
    write_atomic(Path(args.sentences), text, "pass another file to --sentences", AGAIN)
    count = len(systems.texts) * len(systems.refs)
    lines = quantity(count, "line")
    print(f"note: wrote the scores of {lines} to {args.sentences}", file=sys.stderr)


def _read_systems(args: argparse.Namespace) -> Systems:
    from nmt.scoring.systems import from_files, from_runs

    if bool(args.runs) == bool(args.hyp):
        raise UserError(
            "run folders and --hyp cannot be combined" if args.runs else "nothing to score",
            fix="pass either run folders, or --hyp and --ref",
        )
    refs = args.ref or []
    if args.runs:
        for name in ("src", "tgt_lang", "tokenized", "train"):
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
            sources=any((args.comet_command, args.sentences, args.glossary)),
            training=args.buckets,
        )
    if args.split:
        raise UserError(
            "--split is only for run folders", fix="leave out --split, or pass a run folder"
        )
    if not refs:
        raise UserError("--hyp requires --ref", fix="add --ref FILE")
    for flag, value in (("--comet-command", args.comet_command), ("--glossary", args.glossary)):
        if value and not args.src:
            raise UserError(f"{flag} requires --src with --hyp", fix="add --src FILE")
    if args.train and not args.buckets:
        raise UserError("--train requires --buckets", fix="add --buckets, or leave out --train")
    return from_files(
        args.hyp, refs, args.tgt_lang or "", args.tokenized, args.src, args.train or []
    )


def _metrics(text: str) -> list[str]:
    from nmt.scoring.metrics import METRICS

    names = list(dict.fromkeys(text.split(",")))
    if unknown := [name for name in names if name not in METRICS]:
        raise argparse.ArgumentTypeError(
            f"{unknown[0]!r} is not a metric; choose from {', '.join(METRICS)}"
        )
    return names


def _split(text: str) -> str:
    if text.partition(".")[0] in ("test", "dev"):
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is not test, dev, test.NAME or dev.NAME")


if __name__ == "__main__":
    sys.exit(main())
