"""A toy corpus; fixtures of the trainer, whose speed is measured for an instant."""

from __future__ import annotations

import pytest

from nmt.cli import suggest as command
from tests.toy import toy_corpus
from tests.training.conftest import recipe, start

__all__ = ["recipe", "start"]


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(command, "SECONDS", 0.0)


@pytest.fixture
def corpus(tmp_path, monkeypatch) -> str:
    """Return the prefix of a toy corpus, relative to the working directory."""
    toy_corpus(tmp_path / "corpus", {"train": 40, "dev": 2, "test": 2})
    monkeypatch.chdir(tmp_path)
    return "corpus/train"
