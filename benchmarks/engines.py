"""How many sentences per second do this toolkit and other engines translate with one model?

    python -m benchmarks.engines RUN --input FILE [--beam 5 1] [--lines 1000] [--rounds 3]
        [--engines nmt torch "torch bf16" CTranslate2 JoeyNMT transformers]
        [--workers 1 2] [--batch-tokens 512 1024 4096 8192 24576] [--single 100]

Engines alternate, each in new processes for each round; the table has medians. nmt and CTranslate2
use ``--workers`` batches at a time, with the cores divided among them, and the ``--batch-tokens``
that was fastest in one run of this engine, beam and number of workers. CTranslate2 gets the pieces
of all lines in one call of its own interface, with nmt's segmenter. Other engines run as one
process with all cores and as one process for each core, with 64 sentences a batch, the fastest for
OpenNMT-py at beam 5. Loading and a first pass over all lines are not timed. "same" is the share of
lines with the same translation as nmt. ``--single N`` measures the first N lines one at a time.

An engine that is not installed or
does not support the model is skipped with a message.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import itertools
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from tqdm import tqdm

import nmt
import nmt.cli
from nmt.data.lines import read_lines
from nmt.decoding.ctranslate2.engine import CTranslate2Engine
from nmt.decoding.engine import all_cores
from nmt.decoding.translator import Translator
from nmt.errors import UserError
from nmt.runtime.device import emulation_note, resolve_device

OURS, TORCH, TORCH_BF16, BASELINE = "nmt", "torch", "torch bf16", "CTranslate2"
NATIVE = (OURS, TORCH, TORCH_BF16, BASELINE)
TOOLKITS = ("JoeyNMT", "OpenNMT-py", "transformers")
BATCH_TOKENS = (512, 1024, 4096, 8192, 24576)
Configuration: TypeAlias = tuple[int, str, int, int]  # beam, engine, processes, workers


class Bare:
    """CTranslate2 by its own interface, with the segmenter of a model."""

    def __init__(self, run: str, workers: int) -> None:
        self.model = Translator.load(run, "cpu", workers=workers, engine="ctranslate2")

    def translate(self, lines: Sequence[str], beam: int, batch_tokens: int = 1024) -> list[str]:
        engine, codec = self.model.engine, self.model.codec
        assert isinstance(engine, CTranslate2Engine)
        sources = [codec.source_pieces(line) for line in lines]
        found = engine.translator.translate_batch(
            sources,
            beam_size=beam,
            max_batch_size=max(1, batch_tokens // beam),
            batch_type="tokens",
            max_decoding_length=max(map(len, sources), default=0) + 51,
            length_penalty=self.model.info.decode.length_alpha,
        )
        return [codec.segmenter.decode(one.hypotheses[0], codec.tgt) for one in found]


def load(engine: str, run: str, workers: int) -> Any:
    """Return an object with ``translate(lines, beam=N)``."""
    if engine == BASELINE:
        return Bare(run, workers)
    if engine in NATIVE:
        precision, library = "bf16" if engine == TORCH_BF16 else "fp32", engine.partition(" ")[0]
        library = "auto" if engine == OURS else library
        return Translator.load(run, "cpu", precision=precision, workers=workers, engine=library)
    from benchmarks.searches import PEERS, PeerTranslator

    return PeerTranslator(PEERS[engine], run)


def serve(
    engine: str, run: str, source: Sequence[str], beam: int, workers: int, batch_tokens: int
) -> None:
    """Run one process of an engine: print "ready", wait for a line, print translations as JSON.

    With ``batch_tokens`` 0, translate one sentence at a time, and print the seconds of each.
    """
    translator = load(engine, run, workers)
    options: dict[str, Any] = {"beam": beam}
    if engine in NATIVE and batch_tokens:
        options["batch_tokens"] = batch_tokens
    translator.translate(source, **options)  # allocates memory, starts workers
    print("ready", flush=True)
    if not sys.stdin.readline():
        return
    if batch_tokens or engine not in NATIVE:
        print(json.dumps(translator.translate(source, **options)), flush=True)
        return
    seconds = []
    for line in source:
        begin = time.perf_counter()
        translator.translate([line], **options)
        seconds.append(str(time.perf_counter() - begin))
    print(json.dumps(seconds), flush=True)


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


def command_of(args: argparse.Namespace, configuration: Configuration, size: int) -> list[str]:
    """Return the command of a process; ``size`` 0 = one sentence at a time."""
    beam, engine, _, workers = configuration
    lines = args.lines if size or engine not in NATIVE else args.single
    command = [sys.executable, "-m", "benchmarks.engines", args.run, "--input", args.input]
    command += ["--serve", engine, "--beam", str(beam), "--lines", str(lines)]
    return [*command, "--workers", str(workers), "--batch-tokens", str(size)]


def print_speeds(
    seconds: dict[Configuration, list[float]],
    texts: dict[Configuration, list[str]],
    sizes: dict[Configuration, int],
    lines: int,
) -> None:
    """Print the table of speeds; ratios are to the fastest of CTranslate2 in fp32 at each beam."""
    print("| beam | engine | processes | workers | batch tokens | sentences/s | ratio | same |")
    print("|---:|---|---:|---:|---:|---:|---:|---:|")
    speeds = {one: lines / statistics.median(durations) for one, durations in seconds.items()}
    for one, speed in sorted(speeds.items(), key=lambda item: (-item[0][0], item[0][1:])):
        beam, engine, processes, workers = one
        baseline = [s for other, s in speeds.items() if other[:2] == (beam, BASELINE)]
        ratio = f"{speed / max(baseline):.2f}" if baseline else "-"
        ours = next(texts[other] for other in texts if other[:2] == (beam, OURS))
        same = statistics.mean(a == b for a, b in zip(texts[one], ours, strict=True))
        size = sizes.get(one, "-")
        print(
            f"| {beam} | {engine} | {processes} | {workers} | {size} | {speed:.1f} | {ratio} "
            f"| {same:.1%} |"
        )


def main() -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    p.add_argument("run")
    p.add_argument("--input", required=True)
    p.add_argument("--beam", type=int, nargs="+", default=[5, 1])
    p.add_argument("--lines", type=int, default=1000)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument(
        "--engines",
        nargs="+",
        choices=[*NATIVE, *TOOLKITS],
        default=[OURS, BASELINE],
    )
    p.add_argument("--workers", type=int, nargs="+", default=[all_cores()])
    p.add_argument("--batch-tokens", type=int, nargs="+", default=BATCH_TOKENS)
    p.add_argument("--single", type=int, default=0, metavar="N")
    p.add_argument("--serve", help=argparse.SUPPRESS)
    p.add_argument("--part", type=int, nargs=2, default=[0, 1], help=argparse.SUPPRESS)
    args = p.parse_args()
    source = list(itertools.islice(read_lines(Path(args.input)), args.lines))
    if args.serve:
        part, parts = args.part
        lines = source[part::parts]
        serve(args.serve, args.run, lines, args.beam[0], args.workers[0], args.batch_tokens[0])
        return
    cores = os.cpu_count() or 1
    configurations: list[Configuration] = []
    skipped: dict[str, str] = {}
    for beam, engine in itertools.product(args.beam, dict.fromkeys([OURS, *args.engines])):
        if engine == TORCH_BF16 and (note := emulation_note("bf16", resolve_device("cpu"))):
            skipped[engine] = note
        elif engine in NATIVE:
            configurations += [(beam, engine, 1, workers) for workers in args.workers]
        else:
            configurations += [(beam, engine, count, 1) for count in sorted({1, cores})]
    sizes: dict[Configuration, int] = {}
    seconds: dict[Configuration, list[float]] = {}
    texts: dict[Configuration, list[str]] = {}
    single: dict[tuple[int, str], list[float]] = {}

    def run(one: Configuration, size: int) -> tuple[float, list[str]]:
        """Return seconds and output; of an engine that fails, infinity and nothing."""
        if one[1] not in skipped:
            try:
                return measure(command_of(args, one, size), one[2])
            except UserError as error:
                skipped[one[1]] = str(error)
        return math.inf, []

    native = [one for one in configurations if one[1] in NATIVE]
    for one in tqdm(native, desc="batch sizes", disable=None):
        sizes[one] = min(args.batch_tokens, key=lambda size, one=one: run(one, size)[0])
    for one in tqdm(configurations * args.rounds, desc="speeds", disable=None):
        duration, found = run(one, sizes.get(one, 1))
        if found:
            texts[one] = found
            seconds.setdefault(one, []).append(duration)
    alone = [one for one in native if one[3] == args.workers[0]] if args.single else []
    for beam, engine, *_ in tqdm(alone * args.rounds, desc="one at a time", disable=None):
        times = run((beam, engine, 1, 1), 0)[1]
        single.setdefault((beam, engine), []).extend(map(float, times))
    print(f"{machine()}; {len(source)} lines, {args.rounds} rounds")
    print_speeds(seconds, texts, sizes, len(source))
    if single:
        print("| beam | engine | median ms of one sentence | mean |")
        print("|---:|---|---:|---:|")
    for (beam, engine), times in single.items():
        if times:
            middle, mean = statistics.median(times) * 1e3, statistics.mean(times) * 1e3
            print(f"| {beam} | {engine} | {middle:.1f} | {mean:.1f} |")
    for engine, why in skipped.items():
        print(f"{engine} is skipped: {why}")


def machine() -> str:
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    model = re.search(r"model name\s*: (.*)", text)
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("torch", "ctranslate2")]
    name = model[1] if model else platform.processor()
    return f"{name}, {os.cpu_count()} cores, nmt {nmt.__version__}, {', '.join(versions)}"


if __name__ == "__main__":
    main()
