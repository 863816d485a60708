"""Search over recipe keys with optuna: one study for each variant, stored in the sweep's folder.

A trial is a run of nmt-train. Its value is the best dev score. A trial that was interrupted stays
open in the study, and the next command continues its run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from filelock import FileLock

from nmt.apps.sweep.plan import (
    Outcome,
    PlannedRun,
    budget_keys,
    budget_overrides,
    file_name,
    planned_run,
)
from nmt.apps.sweep.pool import RunProgress
from nmt.apps.sweep.results import SearchResult, TrialResult
from nmt.apps.sweep.variants import Range, Sweep, Variant, variant_recipe
from nmt.errors import UserError, install_fix
from nmt.run.folder import RunFolder
from nmt.run.results import LOWER_IS_BETTER, read_result

if TYPE_CHECKING:
    import optuna

STORAGE, LOCK = "search.log", "search.lock"  # optuna's journal, and what locks it
STARTUP_TRIALS = 5  # complete trials before one is pruned


class SearchRuns:
    """Trains the trials of a search; a source of runs for a Pool.

    Args:
        sweep: the content of ``file``, with a search.
        out: folder of the sweep.
        overrides: ``key=value`` of each run.
        read_only: leave the folder as it is: only the trials so far are needed.

    Raises:
        UserError: optuna is missing, an override sets a key of the search, or the folder has a
            search with another space or another recipe.
    """

    def __init__(
        self, file: str, sweep: Sweep, out: Path, overrides: Sequence[str], read_only: bool = False
    ) -> None:
        assert sweep.search is not None
        self.file, self.sweep, self.out, self.overrides = file, sweep, out, list(overrides)
        self.plan = sweep.search
        self._read_only = read_only
        self._open: dict[str, optuna.Trial] = {}  # run name -> its trial
        self._check_overrides()
        self.studies = {variant.name: self._study(variant) for variant in sweep.variants}
        self._check_recipe()
        self._unstarted = self._next_trials()

    def ended_trials(self) -> list[TrialResult]:
        """Return the trials that need no training."""
        return [t for t in self.result().trials if t.state != "stopped"]

    def failed_runs(self) -> list[str]:
        """Return the names of the trials whose training failed, in this or in an earlier command.

        If the search of a variant has ended and no trial has a score, all its trials are among
        them: also those that diverged, and those whose values do not fit each other.
        """
        failed = []
        for variant in self.sweep.variants:
            trials = self.studies[variant.name].get_trials(deepcopy=False)
            without = all(trial.state.name in ("PRUNED", "FAIL") for trial in trials)
            no_score = without and len(trials) >= self.plan.trials
            failed += [
                self._folder(variant, trial.number).name
                for trial in trials
                if no_score or trial.user_attrs.get("status") == "failed"
            ]
        return failed

    def next_run(self) -> PlannedRun | None:
        """Return an interrupted trial, or a new one; None if all have been started."""
        for variant, number in self._unstarted:
            trial = self._trial(variant, number)
            try:
                run = self._run(variant, number, trial.params)
            except UserError as error:  # values that do not fit each other
                trial.set_user_attr("reason", error.summary)
                _tell(trial, "FAIL")
            else:
                self._open[run.name] = trial
                return run
        return None

    def should_prune(self, progress: RunProgress) -> bool:
        """Report the dev scores of a trial; return whether new ones are too low."""
        trial = self._open[progress.run.name]
        return _report(trial, progress) and self.plan.prune and trial.should_prune()

    def ended(self, progress: RunProgress, outcome: Outcome) -> None:
        """Store the value of a trial, or why it has none; one that was stopped stays open."""
        run = progress.run
        trial = self._open.pop(run.name)
        _report(trial, progress)
        if outcome.status == "stopped":
            return
        if outcome.reason:
            trial.set_user_attr("reason", outcome.reason)
        trial.set_user_attr("status", outcome.status)
        dev = read_result(run.folder).dev if outcome.status == "finished" else None
        if dev is not None:
            trial.study.tell(trial, dev)
        else:  # a sampler learns from a pruned trial, and ignores a failed one
            _tell(trial, "FAIL" if outcome.status == "failed" else "PRUNED")

    def result(self) -> SearchResult:
        """Return all trials so far."""
        trials = [
            TrialResult(
                variant=variant.name,
                number=trial.number,
                state=_state(trial),
                reason=trial.user_attrs.get("reason", ""),
                folder=str(self._folder(variant, trial.number)),
                keys=dict(trial.params),
                dev=trial.value if trial.state.name == "COMPLETE" else None,
                validations={str(k): v for k, v in trial.intermediate_values.items()},
            )
            for variant, trial in self._trials()
        ]
        metric = self.sweep.variants[0].recipe.score.select_by
        return SearchResult(self.file, metric, list(self.plan.space), self.plan.trials, trials)

    def _check_overrides(self) -> None:
        names = [override.partition("=")[0] for override in self.overrides]
        if both := [key for key in self.plan.space if key in names]:
            raise UserError(
                f"{', '.join(both)} is chosen by the search",
                at="command line",
                fix="remove it from the command or from search.space",
            )
        own = ("seed", "out", *budget_keys(self.sweep.budget))
        if both := [key for key in self.plan.space if key in own]:
            raise UserError(
                f"search.space has {', '.join(both)}, which nmt-sweep or its budget sets",
                at=self.file,
                fix=f"remove {', '.join(both)} from search.space",
            )

    def _check_recipe(self) -> None:
        for variant, trial in self._trials():
            if not RunFolder(self._folder(variant, trial.number)).config_file.is_file():
                continue
            if changes := self._run(variant, trial.number, trial.params).changes()[0]:
                raise UserError(
                    f"the folder has a search with another recipe: {'; '.join(changes)}",
                    at=str(self.out),
                    fix="search in another folder with --output DIR, or undo these changes",
                )

    def _study(self, variant: Variant) -> optuna.Study:
        try:
            import optuna
        except ImportError:
            raise UserError(
                "a search needs the package optuna, which is not installed",
                at=self.file,
                fix=install_fix("sweep"),
            ) from None
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        lower = variant.recipe.score.select_by in LOWER_IS_BETTER
        study = optuna.create_study(
            storage=optuna.storages.JournalStorage(self._journal()),
            study_name=variant.name,
            direction="minimize" if lower else "maximize",
            load_if_exists=True,
            pruner=optuna.pruners.MedianPruner(n_startup_trials=STARTUP_TRIALS),
        )
        space = {
            key: values.model_dump() if isinstance(values, Range) else values
            for key, values in self.plan.space.items()
        }
        before = study.user_attrs.get("space")
        # a search without trials may have another space: its command ended before the first trial
        if before is None or not study.get_trials(deepcopy=False):
            study.set_user_attr("space", space)
        elif json.dumps(before) != json.dumps(space):
            raise UserError(
                "the folder has a search over other keys or values",
                at=str(self.out),
                fix="search in another folder with --output DIR, or restore search.space",
            )
        return study

    def _journal(self) -> Any:
        from optuna.storages.journal import JournalFileBackend

        journal = self.out / STORAGE
        if self._read_only:
            return _JournalCopy(journal)
        self.out.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.out / LOCK)
        with lock:
            if journal.is_file():  # optuna cannot read a line that a full disk or a power cut left
                os.truncate(journal, journal.read_bytes().rfind(b"\n") + 1)
        # optuna's own lock would stay when this process is killed
        return JournalFileBackend(str(journal), cast(Any, lock))

    def _trials(self) -> Iterator[tuple[Variant, optuna.trial.FrozenTrial]]:
        for variant in self.sweep.variants:
            for trial in self.studies[variant.name].get_trials(deepcopy=False):
                yield variant, trial

    def _next_trials(self) -> Iterator[tuple[Variant, int]]:
        """Yield the variant and number of each trial to train, interrupted ones first."""
        for variant, trial in list(self._trials()):
            if not trial.state.is_finished():
                yield variant, trial.number
        for variant in self.sweep.variants:
            known = len(self.studies[variant.name].get_trials(deepcopy=False))
            yield from ((variant, number) for number in range(known, self.plan.trials))

    def _trial(self, variant: Variant, number: int) -> optuna.Trial:
        """Return a new or an interrupted trial with values for each key.

        A trial that a kill interrupted here keeps the values that it has.
        """
        import optuna

        study = self.studies[variant.name]
        # an interrupted search with one run at a time proposes what one without interruption would
        seed = (variant.recipe.seed * 100_003 + number) % 2**32
        study.sampler = optuna.samplers.TPESampler(seed=seed)
        known = study.get_trials(deepcopy=False)
        is_new = number == len(known)
        trial = study.ask() if is_new else optuna.trial.Trial(study, known[number]._trial_id)
        for key, values in self.plan.space.items():
            if not isinstance(values, Range):
                trial.suggest_categorical(key, values)
            elif values.integer:
                trial.suggest_int(key, int(values.low), int(values.high), log=values.log)
            else:
                trial.suggest_float(key, values.low, values.high, log=values.log)
        return trial

    def _run(self, variant: Variant, number: int, values: dict[str, Any]) -> PlannedRun:
        """Return the run of a trial; raise UserError if the values do not fit each other."""
        seed = self.sweep.seeds[0] if self.sweep.seeds else variant.recipe.seed
        changes = [*self.overrides, *(f"{key}={value}" for key, value in values.items())]
        # the batches of the trial decide how many updates have the tokens of the budget
        changes += budget_overrides(self.sweep.budget, variant_recipe(variant, changes))
        return planned_run(self.file, variant, self._folder(variant, number), seed, changes)

    def _folder(self, variant: Variant, number: int) -> Path:
        return self.out / f"{file_name(variant)}.trial-{number}"


class _JournalCopy:
    """A copy of optuna's journal in memory, for optuna's JournalStorage; it may be missing."""

    def __init__(self, journal: Path) -> None:
        content = journal.read_bytes() if journal.is_file() else b""
        complete = content[: content.rfind(b"\n") + 1]
        self._logs: list[dict[str, Any]] = [json.loads(line) for line in complete.splitlines()]

    def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
        return self._logs[log_number_from:]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        self._logs += logs


def _report(trial: optuna.Trial, progress: RunProgress) -> bool:
    """Store the dev scores of a trial; return whether there are new ones."""
    known = trial.study.get_trials(deepcopy=False)[trial.number].intermediate_values
    new = [(update, dev) for update, dev in progress.dev.items() if update not in known]
    for update, dev in new:
        trial.report(dev, update)
    return bool(new)


def _tell(trial: optuna.Trial, state: str) -> None:
    import optuna

    trial.study.tell(trial, state=optuna.trial.TrialState[state])


def _state(trial: optuna.trial.FrozenTrial) -> str:
    if not trial.state.is_finished():
        return "stopped"
    names = {"COMPLETE": "finished", "PRUNED": "pruned", "FAIL": "failed"}
    return str(trial.user_attrs.get("status", names[trial.state.name]))
