"""Train and use translation models for low-resource languages.

Public names: ``train``, ``TrainingResult``, ``Translator``, ``load_recipe``,
``Transformer``, ``model_config`` and ``Recipe``; docs/python-api.md has examples. A name is
imported when it is first used. So importing the package is fast, and the commands can configure the
allocator before torch is imported.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt.version import __version__ as __version__

if TYPE_CHECKING:
    from nmt.config.load import load_recipe as load_recipe
    from nmt.config.model import model_config as model_config
    from nmt.config.recipe import Recipe as Recipe
    from nmt.decoding.translator import Translator as Translator
    from nmt.model.transformer import Transformer as Transformer
    from nmt.session import TrainingResult as TrainingResult
    from nmt.training.progress import Validation

_MODULES = {
    "Recipe": "nmt.config.recipe",
    "load_recipe": "nmt.config.load",
    "model_config": "nmt.config.model",
    "Transformer": "nmt.model.transformer",
    "Translator": "nmt.decoding.translator",
    "TrainingResult": "nmt.session",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'nmt' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_MODULES]


def train(
    recipe: str | Path | Mapping[str, Any] | Recipe,
    overrides: Sequence[str] = (),
    *,
    variant: str | None = None,
    resume: bool = False,
    fresh: bool = False,
    on_validation: Callable[[Validation], None] = lambda validation: None,
    workers: int = 1,
    quiet: bool = False,
) -> TrainingResult:
    """Train a model as nmt-train does, and return its result.

    Ctrl-C and the notebook's interrupt button save the state and raise KeyboardInterrupt.

    Args:
        recipe: a YAML file, a dictionary with the keys of a recipe, or a recipe from
            ``nmt.load_recipe``. A dictionary must set ``out``, and its paths are relative to the
            working directory.
        overrides: ``key=value``, as on the command line.
        variant: name of a variant, if the file lists variants.
        resume: continue from the newest checkpoint of the run folder.
        fresh: rename an existing run folder to ``NAME.old-1`` and start a new run.
        on_validation: called after each validation, when its checkpoint is saved. If it raises an
            exception, training ends; ``resume=True`` continues it.
        workers: maximum number of processes, on Linux; 1 = nothing is forked.
        quiet: print nothing and draw nothing.

    Returns:
        The result. If ``resume`` finds a finished run, this is its stored result.

    Raises:
        UserError: the recipe, the data or the run folder is wrong.
        RunError: training failed, for example because it diverged.
        MachineError: the device does not exist, or memory or disk space runs out.
        KeyboardInterrupt: Ctrl-C; the state is saved.
        Terminated: SIGTERM or SIGHUP; the state is saved.
    """
    from data_prep.download import obtain_corpus
    from nmt.apps.report.final import write_final_report, write_missing_report
    from nmt.config.load import as_recipe
    from nmt.runtime.cpus import limit_processes
    from nmt.runtime.memory import keep_freed_memory
    from nmt.session import Training, TrainingResult, open_run

    resolved = as_recipe(recipe, overrides, variant)
    keep_freed_memory()
    with limit_processes(workers):
        obtain_corpus(resolved)
        run = open_run(resolved, resume=resume, fresh=fresh)
        if run.finished:
            write_missing_report(run, quiet)
            return TrainingResult.read(resolved.out)
        return Training(run, quiet=quiet).run(write_final_report, on_validation)
