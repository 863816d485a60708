"""The benchmark of scale prints a row for each size and removes its files."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.slow
def test_the_benchmark_prints_a_row_and_removes_its_files(tmp_path):
    argv = [sys.executable, "-m", "benchmarks.scale", "--pairs", "2000", "--dir", str(tmp_path)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
    head, rule, row = done.stdout.splitlines()
    assert len(head.split("|")) == len(rule.split("|")) == len(row.split("|"))
    assert float(row.split("|")[1].replace(",", "")) == 2000
    assert list(tmp_path.iterdir()) == []
