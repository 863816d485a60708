"""The plan of a sweep: one run for each variant and seed, and the state of each."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from nmt.config.load import changed_keys, dump_recipe
from nmt.config.merge import PATHS
from nmt.config.recipe import Recipe
from nmt.config.variants import Budget, Sweep, Variant, variant_recipe
from nmt.errors import UserError
from nmt.store.folder import RunFolder
from nmt.store.parent import with_keys_of_parent
from nmt.store.results import read_summary
from nmt.store.same_run import EXTENDS_RUN, refused_changes

Status: TypeAlias = Literal["finished", "diverged", "failed", "stopped"]
"""How a run ended; stopped = it saved its state and continues when the sweep does."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended, and why if it did not finish."""

    status: Status
    reason: str = ""


@dataclass(frozen=True)
class PlannedRun:
    """A run of a sweep."""

    variant: Variant
    recipe: Recipe  # complete, with seed, budget and run folder
    arguments: list[str]  # of nmt-train, which train the same without a sweep

    @property
    def folder(self) -> Path:
        """The run folder."""
        return Path(self.recipe.out)

    @property
    def name(self) -> str:
        """The name of the run folder."""
        return self.folder.name

    def outcome(self) -> Outcome | None:
        """Read how the run has ended; None if it must be started or continued.

        A run that ended under another recipe must be started: nmt-train then says what differs.
        """
        run = RunFolder(self.folder)
        summary = read_summary(run)
        known = "status" in summary and run.config_file.is_file()
        if not known or run.config_text() != dump_recipe(self.recipe):
            return None
        diverged = summary["status"] == "diverged"
        return Outcome("diverged" if diverged else "finished", str(summary.get("reason", "")))

    def changes(self) -> tuple[list[str], list[str]]:
        """Compare the recipe with that of the existing run: ``key: old -> new`` each.

        Returns:
            The changes that nmt-train refuses or trains longer for, and the paths that changed,
            perhaps of files that have moved.
        """
        run = RunFolder(self.folder)
        if not run.config_file.is_file():
            return [], []
        old, new = self._old_and_new()
        longer, changed = set(EXTENDS_RUN), changed_keys(old, new)
        if read_summary(run).get("status") != "finished":
            longer.add("time_limit")
        lines = {key: f"{key}: {change}" for key, change in changed.items()}
        others = refused_changes(old, new) + [lines[key] for key in lines if key in longer]
        return others, [lines[key] for key in map(".".join, PATHS) if key in lines]

    def refused(self) -> list[str]:
        """List why nmt-train refuses to continue the existing run: ``key: old -> new`` each."""
        run = RunFolder(self.folder)
        if not (run.config_file.is_file() and run.checkpoints()):
            return []
        return refused_changes(*self._old_and_new())

    def _old_and_new(self) -> tuple[Recipe, Recipe]:
        new = self.recipe
        with contextlib.suppress(UserError):  # what contradicts the parent is then a change
            new = with_keys_of_parent(new, resume=True)
        return RunFolder(self.folder).recipe(), new


def planned_run(
    file: str, variant: Variant, folder: Path, seed: int, overrides: Sequence[str]
) -> PlannedRun:
    """Plan a run of a variant; the overrides are those besides seed and run folder."""
    changes = [*overrides, f"seed={seed}", f"out={folder}"]
    arguments = [file, "--variant", variant.name, *changes]
    return PlannedRun(variant, variant_recipe(variant, changes), arguments)


def grid(file: str, sweep: Sweep, out: Path, overrides: Sequence[str]) -> list[PlannedRun]:
    """Plan one run for each variant and seed; the run folders are ``out``/VARIANT.seed-N.

    All runs are in one folder, so that they share the cache of prepared corpora.
    """
    runs = []
    for variant in sweep.variants:
        limits = budget_overrides(sweep.budget, variant.recipe)
        for seed in sweep.seeds or [variant.recipe.seed]:
            folder = out / f"{file_name(variant)}.seed-{seed}"
            runs.append(planned_run(file, variant, folder, seed, [*overrides, *limits]))
    return runs


def file_name(variant: Variant) -> str:
    """Make the name of a variant a part of a file name."""
    return variant.name.replace("/", ".")


def budget_overrides(budget: Budget | None, recipe: Recipe) -> list[str]:
    """Return the overrides ``key=value`` that limit a run to a budget.

    Tokens become updates of full batches. A linear schedule ends after them; any other run ends
    with a validation, so its updates are rounded to whole validations.
    """
    changes: list[str] = []
    if budget is None:
        return changes
    if budget.hours is not None:
        changes.append(f"time_limit={budget.hours:g}")
    if (updates := budget.updates(recipe)) is not None:
        every = recipe.train.validate_every
        if recipe.schedule.kind == "linear":
            changes.append(f"schedule.total_updates={updates}")
            if updates > every * recipe.train.max_validations:
                changes.append(f"train.max_validations={-(-updates // every)}")
        elif updates < every:
            changes += [f"train.validate_every={updates}", "train.max_validations=1"]
        else:
            changes.append(f"train.max_validations={round(updates / every)}")
    return changes


def budget_keys(budget: Budget | None) -> list[str]:
    """List the recipe keys that a budget sets."""
    keys = []
    if budget and budget.hours:
        keys.append("time_limit")
    if budget and budget.tokens:
        keys += ["schedule.total_updates", "train.max_validations", "train.validate_every"]
    return keys


def check_overrides(budget: Budget | None, overrides: Sequence[str]) -> None:
    """Raise UserError if an override sets a key that the sweep or its budget sets for each run."""
    names = [override.partition("=")[0] for override in overrides]
    for key, flag in (("seed", "--seeds N"), ("out", "--output DIR")):
        if key in names:
            raise UserError(f"nmt-sweep sets {key} of each run", at=key, fix=f"use {flag}")
    if both := [key for key in budget_keys(budget) if key in names]:
        raise UserError(
            f"the budget of the sweep sets {', '.join(both)} already",
            at=both[0],
            fix="remove it from the command, or remove the budget",
        )
