"""nmt-translate: text in, text out, n lines in, n lines out."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from tqdm import tqdm

from nmt.cli.main import run_command
from nmt.cli.search import add_search_flags, search_flags
from nmt.cli.streams import check_output, is_typed, open_output, read_input
from nmt.decoding.sentences import Hypothesis
from nmt.decoding.translator import Translator
from nmt.errors import Terminated
from nmt.export.facts import is_export


def parser() -> argparse.ArgumentParser:
    """The command line of nmt-translate."""
    p = argparse.ArgumentParser(
        prog="nmt-translate",
        description="Translate plain text, one sentence a line, from standard input to standard "
        "output. Blank lines stay blank. Input and output are UTF-8 whatever the locale.",
    )
    p.add_argument("run", help="run folder that nmt-train wrote, or folder that nmt-export wrote")
    p.add_argument("--input", metavar="F", help="read this file, plain, .gz or .xz")
    p.add_argument("--output", metavar="F", help="write this file, complete or not at all")
    p.add_argument("--force", action="store_true", help="replace --output if it exists")
    p.add_argument("--scores", action="store_true", help="SCORE and a tab before each line")
    p.add_argument(
        "--checkpoint", default="best", help="best (default), latest, or a name such as u001500"
    )
    p.add_argument(
        "--device", default="auto", metavar="D", help="auto (default), cpu, cuda, cuda:1"
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
    return run_command(body, parser(), argv)


def body(args: argparse.Namespace) -> int:
    """Everything that can be wrong is found before the first line is read."""
    check_output(args.output, args.input, args.force)
    lines, total = read_input(args.input)
    with _ending_on_sigterm():
        translator = _load(args)
        hypotheses = translator.stream(
            lines,
            # someone who types wants each answer at once
            window=1 if is_typed(args.input) else None,
            **search_flags(args, total),
        )
        with open_output(args.output) as sink:
            _write(hypotheses, sink, args, total)
    return 0


def _load(args: argparse.Namespace) -> Translator:
    if args.engine == "ctranslate2" or (args.engine is None and is_export(Path(args.run))):
        from nmt.export.translator import load_exported

        return load_exported(args.run, args.device, args.checkpoint)
    return Translator.load(args.run, args.device, args.checkpoint)


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
    hypotheses: Iterator[list[Hypothesis]],
    sink: BinaryIO,
    args: argparse.Namespace,
    total: int | None,
) -> None:
    # no bar over a terminal that someone types into or reads from
    quiet = True if args.input is None or args.output is None else None
    cut = 0
    # smoothing 0: lines come in windows, so only the mean rate tells the time left
    bar = tqdm(hypotheses, total=total, unit=" lines", smoothing=0, disable=quiet)
    for number, of_line in enumerate(bar):
        for hypothesis in of_line:
            sink.write(_render(number, hypothesis, args).encode("utf-8"))
        if args.output is None:
            sink.flush()
        cut += not of_line[0].finished
    if cut:
        print(f"note: {cut} of {number + 1} outputs were cut at the length limit", file=sys.stderr)


def _render(number: int, h: Hypothesis, args: argparse.Namespace) -> str:
    if (args.n_best or 1) > 1:
        return f"{number} ||| {h.text} ||| {h.log_prob:.4f} ||| {h.score:.4f}\n"
    return f"{h.score:.4f}\t{h.text}\n" if args.scores else f"{h.text}\n"


if __name__ == "__main__":
    sys.exit(main())
