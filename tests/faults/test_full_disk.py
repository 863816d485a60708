"""Commands on a file system that has no bytes left, or no more files, at any moment."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.test_kill_storm import TRAINING, ended
from tests.long.kill_storm import difference, has_ended, result, run, start
from tests.toy import lines_of_digits, toy_corpus, toy_recipe, write_lines

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="file systems are mounted as Linux does"),
]
NEW_NAMESPACE = 0x00020000  # CLONE_NEWNS: only the child process sees what it mounts
CANNOT_MOUNT = 77
BALLAST = "ballast"
LIMITS = {"bytes": "size=4m,nr_inodes=0", "files": "nr_inodes=300"}


def on_small_disk(folder: Path, options: str, act: Callable[[], None]) -> None:
    """Act in a child process, for which a folder is a file system of its own in memory."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = CANNOT_MOUNT if not mount(folder, options) else 0
            if code == 0:
                act()
        except BaseException:
            code = 1
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    if (code := ended(child)) == CANNOT_MOUNT:
        pytest.skip("this user may not mount a file system")
    assert code == 0


def mount(folder: Path, options: str) -> bool:
    """Mount an empty file system for this process only; return whether it is allowed."""
    if ctypes.CDLL(None).unshare(NEW_NAMESPACE):
        return False
    small = ["-t", "tmpfs", "-o", options, "none", str(folder)]
    commands = (["mount", *words] for words in (["--make-rprivate", "/"], small))
    return all(subprocess.run(c, capture_output=True).returncode == 0 for c in commands)


def fill(folder: Path, limit: str, room: int) -> None:
    """Leave room for so many bytes or files on the file system of a folder that others use."""
    ballast = folder / BALLAST
    ballast.mkdir()
    if limit == "files":
        with contextlib.suppress(OSError):  # others have used the rest meanwhile
            for number in range(os.statvfs(folder).f_favail - room):
                (ballast / str(number)).touch()
        return
    with open(ballast / "large", "wb") as file:
        while (length := free_bytes(folder) - room) > 0:
            with contextlib.suppress(OSError):  # others have used a part meanwhile
                os.posix_fallocate(file.fileno(), 0, length)
                break


def free_bytes(folder: Path) -> int:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


@pytest.mark.parametrize(
    ("argv", "limit", "most", "growing", "growth"),
    [
        ("train toy.yaml out=out/run", "bytes", 90_000, "run/metrics.jsonl", 3000),
        ("train toy.yaml out=out/run", "files", 12, "run/metrics.jsonl", 3000),
        ("translate trained --input in -o out/lines", "bytes", 9000, "lines.part", 8000),
    ],
    ids=["train-bytes", "train-files", "translate"],
)
def test_a_command_continues_when_there_is_space_again(
    argv, limit, most, growing, growth, tmp_path, short_run
):
    """Another program fills the disk when a file of the command has grown by up to ``growth``.

    The first time it does so at once, as a fast command may end before it is noticed to have begun.
    """
    files, expected, small = (tmp_path / name for name in ("files", "expected", "small"))
    files.mkdir()
    toy_corpus(files, {"train": 150, "dev": 8, "test": 8})
    toy_recipe(files, TRAINING)
    write_lines(files / "in", lines_of_digits(9000, longest=6))
    (files / "trained").symlink_to(short_run)
    for folder in (expected, small):
        (folder / "out").mkdir(parents=True)
        for path in files.iterdir():
            (folder / path.name).symlink_to(path)
    assert run(expected, argv.split()) == 0
    rng = random.Random(1)

    def act() -> None:
        out, faults = small / "out", 0
        while faults < 6:
            goal = size(out / growing) + rng.randrange(growth)
            child = start(small, [*argv.split(), "--resume"])
            while size(out / growing) < goal and not has_ended(child):
                time.sleep(0.002)
            fill(out, limit, rng.randrange(most))
            code = ended(child)
            shutil.rmtree(out / BALLAST)
            if code == 0:
                break
            assert code == 4
            faults += 1
        assert faults
        assert ("df -i" in (small / "log.txt").read_text()) == (limit == "files")
        assert code == 0 or run(small, [*argv.split(), "--resume"]) == 0
        assert not difference(result(out), result(expected / "out"))

    on_small_disk(small / "out", LIMITS[limit], act)
