"""A run that tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmt.cli import train
from tests.toy import toy_corpus, toy_recipe

LONGEST = 4  # digits in a line, at most


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learned its task: with other seeds, 99 % of new lines are correct."""
    folder = tmp_path_factory.mktemp("trained")
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
    return folder / "run"
