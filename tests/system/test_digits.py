"""Every norm at every place learns to reverse digits, trained and tested by the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nmt.cli import score, train, translate
from tests.toy import lines_of_digits, toy_corpus, toy_recipe, write_pairs
from tests.trained import LONGEST

LEARNING: dict[str, Any] = {
    "data": {"batch_tokens": 512, "test": "none"},
    "model": {
        "dim": 32, "ffn_dim": 64, "heads": 4, "enc_layers": 1, "dec_layers": 1,
        "dropout": 0.0, "word_dropout": 0.0,
    },
    "optim": {"label_smoothing": 0.0},
    "schedule": {"kind": "linear", "lr": 0.01, "warmup_updates": 40, "total_updates": 600},
    "train": {"validate_every": 600, "log_every": 100},
}  # fmt: skip
NORMFORMER = ["model.normformer=true", "model.res_scale=ffn", "model.activation=geglu"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    """Return a folder with a corpus; ``test`` is 200 lines that training never reads."""
    folder = tmp_path_factory.mktemp("digits")
    toy_corpus(folder, {"train": 2000, "dev": 20, "test": 200}, longest=5)
    toy_recipe(folder, LEARNING)
    return folder


def correct(run: Path, prefix: Path, out: Path) -> float:
    """Return the share of PREFIX.gl that a run translates into the lines of PREFIX.en."""
    assert translate.main([str(run), "--input", f"{prefix}.gl", "--output", str(out)]) == 0
    translations = out.read_text(encoding="utf-8").splitlines()
    references = Path(f"{prefix}.en").read_text(encoding="utf-8").splitlines()
    return sum(a == b for a, b in zip(translations, references, strict=True)) / len(references)


def exact_matches(corpus: Path, work: Path, overrides: list[str]) -> float:
    """Train a model and return the share of held-out lines that it translates exactly."""
    run = work / "run"
    assert train.main([str(corpus / "toy.yaml"), f"out={run}", *overrides]) == 0
    return correct(run, corpus / "test", work / "test.out")


def test_the_shared_run_reverses_lines(trained, tmp_path):
    """Nine of ten lines are new to it."""
    write_pairs(tmp_path / "other", lines_of_digits(100, seed=7, longest=LONGEST))
    assert correct(trained, tmp_path / "other", tmp_path / "out") >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm", "scalenorm"])
@pytest.mark.parametrize("place", ["pre", "post"])
def test_reversal_is_learned(norm, place, corpus, tmp_path):
    overrides = [f"model.norm={norm}", f"model.norm_place={place}"]
    assert exact_matches(corpus, tmp_path, overrides) >= 0.98


@pytest.mark.slow
def test_reversal_is_learned_by_a_normformer(corpus, tmp_path, capsys):
    assert exact_matches(corpus, tmp_path, NORMFORMER) >= 0.98
    capsys.readouterr()
    files = ["--hyp", str(tmp_path / "test.out"), "--ref", str(corpus / "test.en")]
    assert score.main([*files, "--metrics", "bleu", "--resamples", "0"]) == 0
    name, value = capsys.readouterr().out.splitlines()[-1].split("\t")[1:3]
    assert (name, float(value) > 95) == ("bleu", True)
