"""The Slurm script of docs/howto/gpus.md, with a stand-in for Slurm that preempts the job."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from nmt.cli.train import main
from nmt.store.checkpoint import load_checkpoint
from nmt.store.folder import RunFolder
from tests.toy import toy_corpus, toy_recipe

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROGRAMS = {
    "srun": 'echo $$ > step; exec "$@"',
    "scontrol": 'echo "$@" >> requeued',
    "nmt-train": f'exec {sys.executable} -m nmt.cli.train "$@"',
}
KEYS = {"train": {"validate_every": 50, "max_validations": 6, "log_every": 1}}


def write_programs(folder: Path) -> None:
    """Write Slurm's programs and a virtual environment that has nmt-train."""
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name, line in PROGRAMS.items():
        (programs / name).write_text(f"#!/bin/bash\n{line}\n")
        (programs / name).chmod(0o755)
    (programs / "activate").write_text(f"PATH={programs}:$PATH\n")


def run_job(folder: Path, end: str) -> int:
    """Run the job and return its exit code.

    Args:
        end: "job" or "step" = which processes get SIGTERM once it logs new updates; "" = none.
    """
    metrics = folder / "run" / "metrics.jsonl"
    before = len(metrics.read_bytes()) if metrics.exists() else 0
    environment = {**os.environ, "SLURM_JOB_ID": "7", "PYTHONPATH": str(ROOT)}
    with (folder / "job.log").open("a") as log:
        job = subprocess.Popen(
            ["bash", "train.slurm"],
            cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    while end and job.poll() is None:
        if metrics.exists() and len(metrics.read_bytes()) > before + 500:
            if end == "job":
                os.killpg(job.pid, signal.SIGTERM)
            else:
                os.kill(int((folder / "step").read_text()), signal.SIGTERM)
            break
        time.sleep(0.01)
    return job.wait(timeout=240)


def test_a_job_that_is_preempted_ends_like_one_that_is_not(tmp_path):
    page = (ROOT / "docs" / "howto" / "gpus.md").read_text()
    script = next(text for text in re.findall(r"```bash\n(.*?)```", page, re.S) if "srun" in text)
    toy_corpus(tmp_path, {"train": 150, "dev": 8, "test": 8})
    recipe = toy_recipe(tmp_path, KEYS)
    (tmp_path / "train.slurm").write_text(script.replace("gl-en.yaml", str(recipe)))
    write_programs(tmp_path)
    codes = [run_job(tmp_path, end) for end in ("job", "step", "")]
    assert codes == [143, 143, 0], (tmp_path / "job.log").read_text()
    assert (tmp_path / "requeued").read_text().splitlines() == ["requeue 7"] * 2
    assert main([str(recipe), f"out={tmp_path / 'whole'}"]) == 0
    one, two = (load_checkpoint(RunFolder.open(tmp_path / name)) for name in ("run", "whole"))
    assert one.state.update == two.state.update
    assert one.state.history == two.state.history
    for name, tensor in (two.model | two.optimizer).items():
        assert torch.equal((one.model | one.optimizer)[name], tensor), name
