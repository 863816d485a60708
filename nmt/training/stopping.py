"""When a run validates and when it ends: functions of the recipe and the state."""

from __future__ import annotations

import math

from nmt.config.recipe import Recipe
from nmt.config.schedules import History, LrRamp
from nmt.runtime.words import quantity
from nmt.store.manifest import TrainState


def learning_rate(recipe: Recipe, state: TrainState) -> float:
    """Return the learning rate of the current update."""
    lr = recipe.schedule.lr(max(1, state.update), state.validations, recipe.model.dim)
    return lr / 2 if state.rolled_back else lr


def last_update(recipe: Recipe) -> int:
    """Return the number of updates that training cannot exceed."""
    most = recipe.train.max_validations * recipe.train.validate_every
    return min(most, getattr(recipe.schedule, "total_updates", most))


def validation_due(recipe: Recipe, state: TrainState) -> bool:
    """Return whether to validate now: every ``validate_every`` updates, and at the last one.

    A run with a parent also validates before its first update.
    """
    update = state.update
    if just_validated(state):
        return False
    if update == 0:
        return recipe.init.parent is not None
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
    if len(state.validations) >= train.max_validations:
        return f"train.max_validations = {train.max_validations}"
    waited = validations_without_gain(state.validations)
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
    schedule, history = recipe.schedule, state.validations
    rates = (schedule.lr(n, history[:i], recipe.model.dim) for i, (n, _) in enumerate(history))
    return max(rates, default=0.0)
