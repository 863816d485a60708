"""What every command does with errors, signals, pipes and full disks."""

from __future__ import annotations

import argparse
import errno
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import nmt
from nmt.cli import store_products
from nmt.cli.main import run_command
from nmt.errors import MachineError, RunError, Terminated, UserError

ROOT = Path(__file__).parents[2]


def run(body: Callable[[argparse.Namespace], int | None], *argv: str) -> int:
    return run_command(body, lambda: argparse.ArgumentParser(prog="nmt-x"), argv)


def failing(error: BaseException) -> Callable[[argparse.Namespace], int | None]:
    def body(args: argparse.Namespace) -> int | None:
        raise error

    return body


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UserError("is empty", at="a.gl:3", fix="fill it"), 2, "a.gl:3: is empty\n  -> fill it"),
        (RunError("loss exploded"), 3, "loss exploded"),
        (MachineError("in use", at="runs/x"), 4, "runs/x: in use"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (Terminated("SIGTERM"), 143, "terminated"),
        (OSError(errno.ENOSPC, "No space left", "runs/x"), 4, "runs/x: No space left"),
        (PermissionError(errno.EACCES, "Permission denied", "x"), 4, "x: Permission denied"),
        (
            ValueError("odd\nthing"),
            3,
            "internal error, ValueError: odd\n  -> --debug shows where; please report it",
        ),
    ],
)
def test_errors_become_one_text_and_an_exit_code(error, code: int, said: str, capsys):
    assert run(failing(error)) == code
    assert capsys.readouterr().err == f"nmt-x: {said}\n"


def test_debug_shows_the_traceback(capsys):
    assert run(failing(UserError("wrong")), "--debug") == 2
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert said.endswith("nmt-x: wrong\n")


def test_the_body_decides_the_code_of_success():
    assert run(lambda args: None) == 0
    assert run(lambda args: 7) == 7


def test_wrong_options_are_exit_2_and_version_is_said(capsys):
    with pytest.raises(SystemExit) as stop:
        run(lambda args: None, "--nonsense")
    assert stop.value.code == 2
    with pytest.raises(SystemExit) as stop:
        run(lambda args: None, "--version")
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"nmt-x {nmt.__version__}\n"


PROGRAM = """
import argparse, sys
from nmt.cli.main import run_command

def body(args):
    for _ in range(5000):
        print("x" * 100)

sys.exit(run_command(body, lambda: argparse.ArgumentParser(prog="nmt-x"), []))
"""


@pytest.mark.parametrize(
    ("redirect", "code", "said"),
    [
        ("| head -1 >/dev/null", 141, ""),
        (">/dev/full", 4, "nmt-x: disk: No space left on device\n"),
        (">&-", 0, ""),
    ],
)
def test_an_output_that_takes_no_more(redirect: str, code: int, said: str):
    if "full" in redirect and not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    done = subprocess.run(
        [
            "bash",
            "-c",
            f'"$0" -c "$1" {redirect}; exit ${{PIPESTATUS[0]}}',
            sys.executable,
            PROGRAM,
        ],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert (done.returncode, done.stderr) == (code, said)


def test_importing_the_package_loads_no_torch():
    check = (
        "import sys, nmt; assert 'torch' not in sys.modules;"
        "import nmt.cli; assert 'torch' not in sys.modules;"
        "assert nmt.Recipe.__module__ == 'nmt.config'; assert 'torch' not in sys.modules;"
        "assert {'Recipe', 'Transformer', 'Translator', 'load_recipe'} <= set(dir(nmt))"
    )
    subprocess.run([sys.executable, "-c", check], check=True, cwd=ROOT)
    assert nmt.Transformer.__module__ == "nmt.model.transformer"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator")
def test_commands_keep_memory_that_torch_has_freed():
    """Buffers of 64 MiB one after the other soon touch no page for the first time."""
    check = (
        "import nmt.cli, resource, torch;"
        "faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt;"
        "make = lambda: torch.ones(16 << 20);"
        "[make() for _ in range(30)]; before = faults(); [make() for _ in range(10)];"
        "assert faults() - before < 1000, faults() - before"
    )
    subprocess.run([sys.executable, "-c", check], check=True, cwd=ROOT)


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="nosuch"):
        _ = nmt.nosuch


def test_the_number_of_products_kept_is_the_user_s_if_there_is_one(monkeypatch):
    monkeypatch.setenv("LRU_CACHE_CAPACITY", "")  # so that it is put back as it was
    monkeypatch.delenv("LRU_CACHE_CAPACITY")
    monkeypatch.setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "7")
    store_products(64)
    assert os.environ["LRU_CACHE_CAPACITY"] == "64"
    assert os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == "7"
