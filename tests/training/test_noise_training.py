"""Segmentation noise and data.augment in training: resume, processes, what a model may predict."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, get_args

import numpy as np
import pytest

from nmt.cli.train import main
from nmt.cli.translate import main as translate
from nmt.config.recipe import AugmentKind
from nmt.runtime.distributed import World
from nmt.training.trainer import Trainer
from tests.test_resume import TRAINING, difference, result, stop_and_resume
from tests.toy import toy_recipe, write_pairs

CACHE = {
    "segmenter.json",
    "codes.txt",
    "spm.model",
    "vocab.txt",
    "report.json",
    "train",
    "dev",
    "test",
}
SEGMENTS: dict[str, dict[str, Any]] = {
    "fastbpe": {"kind": "fastbpe", "merges": 30, "dropout": 0.3},
    "unigram": {
        "kind": "sentencepiece",
        "vocab_size": 40,
        "model_type": "unigram",
        "sampling_alpha": 0.2,
    },
}


AUGMENT = dict.fromkeys(get_args(AugmentKind), 0.3)
RECIPES: dict[str, dict[str, Any]] = {
    **{name: {"segment": segment} for name, segment in SEGMENTS.items()},
    "augment": {
        "segment": {"kind": "fastbpe", "merges": 60},
        "data": {**TRAINING["data"], "augment": AUGMENT},
    },
    "both": {
        "segment": {"kind": "sentencepiece", "vocab_size": 400, "dropout": 0.1},
        "data": {**TRAINING["data"], "augment": AUGMENT, "tokenized": False},
    },
}


@pytest.fixture(scope="module", params=RECIPES)
def recipe(request, tmp_path_factory) -> str:
    """Return a recipe for lines of numbers of several digits, which are segmented into pieces."""
    folder, rng = tmp_path_factory.mktemp("numbers"), Random(1)
    for split, size in {"train": 60, "dev": 6, "test": 6}.items():
        lines = (" ".join(str(rng.randint(0, 999)) for _ in range(4)) for _ in range(size))
        write_pairs(folder / split, [f"{line} {split} {i}" for i, line in enumerate(lines)])
    return str(toy_recipe(folder, {**TRAINING, **RECIPES[request.param]}))


@pytest.fixture(scope="module")
def uninterrupted(recipe: str, tmp_path_factory) -> dict[str, Any]:
    run = tmp_path_factory.mktemp("uninterrupted") / "run"
    assert main([recipe, f"out={run}"]) == 0
    found = result(run)
    assert json.loads((run / "checkpoints" / "u000012" / "state.json").read_text())["epoch"] >= 1
    return found


@pytest.mark.slow
@pytest.mark.parametrize("update", [2, 9])  # in the first epoch, and in a later one
def test_a_resumed_run_equals_an_uninterrupted_one(
    update: int, uninterrupted: dict[str, Any], recipe: str, tmp_path: Path, monkeypatch
):
    run = tmp_path / "run"
    found = stop_and_resume(recipe, run, monkeypatch, Trainer, "update", update)
    assert not difference(found, uninterrupted)
    (cache,) = (tmp_path / ".cache").iterdir()
    assert {p.name for p in cache.iterdir()} <= CACHE


@pytest.mark.slow
def test_translation_has_no_noise(recipe: str, tmp_path: Path, capsys, monkeypatch):
    run = tmp_path / "run"
    assert main([recipe, f"out={run}"]) == 0
    (tmp_path / "in").write_text("314 159\n" * 3)
    outputs = []
    for _ in range(2):
        capsys.readouterr()
        assert translate([str(run), "--input", str(tmp_path / "in")]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    assert len(set(outputs[0].splitlines())) == 1


@pytest.mark.slow
def test_each_epoch_has_other_versions_and_all_ranks_see_the_same(start: Callable[..., Trainer]):
    ranks = [start(world=World(rank, 2)) for rank in (0, 1)]
    both = [list(itertools.islice(t.updates(), 8)) for t in ranks]
    assert both[0][-1].epoch >= 1
    assert [u.tokens for u in both[0]] == [u.tokens for u in both[1]]
    for update, other in zip(*both, strict=True):
        planned = [*update.own, *other.own]
        assert sum(p.batch.tokens for p in planned) == update.tokens
        for p in planned:
            task = ranks[0].task
            assert task.tokens(p.epoch, p.batch.rows) == p.batch.tokens
    task, rows = ranks[0].task, np.arange(20)
    first, again, later = (task.make_batch(epoch, rows, pad=False) for epoch in (0, 0, 1))
    assert first.src.tolist() == again.src.tolist() != later.src.tolist()
    cycle = task.make_batch(task.prepared.train.draws, rows, pad=False)
    assert first.src.tolist() == cycle.src.tolist()
    allowed = ranks[0].task.prepared.vocab.types_of("tgt")
    assert allowed[later.tgt_out.numpy()].all()
    limit = ranks[0].recipe.data.batch_tokens
    padded = task.make_batch(1, task.plan(1)[0], pad=True)  # a bucket of the lengths of epoch 1
    assert padded.tgt_out.numel() >= task.tokens(1, padded.rows)
    for epoch in (0, 1):
        pairs = task.pairs_of(epoch)
        longest = np.maximum(pairs.src_len, pairs.tgt_len) + 1
        for batch in task.plan(epoch):
            assert len(batch) * longest[batch].max() <= limit
