"""nmt-translate: text in, text out, n lines in, n lines out."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from tqdm import tqdm

from nmt.cli.main import run_command
from nmt.decoding.translator import WINDOW, Hypothesis, Translator
from nmt.errors import UserError


def parser() -> argparse.ArgumentParser:
    """The command line of nmt-translate."""
    p = argparse.ArgumentParser(
        prog="nmt-translate",
        description="Translate plain text, one sentence a line, from standard input to standard "
        "output. Blank lines stay blank. Input and output are UTF-8 whatever the locale.",
    )
    p.add_argument("run", help="run folder that nmt-train wrote")
    p.add_argument("--input", metavar="F", help="read this file")
    p.add_argument("--output", metavar="F", help="write this file, complete or not at all")
    p.add_argument("--force", action="store_true", help="replace --output if it exists")
    p.add_argument("--beam", type=int, metavar="K", help="beam size, 1 = greedy")
    p.add_argument(
        "--length-alpha", type=float, metavar="A", help="exponent of the length penalty, 0 = none"
    )
    p.add_argument(
        "--n-best",
        type=int,
        default=1,
        metavar="N",
        help="N lines for each: LINE ||| TEXT ||| LOG-PROBABILITY ||| SCORE",
    )
    p.add_argument("--scores", action="store_true", help="SCORE and a tab before each line")
    p.add_argument(
        "--batch-tokens", type=int, metavar="N", help="source pieces x beam per batch, at most"
    )
    p.add_argument(
        "--checkpoint", default="best", help="best (default), latest, or a name such as u001500"
    )
    p.add_argument(
        "--device", default="auto", metavar="D", help="auto (default), cpu, cuda, cuda:1"
    )
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    return run_command(body, parser(), argv)


def body(args: argparse.Namespace) -> int:
    """Everything that can be wrong is found before the first line is read."""
    if args.n_best < 1:
        raise UserError(f"{args.n_best} best translations cannot be", at="--n-best")
    if args.output is not None:
        _check_output(Path(args.output), args)
    translator = Translator.load(args.run, args.device, args.checkpoint)
    with _input(args.input) as source:
        hypotheses = translator.stream(
            _lines(source, args.input),
            args.n_best,
            # someone who types wants each answer at once
            1 if _typed(args.input) else WINDOW,
            beam=args.beam,
            length_alpha=args.length_alpha,
            batch_tokens=args.batch_tokens,
        )
        with _output(args.output) as sink:
            _write(hypotheses, sink, args)
    return 0


def _write(
    hypotheses: Iterator[list[Hypothesis]], sink: BinaryIO, args: argparse.Namespace
) -> None:
    # no bar over a terminal that someone types into or reads from
    quiet = True if args.input is None or args.output is None else None
    cut = 0
    for number, of_line in enumerate(tqdm(hypotheses, unit=" lines", disable=quiet)):
        for hypothesis in of_line:
            sink.write(_render(number, hypothesis, args).encode("utf-8"))
        if args.output is None:
            sink.flush()
        cut += not of_line[0].finished
    if cut:
        print(f"note: {cut} of {number + 1} outputs were cut at the length limit", file=sys.stderr)


def _render(number: int, h: Hypothesis, args: argparse.Namespace) -> str:
    if args.n_best > 1:
        return f"{number} ||| {h.text} ||| {h.log_prob:.4f} ||| {h.score:.4f}\n"
    return f"{h.score:.4f}\t{h.text}\n" if args.scores else f"{h.text}\n"


def _lines(source: BinaryIO, name: str | None) -> Iterator[str]:
    """Lines of UTF-8; only LF ends one; a byte-order mark at the start goes.

    Raises:
        UserError: bytes that are not UTF-8, with their line.
    """
    for number, line in enumerate(source, 1):
        try:
            text = line.decode("utf-8").removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise UserError(
                f"not UTF-8: {error.reason} at byte {error.start + 1} of the line",
                at=f"{name or 'standard input'}:{number}",
                fix="convert the text to UTF-8, for example with iconv",
            ) from error
        yield text.removeprefix("\ufeff") if number == 1 else text


def _check_output(output: Path, args: argparse.Namespace) -> None:
    """Refuse a place that cannot be written, or that holds something."""
    if not output.absolute().parent.is_dir():
        raise UserError("no such folder", at=str(output.parent), fix="create it")
    for path in (output, _unfinished(output)):  # writing either would destroy the input
        if path.exists() and _is_input(path, args.input):
            raise UserError("is the input too", at=str(path), fix="choose another --output")
    if not output.exists():
        return
    if not output.is_file():
        raise UserError(
            "is no regular file",
            at=str(output),
            fix="choose another, or leave --output out to write to standard output",
        )
    if not args.force:
        raise UserError("exists already", at=str(output), fix="choose another, or give --force")


def _is_input(path: Path, name: str | None) -> bool:
    with contextlib.suppress(OSError, AttributeError):  # no such file; standard input is closed
        here = os.fstat(sys.stdin.fileno()) if name is None else os.stat(name)
        return stat.S_ISREG(here.st_mode) and os.path.samestat(here, path.stat())
    return False


def _unfinished(output: Path) -> Path:
    """The output's name until it is whole."""
    return output.with_name(output.name + ".part")


def _typed(name: str | None) -> bool:
    """Whether someone types the input into a terminal."""
    return name is None and sys.stdin is not None and sys.stdin.isatty()


@contextlib.contextmanager
def _input(name: str | None) -> Iterator[BinaryIO]:
    if name is None:
        if sys.stdin is None:  # closed by the caller
            yield io.BytesIO()
            return
        if _typed(name):
            print("type sentences, one a line; Ctrl-D ends", file=sys.stderr)
        yield sys.stdin.buffer
        return
    try:
        with open(name, "rb") as file:
            yield file
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise UserError(str(error.strerror), at=name, fix="check --input") from error


@contextlib.contextmanager
def _output(name: str | None) -> Iterator[BinaryIO]:
    """Standard output, or a file that gets its name when it is whole."""
    if name is None:
        if sys.stdout is None:
            raise UserError("standard output is closed", fix="name a file with --output")
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    part = _unfinished(Path(name))
    with open(part, "wb") as file:
        yield file
    os.replace(part, name)


if __name__ == "__main__":
    sys.exit(main())
