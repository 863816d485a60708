"""The GPU benchmark also runs on a CPU, here at toy size."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.gpu_training import main
from tests.toy import toy_corpus, toy_recipe


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    toy_corpus(tmp_path, {"train": 60, "dev": 4, "test": 4})
    return str(toy_recipe(tmp_path))


@pytest.mark.slow
def test_contenders_have_equal_losses_and_a_row_each(recipe, capsys):
    main([recipe, "--batch-tokens", "64", "128", "--updates", "2", "--rounds", "1"])
    out, err = capsys.readouterr()
    assert "eager loop: warming up" in err
    rows = [line for line in out.splitlines() if re.match(r"\| \d", line)]
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]
    names = ["eager loop", "ours", "ours, as in the recipe"]
    assert [row[:2] for row in cells] == [[size, n] for size in ("64", "128") for n in names]
    assert all(float(row[2].replace(",", "")) > 0 for row in cells)
    assert {row[3] for row in cells if row[1] == "eager loop"} == {"1.00"}
