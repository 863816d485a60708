"""How every command handles errors, signals, pipes and full disks."""

from __future__ import annotations

import argparse
import ctypes
import errno
import os
import platform
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nmt
from nmt.cli.common import run_command
from nmt.cli.parsers import command_parser
from nmt.errors import MachineError, RunError, Terminated, UserError
from nmt.runtime.memory import keep_freed_memory, limit_onednn_cache

ROOT = Path(__file__).parents[2]


def run(body: Callable[[argparse.Namespace], None], *argv: str) -> int:
    return run_command(body, lambda: command_parser("nmt-x"), argv)


def failing(error: BaseException) -> Callable[[argparse.Namespace], None]:
    def body(args: argparse.Namespace) -> None:
        raise error

    return body


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UserError("is empty", at="a.gl:3", fix="fill it"), 2, "a.gl:3: is empty\n  -> fill it"),
        (RunError("loss exploded"), 3, "loss exploded"),
        (MachineError("in use", at="runs/x"), 4, "runs/x: in use"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (Terminated("SIGTERM"), 143, "terminated"),
        (PermissionError(errno.EACCES, "Permission denied", "x"), 4, "x: Permission denied\n  -> "),
        (OSError(errno.EIO, "Bad disk"), 4, "standard output or a file: Bad disk\n  -> "),
        (ValueError("odd\nthing"), 3, "internal error: ValueError: odd\n  -> run it with --debug"),
    ],
)
def test_an_error_becomes_a_message_and_an_exit_code(error, code, message, capsys):
    assert run(failing(error)) == code
    assert capsys.readouterr().err.startswith(f"nmt-x: {message}")


def test_debug_shows_the_traceback(capsys):
    assert run(failing(UserError("wrong")), "--debug") == 2
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert shown.endswith("nmt-x: wrong\n")


def test_wrong_options_are_exit_2_and_version_is_printed(capsys):
    with pytest.raises(SystemExit) as stop:
        run(lambda args: None, "--nonsense")
    assert stop.value.code == 2
    with pytest.raises(SystemExit) as stop:
        run(lambda args: None, "--version")
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"nmt-x {nmt.__version__}\n"


PROGRAM = """
import sys
from nmt.cli import train, translate
from nmt.cli.common import run_command
from nmt.cli.parsers import command_parser

def body(args):
{body}

sys.exit(run_command(body, lambda: command_parser("nmt-x"), []))
"""


def shell(body: str, redirect: str = "", **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run a command whose body is given; an exit code is that of Python, not of a pipe."""
    program = PROGRAM.format(body=textwrap.indent(body, "    "))
    command = f'"$0" -c "$1" {redirect}; exit ${{PIPESTATUS[0]}}'
    return subprocess.run(
        ["bash", "-c", command, sys.executable, program],
        capture_output=True,
        check=False,
        cwd=ROOT,
        **options,
    )


@pytest.mark.parametrize(
    ("redirect", "code", "message"),
    [
        ("| head -1 >/dev/null", 141, ""),
        (">/dev/full", 4, r"nmt-x: standard output or a file: .* full\n  -> free some space.*\n"),
        (">&-", 0, ""),
    ],
)
def test_an_output_that_cannot_be_written(redirect: str, code: int, message: str):
    if "full" in redirect and not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    done = shell("for _ in range(5000): print('x' * 100)", redirect)
    assert done.returncode == code
    assert re.fullmatch(message, done.stderr.decode())


def test_importing_the_package_loads_no_torch():
    check = (
        "import sys, nmt; assert 'torch' not in sys.modules;"
        "import nmt.cli; assert 'torch' not in sys.modules;"
        "assert nmt.Recipe.__module__ == 'nmt.config.recipe'; assert 'torch' not in sys.modules;"
        "assert {'Recipe', 'Transformer', 'Translator', 'load_recipe'} <= set(dir(nmt))"
    )
    subprocess.run([sys.executable, "-c", check], check=True, cwd=ROOT)
    assert nmt.Transformer.__module__ == "nmt.model.transformer"


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator")
def test_commands_keep_memory_that_torch_has_freed():
    """Repeated buffers of 64 MiB soon reuse pages that the process has already touched."""
    check = (
        "import nmt.cli, resource, torch;"
        "faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt;"
        "make = lambda: torch.ones(16 << 20);"
        "[make() for _ in range(30)]; before = faults(); [make() for _ in range(10)];"
        "assert faults() - before < 1000, faults() - before"
    )
    subprocess.run([sys.executable, "-c", check], check=True, cwd=ROOT)


def test_an_unknown_name_of_the_package_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nosuch"):
        _ = nmt.nosuch


def test_environment_variables_override_the_size_of_the_onednn_cache(monkeypatch):
    monkeypatch.setenv("LRU_CACHE_CAPACITY", "")  # so that monkeypatch restores it
    monkeypatch.delenv("LRU_CACHE_CAPACITY")
    monkeypatch.setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "7")
    limit_onednn_cache(64)
    assert os.environ["LRU_CACHE_CAPACITY"] == "64"
    assert os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == "7"


# ---------------------------------------------------------------- standard streams


CLOSED = """\
with open(sys.argv[1], "w") as file:
    print("note", file=sys.stderr)
    print("printed")
    file.write("mine")
raise OSError("odd")
"""


@pytest.mark.slow
@pytest.mark.parametrize("redirect", ["2>&-", ">&-", "<&-", "<&- >&- 2>&-"])
def test_messages_never_reach_another_file_when_a_standard_stream_is_closed(redirect, tmp_path):
    """The system would give its descriptor to the next file that is opened."""
    target = tmp_path / "file"
    done = shell(CLOSED, f"'{target}' {redirect}")
    assert done.returncode == 3
    assert target.read_text() == "mine"
    assert done.stdout == (b"" if " >&-" in f" {redirect}" else b"printed\n")
    assert done.stderr.startswith(b"" if "2>&-" in redirect else b"note\nnmt-x: internal error")


@pytest.mark.slow
def test_output_is_utf_8_in_any_locale():
    for encoding in ("ascii", "latin-1"):
        env = {**os.environ, "PYTHONIOENCODING": encoding}
        done = shell('print("ñ ☃", "\\udcff")', env=env)
        assert (done.returncode, done.stdout) == (0, "ñ ☃ ".encode() + b"\xff\n")
        done = shell('raise ValueError("ñ")', env=env)
        assert "ValueError: ñ\n" in done.stderr.decode("utf-8")


# ---------------------------------------------------------------- start


@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_the_allocator_is_configured_on_linux_only(platform: str, monkeypatch):
    """On other systems, CDLL(None) may be an error."""

    def refuse(name: object) -> None:
        raise TypeError("LoadLibrary() argument 1 must be str, not None")

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    monkeypatch.setattr(sys, "platform", platform)
    keep_freed_memory()
