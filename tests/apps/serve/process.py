"""nmt-serve as a process."""

from __future__ import annotations

import http.client
import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
SECONDS = 60
PROGRAM = """
import os, sys
from nmt.apps.serve import batcher
from nmt.cli import serve
class Ends:
    def __del__(self, end=os._exit):
        end(9)
if "JOIN_SECONDS" in os.environ:
    batcher.JOIN_SECONDS = float(os.environ["JOIN_SECONDS"])
    ends = Ends()  # Python deletes it last: after that, a thread that returns crashes the process
code = serve.main()
print(f"torch: {'torch' in sys.modules}", file=sys.stderr)
sys.exit(code)
"""


class Process:
    """A server on a free port.

    Args:
        files: the most open files that it may have; None = as this process.
    """

    def __init__(self, *argv: str | Path, files: int | None = None, **env: str) -> None:
        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *map(str, argv), "--port", "0"],
            env={**os.environ, "PYTHONPATH": str(ROOT), **env},
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=None if files is None else limit,
        )
        assert self.process.stderr
        for line in self.process.stderr:
            if found := re.match(r"serving on http://[\d.]+:(\d+) ", line):
                self.port = int(found[1])
                return
        raise AssertionError("the server did not start")

    def send(
        self, text: str | list[str], headers: Mapping[str, str] | None = None, **options: Any
    ) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        body = json.dumps({"text": text, **options})
        connection.request(
            "POST", "/translate", body, {"Content-Type": "application/json", **(headers or {})}
        )
        return connection

    def metric(self, name: str, headers: Mapping[str, str] | None = None) -> float:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        connection.request("GET", "/metrics", headers=dict(headers or {}))
        found = re.search(rf"^{name} (.*)$", connection.getresponse().read().decode(), re.M)
        assert found
        return float(found[1])

    def cpu_seconds(self) -> float:
        """Return the processor time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def megabytes(self) -> float:
        """Return the memory in use."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
