"""Contenders of the training benchmark compute the same model and learn, where installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.flops import flops_per_token, peak_flops
from benchmarks.training.contenders import Torch, model_section
from benchmarks.training.peers import PEERS
from benchmarks.training.workload import Pair, Size, Workload

pytestmark = pytest.mark.slow

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
