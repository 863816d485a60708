"""Read lines to translate from a file, a pipe or standard input: UTF-8 in any locale."""

from __future__ import annotations

import contextlib
import os
import select
import stat
import sys
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from nmt.data.lines import (
    LONGEST_LINE,
    LONGEST_SENTENCE,
    OPENERS,
    SAMPLE,
    check_only_line,
    file_type,
    is_blank,
    read_lines,
)
from nmt.errors import UserError
from nmt.runtime.files import disk_errors
from nmt.runtime.words import quantity

CHUNK = 1 << 16  # bytes per read: the capacity of a pipe
STDIN = "standard input"  # its name in errors
PAUSE = 0.05  # seconds; a program that writes line by line needs less for its next line


class Input(NamedTuple):
    """Lines to read."""

    lines: Iterator[str]  # without line ends
    total: int | None  # number of lines; None = unknown
    # returns whether the next line, or the end, can be read without waiting
    ready: Callable[[], bool] = lambda: True


def read_input(name: str | None) -> Input:
    """Return the lines of a file, or of standard input if ``name`` is None.

    A regular file, also as standard input, is read once in advance: an error in its last line is
    reported immediately, and not after hours of translation.

    Raises:
        UserError: the file cannot be read, is not UTF-8 or has a line that is too long.
    """
    if name is None:
        return _standard_input()
    path = Path(name)
    if path.is_fifo() or path.is_char_device():
        if OPENERS.get(path.suffix, open) is not open:  # compressed bytes may not hold a line yet
            return Input(read_lines(path, clean=False), None)
        with disk_errors(path, elsewhere="choose another file"):
            lines = StreamLines(open(path, "rb"), name)  # noqa: SIM115, open until exit
        return Input(lines, None, lines.ready)
    total = _count_lines(read_lines(path, clean=False), name)
    return Input(read_lines(path, clean=False), total)


def read_parallel(name: str, total: int | None) -> Iterator[str]:
    """Return the lines of a file that has one line for each of the ``total`` lines of the input.

    Raises:
        UserError: the file cannot be read, or has another number of lines, if both are known.
    """
    lines, count, _ = read_input(name)
    if count is not None and total not in (None, count):
        raise UserError(
            f"the file has {quantity(count, 'line')}, but the input has {total:,}",
            at=name,
            fix="give exactly one line, which may be blank, for each line of the input",
        )
    return lines


def is_interactive(name: str | None) -> bool:
    """Return whether a person types the input ``name`` (None = standard input) in a terminal."""
    return name is None and sys.stdin is not None and sys.stdin.isatty()


def _standard_input() -> Input:
    if sys.stdin is None:  # closed by the caller
        return Input(iter(()), 0)
    if is_interactive(None):
        print("type text; Enter translates a line, Ctrl-D ends the input", file=sys.stderr)
    lines, total = StreamLines(sys.stdin.buffer, STDIN), None
    with contextlib.suppress(OSError, ValueError):  # not a file
        if stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode):
            start = sys.stdin.buffer.tell()
            total = _count_lines(StreamLines(sys.stdin.buffer, STDIN), STDIN)
            sys.stdin.buffer.seek(start)
    return Input(lines, total, lines.ready)


def _count_lines(lines: Iterator[str], name: str) -> int:
    """Count the lines; refuse one that is too long to be translated, and lines that end with CR."""
    number, line = 0, ""
    for number, line in enumerate(lines, 1):
        if len(line) > LONGEST_SENTENCE and not is_blank(line):
            raise UserError(
                f"the line has {len(line):,} characters; at most {LONGEST_SENTENCE:,} are allowed",
                at=f"{name}:{number}",
                fix="split it into one sentence per line",
            )
    if number == 1:
        check_only_line(line, name, "FILE" if name == STDIN else name)
    return number


class StreamLines(Iterator[str]):
    """Lines of a UTF-8 stream that may pause, as ``read_lines`` gives those of a file.

    Raises:
        UserError: bytes that are not UTF-8, or a line of over ten million bytes, at its place.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file, self._name = file, name
        self._lines = deque([bytearray()])  # the last one is without its end so far
        self._ended = False
        self._number = 0

    def ready(self) -> bool:
        """Return whether the next line, or the end, arrives within PAUSE seconds."""
        while not self._has_line():
            if not self._readable(PAUSE):
                return False
            self._read()
        return True

    def __next__(self) -> str:
        while not self._has_line():
            self._readable(None)  # reads of a non-blocking stream do not wait
            self._read()
        if len(self._lines) == 1:
            if not self._lines[0]:
                raise StopIteration
            self._lines.append(bytearray())
        line = self._lines.popleft()
        self._number += 1
        at = f"{self._name}:{self._number}"
        if len(line) > LONGEST_LINE:
            raise UserError(
                f"the line has over {LONGEST_LINE:,} bytes",
                at=at,
                fix="write one sentence per line",
            )
        if self._number == 1 and (fix := file_type(b"\n".join([line, *self._lines])[:SAMPLE])):
            raise UserError("this is not text", at=self._name, fix=fix)
        try:
            text = line.decode("utf-8").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise UserError(
                f"not UTF-8: {error.reason} at byte {error.start + 1} of the line",
                at=at,
                fix="convert the text to UTF-8, for example with iconv",
            ) from error
        return text.removeprefix("\ufeff") if self._number == 1 else text

    def _has_line(self) -> bool:
        """Return whether the next line, or the end, needs no more input; a long line is refused."""
        return len(self._lines) > 1 or self._ended or len(self._lines[0]) > LONGEST_LINE

    def _readable(self, seconds: float | None) -> bool:
        try:
            return bool(select.select([self._file], [], [], seconds)[0])
        except (OSError, ValueError):  # no descriptor, or a system that selects sockets only
            return True

    def _read(self) -> None:
        chunk = self._file.read1(CHUNK)  # type: ignore[attr-defined]
        first, *others = chunk.split(b"\n")
        self._lines[-1] += first
        self._lines.extend(map(bytearray, others))
        self._ended = not chunk
