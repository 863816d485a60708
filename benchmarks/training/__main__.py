"""How fast does this toolkit train on a CPU, compared with torch.nn.Transformer and others?

    python -m benchmarks.training --train PREFIX --dev PREFIX [--size paper|small]

Every contender trains the same model on the same batches in its own process. All losses must be
equal before anything is timed. Rounds alternate; the first one is a warm-up and is not counted.
Toolkits that cannot be imported (see ``peers``) are skipped with a message.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

import nmt.cli  # noqa: F401  the commands' allocator setting
from benchmarks.flops import flops_per_token, peak_flops
from benchmarks.training.contenders import model_section
from benchmarks.training.worker import CONTENDERS, RECIPE
from benchmarks.training.workload import SIZES, Workload, padding_share
from nmt.config.load import load_recipe
from nmt.data.prepare import prepare
from nmt.runtime.device import resolve_device

BASELINE = "nn.Transformer fp32"
TOLERANCE = 1e-4  # of the loss, relative; bf16 rounds to 1/256
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class Process:
    """A contender in its own process; ``status`` is "ready" or why it cannot run."""

    def __init__(self, name: str, workload: Path, overrides: list[str]) -> None:
        self.pipe = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.training.worker", name, str(workload), *overrides],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.status = self._line().strip()

    def ask(self, command: str) -> Any:
        assert self.pipe.stdin is not None
        self.pipe.stdin.write(command + "\n")
        self.pipe.stdin.flush()
        return json.loads(self._line())

    def close(self) -> None:
        """End the process and wait, so that its memory is free."""
        assert self.pipe.stdin is not None
        self.pipe.stdin.close()
        self.pipe.wait()

    def _line(self) -> str:
        assert self.pipe.stdout is not None
        line = self.pipe.stdout.readline()
        if not line:
            raise SystemExit(f"{self.pipe.args[3:]} ended with exit code {self.pipe.wait()}")
        return line


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--train", required=True, help="prefix of the training text, PREFIX.en and .de")
    p.add_argument("--dev", required=True, help="prefix of the dev text")
    p.add_argument("--size", choices=SIZES, default="paper")
    p.add_argument("--batch-tokens", type=int, default=4096)
    p.add_argument("--batches", type=int, default=3, help="number of batches that are trained on")
    p.add_argument("--rounds", type=int, default=3, help="timed rounds, after one warm-up")
    p.add_argument("--only", nargs="+", metavar="NAME", help=f"among: {', '.join(CONTENDERS)}")
    args = p.parse_args()
    names = args.only or list(CONTENDERS)
    if unknown := set(names) - set(CONTENDERS):
        p.error(f"unknown contender {', '.join(unknown)}; choose among {', '.join(CONTENDERS)}")
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "workload.json"
        overrides = [
            f"data.train={Path(args.train).absolute()}",
            f"data.dev={Path(args.dev).absolute()}",
            f"data.batch_tokens={args.batch_tokens}",
            f"out={scratch}/run",
        ]
        recipe = load_recipe(RECIPE, overrides)
        workload = Workload.of(recipe, prepare(recipe), SIZES[args.size], args.batches)
        workload.save(file)
        started = {name: Process(name, file, overrides) for name in names}
        processes = {name: p for name, p in started.items() if p.status == "ready"}
        for status in sorted({p.status for p in started.values()} - {"ready"}):
            absent = ", ".join(name for name, p in started.items() if p.status == status)
            print(f"skipped: {absent} ({status})", file=sys.stderr)
        check_equal({name: process.ask("loss") for name, process in processes.items()})
        rates, peaks = run_rounds(processes, args.rounds)
        print(describe(workload, args, peaks))
        print(table(workload, processes, rates, peaks))
        for process in started.values():
            process.close()


def check_equal(losses: dict[str, float]) -> None:
    """Exit unless all contenders with the same model have the same loss on the first batch."""
    same = {n: v for n, v in losses.items() if "ScaleNorm" not in n and "random" not in n}
    first = next(iter(same.values()), 0.0)
    for name, loss in same.items():
        if abs(loss - first) > (1e-2 if "bf16" in name else TOLERANCE) * first:
            raise SystemExit(f"the contenders do not compute the same model: losses {losses}")


def run_rounds(
    processes: dict[str, Process], rounds: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Return medians: target tokens/s of each contender, and peak FLOP/s of each precision."""
    device = resolve_device("auto")
    peaks: dict[str, list[float]] = {precision: [] for precision in {*map(precision_of, processes)}}
    rates: dict[str, list[float]] = {name: [] for name in processes}
    turns = [(r, name) for r in range(rounds + 1) for name in (*peaks, *processes)]
    for turn, name in tqdm(turns, unit=" rounds", disable=None):
        if name in peaks:
            peaks[name].append(peak_flops(DTYPES[name], device))
            continue
        speeds = processes[name].ask("round")["tokens_per_second"]
        if turn:
            rates[name].append(statistics.median(speeds))
    return medians_of(rates), medians_of(peaks)


def medians_of(measured: dict[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(values) for name, values in measured.items()}


def precision_of(name: str) -> str:
    return "bf16" if "bf16" in name else "fp32"


def describe(workload: Workload, args: argparse.Namespace, peaks: dict[str, float]) -> str:
    """Return one line: model, batches, machine, and the peaks that MFU refers to."""
    size = workload.size
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    threads = f"{torch.get_num_threads()} threads of {os.cpu_count()} cores"
    measured = ", ".join(f"{name} {peak / 1e9:,.0f}" for name, peak in sorted(peaks.items()))
    return (
        f"{size.layers}+{size.layers} layers, dim {size.dim}, {workload.types} types, dropout "
        f"{size.dropout}, batches of {args.batch_tokens} tokens; {device}, {threads}, torch "
        f"{torch.__version__}; peak GFLOP/s of a large product: {measured}"
    )


def table(
    workload: Workload,
    processes: dict[str, Process],
    rates: dict[str, float],
    peaks: dict[str, float],
) -> str:
    """Return the table in Markdown, one row for each contender."""
    src, tgt = (
        np.array([len(pair[side]) for batch in workload.batches for pair in batch])
        for side in (0, 1)
    )
    per_token = flops_per_token(model_section(workload.size), workload.types, src, tgt)
    base = rates.get(BASELINE)
    rows = ["| contender | tokens/s | ratio | MFU | padding | operations | peak MB | parameters |"]
    rows.append("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name, process in processes.items():
        batches = workload.shuffled if "random" in name else workload.batches
        ratio = f"{rates[name] / base:.2f}" if base else "-"
        rows.append(
            f"| {name} | {rates[name]:,.0f} | {ratio} "
            f"| {rates[name] * per_token / peaks[precision_of(name)]:.1%} "
            f"| {padding_share(batches):.1%} | {process.ask('operations'):,} "
            f"| {process.ask('memory') / 1e6:,.0f} | {process.ask('parameters'):,} |"
        )
    return "\n".join(rows)


if __name__ == "__main__":
    main()
