"""Paired bootstrap: sacreBLEU's numbers, and properties of every significance test."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from nmt.errors import UserError
from nmt.scoring.metrics import paired_bootstrap, score
from tests.scoring.runs import write_lines
from tests.scoring.texts import hypothesis, reference

REFS = reference(80)
SYSTEMS = {
    "base": hypothesis(REFS, 40),
    "near": hypothesis(REFS, 39, seed=5),
    "far": hypothesis(REFS, 5),
}


@pytest.mark.slow
def test_equals_the_sacrebleu_command(tmp_path):
    for name, lines in {**SYSTEMS, "ref": REFS}.items():
        write_lines(tmp_path / name, lines)
    command = [sys.executable, "-m", "sacrebleu", "ref", "-i", *SYSTEMS, "-m", "bleu", "chrf"]
    command += ["--paired-bs", "-w", "4", "-f", "latex", "--no-color"]
    ran = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, encoding="utf-8")
    lines = [line for line in ran.stdout.splitlines() if re.search(r"± \d+\.", line)]
    rows = [re.findall(r"\d+\.\d+", line) for line in lines]
    found = paired_bootstrap(SYSTEMS, REFS, ["bleu", "chrf"], "en")
    assert len(rows) == len(found) == 3
    for row, entries in zip(rows, found.values(), strict=True):
        values: list[float] = []
        for entry in entries:
            low, high = entry.low, entry.high
            values += [entry.value, (low + high) / 2, (high - low) / 2]
            values += [] if entry.p_value is None else [entry.p_value]
        assert [float(cell) for cell in row] == pytest.approx(values, abs=1e-4)


def test_baseline_first_then_differences_and_p_values():
    found = paired_bootstrap(SYSTEMS, REFS, ["bleu", "chrf"], "en", resamples=200)
    assert list(found) == list(SYSTEMS)
    assert all(entry.p_value is None and entry.difference is None for entry in found["base"])
    for name in ("near", "far"):
        alone = score(SYSTEMS[name], REFS, ["bleu", "chrf"], "en")
        for entry, base, single in zip(found[name], found["base"], alone, strict=True):
            assert entry.value == pytest.approx(single.value)
            assert entry.difference == pytest.approx(entry.value - base.value)
            assert "bs:200" in entry.signature
    assert found["far"][0].p_value == pytest.approx(1 / 201)
    assert found["near"][0].p_value > 0.05


def test_the_same_system_twice_is_not_significant():
    twins = {"a": SYSTEMS["base"], "b": list(SYSTEMS["base"])}
    for metric in ("bleu", "chrf", "tokenized_bleu"):
        (twin,) = paired_bootstrap(twins, REFS, [metric], "en", resamples=100)["b"]
        assert (twin.difference, twin.p_value) == (0, 1)


def test_a_short_system_is_named():
    with pytest.raises(UserError, match=r"^short: 79 lines, but the reference has 80"):
        paired_bootstrap({"base": REFS, "short": REFS[1:]}, REFS, ["bleu"], "en")
