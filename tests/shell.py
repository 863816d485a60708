"""Run the shell text of a page with this project's commands, without a start of Python for each.

A server process imports torch and the commands once. In the shell, ``nmt-train`` and the others
are small programs: they pass their arguments, folder and streams to the server, which forks a
process that runs the command and returns its exit code.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.words import COMMANDS, stand_in_corpus

STUB = """\
#!{python} -SE
import json, os, socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect({address!r})
request = {{"argv": sys.argv, "folder": os.getcwd(), "environment": dict(os.environ)}}
socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
sys.exit(int(connection.recv(16) or b"99"))
"""
SECONDS = 300


class Shell:
    """bash with the commands of this project, as served by ``serve``."""

    def __init__(self, programs: Path) -> None:
        self.programs = programs

    def run(self, text: str, folder: Path) -> str:
        """Run the text in a folder and return what it writes to standard output.

        A command that fails ends the test with its error.
        """
        environment = {**os.environ, "PATH": f"{self.programs}:/usr/bin:/bin"}
        done = subprocess.run(
            ["bash", "-euxo", "pipefail", "-c", text],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        if done.returncode:
            pytest.fail(
                f"exit code {done.returncode}\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}",
                pytrace=False,
            )
        return done.stdout


@contextlib.contextmanager
def shell(folder: Path) -> Iterator[Shell]:
    """Start the server, with its files in ``folder``, and end it."""
    address = str(folder / "socket")
    programs = folder / "bin"
    programs.mkdir()
    for name in (*COMMANDS, "nmt", "python"):
        program = programs / name
        program.write_text(STUB.format(python=sys.executable, address=address), encoding="utf-8")
        program.chmod(0o755)
    server = subprocess.Popen([sys.executable, "-m", "tests.shell", address])
    try:
        while not Path(address).exists():
            assert server.poll() is None, "the server did not start"
            time.sleep(0.02)
        yield Shell(programs)
    finally:
        server.terminate()
        server.wait()


def serve(address: str) -> None:
    """Run the commands that the programs ask for, each in a process of its own."""
    for module in (*COMMANDS.values(), "nmt.training.trainer", "nmt.decoding.translator"):
        importlib.import_module(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address + ".new")
        listener.listen()
        os.rename(address + ".new", address)
        while True:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _answer(connection)
            connection.close()


def _answer(connection: socket.socket) -> None:
    """Run one command in this process and send its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    message, streams, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    request = json.loads(message)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = open(0)  # noqa: SIM115
    sys.stdout, sys.stderr = open(1, "w"), open(2, "w")  # noqa: SIM115
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = request["argv"]
    code: Any = 1
    try:
        code = _run(Path(sys.argv[0]).name)
    except SystemExit as end:
        code = end.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
        sys.stderr.flush()
    connection.send(str(code or 0).encode())
    os._exit(0)


def _run(name: str) -> int:
    words = sys.argv[1:]
    if name == "nmt" and words[0] == "import":
        name = f"nmt-{words.pop(0)}"
    if name == "nmt-import" and stand_in_corpus(words):
        return 0
    if name == "nmt":
        return importlib.import_module("nmt.cli.main").main()
    if name in COMMANDS:
        return importlib.import_module(COMMANDS[name]).main()
    if sys.argv[1] == "-c":
        exec(sys.argv[2], {})
    elif sys.argv[1] == "-m":
        module = sys.argv[2]
        del sys.argv[1:3]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        del sys.argv[0]
        runpy.run_path(sys.argv[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    serve(sys.argv[1])
