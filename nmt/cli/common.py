"""What all commands share: streams, parsing, exit codes, and errors without a traceback.

Modules of commands import nothing at their top that takes long. What they need is imported by
``body`` or ``parser``, where an interruption is one line and not a traceback.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import errno
import gc
import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import nmt
from nmt.errors import NmtError, Terminated

DISK = {
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO
}  # fmt: skip


def run_command(
    body: Callable[[argparse.Namespace], int | None],
    parser: Callable[[], argparse.ArgumentParser],
    argv: Sequence[str] | None = None,
) -> int:
    """Run a command and turn what happens into an exit code.

    0 done, 2 wrong input, 3 failed but can be resumed, 4 the machine is to blame, 130 interrupted,
    141 the reader of the output left, 143 terminated.
    """
    if argv is None:  # the process is ours
        # looking for garbage while modules are imported and at the end, where nearly all there is
        # stays, is a fourth of the time of a short command
        gc.disable()
        atexit.register(gc.freeze)
    _prepare_streams()
    command, debug = Path(sys.argv[0]).name, False
    try:
        p = parser()
        command = p.prog
        p.add_argument("--debug", action="store_true", help="show tracebacks")
        p.add_argument("--version", action="version", version=f"%(prog)s {nmt.__version__}")
        args = p.parse_intermixed_args(argv)
        debug = args.debug
        code = body(args) or 0
        if sys.stdout:  # there is none when the caller closed it
            sys.stdout.flush()
        return code
    except BrokenPipeError:  # nobody reads on: leave quietly
        _drop_output()
        return 141  # 128 + SIGPIPE
    except (Exception, KeyboardInterrupt, Terminated) as error:
        if debug:
            import traceback

            traceback.print_exc()
        code, text = _explain(error, command)
        print(text, file=sys.stderr)
        if isinstance(error, OSError) or isinstance(error.__cause__, OSError):
            _drop_output()  # it may be the output that cannot be written
        return code


def imported() -> None:
    """Collect garbage from here on: the command has imported what it needs."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def _prepare_streams() -> None:
    """Make the standard streams what a command expects, whatever the caller made of them.

    A closed descriptor is the first that the system gives to the next file: what was meant for the
    user would be written into it. What is printed is UTF-8 in any locale; the bytes of file names
    that are not UTF-8 leave as they came.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest: this one
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, as long as we live
    for stream, errors in ((sys.stdout, "surrogateescape"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors)


def _drop_output() -> None:
    """Keep the interpreter from writing, and failing, once more when it ends."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # none, or not a file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _explain(error: BaseException, command: str) -> tuple[int, str]:
    if isinstance(error, OSError) and error.errno in DISK:
        from nmt.runtime.files import disk_error

        place = (
            Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else None
        )
        error = disk_error(
            error, place, elsewhere="choose another place", again="run the same command again"
        )
    if isinstance(error, NmtError):
        return error.exit_code, f"{command}: {error}"
    if isinstance(error, KeyboardInterrupt):
        return 130, f"{command}: interrupted"
    if isinstance(error, Terminated):
        return error.exit_code, f"{command}: terminated"
    what = f"{type(error).__name__}: {error}".splitlines()[0]
    return 3, f"{command}: internal error, {what}\n  -> --debug shows where; please report it"
