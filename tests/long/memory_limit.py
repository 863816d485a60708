"""Do nmt-prepare and nmt-translate hold their memory bounds, whatever the number of lines?

``python -m tests.long.memory_limit --lines 100000 10000000`` generates pairs and lines, and runs
both commands with RLIMIT_AS: more address space than the bound is an error in them. Each row has
the peaks of the largest process. ``bound`` has the bounds that the documentation states.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.scale import MIB, generate, process_tree, sentences

# command -> bytes of address space: in total, and for each line
BOUNDS = {"prepare": (400 * MIB, 300), "translate": (400 * MIB, 0)}
COLUMNS = ("command", "lines", "seconds", "resident MiB", "address space MiB", "bound MiB")
TRAINED = 2000  # pairs of the model that translates
WORDS = 2  # of a line to translate
RECIPE = """
src: xx
tgt: yy
device: cpu
data: {train: train, dev: dev, tokenized: true}
segment: {merges: 1000}
model: {dim: 16, ffn_dim: 32, heads: 2, enc_layers: 1, dec_layers: 1}
train: {validate_every: 1, max_validations: 1}
decode: {beam: 1, max_len_offset: 1}
score: {metrics: [bleu]}
"""


def bound(command: str, lines: int) -> int:
    """Return the bytes of address space that a process of a command may use."""
    fixed, by_line = BOUNDS[command]
    return fixed + by_line * lines


def run_limited(argv: Sequence[str | Path], limit: int) -> tuple[int, int]:
    """Run a command with a limit on the address space of each of its processes.

    Returns:
        The peaks of the largest process in bytes: resident memory, address space.
    """

    def set_limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    peaks = (0, 0)
    code = [sys.executable, "-m", f"nmt.cli.{argv[0]}", *map(str, argv[1:])]
    with subprocess.Popen(code, stdout=subprocess.DEVNULL, preexec_fn=set_limit) as process:
        while process.poll() is None:
            found = [_peaks(pid) for pid in process_tree(process.pid)]
            peaks = max(peaks[0], *(p[0] for p in found)), max(peaks[1], *(p[1] for p in found))
            time.sleep(0.1)
    if process.returncode:
        raise SystemExit(f"nmt-{argv[0]} ended with exit code {process.returncode}")
    return peaks


def _peaks(pid: int) -> tuple[int, int]:
    """Return the most resident memory and the most address space of a process so far."""
    fields = {}
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            fields[name] = value
    # a process that has ended has neither
    return tuple(int(fields.get(n, "0").split()[0]) * 1024 for n in ("VmHWM", "VmPeak"))


def measure(command: str, lines: int, folder: Path) -> list[float]:
    """Return the numbers of a row; the folder must be empty."""
    generate(folder, lines if command == "prepare" else TRAINED)
    recipe, run, limit = folder / "recipe.yaml", folder / "run", bound(command, lines)
    recipe.write_text(RECIPE)
    argv: list[str | Path] = [command, recipe, f"out={run}"]
    if command == "translate":
        subprocess.run([sys.executable, "-m", "nmt.cli.train", *map(str, argv[1:])], check=True)
        text, output = folder / "text", folder / "output"
        with text.open("w") as file:
            file.writelines(
                " ".join(line.split()[:WORDS]) + "\n" for line in sentences(lines, seed=9)
            )
        argv = [command, run, "--device", "cpu", "--input", text, "--output", output]
    started = time.perf_counter()
    peaks = run_limited(argv, limit)
    return [lines, time.perf_counter() - started, *(size / MIB for size in (*peaks, limit))]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lines", type=int, nargs="+", default=[10_000_000])
    parser.add_argument("--commands", nargs="+", choices=BOUNDS, default=list(BOUNDS))
    parser.add_argument("--dir", type=Path, help="folder for temporary files")
    args = parser.parse_args()
    print("| " + " | ".join(COLUMNS) + " |\n|---" + "|---:" * (len(COLUMNS) - 1) + "|", flush=True)
    for command, lines in itertools.product(args.commands, args.lines):
        with tempfile.TemporaryDirectory(prefix="memory-", dir=args.dir) as folder:
            row = measure(command, lines, Path(folder))
        print(f"| {command} | " + " | ".join(f"{number:,.0f}" for number in row) + " |", flush=True)


if __name__ == "__main__":
    main()
