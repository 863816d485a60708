"""The diffs of docs/extending.md fit the code, and what they add works."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from math import log
from pathlib import Path

import pytest

from tests.toy import toy_corpus, toy_recipe

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def apply(diff: str, root: Path) -> None:
    """Apply a diff: after each @@, removed and context lines are replaced where they stand."""
    header, *hunks = diff.split("@@\n")
    path = root / header.removeprefix("--- ").strip()
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    for hunk in hunks:
        lines = hunk.splitlines(keepends=True)
        before = "".join(line[1:] or "\n" for line in lines if line[0] != "+")
        after = "".join(line[1:] or "\n" for line in lines if line[0] != "-")
        assert not before or text.count(before) == 1, f"{path}: {before}"
        text = text.replace(before, after) if before else after
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def extended(tmp_path, request) -> Path:
    """A copy of the packages with the diffs of one section applied."""
    for package in ("nmt", "data_prep"):
        shutil.copytree(ROOT / package, tmp_path / package)  # with compiled modules
    diffs = re.findall(r"^```diff\n(.*?)^```$", section(request.param), re.M | re.S)
    assert diffs
    for diff in diffs:
        apply(diff, tmp_path)
    return tmp_path


def run(folder: Path, module: str, *arguments: object, stdin: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def train(folder: Path, *overrides: str) -> Path:
    toy_corpus(folder, {"train": 60, "dev": 4, "test": 4})
    short = ("train.validate_every=2", "train.max_validations=1", f"out={folder / 'run'}")
    run(folder, "nmt.cli.train", toy_recipe(folder), *short, *overrides)
    return folder / "run"


@pytest.mark.parametrize("extended", ["A norm"], indirect=True)
def test_a_norm(extended: Path):
    trained = train(extended, "model.norm=dyt", "model.fixnorm=false")
    assert run(extended, "nmt.cli.translate", trained, stdin="a b\n").count("\n") == 1
    code = (
        "import torch; from nmt.model.norms import NORMS; print(NORMS['dyt'](2, 0)(torch.ones(2)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, cwd=extended, text=True
    )
    assert "0.4621" in done.stdout  # tanh(0.5)


ALIBI = """
from math import inf
import torch
from nmt.model.config import ModelConfig
from nmt.model.layout import Layout
from nmt.model.transformer import Transformer

torch.set_grad_enabled(False)
keys = {"dim": 8, "ffn_dim": 8, "heads": 2, "enc_layers": 1, "dec_layers": 2}
keys |= {"dropout": 0.0, "word_dropout": 0.0, "attn_dropout": 1e-9}
plain, model = (Transformer(ModelConfig(**keys, alibi=on), 9).eval() for on in (False, True))
causal = model.decoder.layers[0].self_attn.position_bias(None, 3)
assert causal[0].tolist() == [[0, -inf, -inf], [-1 / 16, 0, -inf], [-1 / 8, -1 / 16, 0]]
both = model.encoder.layers[0].self_attn.position_bias(None, 2)
assert both[1].tolist() == [[0, -1 / 256], [-1 / 256, 0]]

src, tgt = torch.tensor([4, 5, 6, 2, 7, 2]), torch.tensor([1, 4, 5, 8, 1, 7, 6, 3])
pair = src, Layout.of([4, 2]), tgt, Layout.of([4, 4])
logits = model(*pair)
assert not torch.allclose(logits, plain(*pair))
# dropout that drops nothing selects products instead of torch's fused attention
torch.testing.assert_close(model.train()(*pair), logits)
for prepare in (model.eval, lambda: model.prepare_for_inference(torch.float32)):
    prepare()
    state = model.start_decoding(*pair[:2], 1, 4)
    steps = [state.advance(column[:, None]) for column in tgt.view(2, 4).T]
    torch.testing.assert_close(torch.stack(steps, 1).flatten(0, 1), logits, rtol=1e-4, atol=1e-5)
"""


@pytest.mark.parametrize("extended", ["A position bias"], indirect=True)
def test_a_position_bias(extended: Path):
    """The bias is the formula; decoding position by position equals the complete forward pass."""
    (extended / "alibi.py").write_text(ALIBI)
    run(extended, "alibi")
    trained = train(extended, "model.alibi=true")
    assert run(extended, "nmt.cli.translate", trained, stdin="a b\n").count("\n") == 1


Z_LOSS = """
import torch
from nmt.config.recipe import OptimConfig
from nmt.training.loss import objective, token_losses

logits = torch.randn(3, 5, generator=torch.Generator().manual_seed(1)).requires_grad_()
arguments = torch.tensor([1, 2, 3]), torch.ones(5, dtype=torch.bool)
sums, plain = (token_losses(logits, *arguments, OptimConfig(z_loss=z)) for z in (0.5, 0.0))
expected = 0.5 * logits.exp().sum(-1).log().square().sum()
torch.testing.assert_close(objective(sums) - plain["smoothed"], expected)
assert plain.keys() == sums.keys() - {"z_loss"}
parts = objective(sums), objective(plain), expected
whole, *others = (torch.autograd.grad(part, logits)[0] for part in parts)
torch.testing.assert_close(whole, sum(others))
"""


@pytest.mark.parametrize("extended", ["A loss term"], indirect=True)
def test_a_loss_term(extended: Path):
    """The log has the term, also of a run that was stopped between two log lines."""
    (extended / "z_loss.py").write_text(Z_LOSS)
    run(extended, "z_loss")
    trained = train(extended, "optim.z_loss=0.1", "train.log_every=3")
    config = trained / "config.yaml"
    run(extended, "nmt.cli.train", config, "train.max_validations=2", "--resume")
    records = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    line, dev = (next(x for x in records if x["kind"] == kind) for kind in ("train", "dev"))
    assert line["update"] == 3
    assert line["loss"] == pytest.approx(log(line["smoothed_ppl"]) + line["z_loss"])
    assert line["z_loss"] == pytest.approx(dev["z_loss"], rel=0.5)
    assert f"smoothed)  z_loss {line['z_loss']:.3f}  lr" in (trained / "train.log").read_text()


@pytest.mark.parametrize("extended", ["A metric"], indirect=True)
def test_a_metric(extended: Path):
    trained = train(extended, "score.metrics=[bleu, chrf1]")
    first = (trained / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert any("chrf1" in json.loads(line) for line in first)
    report = run(extended, "nmt.cli.score", trained, "--metrics", "chrf1", "--json")
    assert [score["metric"] for score in json.loads(report)["scores"]] == ["chrf1"]


@pytest.mark.parametrize("extended", ["A corpus"], indirect=True)
def test_a_corpus(extended: Path):
    files = extended / "released"
    files.mkdir()
    for split in ("train", "dev", "test"):
        for lang in ("gl", "en"):
            lines = (f"sentence {i} of {split} in {lang}\n" for i in range(20))
            (files / f"{split}.{lang}").write_text("".join(lines), encoding="utf-8")
    command = (
        "--src-lang",
        "gl",
        "--tgt-lang",
        "en",
        "--from",
        files,
        "--output",
        extended / "out",
    )
    run(extended, "nmt.cli.import_corpus", "example", *command)
    assert (extended / "out" / "test.gl").read_text().startswith("sentence 0 of test in gl\n")
    names = run(
        extended, "timeit", "-n1", "-r1", "from data_prep import formats; print(formats.CORPORA)"
    )
    assert "'example'" in names


@pytest.mark.parametrize("extended", ["A search option"], indirect=True)
def test_a_search_option(extended: Path):
    trained = train(extended)

    def lengths(*options: str) -> list[int]:
        options = ("--token-scores", "--max-len-offset", "30", *options)
        found = run(extended, "nmt.cli.translate", trained, *options, stdin="a b\nc\n")
        return [len(json.loads(line)["pieces"]) for line in found.splitlines()]

    shortest = min(lengths())
    assert shortest < 30
    assert min(lengths("--min-len", str(shortest + 1))) == shortest + 1
