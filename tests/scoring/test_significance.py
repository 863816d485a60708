"""Paired bootstrap: sacreBLEU's numbers, and properties of every significance test."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from nmt.errors import UserError
from nmt.scoring.metrics import paired_bootstrap, score
from nmt.scoring.results import Score
from nmt.scoring.significance import SentenceScorer, paired_tests
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


@pytest.mark.parametrize("metric", ["bleu", "chrf", "chrf++", "ter"])
def test_the_two_sided_p_value_is_that_of_the_resamples(metric):
    """The scores that sacreBLEU computed are recorded in its order, for each system."""
    found = paired_bootstrap(SYSTEMS, REFS, [metric], "en", resamples=100)
    scorer = SentenceScorer(metric, "en")
    counts = {name: [[scorer.statistics(hyps, [REFS])]] for name, hyps in SYSTEMS.items()}
    for name in ("near", "far"):
        tests = paired_tests(scorer.scores, counts["base"], counts[name], 100)
        (entry,) = found[name]
        assert (entry.p_value, entry.p_two_sided) == (tests.bootstrap, tests.two_sided)
        assert entry.significant == (name == "far")


def test_the_same_system_twice_is_not_significant():
    twins = {"a": SYSTEMS["base"], "b": list(SYSTEMS["base"])}
    for metric in ("bleu", "chrf", "tokenized_bleu"):
        (twin,) = paired_bootstrap(twins, REFS, [metric], "en", resamples=100)["b"]
        assert (twin.difference, twin.p_value, twin.p_two_sided) == (0, 1, 1)


def test_a_short_system_is_named():
    with pytest.raises(UserError, match=r"^short: 79 lines, but the reference has 80"):
        paired_bootstrap({"base": REFS, "short": REFS[1:]}, REFS, ["bleu"], "en")


@pytest.mark.parametrize(
    ("p_value", "two_sided", "shown"),
    [
        (0.03, 0.06, "p = 0.030 (two-sided 0.060)"),  # not significant
        (0.01, 0.02, "p = 0.010 (two-sided 0.020) *"),
        (0.001, 0.001, "p = 0.001 *"),
        (None, None, "-"),
    ],
)
def test_a_star_is_for_the_two_sided_p_value(p_value, two_sided, shown):
    assert Score("bleu", 1.0, p_value=p_value, p_two_sided=two_sided).p == shown
