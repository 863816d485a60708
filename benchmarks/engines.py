"""How many sentences per second do this toolkit and other engines translate with one model?

    python -m benchmarks.engines RUN --input FILE [--beam 5 1] [--lines 1000] [--rounds 3]
        [--engines ours "ours bf16" CTranslate2 JoeyNMT transformers] [--steps 100]

Engines alternate, each in new processes for each round. Ours and CTranslate2 use one process that
translates one batch on each core. Other engines run as one process with all cores and as one
process for each core, and the faster result counts. Ours and CTranslate2 use the batch size that is
fastest for each; others use 64 sentences, the fastest for OpenNMT-py at beam 5. Loading and a first
pass over all lines are not timed. "same" is the share of lines with the same translation as ours;
searches differ in when they stop.

``--steps N`` reports how many hypotheses ours computes for the first N lines in batches, divided by
the number it computes for each line alone, which is the minimum. An engine that is not installed or
does not support the model is skipped with a message.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

import nmt.cli  # noqa: F401  the commands' allocator setting
from nmt.data.text import read_lines
from nmt.decoding.translator import Translator
from nmt.decoding.worker_pool import all_cores
from nmt.errors import UserError
from nmt.export.backend import load_exported
from nmt.model.cpu import active_rows

OURS, OURS_BF16, BASELINE = "ours", "ours bf16", "CTranslate2"
TOOLKITS = ("JoeyNMT", "OpenNMT-py", "transformers")
# the fastest for a small model at beam 5, among 4,096 to 49,152 (ours) and 2,048 to 24,576
BATCH_TOKENS = {OURS: 24576, OURS_BF16: 24576, BASELINE: 8192}


def load(engine: str, run: str) -> Any:
    """Return an object with ``translate(lines, beam=N)``."""
    if engine in (OURS, OURS_BF16):
        precision = "bf16" if engine == OURS_BF16 else "fp32"
        return Translator.load(run, precision=precision, workers=all_cores())
    if engine == BASELINE:
        return load_exported(run, workers=all_cores())
    from benchmarks.searches import PEERS, PeerTranslator

    return PeerTranslator(PEERS[engine], run)


def serve(engine: str, run: str, source: Sequence[str], beam: int) -> None:
    """Run one process of an engine: print "ready", wait for a line, print translations as JSON."""
    translator = load(engine, run)
    options = {"beam": beam}
    if engine in BATCH_TOKENS:  # the others set their own size
        options["batch_tokens"] = BATCH_TOKENS[engine]
    translator.translate(source, **options)  # allocates memory, starts workers
    print("ready", flush=True)
    if sys.stdin.readline():
        print(json.dumps(translator.translate(source, **options)), flush=True)


def measure(command: Sequence[str], processes: int) -> tuple[float, list[str]]:
    """Return the seconds that the processes need together, and all translations.

    Process i of n translates the lines i, i + n, i + 2n, ...

    Raises:
        UserError: a process failed; the message is the last line of its standard error.
    """
    threads = str((os.cpu_count() or 1) // processes)
    env = {**os.environ, "OMP_NUM_THREADS": threads}
    workers = [
        subprocess.Popen(
            [*command, "--part", str(part), str(processes)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=env,
        )
        for part in range(processes)
    ]  # fmt: skip
    try:
        for worker in workers:
            read_line(worker, "ready")
        begin = time.perf_counter()
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
        answers = [read_line(worker, '["') for worker in workers]
        seconds = time.perf_counter() - begin  # without their shutdown
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    interleaved = itertools.zip_longest(*map(json.loads, answers))
    return seconds, [text for row in interleaved for text in row if text is not None]


def read_line(worker: subprocess.Popen[str], prefix: str) -> str:
    """Return the next output line with this prefix; skip others, which libraries print.

    Raises:
        UserError: the process ended; the message is the last line of its standard error.
    """
    assert worker.stdout is not None
    for line in worker.stdout:
        if line.startswith(prefix):
            return line
    errors = worker.communicate()[1].strip().splitlines()
    raise UserError(errors[-1] if errors else f"exit code {worker.wait()}")


def hypothesis_steps(translator: Translator, lines: Sequence[str], **options: Any) -> int:
    """Return the number of rows that the first decoder layer computes, over all positions."""
    steps = 0
    dim = translator.transformer.config.dim

    def count(layer: Any, inputs: Any) -> None:
        nonlocal steps
        steps += inputs[0].numel() // dim

    handle = translator.transformer.decoder.layers[0].register_forward_pre_hook(count)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # otherwise worker processes would do the counting
    try:
        translator.translate(lines, **options)
    finally:
        torch.set_num_threads(threads)
        handle.remove()
    return steps


def step_overhead(translator: Translator, lines: Sequence[str], **options: Any) -> float:
    """Return hypothesis steps in batches, divided by those of single lines without rounding."""
    multiple, active_rows.ROW_MULTIPLE = active_rows.ROW_MULTIPLE, 1
    try:
        alone = sum(hypothesis_steps(translator, [line], **options) for line in lines)
    finally:
        active_rows.ROW_MULTIPLE = multiple
    return hypothesis_steps(translator, lines, **options) / alone


def main() -> None:
    """Run the benchmark and print its table."""
    p = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    p.add_argument("run")
    p.add_argument("--input", required=True)
    p.add_argument("--beam", type=int, nargs="+", default=[5, 1])
    p.add_argument("--lines", type=int, default=1000)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument(
        "--engines",
        nargs="+",
        choices=[OURS, OURS_BF16, BASELINE, *TOOLKITS],
        default=[OURS, BASELINE],
    )
    p.add_argument("--steps", type=int, default=0, metavar="N")
    p.add_argument("--serve", help=argparse.SUPPRESS)
    p.add_argument("--part", type=int, nargs=2, default=[0, 1], help=argparse.SUPPRESS)
    args = p.parse_args()
    source = list(itertools.islice(read_lines(Path(args.input)), args.lines))
    if args.serve:
        part, parts = args.part
        serve(args.serve, args.run, source[part::parts], args.beam[0])
        return
    cores = os.cpu_count() or 1
    engines = list(dict.fromkeys([OURS, *args.engines]))
    configurations = [
        (beam, engine, processes)
        for beam in args.beam
        for engine in engines
        for processes in sorted({1, cores if engine in TOOLKITS else 1})
    ]
    seconds: dict[tuple[int, str, int], list[float]] = {}
    texts: dict[tuple[int, str], list[str]] = {}
    skipped: dict[str, str] = {}
    for configuration in tqdm(configurations * args.rounds, unit=" runs", disable=None):
        beam, engine, processes = configuration
        if engine in skipped:
            continue
        command = [sys.executable, "-m", "benchmarks.engines", args.run, "--input", args.input]
        command += ["--serve", engine, "--beam", str(beam), "--lines", str(args.lines)]
        try:
            duration, texts[beam, engine] = measure(command, processes)
        except UserError as error:
            skipped[engine] = str(error)
            continue
        seconds.setdefault(configuration, []).append(duration)
    print("| beam | engine | processes | sentences/s | ratio | same |")
    print("|---:|---|---:|---:|---:|---:|")
    for beam in args.beam:
        best = {}
        for (its_beam, engine, processes), durations in seconds.items():
            if its_beam == beam:
                speed = len(source) / statistics.median(durations)
                best[engine] = max(best.get(engine, (0.0, 0)), (speed, processes))
        for engine, (speed, processes) in best.items():
            ratio = f"{speed / best[BASELINE][0]:.2f}" if BASELINE in best else "-"
            pairs = zip(texts[beam, engine], texts[beam, OURS], strict=True)
            same = statistics.mean(a == b for a, b in pairs)
            print(f"| {beam} | {engine} | {processes} | {speed:.1f} | {ratio} | {same:.1%} |")
    for engine, why in skipped.items():
        print(f"{engine} is skipped: {why}")
    if args.steps:
        for beam in args.beam:
            options = {"beam": beam, "batch_tokens": BATCH_TOKENS[OURS]}
            share = step_overhead(Translator.load(args.run, "cpu"), source[: args.steps], **options)
            print(f"beam {beam}: {share:.3f} x the minimum of hypothesis steps")


if __name__ == "__main__":
    main()
