"""The benchmarks run at toy size, and their contenders compute the same model."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import torch

from benchmarks import (
    foreign_tokenizers,
    gpu_training,
    public,
    time_to_quality,
)
from benchmarks.eager_loop import EagerLoop, baseline_recipe, random_batches
from benchmarks.flops import flops_per_token, peak_flops
from benchmarks.training.contenders import Torch, model_section
from benchmarks.training.peers import PEERS
from benchmarks.training.workload import Pair, Size, Workload
from nmt.config.load import load_recipe
from nmt.config.model import model_config
from nmt.data.batches import collate
from nmt.data.prepare import prepare
from nmt.model.transformer import Transformer
from tests.toy import lines_of_digits, reverse, toy_corpus, toy_recipe

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    toy_corpus(tmp_path, {"train": 60, "dev": 4, "test": 4})
    return str(toy_recipe(tmp_path))


# ---------------------------------------------------------------- benchmarks.gpu_training, .scale


def test_contenders_on_a_gpu_have_equal_losses_and_a_row_each(recipe, capsys):
    gpu_training.main([recipe, "--batch-tokens", "64", "128", "--updates", "2", "--rounds", "1"])
    out, err = capsys.readouterr()
    assert "eager loop: warming up" in err
    rows = [line for line in out.splitlines() if re.match(r"\| \d", line)]
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]
    names = ["eager loop", "ours", "ours, as in the recipe"]
    names += ["Hugging Face"] if find_spec("transformers") else []
    assert [row[:2] for row in cells] == [[size, n] for size in ("64", "128") for n in names]
    assert all(float(row[2].replace(",", "")) > 0 for row in cells)
    assert {row[3] for row in cells if row[1] == "eager loop"} == {"1.00"}


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_scale_prints_a_row_and_removes_its_files(tmp_path):
    argv = [sys.executable, "-m", "benchmarks.scale", "--pairs", "2000", "--dir", str(tmp_path)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
    head, rule, row = done.stdout.splitlines()
    assert len(head.split("|")) == len(rule.split("|")) == len(row.split("|"))
    assert float(row.split("|")[1].replace(",", "")) == 2000
    assert list(tmp_path.iterdir()) == []


def test_a_sentencepiece_model_of_others_gives_their_pieces_and_text(tmp_path):
    lines = [f"bread {number} \u00e9t\u00e9" for number in range(50)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(tmp_path / "m"), vocab_size=30,
        hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    model = tmp_path / "m.model"
    assert foreign_tokenizers.compare(model, lines) == (50, 50)
    assert foreign_tokenizers.compare(model, ["bread \u2581 1"]) == (0, 0)


# ---------------------------------------------------------------- benchmarks.time_to_quality


def rows(out: str) -> dict[str, list[str]]:
    cells = [[c.strip() for c in line.split("|")[1:-1]] for line in out.splitlines()]
    return {row[0]: row[1:] for row in cells if row and re.match(r"(> )?\d", row[1])}


def test_every_contender_trains_until_the_score(recipe, capsys):
    time_to_quality.main([recipe, "train.validate_every=2", "--until", "0"])
    found = rows(capsys.readouterr().out)
    assert list(found) == ["ours", "nn.Transformer", "nn.Transformer, random batches"]
    for seconds, updates, speed, dev, test in found.values():
        assert float(seconds) >= 0
        assert updates == "2"
        assert float(speed.replace(",", "")) > 0
        assert float(dev) >= 0
        assert test.startswith("bleu ")


def test_without_reaching_the_score_a_contender_ends_at_the_recipe_s_limit(recipe, capsys):
    time_to_quality.main(
        [recipe, "train.validate_every=2", "train.max_validations=2", "--until", "101"]
    )
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


# ---------------------------------------------------------------- benchmarks.training

TYPES = 60


@pytest.fixture
def workload() -> Workload:
    rng = np.random.default_rng(0)

    def sentence() -> list[int]:
        return rng.integers(4, TYPES, rng.integers(3, 9)).tolist()

    batch: list[Pair] = [(sentence(), sentence()) for _ in range(5)]
    return Workload(Size(32, 64, 4, 2), TYPES, [], [batch], [batch])


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", PEERS)
def test_a_peer_has_the_baseline_s_loss_and_learns(name, precision, workload):
    try:
        peer = PEERS[name](workload, precision)
    except ImportError as e:
        pytest.skip(str(e))
    before = peer.loss(0)
    baseline = Torch(workload, random_order=False, precision=precision).loss(0)
    # with 60 types it matters over how many of them a toolkit spreads the smoothing
    assert before == pytest.approx(baseline, rel=1e-3 if precision == "fp32" else 1e-2)
    for _ in range(20):
        peer.update(0)
    assert peer.loss(0) < before - 0.1


def test_a_missing_toolkit_is_reported(workload, tmp_path: Path):
    absent = [name for name, peer in PEERS.items() if not can_build(peer, workload)]
    if not absent:
        pytest.skip("all are installed")
    workload.save(tmp_path / "workload.json")
    command = ["-m", "benchmarks.training.worker", f"{absent[0]} fp32", tmp_path / "workload.json"]
    out = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True)
    assert "No module named" in out.stdout or "cannot import" in out.stdout


def can_build(peer, workload: Workload) -> bool:
    try:
        peer(workload, "fp32")
    except ImportError:
        return False
    return True


def test_flops_of_a_token_by_hand():
    """One sentence of 3 + EOS on both sides, counted by hand."""
    d, f, types, n = 32, 64, TYPES, 4
    weights = n * (4 * d * d + 2 * d * f) + n * (8 * d * d + 2 * d * f)  # cross k, v: source tokens
    attention = 2 * d * n * n + 2 * d * (n * n / 2 + n * n)
    by_hand = 6 * (2 * (weights + attention) + n * types * d) / n  # two layers of each
    lengths = np.array([n - 1])
    config = model_section(Size(d, f, 4, 2))
    assert flops_per_token(config, types, lengths, lengths) == pytest.approx(by_hand)


def test_the_peak_is_a_plausible_speed():
    assert peak_flops(torch.float32, torch.device("cpu"), width=64) > 1e6


# ---------------------------------------------------------------- benchmarks.public


def test_a_task_trains_translates_and_compares_with_public_systems(tmp_path, monkeypatch, capsys):
    lines = lines_of_digits(30, seed=2)
    translated = list(map(reverse, lines))
    systems = {"gl": lines, "en": translated, "google.en": translated}
    texts = {
        **{f"flores-systems/gl-en.{name}": text for name, text in systems.items()},
        **{f"flores-systems/gl-en.{name}.en": lines for name in ("nllb", "opusmt")},
        **{source: lines for files in public.GL.values() for source in files.values()},
    }
    for name, text in texts.items():
        path = tmp_path / "sources" / f"{name}.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(path, "wt") as file:
            file.writelines(f"{line}\n" for line in text)
    monkeypatch.setattr(public, "ROOT", tmp_path / "public")
    monkeypatch.setattr(public, "RUNS", tmp_path / "runs")
    toy_corpus(tmp_path, {"train": 60, "dev": 4, "test": 4})
    recipe = toy_recipe(tmp_path)
    public.main(["gl-en", "--data", str(tmp_path / "sources"), "--recipe", str(recipe)])
    *_, row = capsys.readouterr().out.splitlines()
    test_set, count, ours, *others = (cell.strip() for cell in row.split("|")[1:-1])
    assert (test_set, count) == ("gl-en, FLORES", "30")
    assert re.match(r"\d+\.\d\d \[\d+\.\d\d, \d+\.\d\d\]$", ours)
    assert [other.split()[0] for other in others] == ["OPUS-MT", "NLLB", "Google"]
    assert "Google 100.00, -" in others[2]
    assert (tmp_path / "runs" / "gl-en" / "model").is_dir()
    laid_out = tmp_path / "public" / "gl-en" / "es-as-gl"
    assert sorted(path.name for path in laid_out.iterdir()) == ["train.en.gz", "train.gl.gz"]
