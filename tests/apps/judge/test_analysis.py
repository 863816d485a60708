"""The figures of nmt-judge against published examples and closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nmt.apps.judge.analysis import analyze, krippendorff_alpha, sign_test, z_scores
from nmt.apps.judge.key import Key, Row
from nmt.apps.judge.sheet import Judgement
from nmt.scoring.significance import mean_scores, mean_statistics, paired_tests

# Krippendorff 2011, section E: four observers, twelve units, missing data; alpha of intervals 0.849
OBSERVERS = ["123321412...", "1233224125.3", ".3332342251.", "12332441251."]


def key(lines: int, systems: str = "ab", documents: int = 0) -> Key:
    rows = [
        Row(f"{n}-x", n, f"d{n % documents}" if documents else "", tuple(range(len(systems))))
        for n in range(1, lines + 1)
    ]
    return Key(tuple(systems), "src", tuple(rows))


def judged(sheet: Key, judge: str, values: np.ndarray) -> list[Judgement]:
    texts = ("",) * len(sheet.systems)
    return [
        Judgement(judge, row, tuple(map(float, line)), "", "", texts)
        for row, line in zip(sheet.rows, values, strict=True)
    ]


def test_alpha_is_that_of_the_published_example():
    units = [[float(x) for x in unit if x != "."] for unit in zip(*OBSERVERS, strict=True)]
    assert krippendorff_alpha(units) == pytest.approx(0.849, abs=5e-4)


def test_alpha_is_1_for_agreement_and_0_for_chance():
    rng = np.random.default_rng(1)
    values = rng.integers(0, 101, size=(5000, 2))
    assert krippendorff_alpha(np.repeat(values[:, :1], 3, axis=1)) == 1
    assert krippendorff_alpha(values) == pytest.approx(0, abs=0.05)
    assert math.isnan(krippendorff_alpha([[3], [4]]))
    assert math.isnan(krippendorff_alpha([[3, 3], [3, 3]]))


def test_sign_test():
    assert sign_test(9, 1) == sign_test(1, 9) == pytest.approx(2 * (1 + 10) / 1024)
    assert sign_test(0, 0) == sign_test(4, 4) == 1


def test_z_scores_take_the_scale_of_a_judge_away():
    strict, mild = np.array([[10, 20], [30, 40.0]]), np.array([[75, 80], [85, 90.0]])
    constant = np.full((2, 2), 50.0)
    judges = ["s", "s", "m", "m", "c", "c"]
    scores = z_scores(judges, np.concatenate([strict, mild, constant]))
    assert scores[:2] == pytest.approx(scores[2:4])
    assert scores[:4].std() == pytest.approx(1)
    assert not scores[4:].any()


def test_means_differences_and_preferences_of_one_judge():
    rng = np.random.default_rng(2)
    values = rng.integers(0, 90, size=(40, 2)) + np.array([0, 10])
    sheet = key(40)
    found = {(x.name, x.system): x for x in analyze(sheet, judged(sheet, "j", values), 200)
             if not x.baseline or x.name != "z"}  # fmt: skip
    runs = [[[mean_statistics(list(column))]] for column in values.T.astype(float)]
    tests = paired_tests(mean_scores, *runs, 200)
    difference = next(
        x for x in analyze(sheet, judged(sheet, "j", values), 200)
        if (x.name, x.baseline) == ("score", "a")
    )  # fmt: skip
    assert (difference.value, difference.p_value) == (tests.difference, tests.bootstrap)
    assert difference.p_two_sided == tests.two_sided
    assert difference.value == pytest.approx(values[:, 1].mean() - values[:, 0].mean())
    wins = int((values[:, 1] > values[:, 0]).sum())
    losses = int((values[:, 1] < values[:, 0]).sum())
    assert (found["wins", "b"].value, found["losses", "b"].value) == (wins, losses)
    assert found["wins", "b"].p_value == sign_test(wins, losses)
    assert found["wins", "b"].value + found["ties", "b"].value + losses == 40
    assert not any(measure.startswith("agreement") for measure, _ in found)


def test_documents_are_drawn_as_a_whole():
    """Equal lines within a document make intervals wide, as if each document were one line."""
    rng = np.random.default_rng(3)
    of_documents = rng.integers(0, 101, size=(5, 2)).astype(float)
    whole = key(100, documents=5)
    values = np.array([of_documents[row.line % 5] for row in whole.rows])

    def width(sheet: Key, values: np.ndarray) -> float:
        (mean, *_) = analyze(sheet, judged(sheet, "j", values), 500)
        return mean.high - mean.low

    first = np.array([of_documents[n % 5] for n in range(1, 6)])
    assert width(whole, values) == pytest.approx(width(key(5), first))
    assert width(whole, values) > 2 * width(key(100), values)


def test_preferences_of_three_systems_by_two_judges():
    sheet = key(3, "abc")
    anna = np.array([[9, 8, 7], [9, 8, 7], [8, 9, 8]])
    ben = np.array([[9, 7, 8], [8, 9, 7], [8, 9, 9]])
    found = {
        (x.name, x.system, x.baseline): x
        for x in analyze(sheet, [*judged(sheet, "anna", anna), *judged(sheet, "ben", ben)], 100)
    }
    assert found["score", "a", ""].value == pytest.approx(51 / 6)
    # b against a: line 1 loses twice, line 2 is one each, line 3 wins twice
    assert [found[name, "b", "a"].value for name in ("wins", "ties", "losses")] == [1, 1, 1]
    assert [found[name, "c", "b"].value for name in ("wins", "ties", "losses")] == [0, 1, 2]
    assert found["agreement_score", "", ""].count == 9
