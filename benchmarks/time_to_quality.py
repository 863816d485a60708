"""How many seconds of training until the model reaches a dev score?

    python -m benchmarks.time_to_quality RECIPE [key=value ...] --until SCORE [--only NAME ...]

| contender | what it is |
|---|---|
| ours | what nmt-train does with the recipe, including checkpoints |
| nn.Transformer | PreNorm and LayerNorm at the recipe's size, in an eager loop: the same batches, padded; fp32, cross_entropy, the recipe's schedule, always fused Adam |
| nn.Transformer, random batches | the same with sentences in random order |

All validate every ``train.validate_every`` updates with the same search and metric: the loop's
weights are copied into our model. Seconds include validations but not preparation. A contender that
does not reach the score ends at ``time_limit`` or ``train.max_validations``.
"""  # noqa: E501  a row of a table is a line

from __future__ import annotations

import argparse
import functools
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from benchmarks.common import machine
from benchmarks.eager_loop import EagerLoop, baseline_recipe
from nmt.config.load import load_recipe
from nmt.config.model import model_config
from nmt.config.recipe import Recipe
from nmt.data.prepare import EvalSet, Prepared, prepare
from nmt.model.transformer import Transformer
from nmt.runtime.device import resolve_device, resolve_precision
from nmt.runtime.memory import cached_products, limit_onednn_cache
from nmt.store.lifecycle import TrainingFolder
from nmt.store.metrics_log import MetricsLog
from nmt.training.ending import finish
from nmt.training.evaluation import Evaluation
from nmt.training.tasks import make_task
from nmt.training.trainer import Trainer

HEADER = """\
| contender | seconds | updates | target tokens/s | dev | test |
|---|---:|---:|---:|---:|---|"""


@dataclass(frozen=True)
class Outcome:
    """The result of one contender.

    Attributes:
        seconds: of updates and validations.
        updates: optimizer steps.
        tokens: target tokens trained on.
        dev: best score on dev.
        test: the evaluation of the test set, None without one. Ours uses the best weights, the loop
            its last ones, which are the best if the score is reached.
    """

    seconds: float
    updates: int
    tokens: int
    dev: float
    test: Evaluation | None


def ours(recipe: Recipe, prepared: Prepared, until: float) -> Outcome:
    device = resolve_device(recipe.device)
    precision = resolve_precision(recipe.precision, device)

    def reached() -> bool:
        return any(score >= until for _, score in trainer.state.history)

    with TrainingFolder(recipe.out, recipe) as run, MetricsLog(run) as log:
        trainer = Trainer(make_task(recipe, prepared, device, precision), run, log, reached)
        ended = trainer.run()
        state = trainer.state
        seconds, best = state.seconds, max(score for _, score in state.history)
        trainer.stop_requested = lambda: False
        test = finish(trainer, ended or "reached")
    return Outcome(seconds, state.update, state.target_tokens, best, test)


def eager_loop(recipe: Recipe, prepared: Prepared, until: float, random_order: bool) -> Outcome:
    device = resolve_device(recipe.device)
    baseline = baseline_recipe(recipe).model_copy(update={"precision": "fp32"})
    loop = EagerLoop(baseline, prepared, device, random_order)
    twin = Transformer(model_config(baseline.model), len(prepared.vocab)).to(device)
    task = make_task(baseline, prepared, device, "fp32")

    def score(split: EvalSet) -> Evaluation:
        loop.model.copy_to(twin)
        return task.evaluate_set(twin, split, lambda: False, intervals=False)

    history: list[tuple[int, float]] = []
    update = tokens = 0
    begin = time.monotonic()
    with loop.batches, tqdm(unit=" updates", leave=False, disable=None) as bar:
        while not done(recipe, history, time.monotonic() - begin, until):
            update += 1
            tokens += loop.update(recipe.schedule.lr(update, history, recipe.model.dim))
            bar.update()
            if update % recipe.train.validate_every == 0:
                dev = score(prepared.dev[0]).values[recipe.score.select_by]
                history.append((update, dev))
                bar.set_postfix(dev=f"{dev:.2f}")
        seconds = time.monotonic() - begin
    best = max((score for _, score in history), default=0.0)
    test = None if prepared.test is None else score(prepared.test[0])
    return Outcome(seconds, update, tokens, best, test)


def done(
    recipe: Recipe, history: Sequence[tuple[int, float]], seconds: float, until: float
) -> bool:
    """Return whether the loop reached the score or a limit of the recipe."""
    limit = recipe.time_limit
    return (
        bool(history and history[-1][1] >= until)
        or len(history) >= recipe.train.max_validations
        or (limit is not None and seconds > limit * 3600)
    )


CONTENDERS: dict[str, Callable[[Recipe, Prepared, float], Outcome]] = {
    "ours": ours,
    "nn.Transformer": functools.partial(eager_loop, random_order=False),
    "nn.Transformer, random batches": functools.partial(eager_loop, random_order=True),
}


def row(name: str, outcome: Outcome, until: float) -> str:
    """Return a row of the table, with ``>`` before the seconds if the score was not reached."""
    more = "" if outcome.dev >= until else "> "
    test = outcome.test.scores if outcome.test else []
    return (
        f"| {name} | {more}{outcome.seconds:,.1f} | {outcome.updates:,} "
        f"| {outcome.tokens / outcome.seconds:,.0f} | {outcome.dev:.2f} "
        f"| {', '.join(f'{s.name} {s.value:.2f}' for s in test)} |"
    )


def main(argv: Sequence[str] | None = None) -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    p.add_argument("recipe")
    p.add_argument("overrides", nargs="*", metavar="key=value")
    p.add_argument("--until", type=float, metavar="SCORE", required=True, help="dev score to reach")
    p.add_argument("--only", nargs="+", choices=CONTENDERS, metavar="NAME", default=[*CONTENDERS])
    args = p.parse_intermixed_args(argv)
    limit_onednn_cache(cached_products("bf16"))  # the largest that is measured
    with tempfile.TemporaryDirectory() as scratch:
        recipe = load_recipe(args.recipe, [*args.overrides, f"out={scratch}/run"])
        if recipe.optim.accumulate > 1:
            p.error("the eager loop does not accumulate gradients: set optim.accumulate=1")
        prepared = prepare(recipe)
        settings = " ".join([Path(args.recipe).name, *args.overrides])
        print(f"{settings} --until {args.until:g}; {machine()}\n{HEADER}")
        for contender in args.only:
            outcome = CONTENDERS[contender](recipe, prepared, args.until)
            print(row(contender, outcome, args.until), flush=True)


if __name__ == "__main__":
    main()
