"""nmt-translate's own search beside those of other toolkits, on one run: sentences a second.

    python -m benchmarks.engines RUN --input FILE [--beam 5 1] [--lines 1000] [--rounds 3]
        [--engines ours "ours bf16" CTranslate2 JoeyNMT transformers] [--steps 100]

Each has processes of its own for each round: ours and CTranslate2 one, which searches a batch a
core; the others one with all cores, and one a core, and the faster way counts. Ours and CTranslate2
have batches of the size that is best for each, the others of 64 sentences, at beam 5 the best for
OpenNMT-py. Engines alternate. Loading, and a first pass over all lines, are left out.
"same" is the share of lines translated as by ours: the searches differ in when they stop.
``--steps N``: hypotheses that ours computes in batches of the first N lines, over those that it
computes for each line alone, the fewest there can be. An engine that is not installed, or cannot
express the model, is left out with a line that says so.
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

OURS, BF16, BASE = "ours", "ours bf16", "CTranslate2"
TOOLKITS = ("JoeyNMT", "OpenNMT-py", "transformers")
# the fastest for a small model at beam 5, of 4,096 to 49,152 and of 2,048 to 24,576
BATCH_TOKENS = {OURS: 24576, BF16: 24576, BASE: 8192}


def load(engine: str, run: str) -> Any:
    """What has ``translate(lines, beam=N)``."""
    if engine in (OURS, BF16):
        precision = "bf16" if engine == BF16 else "fp32"
        return Translator.load(run, precision=precision, workers=all_cores())
    if engine == BASE:
        return load_exported(run, workers=all_cores())
    from benchmarks.searches import PEERS, PeerTranslator

    return PeerTranslator(PEERS[engine], run)


def serve(engine: str, run: str, source: Sequence[str], beam: int) -> None:
    """One process of an engine: says that it is ready, waits, and writes translations as JSON."""
    translator = load(engine, run)
    options = {"beam": beam}
    if engine in BATCH_TOKENS:  # others have a size of their own
        options["batch_tokens"] = BATCH_TOKENS[engine]
    translator.translate(source, **options)  # with the memory and processes that it asks for
    print("ready", flush=True)
    if sys.stdin.readline():
        print(json.dumps(translator.translate(source, **options)), flush=True)


def measure(command: Sequence[str], processes: int) -> tuple[float, list[str]]:
    """Seconds that so many processes take for every n-th line each, and all translations.

    Raises:
        UserError: with what a process said before it failed.
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
            hear(worker, "ready")
        begin = time.perf_counter()
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
        answers = [hear(worker, '["') for worker in workers]
        seconds = time.perf_counter() - begin  # before they take themselves apart
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    turns = itertools.zip_longest(*map(json.loads, answers))
    return seconds, [text for turn in turns for text in turn if text is not None]


def hear(worker: subprocess.Popen[str], beginning: str) -> str:
    """The next line of a process that begins so; others are what its libraries print.

    Raises:
        UserError: there is none; with the last that it said.
    """
    assert worker.stdout is not None
    for line in worker.stdout:
        if line.startswith(beginning):
            return line
    said = worker.communicate()[1].strip().splitlines()
    raise UserError(said[-1] if said else f"ended with {worker.wait()}")


def hypothesis_steps(translator: Translator, lines: Sequence[str], **options: Any) -> int:
    """Hypotheses that the first decoder layer is given, summed over positions."""
    steps = 0
    dim = translator.transformer.config.dim

    def count(layer: Any, inputs: Any) -> None:
        nonlocal steps
        steps += inputs[0].numel() // dim

    handle = translator.transformer.decoder.layers[0].register_forward_pre_hook(count)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # with more it would be other processes that count
    try:
        translator.translate(lines, **options)
    finally:
        torch.set_num_threads(threads)
        handle.remove()
    return steps


def wasted(translator: Translator, lines: Sequence[str], **options: Any) -> float:
    """Hypothesis-steps in batches over those of each line alone, not rounded up."""
    rounded, active_rows.ROW_MULTIPLE = active_rows.ROW_MULTIPLE, 1
    try:
        alone = sum(hypothesis_steps(translator, [line], **options) for line in lines)
    finally:
        active_rows.ROW_MULTIPLE = rounded
    return hypothesis_steps(translator, lines, **options) / alone


def main() -> None:
    """Entry point."""
    p = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    p.add_argument("run")
    p.add_argument("--input", required=True)
    p.add_argument("--beam", type=int, nargs="+", default=[5, 1])
    p.add_argument("--lines", type=int, default=1000)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument(
        "--engines", nargs="+", choices=[OURS, BF16, BASE, *TOOLKITS], default=[OURS, BASE]
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
    ways = [
        (beam, engine, processes)
        for beam in args.beam
        for engine in engines
        for processes in sorted({1, cores if engine in TOOLKITS else 1})
    ]
    seconds: dict[tuple[int, str, int], list[float]] = {}
    texts: dict[tuple[int, str], list[str]] = {}
    left_out: dict[str, str] = {}
    for way in tqdm(ways * args.rounds, unit=" runs", disable=None):
        beam, engine, processes = way
        if engine in left_out:
            continue
        command = [sys.executable, "-m", "benchmarks.engines", args.run, "--input", args.input]
        command += ["--serve", engine, "--beam", str(beam), "--lines", str(args.lines)]
        try:
            took, texts[beam, engine] = measure(command, processes)
        except UserError as error:
            left_out[engine] = str(error)
            continue
        seconds.setdefault(way, []).append(took)
    print("| beam | engine | processes | sentences/s | ratio | same |")
    print("|---:|---|---:|---:|---:|---:|")
    for beam in args.beam:
        best = {}
        for (size, engine, processes), took in seconds.items():
            if size == beam:
                speed = len(source) / statistics.median(took)
                best[engine] = max(best.get(engine, (0.0, 0)), (speed, processes))
        for engine, (speed, processes) in best.items():
            ratio = f"{speed / best[BASE][0]:.2f}" if BASE in best else "-"
            pairs = zip(texts[beam, engine], texts[beam, OURS], strict=True)
            same = statistics.mean(a == b for a, b in pairs)
            print(f"| {beam} | {engine} | {processes} | {speed:.1f} | {ratio} | {same:.1%} |")
    for engine, why in left_out.items():
        print(f"{engine} is left out: {why}")
    if args.steps:
        for beam in args.beam:
            options = {"beam": beam, "batch_tokens": BATCH_TOKENS[OURS]}
            share = wasted(Translator.load(args.run, "cpu"), source[: args.steps], **options)
            print(f"beam {beam}: {share:.3f} x the fewest hypothesis-steps")


if __name__ == "__main__":
    main()
