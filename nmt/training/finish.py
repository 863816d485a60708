"""The ends of a training: averaged weights if asked, and the test score of the best; divergence."""

from __future__ import annotations

import contextlib
import math
import platform
from pathlib import Path
from typing import Any

import torch

import nmt
from nmt.run.checkpoint import (
    find_problem,
    latest,
    load_checkpoint,
    read_checkpoint,
    replace_damaged_best,
    save_average,
    shapes_of,
)
from nmt.run.results import write_summary
from nmt.training.trainer import Trainer
from nmt.training.validation import Evaluation


def finish(trainer: Trainer, reason: str) -> Evaluation | None:
    """Choose the final weights, score the test set once with them, write summary.json.

    Args:
        trainer: just ended; its model holds the final weights afterwards.
        reason: why training ended.

    Returns:
        The summary, and the evaluation of the test set if there is one.
    """
    run, state, recipe = trainer.run_folder, trainer.state, trainer.recipe
    replace_damaged_best(run, state, shapes_of(trainer.model.state_dict()), trainer.log.text)
    averaging = recipe.train.average > 1 and state.history
    of_average = _average(trainer) if averaging else None
    best = load_checkpoint(run, "best", with_optimizer=False, note=trainer.log.text)
    trainer.model.load_state_dict(best.model)
    test = None
    if trainer.prepared.test is not None:
        test = trainer.evaluate(trainer.prepared.test, intervals=True)
        test.write(run.test_hyp)
        trainer.log.record({"kind": "test", "update": state.update, **test.record()})
    summary = {
        "status": "stopped" if trainer.out_of_time() else "finished",
        "reason": reason,
        "best": best.path.name,
        "dev": dict(state.history).get(best.state.update) if of_average is None else of_average,
        "select_by": recipe.score.select_by,
        **_effort(trainer),
        "test": None if test is None else [vars(s) for s in test.scores],
    }
    write_summary(run, summary)
    return test


def write_diverged(trainer: Trainer, why: str) -> None:
    """Write summary.json of a training whose loss or gradients are out of all bounds.

    Its checkpoints stay; a resumed run goes on from the newest.
    """
    summary = {"status": "diverged", "reason": why, **_effort(trainer)}
    write_summary(trainer.run_folder, summary)


def _effort(trainer: Trainer) -> dict[str, Any]:
    """What a training took."""
    return {
        "updates": trainer.state.update,
        "hours": trainer.state.seconds / 3600,
        "target_tokens": trainer.state.target_tokens,
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "device": str(trainer.device),
        "processor": processor(trainer.device),
        "precision": trainer.precision,
        "versions": {
            "nmt": nmt.__version__,
            "python": platform.python_version(),
            "torch": str(torch.__version__),
        },
    }


def processor(device: torch.device) -> str:
    """Name the GPU, or the CPU, that a training ran on."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _average(trainer: Trainer) -> float | None:
    """Average the newest checkpoints; they replace the best one if dev does not get worse.

    Returns:
        The dev score of the average if it replaced the best one.
    """
    run, state = trainer.run_folder, trainer.state
    shapes, newest = shapes_of(trainer.model.state_dict()), []
    for path in latest(run, trainer.recipe.train.average):
        if problem := find_problem(path, shapes):
            trainer.log.text(f"left out of the average: {problem.at}: {problem.what}")
        else:
            newest.append(path)
    if len(newest) < 2:
        trainer.log.text("no average: the run has only one checkpoint")
        return None
    path = save_average(run, newest, "avg")
    trainer.model.load_state_dict(read_checkpoint(path, with_optimizer=False).model)
    name = trainer.recipe.score.select_by
    dev = trainer.evaluate(trainer.prepared.dev)
    score = dev.value(name)
    best = dict(state.history).get(state.best_update or 0, -math.inf)
    trainer.write_hypotheses(path.name, dev)
    chosen = score >= best
    if chosen:
        run.set_best(path.name)
    trainer.log.text(
        f"average of {len(newest)} checkpoints: dev {name} {score:.2f} against {best:.2f}; "
        + ("taken" if chosen else "not taken")
    )
    return score if chosen else None
