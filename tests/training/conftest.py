"""Fixtures that make trainers on a corpus of digits."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from nmt.config.load import load_recipe
from nmt.data.prepare import prepare
from nmt.model.transformer import Transformer
from nmt.runtime.distributed import World
from nmt.store.checkpoint import Checkpoint
from nmt.store.lifecycle import TrainingFolder
from nmt.store.metrics_log import MetricsLog
from nmt.training.cuda_graphs import Capture
from nmt.training.tasks import make_task
from nmt.training.trainer import Trainer
from tests.toy import toy_corpus, toy_recipe


@pytest.fixture(scope="session")
def recipe(tmp_path_factory) -> Path:
    """Return the recipe of a tiny model on 100 pairs."""
    folder = tmp_path_factory.mktemp("digits")
    toy_corpus(folder, {"train": 100, "dev": 6, "test": 6})
    return toy_recipe(folder)


@pytest.fixture
def start(recipe, tmp_path) -> Iterator[Callable[..., Trainer]]:
    """Return a function that makes trainers, each with its own run folder.

    Its arguments are overrides of the recipe, those of ``Trainer``, ``stop_after`` (request a stop
    after this update) and ``capture`` (use CUDA graphs with this capture).
    """
    with contextlib.ExitStack() as stack:

        def make(
            *overrides: str,
            precision: str = "fp32",
            device: str = "cpu",
            checkpoint: Checkpoint | None = None,
            stop_after: int = 10**9,
            observe: Callable[[int, Transformer], None] = lambda update, model: None,
            world: World = World(),  # noqa: B008  it is immutable
            capture: Capture | None = None,
        ) -> Trainer:
            resolved = load_recipe(recipe, [*overrides])
            number = len(list(tmp_path.glob("run*")))
            folder = TrainingFolder(tmp_path / f"run{number}", resolved)
            run = stack.enter_context(folder)
            log = stack.enter_context(MetricsLog(run))
            trainer = Trainer(
                make_task(resolved, prepare(resolved), torch.device(device), precision), run, log,
                lambda: trainer.state.update >= stop_after, checkpoint, observe, world,
            )  # fmt: skip
            if capture is not None:
                trainer.use_cuda_graphs(capture)
            return trainer

        yield make
