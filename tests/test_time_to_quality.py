"""The benchmark of time to a dev score, with the Trainer and with the eager loop."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from benchmarks.eager_loop import EagerLoop, baseline_recipe, random_batches
from benchmarks.time_to_quality import main
from nmt.config.load import load_recipe
from nmt.config.model import model_config
from nmt.data.batches import collate
from nmt.data.prepare import prepare
from nmt.model.transformer import Transformer
from tests.toy import toy_corpus, toy_recipe

pytestmark = pytest.mark.slow


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    toy_corpus(tmp_path, {"train": 60, "dev": 4, "test": 4})
    return str(toy_recipe(tmp_path))


def rows(out: str) -> dict[str, list[str]]:
    cells = [[c.strip() for c in line.split("|")[1:-1]] for line in out.splitlines()]
    return {row[0]: row[1:] for row in cells if row and re.match(r"(> )?\d", row[1])}


def test_every_contender_trains_until_the_score(recipe, capsys):
    main([recipe, "train.validate_every=2", "--until", "0"])
    found = rows(capsys.readouterr().out)
    assert list(found) == ["ours", "nn.Transformer", "nn.Transformer, random batches"]
    for seconds, updates, speed, dev, test in found.values():
        assert float(seconds) >= 0
        assert updates == "2"
        assert float(speed.replace(",", "")) > 0
        assert float(dev) >= 0
        assert test.startswith("bleu ")


def test_without_reaching_the_score_a_contender_ends_at_the_recipe_s_limit(recipe, capsys):
    main([recipe, "train.validate_every=2", "train.max_validations=2", "--until", "101"])
    found = rows(capsys.readouterr().out)
    assert {(seconds[0], updates) for seconds, updates, *_ in found.values()} == {(">", "4")}


def test_weights_of_the_loop_can_be_copied_into_our_model(recipe, tmp_path):
    baseline = baseline_recipe(load_recipe(recipe, [f"out={tmp_path}/run"]))
    prepared = prepare(baseline, progress=False)
    loop = EagerLoop(baseline, prepared, torch.device("cpu"))
    with loop.batches:
        loop.update(1e-2)
    loop.model.eval()
    twin = Transformer(model_config(baseline.model), len(prepared.vocab)).eval()
    batch = collate(prepared.train, torch.arange(6).numpy())
    src, tgt_in, tgt_out = loop._padded(torch.arange(6).numpy())
    with torch.no_grad():
        theirs = loop.model(src, tgt_in)[tgt_out != 0]
        assert not torch.allclose(twin(*batch.inputs), theirs, atol=1e-2)
        loop.model.copy_to(twin)
        assert torch.allclose(twin(*batch.inputs), theirs, atol=1e-5)


def test_random_batches_hold_every_row_once_within_the_limit(recipe, tmp_path):
    corpus = prepare(load_recipe(recipe, [f"out={tmp_path}/run"]), progress=False).train
    batches = list(random_batches(corpus.src_len, corpus.tgt_len, 40, seed=1, epoch=0))
    assert sorted(row for batch in batches for row in batch) == list(range(len(corpus)))
    longest = [max(corpus.src_len[b].max(), corpus.tgt_len[b].max()) + 1 for b in batches]
    assert all(len(b) * n <= 40 for b, n in zip(batches, longest, strict=True))
