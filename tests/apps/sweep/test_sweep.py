"""A sweep through the real commands: stopped in the middle of a run, continued, tabulated."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nmt.cli import train
from tests.text_toy import text_corpus, text_recipe
from tests.toy import toy_corpus, toy_recipe

ROOT = Path(__file__).parents[3]


def start(folder: Path, *argv: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "nmt.cli.sweep", *argv],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(condition, process: subprocess.Popen[str]) -> None:
    while not condition():
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.05)


@pytest.mark.slow
def test_an_interrupted_sweep_gives_the_same_weights(tmp_path):
    toy_corpus(tmp_path, {"train": 60, "dev": 4, "test": 10})
    toy_recipe(tmp_path, {"train": {"validate_every": 30, "max_validations": 4, "log_every": 2}})
    (tmp_path / "v.yaml").write_text(
        "base: toy.yaml\nvariants:\n  post: {about: PostNorm, model: {norm_place: post}}\n"
    )
    run = tmp_path / "runs" / "v" / "post.seed-1"
    process = start(tmp_path, "v.yaml")
    wait_for(lambda: (run / "checkpoints" / "u000030").is_dir(), process)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (143, "")
    assert "post.seed-1: stopped" in err
    assert not (run / "summary.json").exists()
    process = start(tmp_path, "v.yaml")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert json.loads((run / "summary.json").read_text())["status"] == "finished"
    (system,) = json.loads((run.parent / "results.json").read_text())["systems"]
    assert (
        system["score"]["mean"]
        == json.loads((run / "summary.json").read_text())["test"][0]["value"]
    )
    # the same training without a sweep and without a stop
    other = tmp_path / "other"
    argv = [str(tmp_path / "v.yaml"), "--variant", "post", "seed=1", f"out={other}"]
    assert train.main(argv) == 0
    weights = "checkpoints/u000120/model.safetensors"
    assert (other / weights).read_bytes() == (run / weights).read_bytes()


@pytest.mark.slow
def test_a_sweep_and_a_search_of_language_models(tmp_path):
    text_corpus(tmp_path)
    text_recipe(tmp_path, "causal_lm")
    variants = "base: causal_lm.yaml\nvariants:\n  pre: {about: PreNorm}\n"
    post = "  post: {about: PostNorm, model: {norm_place: post}}\nseeds: [1, 2]\n"
    (tmp_path / "v.yaml").write_text(variants + post)
    process = start(tmp_path, "v.yaml", "--jobs", "2")
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert "lower is better" in out
    result = json.loads((tmp_path / "runs" / "v" / "results.json").read_text())
    for system in result["systems"]:
        values = [run["test"]["ppl"] for run in system["runs"]]
        assert system["test"]["mean"] == pytest.approx(sum(values) / 2)
