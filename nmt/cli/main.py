"""What all commands share: parsing, exit codes, and errors without a traceback."""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence

import nmt
from nmt.errors import NmtError, Terminated

DISK = {
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO
}  # fmt: skip


def run_command(
    body: Callable[[argparse.Namespace], int | None],
    parser: argparse.ArgumentParser,
    argv: Sequence[str] | None = None,
) -> int:
    """Run a command and turn what happens into an exit code.

    0 done, 2 wrong input, 3 failed but can be resumed, 4 the machine is to blame, 130 interrupted,
    141 the reader of the output left, 143 terminated.
    """
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    parser.add_argument("--version", action="version", version=f"%(prog)s {nmt.__version__}")
    args = parser.parse_intermixed_args(argv)
    try:
        code = body(args) or 0
        if sys.stdout:  # there is none when the caller closed it
            sys.stdout.flush()
        return code
    except BrokenPipeError:  # nobody reads on: leave quietly
        _drop_output()
        return 128 + signal.SIGPIPE
    except (Exception, KeyboardInterrupt, Terminated) as error:
        if args.debug:
            traceback.print_exc()
        code, text = _explain(error, parser.prog)
        print(text, file=sys.stderr)
        if isinstance(error, OSError):  # it may be the output that cannot be written
            _drop_output()
        return code


def _drop_output() -> None:
    """Keep the interpreter from writing, and failing, once more when it ends."""
    with contextlib.suppress(OSError, ValueError):  # standard output may be no file at all
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _explain(error: BaseException, command: str) -> tuple[int, str]:
    if isinstance(error, NmtError):
        return error.exit_code, f"{command}: {error}"
    if isinstance(error, KeyboardInterrupt):
        return 130, f"{command}: interrupted"
    if isinstance(error, Terminated):
        return error.exit_code, f"{command}: terminated"
    if isinstance(error, OSError) and error.errno in DISK:
        return 4, f"{command}: {error.filename or 'disk'}: {error.strerror}"
    what = f"{type(error).__name__}: {error}".splitlines()[0]
    return 3, f"{command}: internal error, {what}\n  -> --debug shows where; please report it"
