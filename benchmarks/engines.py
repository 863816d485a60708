"""nmt-translate's own search beside CTranslate2's, on one run: sentences a second, and the ratio.

    python -m benchmarks.engines RUN --input FILE [--beam 5 1] [--lines 1000] [--rounds 3]

Each side has a process of its own for each round and all cores (CTranslate2 one translator a core,
ours a batch a core); sides alternate. Loading, and a warm-up on the first 64 lines, are left out.
"same" is the share of lines that both translate alike: the searches differ in when they stop.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tqdm import tqdm

import nmt.cli  # noqa: F401  the commands' allocator setting
from nmt.data.text import read_lines
from nmt.decoding.translator import Translator
from nmt.export.translator import load_exported

WARM_UP = 64
ENGINES = {"ours": Translator.load, "CTranslate2": load_exported}


def serve(engine: str, run: str, file: str, beam: int, lines: int) -> None:
    """One side, one round: JSON of seconds and translations on standard output."""
    source = list(itertools.islice(read_lines(Path(file)), lines))
    translator = ENGINES[engine](run)
    translator.translate(source[:WARM_UP], beam=beam)
    begin = time.perf_counter()
    texts = translator.translate(source, beam=beam)
    print(json.dumps({"seconds": time.perf_counter() - begin, "texts": texts}))


def main() -> None:
    """Entry point."""
    p = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    p.add_argument("run")
    p.add_argument("--input", required=True)
    p.add_argument("--beam", type=int, nargs="+", default=[5, 1])
    p.add_argument("--lines", type=int, default=1000)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--serve", choices=ENGINES, help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.serve:
        serve(args.serve, args.run, args.input, args.beam[0], args.lines)
        return
    answers: dict[tuple[int, str], list[Any]] = {}
    turns = [(b, e) for _ in range(args.rounds) for b in args.beam for e in ENGINES]
    for beam, engine in tqdm(turns, unit=" runs", disable=None):
        command = [sys.executable, "-m", "benchmarks.engines", args.run, "--input", args.input]
        command += ["--serve", engine, "--beam", str(beam), "--lines", str(args.lines)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        answers.setdefault((beam, engine), []).append(json.loads(done.stdout))
    print("| beam | ours, sentences/s | CTranslate2, sentences/s | ratio | same |")
    print("|---:|---:|---:|---:|---:|")
    for beam in args.beam:
        texts = [answers[beam, engine][0]["texts"] for engine in ENGINES]
        ours, theirs = (
            len(texts[0]) / statistics.median(a["seconds"] for a in answers[beam, engine])
            for engine in ENGINES
        )
        same = statistics.mean(a == b for a, b in zip(*texts, strict=True))
        print(f"| {beam} | {ours:.1f} | {theirs:.1f} | {ours / theirs:.2f} | {same:.1%} |")


if __name__ == "__main__":
    main()
