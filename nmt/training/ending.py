"""How a run ends: an average, the final weights, the test score, and summary.json."""

from __future__ import annotations

import contextlib
import math
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from nmt.errors import UserError
from nmt.runtime.memory import parameter_count
from nmt.scoring.systems import SCORED, scored_hashes
from nmt.store.checkpoint import (
    Checkpoint,
    average_checkpoints,
    checkpoint_name,
    latest,
    load_checkpoint,
    read_fitting,
    replace_damaged_best,
)
from nmt.store.manifest import TrainState
from nmt.store.results import as_score, format_number, rank, write_summary
from nmt.store.same_run import require_same_config
from nmt.store.tensors import shapes_of
from nmt.training.evaluation import Evaluation
from nmt.training.stopping import reason_to_finish
from nmt.training.trainer import Trainer
from nmt.version import __version__

LOW_BLEU = 10  # below it, one n-gram more or less decides which checkpoint is the best


def finish(trainer: Trainer, reason: str) -> Evaluation | None:
    """Choose the final weights, score the test set once with them, and write summary.json.

    Args:
        trainer: has just ended; its model has the final weights afterwards.

    Raises:
        Stopped: a stop was requested meanwhile; a resumed run finishes again.
    """
    run, state, recipe, note = trainer.run_folder, trainer.state, trainer.recipe, trainer.log.text
    finished = reason_to_finish(recipe, state) is not None
    best = replace_damaged_best(run, state, shapes_of(trainer.model.state_dict()), note)
    if best is not None:
        require_same_config(run, best.state, best.path)
    average = _average(trainer) if recipe.train.average > 1 and state.history else None
    if average is not None:  # the model has its weights
        name, score = average
    else:
        if best is None:  # of a run without a validation, the latest
            best = load_checkpoint(run, note)
        trainer.model.load_state_dict(best.model)
        name, score = best.path.name, dict(state.history).get(best.state.update)
        trainer.publish(name, best.model, score)
    test = None
    if trainer.task.has_test:
        with trainer.progress.ending("scoring test"):
            test = trainer.evaluate("test", intervals=True)
        test.write(run.test_hyp)
        trainer.log.record({"kind": "test", "update": state.update, **test.values})
    select_by = recipe.score.select_by
    notes = [*_notes(trainer, name, score)]
    for line in notes:
        trainer.log.text(f"note: {line}", on_console=False)  # the result of the run has them
    summary = {
        "status": "finished" if finished else "stopped",
        "reason": reason,
        "notes": notes,
        "best": name,
        "dev": score if score is None else as_score(select_by, score),
        "select_by": select_by,
        **_run_record(trainer),
        "test": None if test is None else [s.stored() for s in test.scores],
        SCORED: scored_hashes(run, name),
    }
    if test is not None and test.sets:
        summary["test_sets"] = {n: [s.stored() for s in e.scores] for n, e in test.sets.items()}
    write_summary(run, summary)
    return test


def _notes(trainer: Trainer, name: str, score: float | None) -> Iterator[str]:
    """Yield what a user should know of the model that a run ends with, and what to do about it."""
    state, metric = trainer.state, trainer.recipe.score.select_by
    if name == checkpoint_name(0) and score is not None:
        start = f"update 0 (dev {metric} {format_number(as_score(metric, score))})"
        later = [value for _, value in state.validations if not math.isnan(value)]
        after = "no validation came after it"
        if later:
            best = format_number(as_score(metric, max(later)))
            after = f"the best validation after it has {best}"
        yield (
            f"the run did not improve on its parent: RUN/model is the model at {start}, as "
            f"{after}; try a lower schedule.lr, or more updates"
        )
    if metric in ("bleu", "tokenized_bleu") and score is not None and score < LOW_BLEU:
        yield (
            f"dev {metric} stayed below {LOW_BLEU} ({format_number(score)}), where chrF chooses "
            "better checkpoints: train again with score.select_by=chrf++ out=PATH (chrf, if the "
            "target has no spaces between words)"
        )


def _average(trainer: Trainer) -> tuple[str, float | None] | None:
    """Average the newest checkpoints; the average becomes best if its dev score is not lower.

    Returns:
        Name and dev score of the average if it is now the best checkpoint; the model then has its
        weights. Else None.
    """
    run, state, log = trainer.run_folder, trainer.state, trainer.log
    shapes = shapes_of(trainer.model.state_dict())
    states: list[TrainState] = []

    def intact() -> Iterator[Checkpoint]:
        for path in latest(run, trainer.recipe.train.average):
            try:
                checkpoint = read_fitting(path, shapes)
            except UserError as problem:
                log.text(f"not averaged: {problem.at}: {problem.what}")
            else:
                states.append(checkpoint.state)
                yield checkpoint

    weights = average_checkpoints(intact())
    if len(states) < 2:
        log.text("not averaged: at least two intact checkpoints are needed")
        return None
    trainer.model.load_state_dict(weights)
    path = f"{checkpoint_name(states[-1].update)}-avg{len(states)}"
    name = trainer.recipe.score.select_by
    with trainer.progress.ending("scoring the average"):
        dev = trainer.evaluate("dev")
    score = as_score(name, dev.values[name])
    best = -math.inf if state.best_score is None else state.best_score
    trainer.write_hypotheses(path, dev)
    log.record({"kind": "average", "update": state.update, **dev.values})
    chosen = rank(state.update, score) >= rank(state.best_update or 0, best)
    if chosen:
        trainer.publish(path, weights, score)
    log.text(
        f"average of {len(states)} checkpoints: dev {name} "
        f"{format_number(as_score(name, score))} against {format_number(as_score(name, best))}; "
        + ("the average is now the best" if chosen else "the best checkpoint stays")
    )
    return (path, score) if chosen else None


def write_diverged(trainer: Trainer, why: str) -> None:
    """Write summary.json of a run that ended with ``Diverged``; its checkpoints stay."""
    summary = {"status": "diverged", "reason": why, **_run_record(trainer)}
    write_summary(trainer.run_folder, summary)


def _run_record(trainer: Trainer) -> dict[str, Any]:
    return {
        "updates": trainer.state.update,
        "hours": trainer.state.seconds / 3600,
        "target_tokens": trainer.state.target_tokens,
        "skipped_updates": int(trainer.skipped_updates),
        "parameters": parameter_count(trainer.model),
        "device": str(trainer.device),
        "processor": processor(trainer.device),
        "threads": torch.get_num_threads(),
        "processes": trainer.world.size,
        "precision": trainer.precision,
        "versions": {
            "nmt": __version__,
            "commit": source_commit(),
            "python": platform.python_version(),
            "torch": str(torch.__version__),
        },
    }


def source_commit(package: Path = Path(__file__).parents[1]) -> str | None:
    """Return the git commit of the toolkit's source, with ``-dirty`` after local changes.

    None if the package is not part of a git checkout of its own, or git is not installed.
    """
    if not (package.parent / ".git").exists():
        return None
    command = ["git", "-C", str(package.parent), "describe", "--always", "--abbrev=40"]
    command += ["--exclude=*", "--dirty"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
        return done.stdout.strip()
    return None


def processor(device: torch.device) -> str:
    """Return the name of the GPU, or of the CPU, that a run used."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
