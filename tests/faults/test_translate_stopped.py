"""nmt-translate stopped while two workers search: finished lines are kept, and it ends in time.

The tests run the real command, with chunks of 512 lines and small batches.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from nmt.cli import train
from nmt.decoding.translator import Translator
from tests.toy import lines_of_digits, toy_corpus, toy_recipe

pytestmark = pytest.mark.slow

LINES = 2500
PROGRAM = """
import sys
from nmt.cli import translate
from nmt.decoding import translator
translator.CHUNK_SIZE = 512
sys.exit(translate.main(sys.argv[1:]))
"""
SIGNALS = pytest.mark.parametrize(
    ("number", "code", "message"),
    [(signal.SIGTERM, 143, "terminated"), (signal.SIGINT, 130, "interrupted")],
    ids=["SIGTERM", "SIGINT"],
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a run of two updates, 2,500 lines, and their translations."""
    folder = tmp_path_factory.mktemp("stopped")
    toy_corpus(folder, {"train": 40, "dev": 4, "test": 4})
    recipe = toy_recipe(folder, {"train": {"validate_every": 1, "max_validations": 2}})
    assert train.main([str(recipe)]) == 0
    lines = lines_of_digits(LINES, longest=6)
    (folder / "in").write_text("".join(f"{line}\n" for line in lines))
    texts = Translator.load(folder / "run", "cpu").translate(lines)
    (folder / "complete").write_text("".join(f"{text}\n" for text in texts))
    return folder


def start(folder: Path, *argv: str | Path, **options: Any) -> subprocess.Popen[bytes]:
    """Start the command with the input as a file and standard error as a pipe."""
    given = (folder / "run", "--device", "cpu", "--batch-tokens", "200", "--input", folder / "in")
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *map(str, (*given, *argv))],
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "2"},
        **options,
    )


def wait_for_lines(path: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 300  # a busy machine takes long to load torch
    while not (path.exists() and path.stat().st_size):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    """Return exit code and standard error; the current batches take less than a minute."""
    _, err = process.communicate(timeout=60)
    return process.returncode, err.decode()


@SIGNALS
def test_finished_lines_are_written_to_standard_output(
    folder: Path, tmp_path: Path, number: int, code: int, message: str
) -> None:
    target = tmp_path / "out"
    with target.open("wb") as out, start(folder, stdout=out) as process:
        wait_for_lines(target, process)
        process.send_signal(number)
        assert ended(process) == (code, f"nmt-translate: {message}\n")
    text = target.read_bytes()
    assert 0 < text.count(b"\n") < LINES
    assert text.endswith(b"\n")
    assert (folder / "complete").read_bytes().startswith(text)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_the_same_command_with_resume_continues(folder: Path, tmp_path: Path, number: int) -> None:
    target, part = tmp_path / "out", tmp_path / "out.part"
    with start(folder, "--output", target) as process:
        wait_for_lines(part, process)
        process.send_signal(number)
        code, err = ended(process)
    message = {signal.SIGTERM: "terminated", signal.SIGINT: "interrupted"}
    if number == signal.SIGKILL:
        assert (code, err) == (-number, "")
    else:
        assert code == 128 + number
        assert err == (
            f"note: finished lines are in {part}; the same command with --resume continues\n"
            f"nmt-translate: {message[number]}\n"
        )
        assert part.read_bytes().endswith(b"\n")
    assert not target.exists()
    with start(folder, "--output", target, "--resume") as process:
        code, err = ended(process)
    assert (code, "Traceback" in err) == (0, False)
    assert target.read_bytes() == (folder / "complete").read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_the_reader_leaves_after_one_line(folder: Path) -> None:
    """``nmt-translate ... | head -1``."""
    with start(folder, stdout=subprocess.PIPE) as process:
        with subprocess.Popen(["head", "-1"], stdin=process.stdout, stdout=subprocess.PIPE) as head:
            assert process.stdout is not None
            process.stdout.close()
            first, _ = head.communicate(timeout=300)
        assert ended(process) == (141, "")
    assert (folder / "complete").read_bytes().startswith(first)
    assert first.endswith(b"\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_standard_output_ends_the_command(folder: Path) -> None:
    with open("/dev/full", "wb") as full, start(folder, stdout=full) as process:
        code, err = ended(process)
    assert code == 4
    assert re.fullmatch(
        r"nmt-translate: /dev/stdout: the disk \(or your quota\) is full: "
        r"\d+ B needed, .* free.*\n  -> free some space, then run the same command again\n",
        err,
    )


def test_a_full_disk_keeps_the_finished_lines(folder: Path, tmp_path: Path) -> None:
    """A limit on file sizes imitates a full disk; with more space, --resume continues."""
    target, part = tmp_path / "out", tmp_path / "out.part"
    room = 10_001  # the last line ends in its middle
    limit = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))}
    with start(folder, "--output", target, **limit) as process:
        assert ended(process) == (
            4,
            f"note: finished lines are in {part}; the same command with --resume continues\n"
            f"nmt-translate: {part}: must not grow larger than 9.8 KB, the limit on "
            "files of this shell (ulimit -f)\n  -> raise the limit (ulimit -f unlimited) or choose "
            "another path, then run the same command with --resume\n",
        )
    assert part.stat().st_size == room
    with start(folder, "--output", target, "--resume") as process:
        assert ended(process)[0] == 0
    assert target.read_bytes() == (folder / "complete").read_bytes()
