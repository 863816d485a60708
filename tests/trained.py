"""Runs that all tests share: the first worker process that asks for one trains it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

from nmt.cli import export, train
from tests.toy import toy_corpus, toy_recipe

LONGEST = 4  # digits in a line of ``trained``, at most


def once(factory: pytest.TempPathFactory, name: str, fill: Callable[[Path], object]) -> Path:
    """Return a folder that ``fill`` fills once for all worker processes; tests only read it."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    complete = folder / "complete"
    with FileLock(f"{folder}.lock"):
        if not complete.exists():
            folder.mkdir()
            fill(folder)
            complete.touch()
    return folder


def train_accurate(folder: Path) -> None:
    toy_corpus(folder, {"train": 1000, "dev": 2, "test": 2}, longest=LONGEST)
    changes = {
        "data": {"batch_tokens": 256},
        "model": {
            "dim": 32, "ffn_dim": 64, "heads": 4, "enc_layers": 2, "dec_layers": 2,
            "dropout": 0.0, "word_dropout": 0.0,
        },
        "optim": {"betas": [0.9, 0.98]},
        "schedule": {"kind": "linear", "lr": 1e-2, "warmup_updates": 30, "total_updates": 200},
        "train": {"validate_every": 200, "max_validations": 1, "log_every": 200},
    }  # fmt: skip
    assert train.main([str(toy_recipe(folder, changes))]) == 0


def train_short(folder: Path) -> None:
    toy_corpus(folder, {"train": 60, "dev": 4, "test": 4})
    keys = {"train": {"validate_every": 4, "max_validations": 3, "keep": 3, "log_every": 4}}
    assert train.main([str(toy_recipe(folder, keys))]) == 0


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learned its task: with other seeds, 99 % of new lines are correct."""
    return once(tmp_path_factory, "trained", train_accurate) / "run"


@pytest.fixture(scope="session")
def short_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 12 updates with the checkpoints of its three validations.

    Its corpus and its recipe, toy.yaml, are in the same folder.
    """
    return once(tmp_path_factory, "short", train_short) / "run"


@pytest.fixture(scope="session")
def short_export(tmp_path_factory: pytest.TempPathFactory, short_run: Path) -> Path:
    """``short_run`` as a model of CTranslate2."""
    pytest.importorskip("ctranslate2")

    def fill(folder: Path) -> None:
        assert export.main([str(short_run), "--output", str(folder / "model")]) == 0

    return once(tmp_path_factory, "export", fill) / "model"
