"""Where nmt-translate reads and writes: standard streams or files, UTF-8 whatever the locale."""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from nmt.cli.resume import Facts, begin, end, unfinished
from nmt.data.text import LONGEST_LINE, read_lines
from nmt.errors import UserError


def read_input(name: str | None) -> tuple[Iterator[str], int | None]:
    """The lines, and how many there are if that can be known.

    A file is read through once before anything is translated, also as standard input: a fault in
    its last line is found now, and not after hours.
    """
    if name is None:
        return _standard_input(), _count_standard_input()
    path = Path(name)
    once = path.is_fifo() or path.is_char_device()
    total = None if once else sum(1 for _ in read_lines(path, clean=False))
    return read_lines(path, clean=False), total


def read_beside(name: str, total: int | None, what: str) -> Iterator[str]:
    """The lines of a file that goes with the input, line by line.

    Args:
        total: lines of the input, None = not known.
        what: what is in a line.

    Raises:
        UserError: it cannot be read, or has another number of lines.
    """
    lines, count = read_input(name)
    if None not in (total, count) and total != count:
        raise UserError(
            f"{count} lines, but the input has {total}",
            at=name,
            fix=f"give {what} for each line of the input",
        )
    return lines


def _count_standard_input() -> int | None:
    """Its lines if it is a file, which is then at its start again."""
    try:
        if not stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode):
            return None
    except (OSError, ValueError, AttributeError):  # no file at all, or closed by the caller
        return None
    start = sys.stdin.buffer.tell()
    total = sum(1 for _ in _standard_input())
    sys.stdin.buffer.seek(start)
    return total


def _standard_input() -> Iterator[str]:
    """Lines of UTF-8, as ``read_lines`` gives those of a file.

    Raises:
        UserError: bytes that are not UTF-8, with their line, or a line of over ten million bytes.
    """
    if sys.stdin is None:  # closed by the caller
        return
    if is_typed(None):
        print("type sentences, one a line; Ctrl-D ends", file=sys.stderr)
    for number in itertools.count(1):
        line = sys.stdin.buffer.readline(LONGEST_LINE + 1)
        at = f"standard input:{number}"
        if not line:
            return
        if len(line) > LONGEST_LINE:
            raise UserError(
                f"a line of over {LONGEST_LINE:,} bytes", at=at, fix="one sentence a line, please"
            )
        try:
            text = line.decode("utf-8").removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise UserError(
                f"not UTF-8: {error.reason} at byte {error.start + 1} of the line",
                at=at,
                fix="convert the text to UTF-8, for example with iconv",
            ) from error
        yield text.removeprefix("\ufeff") if number == 1 else text


def is_typed(name: str | None) -> bool:
    """Whether someone types the input into a terminal."""
    return name is None and sys.stdin is not None and sys.stdin.isatty()


def check_output(name: str | None, source: str | None, force: bool) -> None:
    """Refuse a place that cannot be written, or that holds something.

    Args:
        name: the output, None = standard output.
        source: the input, None = standard input; it is never overwritten.
        force: what the output holds may be replaced.

    Raises:
        UserError: it is refused.
    """
    if name is None:
        return
    output = Path(name)
    if not output.absolute().parent.is_dir():
        raise UserError("no such folder", at=str(output.parent), fix="create it")
    for path in (output, unfinished(output)):  # writing either would destroy the input
        if path.exists() and _is_input(path, source):
            raise UserError("is the input too", at=str(path), fix="choose another --output")
    if not output.exists():
        return
    if not output.is_file():
        raise UserError(
            "is no regular file",
            at=str(output),
            fix="choose another, or leave --output out to write to standard output",
        )
    if not force:
        raise UserError("exists already", at=str(output), fix="choose another, or give --force")


def _is_input(path: Path, name: str | None) -> bool:
    with contextlib.suppress(OSError, AttributeError):  # no such file; standard input is closed
        here = os.fstat(sys.stdin.fileno()) if name is None else os.stat(name)
        return stat.S_ISREG(here.st_mode) and os.path.samestat(here, path.stat())
    return False


@contextlib.contextmanager
def open_output(
    name: str | None,
    facts: Facts | None = None,
    resume: bool = False,
    force: bool = False,
    line_of: Callable[[bytes], int] = lambda line: -1,
) -> Iterator[tuple[BinaryIO, int]]:
    """Standard output, or a file that gets its name when it is whole; and input lines in it.

    When something goes wrong, what is finished stays under the other name. The arguments are those
    of ``nmt.cli.resume.begin``.
    """
    if name is None:
        if sys.stdout is None:
            raise UserError("standard output is closed", fix="name a file with --output")
        yield sys.stdout.buffer, 0
        sys.stdout.buffer.flush()
        return
    part = unfinished(Path(name))
    done = begin(part, facts, resume, force, line_of)
    file = open(part, "ab")  # noqa: SIM115, closed below, before its size is asked for
    try:
        with file:
            yield file, done
    except BaseException:
        if part.exists() and part.stat().st_size:
            how = "" if facts is None else "; the same command with --resume goes on"
            print(f"note: the lines translated so far are in {part}{how}", file=sys.stderr)
        else:
            part.unlink(missing_ok=True)
            end(part)
        raise
    os.replace(part, name)
    end(part)
