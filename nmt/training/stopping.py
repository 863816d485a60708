"""When a training validates and when it ends, and how it ends.

The rules are functions of the recipe and the state. At the end, checkpoints may be averaged, the
best checkpoint scores the test set, and summary.json is written.
"""

from __future__ import annotations

import contextlib
import math
import platform
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from nmt.config.recipe import Recipe
from nmt.config.schedules import History, LrRamp
from nmt.data.text import quantity
from nmt.errors import UserError
from nmt.run.checkpoint import (
    checkpoint_name,
    latest,
    load_checkpoint,
    read_checkpoint,
    read_model,
    replace_damaged_best,
    save_average,
    shapes_of,
)
from nmt.run.manifest import TrainState
from nmt.run.results import as_score, format_number, write_summary
from nmt.run.verify import SCORED, require_recipe, scored_hashes
from nmt.runtime.memory import parameter_count
from nmt.training.task import Evaluation, MeanEvaluation
from nmt.version import __version__

if TYPE_CHECKING:
    from nmt.training.trainer import Trainer


def learning_rate(recipe: Recipe, state: TrainState) -> float:
    """Return the learning rate of the current update."""
    return recipe.schedule.lr(max(1, state.update), state.history, recipe.model.dim)


def last_update(recipe: Recipe) -> int:
    """Return the number of updates that training cannot exceed."""
    most = recipe.train.max_validations * recipe.train.validate_every
    return min(most, getattr(recipe.schedule, "total_updates", most))


def validation_due(recipe: Recipe, state: TrainState) -> bool:
    """Return whether to validate now: every ``validate_every`` updates, and at the last one."""
    update = state.update
    if update == 0 or just_validated(state):
        return False
    return update % recipe.train.validate_every == 0 or update == last_update(recipe)


def reason_to_end(recipe: Recipe, state: TrainState) -> str | None:
    """Return why training ends now, or None; see ``reason_to_finish``."""
    limit = recipe.time_limit
    if (reason := reason_to_finish(recipe, state)) or limit is None:
        return reason
    # all starts of the run together
    return f"time_limit of {quantity(limit, 'hour', 'g')}" if state.seconds > limit * 3600 else None


def reason_to_finish(recipe: Recipe, state: TrainState) -> str | None:
    """Return by which rule training is finished, also without a ``time_limit``; None = by none."""
    train, schedule = recipe.train, recipe.schedule
    if schedule.finished(state.update, state.interval.loss_ratio):
        if isinstance(schedule, LrRamp):
            return f"loss over {schedule.stop_loss_ratio:g} times its lowest (stop_loss_ratio)"
        return "all updates done"
    if not just_validated(state):
        return None
    if len(state.history) >= train.max_validations:
        return f"train.max_validations = {train.max_validations}"
    waited = validations_without_gain(state.history)
    if waited >= train.stop_patience:
        return f"no better {recipe.score.select_by} in {quantity(waited, 'validation')}"
    lr = learning_rate(recipe, state)
    # below an earlier rate: the low rate at the start of a warm-up does not end a run
    if lr < train.min_lr and lr < _highest_rate(recipe, state):
        return f"learning rate {lr:.1e} below train.min_lr = {train.min_lr:g}"
    return None


def just_validated(state: TrainState) -> bool:
    """Return whether the last update was validated."""
    return bool(state.history) and state.history[-1][0] == state.update


def validations_without_gain(history: History) -> int:
    """Return the number of validations since the last one that had a new best score.

    An equal score is no gain, although the later of two equal checkpoints is the best one.
    """
    best, waited = math.nan, -1
    for _, score in history:
        gain = score > best or (math.isnan(best) and not math.isnan(score))
        best, waited = (score, 0) if gain else (best, waited + 1)
    return waited


def _highest_rate(recipe: Recipe, state: TrainState) -> float:
    schedule, history = recipe.schedule, state.history
    return max(
        schedule.lr(update, history[:i], recipe.model.dim) for i, (update, _) in enumerate(history)
    )


# --- the end ----------------------------------------------------------------------------------


def finish(trainer: Trainer, reason: str) -> Evaluation | None:
    """Choose the final weights, score the test set once with them, and write summary.json.

    Args:
        trainer: has just ended; its model has the final weights afterwards.

    Raises:
        Stopped: a stop was requested meanwhile; a resumed run finishes again.
    """
    run, state, recipe = trainer.run_folder, trainer.state, trainer.recipe
    finished = reason_to_finish(recipe, state) is not None
    if state.best_update is not None:  # an earlier end may have chosen an average
        run.set_best(checkpoint_name(state.best_update))
    note, shapes = trainer.log.text, shapes_of(trainer.model.state_dict())
    best = replace_damaged_best(run, state, shapes, note)
    averaging = recipe.train.average > 1 and state.history
    average = _average(trainer) if averaging else None
    score: float | None
    if average is not None:  # the model has its weights
        name, score = average
    else:
        if best is None:  # of a run without a validation, the latest
            best = load_checkpoint(run, "best", with_optimizer=False, note=note)
        else:
            require_recipe(run, best.state, best.path)
        trainer.model.load_state_dict(best.model)
        name, score = best.path.name, dict(state.history).get(best.state.update)
    test = None
    if trainer.task.has_test:
        with trainer.progress.ending("scoring test"):
            test = trainer.evaluate("test", intervals=True)
        test.write(run.test_hyp)
        trainer.log.record({"kind": "test", "update": state.update, **test.record()})
    select_by = recipe.score.select_by
    summary = {
        "status": "finished" if finished else "stopped",
        "reason": reason,
        "best": name,
        "dev": score if score is None else as_score(select_by, score),
        "select_by": select_by,
        **_run_record(trainer),
        "test": None if test is None else [vars(s) for s in test.scores],
        SCORED: scored_hashes(run, name),
    }
    if isinstance(test, MeanEvaluation):
        summary["test_sets"] = {n: [vars(s) for s in e.scores] for n, e in test.sets.items()}
    write_summary(run, summary)
    return test


def write_diverged(trainer: Trainer, why: str) -> None:
    """Write summary.json of a training that ended with ``Diverged``; its checkpoints stay."""
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
    """Return the name of the GPU, or of the CPU, that a training ran on."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _average(trainer: Trainer) -> tuple[str, float] | None:
    """Average the newest checkpoints; the average becomes best if its dev score is not lower.

    Returns:
        Name and dev score of the average if it is now the best checkpoint; the model then has its
        weights. Else None.
    """
    run, state = trainer.run_folder, trainer.state
    shapes, newest = shapes_of(trainer.model.state_dict()), []
    for path in latest(run, trainer.recipe.train.average):
        try:
            read_model(path, shapes)
        except UserError as problem:
            trainer.log.text(f"not averaged: {problem.at}: {problem.what}")
        else:
            newest.append(path)
    if len(newest) < 2:
        trainer.log.text("not averaged: at least two intact checkpoints are needed")
        return None
    path = save_average(run, newest, "avg")
    trainer.model.load_state_dict(read_checkpoint(path, with_optimizer=False).model)
    name = trainer.recipe.score.select_by
    with trainer.progress.ending("scoring the average"):
        dev = trainer.evaluate("dev")
    score = as_score(name, dev.value(name))
    best = dict(state.history).get(state.best_update or 0, -math.inf)
    trainer.write_hypotheses(path.name, dev)
    trainer.log.record({"kind": "average", "update": state.update, **dev.record()})
    chosen = score >= best
    if chosen:
        run.set_best(path.name)
    trainer.log.text(
        f"average of {len(newest)} checkpoints: dev {name} {format_number(as_score(name, score))} "
        f"against {format_number(as_score(name, best))}; "
        + ("the average is now the best" if chosen else "the best checkpoint stays")
    )
    return (path.name, score) if chosen else None
