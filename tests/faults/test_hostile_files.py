"""Each hostile file is refused or read: in bounded memory and time, and without its code."""

from __future__ import annotations

import multiprocessing
import os
import resource
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests import hostile
from tests.hostile import CANARY, Row

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="other systems have other limits"),
]
ROWS = dict(hostile.rows())
SECONDS = 100  # of processor time; one case needs 34 on an AMD EPYC of the first generation
MEMORY = 800 << 20  # bytes beyond those of a command that has read nothing
ESCAPED = 70  # exit code
WRITES = {
    "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate",
    "os.chmod",
}  # fmt: skip


def watch(folder: Path) -> None:
    """End this process when it does what no file may make it do."""
    inside, secret = os.path.realpath(folder), os.path.realpath(folder / hostile.SECRET)

    def escape(how: str, what: object) -> None:
        print(f"{how} {what}", flush=True)
        os._exit(ESCAPED)

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event in ("os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.fork"):
            escape("runs", args)
        if event in ("socket.connect", "socket.getaddrinfo"):
            escape("connects", args)
        if event == "pickle.find_class":
            escape("unpickles", args)
        writes = event in WRITES or (
            event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        )
        if (writes or event == "open") and isinstance(args[0], str | bytes):
            path = os.path.realpath(os.fsdecode(args[0]))
            if writes and not path.startswith((inside, "/dev/")):
                escape("writes", path)
            if path == secret:
                escape("reads", path)

    sys.addaudithook(hook)


def unpack(folder: Path) -> int:
    """Read the texts of an archive as ``nmt-import mtdata`` and the modules of corpora do."""
    from data_prep.corpora.mtdata import _unpacked, license_of
    from data_prep.pairs import member_lines
    from nmt.errors import NmtError

    path, code = folder / "bad.archive", 0
    readers = (
        lambda: _unpacked({"is_archive": True, "in_paths": ["*a.gl", "a.en"]}, [path], folder),
        lambda: license_of(path),
        lambda: sum(map(len, member_lines(path, "a.gl"))),
    )
    for read in readers:
        try:
            read()
        except NmtError as error:
            print(error, file=sys.stderr)
            code = max(code, error.exit_code)
    return code


def run(command: str, folder: Path) -> None:
    """Run a command in this process, which ends with its exit code."""
    from nmt.cli.main import main

    os.chdir(folder)
    os.environ |= {"HOME": str(folder), "NMT_CACHE": str(folder)}
    tempfile.tempdir = str(folder)
    sys.stdout = sys.stderr = open(folder / "log", "w")  # noqa: SIM115, open until the process ends
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    watch(folder)
    name, *words = shlex.split(command)
    code = unpack(folder) if name == "unpack" else main([name, *words])
    sys.stdout.flush()
    os._exit(code)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    hostile.good_files(folder)
    return folder


@pytest.fixture(scope="module")
def server() -> Any:
    """What forks processes in which the commands are imported."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.faults.preloaded"])
    return context


@pytest.mark.parametrize("name", ROWS)
def test_a_hostile_file(name: str, good: Path, server: Any, tmp_path: Path) -> None:
    row: Row = ROWS[name]
    folder = tmp_path / "folder"
    shutil.copytree(good, folder)
    (tmp_path / "secret").write_text("secret")
    for damage in row.damages:
        damage(folder)
    process = server.Process(target=run, args=(row.command, folder))
    process.start()
    process.join(4 * SECONDS)
    process.kill()
    process.join()
    log = (folder / "log").read_text(errors="replace")
    assert process.exitcode in row.codes, f"{process.exitcode}: {log[-3000:]}"
    assert "Traceback" not in log
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "secret"], CANARY
