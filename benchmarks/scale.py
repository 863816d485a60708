"""How do time and memory of preparation and start-up grow with the corpus?

``python -m benchmarks.scale --pairs 10000 100000 1000000`` prints one row for each size, and with
``--draws`` one for each number of versions with BPE-dropout. It generates pairs of about eight
words with Zipf-distributed frequencies, prepares them as nmt-prepare does, opens the cache as
nmt-train does, and makes the batches of an epoch. Each step runs in its own process, so that its
memory is measured alone.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nmt.config.entries import Direction
from nmt.config.load import recipe_from_text
from nmt.config.recipe import Recipe
from nmt.data.batches import collate, make_batches
from nmt.data.bitext import Bitext, Chunk, read_pairs
from nmt.data.encoded import EncodeChunk, EpochPairs
from nmt.data.prepare import prepare

WORDS = 8  # of a sentence on average
TYPES = 50_000  # distinct words of each language
DRAWN = 2_000_000  # words drawn; a sentence is a range of them
CHUNK = 100_000  # pairs generated at a time
MIB = 2**20
RECIPE = """
src: xx
tgt: yy
out: {folder}/runs/scale
data:
  train: {folder}/train
  dev: {folder}/dev
  tokenized: true
segment: {segment}
"""


def sentences(pairs: int, seed: int) -> Iterator[str]:
    """Yield lines of 4 to 12 words; the word of rank r has a frequency proportional to 1 / r."""
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
    for name, count in (("train", pairs), ("dev", 1000)):
        for seed, lang in enumerate(("xx", "yy")):
            with (folder / f"{name}.{lang}").open("w", encoding="utf-8") as file:
                file.writelines(
                    f"{line}\n" for line in sentences(count, seed + 2 * (name == "dev"))
                )


def process_tree(root: int) -> list[int]:
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
    """Return the proportional set size (Pss) of a process in bytes, 0 if it has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


@dataclass
class Peak:
    """The highest memory seen, in bytes: of one process, and of all together."""

    one: int = 0
    all: int = 0

    def sample(self, pid: int) -> None:
        sizes = [memory(p) for p in process_tree(pid)]
        self.one, self.all = max(self.one, *sizes), max(self.all, sum(sizes))


def run_in_process(
    step: Callable[[Path], dict[str, float]], folder: Path
) -> tuple[dict[str, float], Peak]:
    """Run a step in its own process; return its result and its memory."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(step, folder, sender))
    process.start()
    sender.close()
    peak = Peak()
    while not receiver.poll(0.3):
        peak.sample(process.pid or 0)
    result = receiver.recv()  # EOFError: the step failed and printed its traceback
    process.join()
    return result, peak


def _send(step: Callable[[Path], dict[str, float]], folder: Path, sender: Any) -> None:
    sender.send(step(folder))


def recipe_of(folder: Path) -> Recipe:
    return recipe_from_text((folder / "scale.yaml").read_text(), "scale.yaml")


def prepare_step(folder: Path) -> dict[str, float]:
    """Measure the preparation of text: seconds, and processor seconds."""
    started, used = time.perf_counter(), sum(os.times()[:4])
    prepare(recipe_of(folder), progress=sys.stderr.isatty())
    return {"seconds": time.perf_counter() - started, "cpu": sum(os.times()[:4]) - used}


def start_step(folder: Path) -> dict[str, float]:
    """Measure the start from a prepared cache: to the first batch, and per later batch."""
    started = time.perf_counter()
    recipe = recipe_of(folder)
    train = prepare(recipe, progress=False).train
    opened = time.perf_counter()
    pairs = EpochPairs(train, None, recipe.seed, 0, recipe.data.batch_tokens)
    batches = make_batches(pairs.src_len, pairs.tgt_len, recipe.data.batch_tokens, recipe.seed, 0)
    planned = time.perf_counter()
    collate(pairs, batches[0])
    first = time.perf_counter()
    for rows in batches[1:101]:
        collate(pairs, rows)
    return {
        "open": opened - started,
        "plan": planned - opened,
        "first batch": first - started,
        "ms a batch": (time.perf_counter() - first) * 1000 / len(batches[1:101]),
    }


def encode_step(folder: Path) -> dict[str, float]:
    """Measure pairs per second that one core segments when all words are cached."""
    recipe = recipe_of(folder)
    prepared = prepare(recipe, progress=False)
    sides = (folder / "train.xx", folder / "train.yy")
    corpus = Bitext("scale", sides, Direction(recipe.src, recipe.tgt))
    chunk = Chunk.of(corpus, list(itertools.islice(read_pairs(sides), 10_000)))
    work = EncodeChunk(prepared.segmenter, recipe.data.max_pieces)
    work(chunk)
    started, rounds = time.process_time(), 20
    for _ in range(rounds):
        work(chunk)
    return {"pairs/s": rounds * len(chunk) / (time.process_time() - started)}


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


# name -> format of its numbers
COLUMNS = {
    "pairs": ",",
    "draws": "",
    "text MiB": ",.0f",
    "prepare s": ",.1f",
    "on CPUs s": ",.1f",
    "largest process MiB": ",.0f",
    "all processes MiB": ",.0f",
    "cache MiB": ",.0f",
    "encoded pairs/s a core": ",.0f",
    "open s": ".2f",
    "plan s": ".2f",
    "first batch s": ".2f",
    "start MiB": ",.0f",
    "ms a batch": ".2f",
}


def measure(folder: Path, pairs: int, draws: int) -> list[float]:
    """Return the numbers of the row for a corpus size; 0 draws = no noise."""
    generate(folder, pairs)
    segment = f"{{dropout: 0.1, draws: {draws}}}" if draws else "{}"
    (folder / "scale.yaml").write_text(RECIPE.format(folder=folder, segment=segment))
    text = size(folder) / MIB
    prepared, most = run_in_process(prepare_step, folder)
    started, held = run_in_process(start_step, folder)
    encoded, _ = run_in_process(encode_step, folder)
    cache = size(folder / "runs") / MIB
    return [
        *(pairs, draws, text, prepared["seconds"], prepared["cpu"], most.one / MIB, most.all / MIB),
        *(cache, encoded["pairs/s"], started["open"], started["plan"], started["first batch"]),
        *(held.all / MIB, started["ms a batch"]),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--draws", type=int, nargs="+", default=[0], help="0 = no noise")
    parser.add_argument("--dir", type=Path, help="folder for temporary files, 350 bytes a pair")
    args = parser.parse_args()
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---:" * len(COLUMNS) + "|", flush=True)
    for pairs, draws in itertools.product(args.pairs, args.draws):
        with tempfile.TemporaryDirectory(prefix="scale-", dir=args.dir) as folder:
            numbers = zip(measure(Path(folder), pairs, draws), COLUMNS.values(), strict=True)
            print("| " + " | ".join(format(*number) for number in numbers) + " |", flush=True)


if __name__ == "__main__":
    main()
