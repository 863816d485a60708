"""Run one contender in its own process and answer commands from standard input.

The first output line is ``ready``, or why the contender cannot be built. Each input line is a
command, each output line its answer as JSON: ``loss``, ``round``, ``operations``, ``memory``,
``parameters``. Everything that libraries print goes to standard error.
"""

from __future__ import annotations

import functools
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

import nmt.cli  # noqa: F401  the commands' allocator setting
from benchmarks.training.contenders import Contender, Ours, Torch
from benchmarks.training.operations import count_operations
from benchmarks.training.peers import PEERS
from benchmarks.training.workload import Workload, target_tokens
from nmt.config.load import load_recipe
from nmt.config.recipe import Recipe

RECIPE = Path(__file__).with_name("multi30k-en-de.yaml")
SCALENORM = {"norm": "scalenorm", "fixnorm": True}


def make_peer(name: str, precision: str, workload: Workload, recipe: Recipe) -> Contender:
    return PEERS[name](workload, precision)


CONTENDERS: dict[str, Callable[[Workload, Recipe], Contender]] = {
    "ours fp32": lambda w, r: Ours(w, r, "fp32"),
    "ours bf16": lambda w, r: Ours(w, r, "bf16"),
    "ours fp32, ScaleNorm + FixNorm": lambda w, r: Ours(w, r, "fp32", **SCALENORM),
    "ours bf16, ScaleNorm + FixNorm": lambda w, r: Ours(w, r, "bf16", **SCALENORM),
    "nn.Transformer fp32": lambda w, r: Torch(w, random_order=False, precision="fp32"),
    "nn.Transformer bf16": lambda w, r: Torch(w, random_order=False, precision="bf16"),
    "nn.Transformer fp32, random batches": lambda w, r: Torch(
        w, random_order=True, precision="fp32"
    ),
    **{
        f"{name} {precision}": functools.partial(make_peer, name, precision)
        for name in PEERS
        for precision in ("fp32", "bf16")
    },
}


def main(name: str, workload_file: str, *overrides: str) -> None:
    """Answer commands until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    workload = Workload.load(Path(workload_file))
    try:
        contender = CONTENDERS[name](workload, load_recipe(RECIPE, overrides))
    except ImportError as e:
        answers.write(f"{e}\n")
        return
    batches = workload.shuffled if "random" in name else workload.batches
    cuda = torch.cuda.is_available()

    def one_round() -> dict[str, list[float]]:
        seconds = []
        for number in range(len(batches)):
            begin = time.perf_counter()
            contender.update(number)
            if cuda:
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - begin)
        return {
            "tokens_per_second": [
                target_tokens(b) / s for b, s in zip(batches, seconds, strict=True)
            ]
        }

    def memory() -> int:
        """Return the peak memory in bytes: of the GPU if there is one, else of the process."""
        if cuda:
            return torch.cuda.max_memory_allocated()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    commands: dict[str, Callable[[], object]] = {
        "loss": lambda: contender.loss(0),
        "round": one_round,
        "operations": lambda: count_operations(lambda: contender.update(0)),
        "memory": memory,
        "parameters": lambda: sum(
            p.numel() for p in contender.model.parameters() if p.requires_grad
        ),
    }
    answers.write("ready\n")
    for line in sys.stdin:
        answers.write(json.dumps(commands[line.strip()]()) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
