"""How preparation and planning grow with the corpus: synthetic pairs, one row of figures a size.

``python -m benchmarks.scale --pairs 10000 100000 1000000`` generates pairs of some eight words that
are drawn as words are in text (Zipf), prepares them as nmt-prepare does, starts again from the
cache as nmt-train does, and plans epochs. Each step runs in a process of its own, so that its
memory is its own.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from nmt.config.load import recipe_from_text
from nmt.config.recipe import Recipe
from nmt.data.batches import collate, make_batches
from nmt.data.bitext import read_pairs
from nmt.data.encoding import EncodeChunk
from nmt.data.prepare import prepare

WORDS = 8  # of a sentence, about
TYPES = 50_000  # distinct words of each language
DRAWN = 2_000_000  # words drawn; a sentence is a run of them
CHUNK = 100_000  # pairs generated at a time
RECIPE = """
src: xx
tgt: yy
out: {folder}/runs/scale
data:
  train: {folder}/train
  dev: {folder}/dev
  tokenized: true
"""


def sentences(pairs: int, seed: int) -> Iterator[str]:
    """Lines of 4 to 12 words, the word of rank r drawn about 1/r often."""
    draw = np.random.default_rng(seed)
    letters = np.array(list("aeiouklmnprstvz"))
    words = np.array(
        ["".join(draw.choice(letters, n)) for n in draw.integers(2, 9, TYPES)], dtype=object
    )
    share = np.cumsum(1 / np.arange(1, TYPES + 1))
    text = words[np.searchsorted(share, draw.random(DRAWN) * share[-1])].tolist()
    for first in range(0, pairs, CHUNK):
        count = min(CHUNK, pairs - first)
        starts = draw.integers(0, DRAWN - 2 * WORDS, count)
        ends = starts + draw.integers(WORDS - 4, WORDS + 5, count)
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            yield " ".join(text[start:end])


def generate(folder: Path, pairs: int) -> None:
    """Write {train,dev}.{xx,yy}."""
    for name, count in (("train", pairs), ("dev", 1000)):
        for seed, lang in enumerate(("xx", "yy")):
            with (folder / f"{name}.{lang}").open("w", encoding="utf-8") as file:
                file.writelines(
                    f"{line}\n" for line in sentences(count, seed + 2 * (name == "dev"))
                )


def process_tree(root: int) -> list[int]:
    """A process and all that it started."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            parents[int(folder.name)] = int(fields[1])
    tree = [root]
    for pid in tree:
        tree += [child for child, parent in parents.items() if parent == pid]
    return tree


def memory(pid: int) -> int:
    """Bytes of a process; what it shares with others is divided among them (Pss)."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


@dataclass
class Peak:
    """The most memory that one process, and all together, were seen to have."""

    one: int = 0
    all: int = 0

    def look(self, pid: int) -> None:
        """Look at a process and all that it started."""
        sizes = [memory(p) for p in process_tree(pid)]
        self.one, self.all = max(self.one, *sizes), max(self.all, sum(sizes))


def alone(step: Callable[[Path], dict[str, float]], folder: Path) -> tuple[dict[str, float], Peak]:
    """What a step returns, run in a process of its own, and its memory."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(step, folder, sender))
    process.start()
    sender.close()
    peak = Peak()
    while not receiver.poll(0.3):
        peak.look(process.pid or 0)
    facts = receiver.recv()  # EOFError: the step failed, and has said why
    process.join()
    return facts, peak


def _send(step: Callable[[Path], dict[str, float]], folder: Path, sender: Any) -> None:
    sender.send(step(folder))


def recipe_of(folder: Path) -> Recipe:
    """All defaults of nmt-train; the text counts as tokenized."""
    return recipe_from_text(RECIPE.format(folder=folder), "scale.yaml")


def prepare_step(folder: Path) -> dict[str, float]:
    """From text to the cache."""
    started, used = time.perf_counter(), sum(os.times()[:4])
    prepare(recipe_of(folder), progress=sys.stderr.isatty())
    return {"seconds": time.perf_counter() - started, "cpu": sum(os.times()[:4]) - used}


def start_step(folder: Path) -> dict[str, float]:
    """From the command to the first batch, and what later batches take."""
    started = time.perf_counter()
    recipe = recipe_of(folder)
    train = prepare(recipe, progress=False).train
    opened = time.perf_counter()
    batches = make_batches(train.src_len, train.tgt_len, recipe.data.batch_tokens, recipe.seed, 0)
    planned = time.perf_counter()
    collate(train, batches[0])
    first = time.perf_counter()
    for rows in batches[1:101]:
        collate(train, rows)
    return {
        "open": opened - started,
        "plan": planned - opened,
        "first batch": first - started,
        "ms a batch": (time.perf_counter() - first) * 1000 / len(batches[1:101]),
    }


def encode_step(folder: Path) -> dict[str, float]:
    """Pairs a second that one core turns into pieces, words seen before."""
    recipe = recipe_of(folder)
    prepared = prepare(recipe, progress=False)
    sides = (folder / "train.xx", folder / "train.yy")
    pairs = list(islice(read_pairs(sides), 10_000))
    work = EncodeChunk(
        prepared.segmenter, recipe.src, recipe.tgt, recipe.seed, recipe.data.max_pieces
    )
    work(0, pairs)
    started, rounds = time.process_time(), 20
    for _ in range(rounds):
        work(0, pairs)
    return {"pairs/s": rounds * len(pairs) / (time.process_time() - started)}


def size(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def measure(folder: Path, pairs: int) -> list[str]:
    """The row of a size."""
    generate(folder, pairs)
    text = size(folder)
    prepared, most = alone(prepare_step, folder)
    started, held = alone(start_step, folder)
    encoded, _ = alone(encode_step, folder)
    return [
        f"{pairs:,}",
        f"{text / 2**20:,.0f}",
        f"{prepared['seconds']:,.1f}",
        f"{prepared['cpu']:,.1f}",
        f"{most.one / 2**20:,.0f}",
        f"{most.all / 2**20:,.0f}",
        f"{size(folder / 'runs') / 2**20:,.0f}",
        f"{encoded['pairs/s']:,.0f}",
        f"{started['open']:.2f}",
        f"{started['plan']:.2f}",
        f"{started['first batch']:.2f}",
        f"{held.all / 2**20:,.0f}",
        f"{started['ms a batch']:.2f}",
    ]


HEAD = [
    "pairs",
    "text MiB",
    "prepare s",
    "on CPUs s",
    "largest process MiB",
    "all processes MiB",
    "cache MiB",
    "encoded pairs/s a core",
    "open s",
    "plan s",
    "first batch s",
    "start MiB",
    "ms a batch",
]


def main() -> None:
    """Prints a table row by row."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--dir", type=Path, help="where the texts may lie; 350 bytes a pair")
    args = parser.parse_args()
    print("| " + " | ".join(HEAD) + " |\n" + "|---:" * len(HEAD) + "|", flush=True)
    for pairs in args.pairs:
        with tempfile.TemporaryDirectory(prefix="scale-", dir=args.dir) as folder:
            print("| " + " | ".join(measure(Path(folder), pairs)) + " |", flush=True)


if __name__ == "__main__":
    main()
