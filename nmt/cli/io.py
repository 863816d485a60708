"""Where nmt-translate reads and writes: standard streams or files, UTF-8 whatever the locale."""

from __future__ import annotations

import contextlib
import io
import os
import select
import stat
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from nmt.cli.resume import ELSEWHERE, Facts, begin, check_unfinished, end, facts_file, unfinished
from nmt.data.text import LONGEST_LINE, LONGEST_SENTENCE, OPENERS, is_blank, read_lines
from nmt.errors import MachineError, UserError
from nmt.runtime.files import disk_errors

STDOUT = Path("/dev/stdout")  # for messages; its disk is that of the file behind it
CHUNK = 1 << 16  # bytes read at a time: what a pipe holds
PAUSE = 0.05  # seconds; a program that writes line by line needs less for its next one


class Input(NamedTuple):
    """Lines to read.

    Attributes:
        lines: without their ends.
        total: how many there are, None = not known.
        ready: whether the next line, or the end, is there without waiting for it.
    """

    lines: Iterator[str]
    total: int | None
    ready: Callable[[], bool] = lambda: True


def read_input(name: str | None) -> Input:
    """Return the lines of a file, or of standard input.

    A file is read through once before anything is translated, also as standard input: a fault in
    its last line is found now, and not after hours.
    """
    if name is None:
        return _standard_input()
    path = Path(name)
    if path.is_fifo() or path.is_char_device():
        if OPENERS.get(path.suffix, open) is not open:  # compressed: bytes may hold no line yet
            return Input(read_lines(path, clean=False), None)
        with disk_errors(path, elsewhere="give another file"):
            waiting = WaitingLines(open(path, "rb"), name)  # noqa: SIM115, open until the end
        return Input(waiting, None, waiting.ready)
    total = _count(read_lines(path, clean=False), name)
    return Input(read_lines(path, clean=False), total)


def _count(lines: Iterator[str], name: str) -> int:
    """Return how many lines there are.

    Raises:
        UserError: one is too long to be translated.
    """
    number = 0
    for number, line in enumerate(lines, 1):
        if len(line) > LONGEST_SENTENCE and not is_blank(line):
            raise UserError(
                f"{len(line):,} characters, at most {LONGEST_SENTENCE:,} are allowed",
                at=f"{name}:{number}",
                fix="split it into sentences, one a line",
            )
    return number


def read_beside(name: str, total: int | None, what: str) -> Iterator[str]:
    """Return the lines of a file that goes with the input, line by line.

    Args:
        total: lines of the input, None = not known.
        what: what is in a line.

    Raises:
        UserError: it cannot be read, or has another number of lines.
    """
    lines, count, _ = read_input(name)
    if None not in (total, count) and total != count:
        raise UserError(
            f"{count} lines, but the input has {total}",
            at=name,
            fix=f"give {what} for each line of the input",
        )
    return lines


def _standard_input() -> Input:
    """If it is a file, it is counted, and then at its start again."""
    if sys.stdin is None:  # closed by the caller
        return Input(iter(()), 0)
    if is_typed(None):
        print("type sentences, one a line; Ctrl-D ends", file=sys.stderr)
    waiting = WaitingLines(sys.stdin.buffer, "standard input")
    total = None
    with contextlib.suppress(OSError, ValueError):  # not a file at all
        if stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode):
            start = sys.stdin.buffer.tell()
            total = _count(WaitingLines(sys.stdin.buffer, "standard input"), "standard input")
            sys.stdin.buffer.seek(start)
    return Input(waiting, total, waiting.ready)


class WaitingLines(Iterator[str]):
    """Lines of UTF-8 as ``read_lines`` gives those of a file, from where they may take their time.

    Raises:
        UserError: bytes that are not UTF-8, with their line, or a line of over ten million bytes.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        """``name``: of the input, for messages."""
        self._file, self._name = file, name
        self._complete: deque[bytes | bytearray] = deque()
        self._begun = bytearray()  # a line whose end is not read yet
        self._ended = False
        self._number = 0

    def ready(self) -> bool:
        """Tell whether the next line, or the end, is there or comes within PAUSE seconds."""
        while not self._complete and not self._ended:
            if not self._readable(PAUSE):
                return False
            self._read()
        return True

    def __next__(self) -> str:
        while not self._complete and not self._ended and len(self._begun) <= LONGEST_LINE:
            self._readable(None)  # where reading does not wait
            self._read()
        if not self._complete and not self._begun:
            raise StopIteration
        line = self._complete.popleft() if self._complete else self._begun
        self._number += 1
        at = f"{self._name}:{self._number}"
        if len(line) > LONGEST_LINE:
            raise UserError(
                f"a line of over {LONGEST_LINE:,} bytes", at=at, fix="give one sentence a line"
            )
        try:
            text = line.decode("utf-8").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise UserError(
                f"not UTF-8: {error.reason} at byte {error.start + 1} of the line",
                at=at,
                fix="convert the text to UTF-8, for example with iconv",
            ) from error
        return text.removeprefix("\ufeff") if self._number == 1 else text

    def _readable(self, seconds: float | None) -> bool:
        try:
            return bool(select.select([self._file], [], [], seconds)[0])
        except (OSError, ValueError):  # no descriptor, or a system that selects sockets only
            return True

    def _read(self) -> None:
        chunk = self._file.read1(CHUNK)  # type: ignore[attr-defined]
        first, *others = chunk.split(b"\n")
        self._begun += first
        for line in others:
            self._complete.append(self._begun)
            self._begun = bytearray(line)
        if not chunk:
            self._ended = True
            if self._begun:
                self._complete.append(self._begun)
                self._begun = bytearray()


def is_typed(name: str | None) -> bool:
    """Tell whether someone types the input into a terminal."""
    return name is None and sys.stdin is not None and sys.stdin.isatty()


@contextlib.contextmanager
def claimed_output(
    name: str | None, inputs: Iterable[str | None], resume: bool, force: bool
) -> Iterator[None]:
    """Refuse a place that cannot be written or that holds something; else keep others from it.

    Args:
        name: the output, None = standard output.
        inputs: files that are read, None = standard input; none is ever overwritten.
        resume: the unfinished output is continued.
        force: what the output holds may be replaced.

    Raises:
        UserError: it is refused.
        MachineError: another command is writing it.
    """
    if name is None:
        yield
        return
    from filelock import FileLock, Timeout

    output = Path(name)
    part, claim = unfinished(output), output.with_name(f".{output.name}.nmt-lock")
    if not output.absolute().parent.is_dir():
        raise UserError("no such folder", at=str(output.parent), fix="create it")
    inputs = list(inputs)
    for path in (output, part, facts_file(part), claim):  # writing any would destroy the input
        if path.exists() and any(_is_input(path, one) for one in inputs):
            raise UserError("is an input too", at=str(path), fix=ELSEWHERE)
    lock = FileLock(claim)
    with disk_errors(claim, elsewhere=ELSEWHERE):
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise MachineError(
                "another nmt-translate is writing this output",
                at=name,
                fix="wait until it ends, or choose another --output",
            ) from error
    try:
        _check_free(output, force)
        check_unfinished(part, resume, force)
        yield
    finally:
        claim.unlink(missing_ok=True)
        lock.release()


def _check_free(output: Path, force: bool) -> None:
    if not output.exists():
        return
    if not output.is_file():
        raise UserError(
            "is not a regular file",
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


class Output:
    """Where translations are written."""

    def __init__(self, file: BinaryIO, path: Path | None, again: str) -> None:
        """Write to an open file.

        Args:
            path: of the file, None = standard output, where each line is sent at once.
            again: what to do when it cannot be written and the cause is gone, as an imperative.
        """
        self._file, self._path, self._again = file, path, again

    def write(self, lines: bytes) -> None:
        """Write lines with their ends.

        Raises:
            MachineError: the disk is full, or they cannot be written for another reason.
        """
        with self._errors(len(lines)):
            self._file.write(lines)
            if self._path is None:
                self._file.flush()

    def close(self) -> None:
        """Write what is left, and close the file.

        Raises:
            MachineError: as ``write``.
        """
        with self._errors(io.DEFAULT_BUFFER_SIZE):
            self._file.close()

    def _errors(self, needed: int) -> contextlib.AbstractContextManager[None]:
        return disk_errors(self._path or STDOUT, needed, ELSEWHERE, self._again)


@contextlib.contextmanager
def open_output(
    name: str | None, facts: Facts, resume: bool, line_of: Callable[[bytes], int]
) -> Iterator[tuple[Output, int]]:
    """Open standard output, or a claimed file that gets its name when it is complete.

    When something goes wrong, what is finished stays under the other name. The arguments are those
    of ``nmt.cli.resume.begin``.

    Returns:
        The output, and how many input lines are finished in it.
    """
    if name is None:
        if sys.stdout is None:
            raise UserError("standard output is closed", fix="name a file with --output")
        yield Output(sys.stdout.buffer, None, "run the same command again"), 0
        return
    part = unfinished(Path(name))
    done = begin(part, facts, resume, line_of)
    again = f"the same command with {'--force' if facts['input'] is None else '--resume'}"
    with disk_errors(part, elsewhere=ELSEWHERE):
        file = open(part, "ab")  # noqa: SIM115, closed below
    output = Output(file, part, f"run {again}")
    try:
        try:
            yield output, done
        finally:
            output.close()
    except BaseException:
        if part.exists() and part.stat().st_size:
            does = "starts over" if facts["input"] is None else "continues"
            print(
                f"note: the lines translated so far are in {part}; {again} {does}", file=sys.stderr
            )
        else:
            part.unlink(missing_ok=True)
            end(part)
        raise
    os.replace(part, name)
    end(part)
