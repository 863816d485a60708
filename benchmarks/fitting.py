"""Measure memory and speed of fine-tuning at the real size of a public model, with random weights.

Each contender runs in a process of its own, on the same batches, in rounds that alternate::

    python -m benchmarks.fitting                         # OPUS-MT's size, fp32
    python -m benchmarks.fitting --precision bf16 --rounds 5

``trainer`` is Hugging Face's Seq2SeqTrainer with its default optimizer, fused AdamW, on a
MarianMTModel; it needs ``pip install transformers accelerate``. The others are this toolkit. A
trimmed vocabulary has ``--trimmed`` types (``init.trim``).
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import numpy as np
import torch

from nmt.config.model import model_config
from nmt.config.recipe import Recipe
from nmt.data.batches import Batch, collate
from nmt.data.vocab import BOS, EOS, PAD
from nmt.model.transformer import Transformer
from nmt.runtime.memory import keep_freed_memory, parameter_count
from nmt.training.freeze import choose_trained
from nmt.training.optimizer import make_optimizer, take_step
from nmt.training.translation import Translation

OPUS_MT: dict[str, Any] = {
    "dim": 512, "ffn_dim": 2048, "heads": 8, "enc_layers": 6, "dec_layers": 6, "dropout": 0.1,
    "attn_dropout": 0.0, "ffn_dropout": 0.0, "word_dropout": 0.0, "activation": "swish",
    "norm": "layernorm", "norm_place": "post", "fixnorm": False, "logit_mask": False,
}  # fmt: skip
ADAFACTOR = {"optim": {"kind": "adafactor"}}
CONTENDERS: dict[str, dict[str, Any]] = {
    "adamw": {"optim": {"kind": "adamw"}},
    "adafactor": ADAFACTOR,
    "adafactor recompute": {**ADAFACTOR, "train": {"recompute": True}},
    "frozen embeddings": {"optim": {"kind": "adamw"}, "init": {"freeze": ["embed.*"]}},
    "lora 16": {"lora": {"rank": 16}},
    "trimmed adamw": {"optim": {"kind": "adamw"}},
    "trimmed adafactor": ADAFACTOR,
    "trimmed adafactor recompute": {**ADAFACTOR, "train": {"recompute": True}},
}
HUGGING_FACE = ("trainer", "trimmed trainer")
Pair = tuple[np.ndarray, np.ndarray]


class Pairs:
    """Pairs of ids of one batch, as ``collate`` reads a corpus."""

    def __init__(self, pairs: list[Pair]) -> None:
        self.pairs = pairs
        self.src_len, self.tgt_len = (
            np.array([len(pair[side]) for pair in pairs]) for side in (0, 1)
        )

    def src(self, row: int) -> np.ndarray:
        return self.pairs[row][0]

    def tgt(self, row: int) -> np.ndarray:
        return self.pairs[row][1]


def batches(types: int, tokens: int, count: int) -> list[list[Pair]]:
    """Return batches of pairs of similar length, at most ``tokens`` with padding."""
    rng, made = Random(1), []
    for _ in range(count):
        length = rng.randint(12, 40)
        made.append(
            [
                tuple(
                    np.array([rng.randrange(4, types) for _ in range(length - rng.randint(0, 3))])
                    for _ in range(2)
                )
                for _ in range(max(1, tokens // (length + 1)))
            ]
        )
    return made


def ours(keys: dict[str, Any], types: int, precision: str) -> Callable[[list[Pair]], None]:
    """Return a function that takes one update of this toolkit, and print the parameters."""
    init = {"init": {"from": "parent", **keys.get("init", {})}}
    recipe = Recipe.model_validate(
        {"src": "gl", "tgt": "en", "data": {"train": "t", "dev": "d"}, "model": OPUS_MT}
        | {**keys, **init}
    )
    keep_freed_memory()
    model = Transformer(model_config(recipe.model), types)
    choose_trained(model, recipe)
    if recipe.train.recompute:
        model.recompute_activations()
    task = Translation(recipe, None, torch.device("cpu"), precision)  # type: ignore[arg-type]
    optimizer = make_optimizer(recipe.optim, model, precision)
    trained = [p for p in model.parameters() if p.requires_grad]
    print(json.dumps({"parameters": parameter_count(model)}))

    def update(pairs: list[Pair]) -> None:
        batch: Batch = collate(Pairs(pairs), np.arange(len(pairs)))
        model.train()
        optimizer.zero_grad(set_to_none=True)
        (task.loss(model, batch)["smoothed"] / batch.tokens).backward()
        norm = torch.nn.utils.get_total_norm([p.grad for p in trained])
        take_step(optimizer, 1e-5, norm.clamp(min=1.0), ~norm.isfinite())

    return update


def run_ours(name: str, types: int, made: list[list[Pair]], precision: str) -> list[float]:
    update, seconds = ours(CONTENDERS[name], types, precision), []
    for pairs in made:
        start = time.perf_counter()
        update(pairs)
        seconds.append(time.perf_counter() - start)
    return seconds


def run_trainer(types: int, made: list[list[Pair]], precision: str) -> list[float]:
    """Return the seconds of each update of Seq2SeqTrainer."""
    from transformers import (
        MarianConfig,
        MarianMTModel,
        Seq2SeqTrainer,
        Seq2SeqTrainingArguments,
        TrainerCallback,
    )

    size = {
        "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 8,
        "decoder_attention_heads": 8, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048,
    }  # fmt: skip
    model = MarianMTModel(
        MarianConfig(
            vocab_size=types, d_model=512, activation_function="swish", dropout=0.1,
            attention_dropout=0.0, activation_dropout=0.0, scale_embedding=True,
            max_position_embeddings=512, pad_token_id=PAD, eos_token_id=EOS, bos_token_id=BOS,
            decoder_start_token_id=PAD, forced_eos_token_id=None, **size,
        )
    )  # fmt: skip
    print(json.dumps({"parameters": parameter_count(model)}))

    def padded(rows: list[np.ndarray], fill: int) -> torch.Tensor:
        tensors = [torch.tensor([*row, EOS]) for row in rows]
        return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=fill)

    data = []
    for pairs in made:
        src = padded([s for s, _ in pairs], PAD)
        labels = padded([t for _, t in pairs], -100)
        inputs = model.prepare_decoder_input_ids_from_labels(labels)  # as its collator does
        mask = src != PAD
        data.append(
            {
                "input_ids": src,
                "attention_mask": mask,
                "labels": labels,
                "decoder_input_ids": inputs,
            }
        )
    times = []

    class Clock(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.start = time.perf_counter()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            times.append(time.perf_counter() - self.start)

    arguments = Seq2SeqTrainingArguments(
        output_dir=tempfile.mkdtemp(), per_device_train_batch_size=1, max_steps=len(made),
        label_smoothing_factor=0.1, use_cpu=True, bf16=precision == "bf16", report_to="none",
        save_strategy="no", logging_strategy="no", disable_tqdm=True, learning_rate=1e-5,
        remove_unused_columns=False,
    )  # fmt: skip
    trainer = Seq2SeqTrainer(
        model, arguments, train_dataset=data, data_collator=lambda items: items[0],
        callbacks=[Clock()],
    )  # fmt: skip
    trainer.train()
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--types", type=int, default=58_000)
    parser.add_argument("--trimmed", type=int, default=20_000)
    parser.add_argument("--batch-tokens", type=int, default=2048)
    parser.add_argument("--updates", type=int, default=3, help="timed, after one more")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--contenders", nargs="+", default=[*HUGGING_FACE, *CONTENDERS])
    parser.add_argument("--only", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only:
        one_process(args.only, args)
        return
    found: dict[str, list[dict[str, float]]] = {name: [] for name in args.contenders}
    for _, name in itertools.product(range(args.rounds), args.contenders):
        command = [sys.executable, "-m", "benchmarks.fitting", *sys.argv[1:], "--only", name]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{name}: {done.stderr}")
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"')]
        found[name].append({key: value for line in lines for key, value in line.items()})
        print(name, found[name][-1], file=sys.stderr, flush=True)
    print("\n".join(table(found)))


def one_process(name: str, args: argparse.Namespace) -> None:
    """Run a contender, and print its target tokens in a second and its peak memory as JSON."""
    types = args.trimmed if name.startswith("trimmed") else args.types
    made = batches(types, args.batch_tokens, args.updates + 1)
    if name in HUGGING_FACE:
        seconds = run_trainer(types, made, args.precision)
    else:
        seconds = run_ours(name, types, made, args.precision)
    tokens = [sum(len(tgt) + 1 for _, tgt in pairs) for pairs in made]
    speed = statistics.median(n / s for n, s in list(zip(tokens, seconds, strict=True))[1:])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"tokens_per_second": speed, "peak_mb": peak}))


def table(found: dict[str, list[dict[str, float]]]) -> Iterator[str]:
    """Yield the medians as a table, with ratios to Seq2SeqTrainer."""
    medians = {
        name: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        for name, runs in found.items()
    }
    yield "| | parameters | peak MB | target tokens/s | memory | speed |"
    yield "|---|---:|---:|---:|---:|---:|"
    base = medians.get("trainer")
    for name, row in medians.items():
        ratios = "| |"
        if base is not None:
            memory = row["peak_mb"] / base["peak_mb"]
            ratios = f"{memory:.2f} | {row['tokens_per_second'] / base['tokens_per_second']:.2f} |"
        yield (
            f"| {name} | {row['parameters']:,.0f} | {row['peak_mb']:,.0f} | "
            f"{row['tokens_per_second']:,.0f} | {ratios}"
        )


if __name__ == "__main__":
    main()
