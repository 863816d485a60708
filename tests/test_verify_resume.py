"""nmt-train --verify-resume: what it promises of a recipe, and that it leaves nothing behind."""

from __future__ import annotations

import math
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nmt.apps import verify_resume
from nmt.cli.train import main
from nmt.runtime.progress import TerminalBar
from tests.noisy_training import NOISY
from tests.text_toy import text_corpus, text_recipe

ROOT = Path(__file__).parents[1]
SUBWORDS = ["segment.kind=fastbpe", "segment.merges=12", "data.tokenized=false"]


@pytest.fixture(autouse=True)
def scratch(tmp_path, monkeypatch) -> Path:
    """Return the folder where temporary folders are made."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return folder


def files(folder: Path) -> dict[Path, tuple[bytes, int]]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["draws", "causal_lm", "LoRA"])
def test_a_recipe_holds_and_its_folder_is_untouched(
    kind, short_run, tmp_path, scratch, monkeypatch, capsys
):
    user = shutil.copytree(short_run.parent, tmp_path / "user")
    recipe, run = str(user / "toy.yaml"), [f"out={user / 'run'}"]
    changes = {
        "draws": [*SUBWORDS, "segment.dropout=0.2", *run],
        "causal_lm": [],
        "LoRA": [f"init.from={user / 'run'}", "init.vocab=parent", "lora.rank=2"],
    }
    if kind == "causal_lm":
        text_corpus(user / "text")
        recipe = str(text_recipe(user / "text", kind))
    if kind != "draws":  # each place starts a process
        place = "while a checkpoint is written"
        monkeypatch.setattr(verify_resume, "PLACES", {place: verify_resume.PLACES[place]})
    before = files(user)
    code = main([recipe, "--verify-resume", *changes[kind]])
    out, err = capsys.readouterr()
    assert code == 0, err
    assert "  train.validate_every: " in out
    rows = [line for line in out.splitlines() if "bit for bit" in line or "within" in line]
    assert [row.split(" ")[0] for row in rows] == ["killed", "corpus", "2"]
    assert rows[0].startswith(f"killed {4 if kind == 'draws' else 1} time")
    assert all("equal: " in row for row in rows[:2])
    assert files(user) == before
    assert list(scratch.iterdir()) == []


@pytest.mark.slow
def test_what_is_random_is_named(short_run, scratch, monkeypatch, capsys):
    monkeypatch.setattr(verify_resume, "TRAIN", (sys.executable, "-m", "tests.noisy_training"))
    monkeypatch.setattr(verify_resume, "PLACES", {})
    assert main([str(short_run.parent / "toy.yaml"), "--verify-resume"]) == 3
    out, err = capsys.readouterr()
    assert re.search(rf"tensor {re.escape(NOISY)} of u000002", err)
    assert err.count(" differ; first tensor") == 1
    assert out.count("bit for bit") == 2
    assert list(scratch.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_nothing_behind(number, code, short_run, scratch):
    before = files(short_run.parent)
    command = [sys.executable, "-m", "nmt.cli.train", str(short_run.parent / "toy.yaml")]
    with subprocess.Popen([*command, "--verify-resume"], stdout=subprocess.DEVNULL) as process:
        started, children = (
            time.monotonic(),
            Path(f"/proc/{process.pid}/task/{process.pid}/children"),
        )
        while not list(scratch.glob("*/run/checkpoints")):
            assert process.poll() is None
            assert time.monotonic() - started < 120
            time.sleep(0.05)
        child = children.read_text().split()
        process.send_signal(number)
        process.wait(timeout=60)
    assert process.returncode == code
    assert len(child) == 1
    assert not Path("/proc", *child).exists()
    assert list(scratch.iterdir()) == []
    assert files(short_run.parent) == before


@pytest.mark.slow
def test_the_error_of_a_training_is_that_of_the_command(short_run, scratch, capsys):
    recipe = str(short_run.parent / "toy.yaml")
    assert main([recipe, "--verify-resume", "data.max_len=1"]) == 2  # no pair is left
    assert "data.max_len" in capsys.readouterr().err
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("flag", ["--resume", "--fresh", "--dry-run"])
def test_it_takes_no_option_of_a_training(flag, short_run, capsys):
    try:
        code = main([str(short_run.parent / "toy.yaml"), "--verify-resume", flag])
    except SystemExit as end:
        code = end.code
    assert code == 2
    assert flag in capsys.readouterr().err


def test_torchrun_is_refused(short_run, monkeypatch, capsys):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    assert main([str(short_run.parent / "toy.yaml"), "--verify-resume", "seed=2"]) == 2
    assert "toy.yaml seed=2 --verify-resume" in capsys.readouterr().err


@pytest.fixture
def trainings(short_run, tmp_path) -> verify_resume._Trainings:
    """Return trainings of which two have ended: ``run``, and ``other`` with the same files."""
    for name in ("run", "other"):
        shutil.copytree(short_run, tmp_path / name)
    found = verify_resume._Trainings(tmp_path, TerminalBar(show=False))
    found.expected = verify_resume._results(tmp_path / "run")
    return found


@pytest.mark.parametrize(
    ("old", "new", "bitwise", "broken"),
    [
        ("", "", True, ""),
        ('"loss": ', '"loss": 1', True, "metric loss of train 4"),
        ('"loss": ', '"loss": 1', False, "largest difference"),
        ('"epoch": 0', '"epoch": 9', False, ""),
        ('"update": 4', '"update": 5', True, "metric kind of train 4"),
        ('"update": 4', '"update": 5', False, "largest difference inf"),
    ],
)
def test_metrics_are_compared(old, new, bitwise, broken, trainings):
    log = trainings.folder / "other" / "metrics.jsonl"
    log.write_text(log.read_text().replace(old, new) if old else log.read_text())
    trainings.compare("other", "a training", bitwise)
    assert (broken in trainings.broken) if broken else trainings.broken == ""
    assert trainings.rows[0][2].startswith("equal") == (old == "")
    assert not log.exists()


@pytest.mark.parametrize("name", ["dev/u000012.hyp", "checkpoints/u000008"])
def test_files_and_checkpoints_are_compared(name, trainings):
    path = trainings.folder / "other" / name
    shutil.rmtree(path) if path.is_dir() else path.write_text("0\n")
    trainings.compare("other", "a training", bitwise=True)
    assert path.name in trainings.broken


@pytest.mark.parametrize(
    ("a", "b", "gap"), [(1.0, 1.0, 0.0), (2.0, 1.0, 0.5), (None, 1.0, math.inf)]
)
def test_the_relative_difference(a, b, gap):
    assert verify_resume._gap(a, b) == gap
    assert verify_resume._gap(b, a) == (gap if a == b or a is None else 1.0)
