"""Shared code of all commands: argument parsing, standard streams, exit codes and error messages.

Modules of commands import only fast modules at the top. ``parser`` and ``body`` import the rest,
so that an interruption during an import is reported in one line, without a traceback.
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
from typing import TextIO

from nmt.cli.parsers import parse
from nmt.errors import MachineError, NmtError, RunError, Terminated, printable
from nmt.runtime.signals import raise_interrupted

ENVIRONMENT_ERRORS = {
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO
}  # fmt: skip


def run_command(
    body: Callable[[argparse.Namespace], None],
    parser: Callable[[], argparse.ArgumentParser],
    argv: Sequence[str] | None = None,
) -> int:
    """Parse the arguments, run the command and return its exit code (see ``nmt --help``).

    ``argv``: None = the arguments of the process. An exception of ``body`` decides the exit code.
    """
    if argv is None:  # this process runs one command only
        # while modules are imported and at exit, nearly all objects are alive: collecting garbage
        # then takes a quarter of the time of a short command
        gc.disable()
        atexit.register(gc.freeze)
    command, debug = Path(sys.argv[0]).name, False
    try:
        _prepare_streams()
        p = parser()
        command = p.prog
        args = parse(p, argv)
        debug = args.debug
        with raise_interrupted():
            body(args)
        if sys.stdout:  # None if the caller closed it
            sys.stdout.flush()
        return 0
    except BrokenPipeError:  # as with ``| head``: end without a message
        _drop(sys.stdout)
        return 141  # 128 + SIGPIPE
    except (Exception, KeyboardInterrupt, Terminated) as error:
        if debug:
            import traceback

            traceback.print_exc()
        code, message = _describe(error, command)
        try:
            print(message, file=sys.stderr, flush=True)
        except (OSError, ValueError):  # its reader has ended, or the terminal has closed
            _drop(sys.stderr)
        if isinstance(error, OSError | Terminated) or isinstance(error.__cause__, OSError):
            _drop(sys.stdout)  # standard output may be what cannot be written
        return code


def enable_gc() -> None:
    """Turn garbage collection on again, once the command has imported what it needs."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def _prepare_streams() -> None:
    """Make the standard streams usable in any environment.

    A closed standard stream is opened on /dev/null. Otherwise the system would give its descriptor
    to the next file that is opened, and messages would be written into that file. Output is UTF-8
    in any locale; file names that are not UTF-8 are printed with their original bytes.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:  # closed, so it is the lowest free number, which os.open returns
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, open until exit
    for stream, errors in ((sys.stdout, "surrogateescape"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors)


def _drop(stream: TextIO | None) -> None:
    """Redirect a stream to /dev/null, so that flushing it at exit cannot fail again."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # None, or not a file
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # type: ignore[union-attr]


def _describe(error: BaseException, command: str) -> tuple[int, str]:
    if isinstance(error, OSError) and error.errno in ENVIRONMENT_ERRORS:
        from nmt.runtime.files import AGAIN, disk_error

        name = error.filename
        path = Path(os.fsdecode(name)) if isinstance(name, str | bytes) else None
        error = disk_error(error, path, elsewhere="choose another path", again=AGAIN)
    elif _is_out_of_memory(error):
        error = MachineError(
            "out of memory (limit of this process)",
            fix="raise the limit (ulimit -v unlimited), or use a machine with more memory",
        )
    elif _is_lost_gpu(error):
        error = RunError(
            f"the GPU failed: {error}".splitlines()[0],
            fix="run the command again, nmt-train with --resume; if it fails again, check the GPU: "
            "nvidia-smi, and lines with Xid in the output of dmesg",
        )
    if isinstance(error, NmtError):
        return error.exit_code, f"{command}: {error}"
    if isinstance(error, KeyboardInterrupt):
        return 130, f"{command}: interrupted"
    if isinstance(error, Terminated):
        return error.exit_code, f"{command}: terminated"
    summary = printable(f"{type(error).__name__}: {error}".splitlines()[0])
    fix = "run it with --debug and report the output"
    return 3, f"{command}: internal error: {summary}\n  -> {fix}"


def _is_out_of_memory(error: BaseException) -> bool:
    """Return whether Python, a library or its loader failed to get memory or a thread."""
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    messages = ("failed to map segment", "annot allocate memory", "can't allocate memory",
             "can't start new thread", "std::bad_alloc", "CUDA out of memory")  # fmt: skip
    return isinstance(error, MemoryError) or any(text in str(error) for text in messages)


def _is_lost_gpu(error: BaseException) -> bool:
    """Return whether a GPU, its driver or a connection failed; a failed assertion is a fault here.

    See torch's AcceleratorError, which is a RuntimeError in older versions.
    """
    messages = ("CUDA error", "CUDA driver error", "NCCL error", "cuDNN error", "CUBLAS_STATUS")
    text = str(error)
    return any(name in text for name in messages) and "device-side assert" not in text


def positive(text: str) -> float:
    """Return an argument as a finite number above 0, or raise ArgumentTypeError."""
    with contextlib.suppress(ValueError):
        number = float(text)
        if 0 < number < float("inf"):
            return number
    raise argparse.ArgumentTypeError(f"{text} is not a number above 0")


def count(text: str) -> int:
    """Return an argument as an integer of at least 1, or raise ArgumentTypeError."""
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text} is not an integer of at least 1")


def add_languages(parser: argparse.ArgumentParser, required: bool) -> None:
    """Add the options for the two languages of a parallel text."""
    for side, name, code in (("src", "source", "gl"), ("tgt", "target", "en")):
        parser.add_argument(
            f"--{side}-lang",
            dest=side,
            required=required,
            metavar="LANG",
            help=f"{name} language, such as {code}",
        )


def add_model_options(group: argparse._ArgumentGroup) -> None:
    """Add the options that say where models are loaded, in which format and for which engine."""
    group.add_argument(
        "--device",
        default="auto",
        metavar="DEVICE",
        help="auto, cpu, cuda or cuda:N; default: auto",
    )
    group.add_argument(
        "--precision",
        choices=["fp32", "bf16", "fp16", "auto"],
        default="fp32",
        help="precision of matrix products with weights; auto = bf16 if the device has "
        "instructions for it, fp16 on a V100 or T4, else fp32; CTranslate2 computes in fp32, or by "
        "--quantization; default: %(default)s",
    )
    group.add_argument(
        "--quantization",
        choices=["fp32", "int8"],
        help="weights of CTranslate2; int8 is faster on a CPU; default: "
        "decode.quantization of the recipe",
    )
    group.add_argument(
        "--engine",
        choices=["auto", "ctranslate2", "torch"],
        default="auto",
        help="library that searches; auto = ctranslate2 on a CPU, and torch on a GPU and for what "
        "ctranslate2 does not support; default: %(default)s",
    )
