"""How long do short commands take: help, a mistake in an option or a recipe, one translated line?

``python -m benchmarks.startup RUN [EXPORTED]`` runs each command several times, alternating, each
in its own process as a shell does. ``import torch`` is the baseline. EXPORTED is a folder that
nmt-export wrote.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import torch

from nmt.training.ending import processor

COMMAND = "import sys; from nmt.cli.{name} import main; sys.exit(main())"
MISTAKEN = "src: xx\ntgt: yy\nmodel:\n  dimm: 3\n"


class Row(NamedTuple):
    """One timed command.

    Attributes:
        name: in the table.
        argv: arguments of the Python interpreter.
        exit_code: that is expected.
    """

    name: str
    argv: list[str]
    exit_code: int = 0


class Times(NamedTuple):
    """Wall-clock seconds and processor seconds of one process."""

    clock: float
    cpu: float


def rows(run: str, exported: str | None, recipe: str) -> list[Row]:
    """Return the timed commands; ``recipe`` is a file with a mistake."""

    def nmt(name: str, *argv: str) -> list[str]:
        return ["-c", COMMAND.format(name=name), *argv]

    found = [
        Row('`python -c "pass"`', ["-c", "pass"]),
        Row('`python -c "import torch"`', ["-c", "import torch"]),
        Row("`nmt-translate --help`", nmt("translate", "--help")),
        Row("`nmt-train --help`", nmt("train", "--help")),
        Row("`nmt-translate RUN --beam 0`", nmt("translate", run, "--beam", "0"), 2),
        Row("`nmt-train` with a mistake in the recipe", nmt("train", recipe), 2),
        Row("`nmt-translate RUN`, one line", nmt("translate", run, "--device", "cpu")),
    ]
    if exported is not None:
        argv = nmt("translate", exported, "--device", "cpu")
        found.append(Row("`nmt-translate EXPORTED`, one line", argv))
    return found


def timed(row: Row, line: str) -> Times:
    """Run a command once with ``line`` as its input.

    Raises:
        RuntimeError: the exit code is not the expected one.
    """
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, *row.argv], input=f"{line}\n".encode(), capture_output=True
    )
    clock, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != row.exit_code:
        raise RuntimeError(f"{row.name}: exit code {done.returncode}\n{done.stderr.decode()}")
    user, system = (
        getattr(after, name) - getattr(before, name) for name in ("ru_utime", "ru_stime")
    )
    return Times(clock, user + system)


def main() -> None:
    p = argparse.ArgumentParser(prog="benchmarks.startup", description=__doc__)
    p.add_argument("run", help="run folder that nmt-train wrote")
    p.add_argument("exported", nargs="?", help="folder that nmt-export wrote")
    p.add_argument("--rounds", type=int, default=5, metavar="N", help="runs of each; default: 5")
    p.add_argument("--line", default="Dobrý deň.", help="the line to translate")
    args = p.parse_args()
    load = f", load {os.getloadavg()[0]:.1f} at the start" if hasattr(os, "getloadavg") else ""
    with tempfile.TemporaryDirectory() as folder:
        recipe = Path(folder) / "mistaken.yaml"
        recipe.write_text(MISTAKEN)
        table = rows(args.run, args.exported, str(recipe))
        for row in table:  # untimed, so that files are in the page cache
            timed(row, args.line)
        found = [[timed(row, args.line) for row in table] for _ in range(args.rounds)]
    name = processor(torch.device("cpu"))
    print(f"{name}, {os.cpu_count()} CPUs{load}; n = {args.rounds}\n")
    print("| command | median s | lowest s | highest s | median CPU s |")
    print("|---|---:|---:|---:|---:|")
    for row, times in zip(table, zip(*found, strict=True), strict=True):
        clock, cpu = [t.clock for t in times], [t.cpu for t in times]
        print(
            f"| {row.name} | {statistics.median(clock):.2f} | {min(clock):.2f} "
            f"| {max(clock):.2f} | {statistics.median(cpu):.2f} |"
        )


if __name__ == "__main__":
    main()
