"""Measure nmt-serve under load: throughput and latency of single-sentence requests.

    python -m benchmarks.serving RUN --input FILE [--clients 1 16 64] [--requests 300] [--beam 5]

Each client sends one line per request and sends the next when it has the answer. The server is a
process of its own and shares the cores with the clients. The last row is nmt-translate on the same
lines, with its start-up time measured on one line and subtracted.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import re
import subprocess
import sys
import threading
import time
from pathlib import Path


def start(run: str) -> tuple[subprocess.Popen[str], int]:
    """Return a server of a run on a free port, and the port."""
    command = [sys.executable, "-m", "nmt.cli.serve", run, "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for line in process.stderr or ():
        if found := re.match(r"serving on http://127.0.0.1:(\d+) ", line):
            return process, int(found[1])
    raise SystemExit("nmt-serve did not start")


def load(port: int, lines: list[str], clients: int, options: dict[str, int]) -> list[float]:
    """Send each line once, from several clients; return the seconds of each request."""
    remaining, seconds = iter(lines), []
    lock = threading.Lock()

    def client() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        while True:
            with lock:
                line = next(remaining, None)
            if line is None:
                return
            body = json.dumps({"text": line, **options})
            started = time.perf_counter()
            connection.request("POST", "/translate", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            seconds.append(time.perf_counter() - started)
            assert answer.status == 200, answer.status

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seconds


def translate(run: str, lines: list[str], options: dict[str, int]) -> float:
    """Return the seconds of nmt-translate on some lines."""
    flags = [f"--{name}={value}" for name, value in options.items()]
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "nmt.cli.translate", run, *flags],
        input="".join(f"{line}\n" for line in lines).encode(),
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run")
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--beam", type=int, default=5)
    args = parser.parse_args()
    text = args.input.read_text(encoding="utf-8").splitlines()
    lines = list(itertools.islice(itertools.cycle(text), args.requests))
    options = {"beam": args.beam}
    server, port = start(args.run)
    load(port, lines[:32], 8, options)
    print("clients  sentences/s  p50 ms  p99 ms")
    for clients in args.clients:
        started = time.perf_counter()
        seconds = sorted(load(port, lines, clients, options))
        rate = len(seconds) / (time.perf_counter() - started)
        p50, p99 = (1e3 * seconds[int(len(seconds) * share)] for share in (0.5, 0.99))
        print(f"{clients:7}  {rate:11.1f}  {p50:6.0f}  {p99:6.0f}")
    server.terminate()
    assert server.wait() == 0
    warm = translate(args.run, lines[:1], options)
    print(f"nmt-translate  {len(lines) / (translate(args.run, lines, options) - warm):.1f}")


if __name__ == "__main__":
    main()
