"""How fast does nmt-train train on a GPU, with and without CUDA graphs compared with an eager loop?

    python -m benchmarks.gpu_training RECIPE [key=value ...] [--batch-tokens 4096 ...]

All contenders train a model of the recipe's size on the same batches. The losses of those with
equal weights (all but the last two) must be equal before anything is timed. Rounds alternate,
medians are reported, and the GPU is synchronized only at the ends of a round. A row is printed when
its last round has ended; standard error tells what runs, and the speed of each round.

| contender | what it is |
|---|---|
| ours | what nmt-train does: padded buckets, CUDA graphs, nothing read from the GPU |
| ours, without CUDA graphs | the same with graphs: off |
| ours, as in the recipe | the same with the recipe's norm, embeddings and word dropout |
| eager loop | nn.Transformer on padded batches, autocast, fused Adam; reads loss and norm |
| Hugging Face | M2M-100 of this size in the same loop, with its own weights |

tokens/s are target tokens without padding. MFU is defined in flops.py; its peak is measured first.
Start-up is the time of the warm-up minus the time that as many later updates take.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import torch
from tqdm import tqdm

from benchmarks.common import machine, make_trainer, smoothed_loss
from benchmarks.eager_loop import EagerLoop, baseline_recipe, first_batch
from benchmarks.flops import flops_per_token, peak_flops
from benchmarks.hugging_face import HuggingFaceTransformer
from nmt.config.load import load_recipe
from nmt.config.recipe import Recipe
from nmt.data.prepare import Prepared, prepare
from nmt.data.workers import Prefetcher
from nmt.runtime.device import DTYPES, resolve_device, resolve_precision

# contenders whose weights differ from those of the others
RECIPE, HUGGING_FACE = "ours, as in the recipe", "Hugging Face"


class Contender(Protocol):
    """One way to train a model."""

    batches: Prefetcher[Any]

    def loss(self) -> float:
        """Return the smoothed fp32 loss per target token of the first batch, without dropout."""

    def update(self) -> int:
        """Train on the next batch and return its number of target tokens."""


class Ours:
    """``Trainer.update`` on the batches of the trainer's own prefetcher."""

    def __init__(self, recipe: Recipe, prepared: Prepared, device: torch.device) -> None:
        precision = resolve_precision(recipe.precision, device)
        self.trainer = make_trainer(recipe, prepared, device, precision)
        self.prepared = prepared
        self.batches = Prefetcher(self.trainer.updates())
        self.stream = iter(self.batches)

    def loss(self) -> float:
        rows = first_batch(self.trainer.recipe, self.prepared)
        return smoothed_loss(self.trainer, self.prepared, rows)

    def update(self) -> int:
        update = next(self.stream)
        self.trainer.update(update)
        return update.tokens


def contenders(recipe: Recipe, prepared: Prepared, device: torch.device) -> dict[str, Contender]:
    """Return all contenders by name, the baseline of the ratios first.

    Without a GPU there are no CUDA graphs to switch off.
    """
    same = baseline_recipe(recipe)
    found: dict[str, Contender] = {"eager loop": EagerLoop(same, prepared, device)}
    found["ours"] = Ours(same, prepared, device)
    if device.type == "cuda":
        off = same.model_copy(update={"graphs": "off"})
        found["ours, without CUDA graphs"] = Ours(off, prepared, device)
    found[RECIPE] = Ours(recipe, prepared, device)
    if find_spec("transformers"):
        found[HUGGING_FACE] = EagerLoop(same, prepared, device, build=HuggingFaceTransformer)
    return found


def timed(contender: Contender, updates: int, device: torch.device) -> tuple[float, int]:
    """Return seconds and target tokens of some updates, synchronized at both ends."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    wait()
    begin = time.perf_counter()
    tokens = sum(contender.update() for _ in range(updates))
    wait()
    return time.perf_counter() - begin, tokens


def report(text: str) -> None:
    """Print a line of progress above the bar, also if standard error is a file."""
    tqdm.write(text, file=sys.stderr)
    sys.stderr.flush()


def compare(recipe: Recipe, prepared: Prepared, args: argparse.Namespace) -> Iterator[str]:
    """Yield the rows of the table for one batch size."""
    device = resolve_device(recipe.device)
    report("measuring the peak FLOP/s")
    peak = peak_flops(DTYPES[resolve_precision(recipe.precision, device)], device)
    report("building the contenders and comparing their losses")
    by_name = contenders(recipe, prepared, device)
    losses = {n: c.loss() for n, c in by_name.items() if n not in (RECIPE, HUGGING_FACE)}
    if max(losses.values()) > min(losses.values()) * (1 + 1e-4):
        raise SystemExit(f"the contenders do not compute the same model: losses {losses}")
    corpus, types = prepared.train, len(prepared.vocab)
    flops = flops_per_token(recipe.model, types, corpus.src_len, corpus.tgt_len)
    warm, rates, medians = {}, {name: [] for name in by_name}, {}
    turns = [(turn, name) for turn in range(args.rounds + 1) for name in by_name]
    with contextlib.ExitStack() as threads:
        for contender in by_name.values():
            threads.enter_context(contender.batches)
        for turn, name in tqdm(turns, unit=" rounds", leave=False, disable=None):
            if not turn:
                report(f"{name}: warming up, {args.updates} updates")
                warm[name] = timed(by_name[name], args.updates, device)
                continue
            seconds, tokens = timed(by_name[name], args.updates, device)
            rates[name].append(tokens / seconds)
            report(f"{name}: round {turn} of {args.rounds}, {tokens / seconds:,.0f} tokens/s")
            if turn < args.rounds:
                continue
            rate = medians[name] = statistics.median(rates[name])
            start_up = warm[name][0] - warm[name][1] / rate
            yield (
                f"| {recipe.data.batch_tokens:,} | {name} | {rate:,.0f} "
                f"| {rate / medians['eager loop']:.2f} | {rate * flops / peak:.1%} "
                f"| {start_up:.1f} |"
            )


def main(argv: Sequence[str] | None = None) -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    p.add_argument("recipe")
    p.add_argument("overrides", nargs="*", metavar="key=value")
    p.add_argument("--batch-tokens", type=int, nargs="+", default=[4096])
    p.add_argument("--updates", type=int, default=100, help="per round; one round warms up")
    p.add_argument("--rounds", type=int, default=3)
    args = p.parse_intermixed_args(argv)
    overrides = [*args.overrides, f"out={tempfile.mkdtemp()}/run", "train.log_every=1000"]
    print(f"{Path(args.recipe).name} {' '.join(args.overrides)}; {machine()}")
    print("| batch tokens | contender | tokens/s | ratio | MFU | start-up s |")
    print("|---:|---|---:|---:|---:|---:|", flush=True)
    for batch_tokens in args.batch_tokens:
        recipe = load_recipe(args.recipe, [*overrides, f"data.batch_tokens={batch_tokens}"])
        for row in compare(recipe, prepare(recipe), args):
            print(row, flush=True)


if __name__ == "__main__":
    main()
