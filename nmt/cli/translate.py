"""nmt-translate: text in, text out, n lines in, n lines out."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from nmt.cli import limit_onednn_cache
from nmt.cli.common import enable_gc, run_command
from nmt.errors import Terminated, UserError

if TYPE_CHECKING:
    from nmt.cli import render
    from nmt.cli.io import Output
    from nmt.cli.resume import Facts
    from nmt.decoding.codec import Translation
    from nmt.decoding.options import SearchOptions
    from nmt.decoding.translator import Translator

PRODUCTS = 16  # compiled ones kept: each step of a search has new ones


def parser() -> argparse.ArgumentParser:
    """Return the command line of nmt-translate."""
    from nmt.cli.search import add_search_flags

    p = argparse.ArgumentParser(
        prog="nmt-translate",
        description="Translate plain text, one sentence a line, from standard input to standard "
        "output. Blank lines stay blank. Input and output are UTF-8 whatever the locale.",
    )
    p.add_argument(
        "run",
        nargs="+",
        help="run folder that nmt-train wrote, or folder that nmt-export wrote; several runs of "
        "one vocabulary are an ensemble, the mean of their probabilities",
    )
    p.add_argument("--input", metavar="F", help="read this file, plain, .gz or .xz")
    p.add_argument("--output", metavar="F", help="write this file, complete or not at all")
    p.add_argument("--force", action="store_true", help="replace --output if it exists")
    p.add_argument("--resume", action="store_true", help="continue an interrupted --output")
    p.add_argument(
        "--score-target",
        metavar="F",
        help="search nothing: score the lines of F as translations of the input: "
        "LOG-PROBABILITY, tab, SCORE",
    )
    p.add_argument("--scores", action="store_true", help="SCORE and a tab before each line")
    p.add_argument(
        "--checkpoint", default="best", help="best (default), latest, or a name such as u001500"
    )
    p.add_argument(
        "--device", default="auto", metavar="D", help="auto (default), cpu, cuda, cuda:1"
    )
    p.add_argument(
        "--precision",
        choices=["fp32", "bf16", "fp16", "auto"],
        default="fp32",
        help="of products with weights; auto = the fastest of the device's own; default: fp32",
    )
    p.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="batches that are searched at once on a CPU, each on a core; default: all cores that "
        "affinity, the container's quota and OMP_NUM_THREADS allow",
    )
    p.add_argument(
        "--engine",
        choices=["torch", "ctranslate2"],
        help="ctranslate2 = the model exported; default: torch, ctranslate2 if RUN is an export",
    )
    add_search_flags(p)
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    return run_command(body, parser, argv)


def body(args: argparse.Namespace) -> int:
    """Find everything that can be wrong before the first line is read."""
    from nmt.cli.io import claimed_output

    limit_onednn_cache(PRODUCTS)
    _check(args)
    phrases = [] if args.forbid_all is None else [args.forbid_all]
    inputs = [args.input, *_beside(args), *phrases]
    with _ending_on_sigterm(), claimed_output(args.output, inputs, args.resume, args.force):
        _translate(args)
    return 0


def _translate(args: argparse.Namespace) -> None:
    from tqdm import tqdm

    from nmt.cli.io import is_typed, open_output, read_beside, read_input
    from nmt.cli.search import note_unknown, search_flags
    from nmt.config.recipe import DecodeConfig
    from nmt.decoding.options import search_options
    from nmt.decoding.wishes import NAMES

    lines, total, ready = read_input(args.input)
    targets = None
    if args.score_target is not None:
        targets = read_beside(args.score_target, total, "one translation")
    flags = search_flags(args, total)
    wishes = {name for name in NAMES if flags.get(name) is not None}
    chosen = {name: value for name, value in flags.items() if name not in NAMES}
    search_options(DecodeConfig(), chosen, wishes)  # fails before torch is loaded
    translator = _load(args)
    enable_gc()
    options = translator.checked(chosen, wishes)
    style, line_of = _format(args, options)
    facts = _facts(args, translator, options)
    with open_output(args.output, facts, args.resume, line_of) as (sink, done):
        # no bar over a terminal that someone types into or reads from
        quiet = True if is_typed(args.input) or _is_read(args.output) else None
        # smoothing 0: longest lines come first, so only the mean rate tells the time left
        with tqdm(total=total, initial=done, unit=" lines", smoothing=0, disable=quiet) as bar:
            settings = {"progress": bar.update, "skip": done, "ready": ready, **flags}
            if targets is None:
                found = translator.stream(lines, **settings)
            else:
                scored = translator.score_stream(lines, targets, **settings)
                found = ([one] for one in scored)
            _write(found, sink, style, done)
    note_unknown(translator.unknown)


def _check(args: argparse.Namespace) -> None:
    """
    Raises:
        UserError: flags that do not go together.
    """
    if args.resume and args.force:
        raise UserError(
            "--resume and --force contradict each other",
            fix="--resume continues an output, --force starts over; give one of them",
        )
    if args.resume and not (args.input and args.output and Path(args.input).is_file()):
        raise UserError(
            "--resume needs files that can be read again", fix="give --input and --output"
        )
    if args.scores and (args.score_target or args.token_scores):
        raise UserError("--scores says nothing that is not said anyway", fix="leave it out")


def _beside(args: argparse.Namespace) -> list[str]:
    """Return the files that have a line for each line of the input."""
    names = (args.score_target, args.prefix, args.require, args.forbid)
    return [name for name in names if name is not None]


def _facts(args: argparse.Namespace, translator: Translator, options: SearchOptions) -> Facts:
    """Return what the output is made of."""
    from nmt.cli.resume import facts_of, facts_of_stream

    inputs = [args.input, *_beside(args)]
    if args.output is None or not all(name and Path(name).is_file() for name in inputs):
        return facts_of_stream()
    # how lines are batched changes no line
    chosen = {
        **options.model_dump(exclude={"batch_tokens"}),
        "scores": args.scores,
        "precision": translator.precision,
    }
    return facts_of(translator.fingerprint(), str(translator.device), chosen, *inputs)


def _format(
    args: argparse.Namespace, options: SearchOptions
) -> tuple[render.Render, Callable[[bytes], int]]:
    """Return how a hypothesis is written, and the input line of what was written."""
    from nmt.cli import render

    if options.token_scores:
        return render.as_json, render.json_line if options.n_best > 1 else render.one_each
    style, line_of = render.with_score if args.scores else render.as_text, render.one_each
    if args.score_target is not None:
        style = render.as_numbers
    elif options.n_best > 1:
        style, line_of = render.as_n_best, render.n_best_line
    return render.with_alignment(style) if options.align else style, line_of


def _is_read(output: str | None) -> bool:
    """Whether the output goes to a terminal."""
    return output is None and sys.stdout is not None and sys.stdout.isatty()


def _load(args: argparse.Namespace) -> Translator:
    from nmt.decoding.worker_pool import all_cores
    from nmt.export.metadata import is_export

    workers = all_cores() if args.workers is None else args.workers
    exported = args.engine is None and any(is_export(Path(run)) for run in args.run)
    if args.engine == "ctranslate2" or exported:
        from nmt.export.backend import load_exported

        if len(args.run) > 1:
            raise UserError(
                "engine ctranslate2 has no ensembles", fix="give one folder, or run folders alone"
            )
        if args.precision != "fp32":
            raise UserError(
                "engine ctranslate2 has no --precision",
                fix="export with --quantization and translate the exported folder",
            )
        return load_exported(args.run[0], args.device, args.checkpoint, workers)
    from nmt.decoding.translator import Translator

    return Translator.load(args.run, args.device, args.checkpoint, args.precision, workers)


@contextlib.contextmanager
def _ending_on_sigterm() -> Iterator[None]:
    """SIGTERM ends the command as an error does: with every finished line written out.

    Unlike a training, a translation has nothing to save first, so it ends at once.
    """

    def end(number: int, frame: FrameType | None) -> None:
        raise Terminated(signal.Signals(number).name)

    if threading.current_thread() is not threading.main_thread():
        yield  # Python installs handlers in the main thread only
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)


def _write(
    hypotheses: Iterable[list[Translation]], sink: Output, style: render.Render, done: int
) -> None:
    """``done``: lines written before."""
    cut, number = 0, done
    for number, of_line in enumerate(hypotheses, done):
        sink.write("".join(f"{style(number, one)}\n" for one in of_line).encode())
        cut += not of_line[0].finished
    if cut:
        print(f"note: {cut} of {number + 1} outputs were cut at the length limit", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
