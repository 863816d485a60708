"""The chrF to expect of a translation: the fit, its file, and the commands that use it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from nmt.apps.evaluate.calibrate import Quality
from nmt.cli.average import main as average
from nmt.cli.calibrate import main as calibrate
from nmt.cli.translate import main as translate
from nmt.decoding.codec import BLANK, Translation
from nmt.decoding.confidence import Calibration, monotone_points, read_calibration
from nmt.scoring.metrics import sentence_scores
from nmt.store.folder import RunFolder


def translations(count: int, seed: int) -> tuple[list[Translation], np.ndarray]:
    """Return translations, and a chrF that falls with their log-probability and short pieces."""
    rng = np.random.default_rng(seed)
    made, chrf = [], []
    for _ in range(count):
        pieces, length, mean = rng.integers(1, 30), rng.uniform(1, 6), rng.uniform(-2, 0)
        text = "x" * max(1, round(pieces * length))
        made.append(Translation(["p"] * pieces, text, 0.0, mean * (pieces + 1), True))
        expected = 100 / (1 + np.exp(-2 * mean - 1 - np.log(length)))
        chrf.append(np.clip(expected + rng.normal(0, 10), 0, 100))
    return made, np.array(chrf)


def test_steps_are_the_isotonic_regression():
    """Against its closed form: the largest of the smallest means of neighbors (Barlow 1972)."""
    rng = np.random.default_rng(5)
    y = np.arange(30) + rng.normal(0, 8, 30)
    order = rng.permutation(600)  # of 20 points with the same x, which make a group
    points = monotone_points(np.repeat(np.arange(30.0), 20)[order], np.repeat(y, 20)[order])
    closed = [
        max(min(y[a : b + 1].mean() for b in range(i, 30)) for a in range(i + 1)) for i in range(30)
    ]
    assert [value for _, value in points] == pytest.approx(np.unique(np.round(closed, 9)))
    assert np.all(np.diff(points, axis=0) > 0)
    assert 1 < len(points) < 30


def test_expectations_fit_other_lines():
    made, chrf = translations(1000, seed=1)
    calibration = Calibration.fit(made, chrf)
    others, actual = translations(1000, seed=2)
    expected = np.array([calibration.expect(t) for t in others])
    quality = Quality.of(expected, actual)
    assert quality.correlation > 0.8
    assert quality.error < 3
    shifted = Quality.of(expected - 20, actual)
    assert shifted.correlation == pytest.approx(quality.correlation)
    assert shifted.error == pytest.approx(20, abs=3)
    above = quality.rows[2]
    assert above.expected == 70
    chosen = actual[expected >= 70]
    assert (above.lines, above.chrf) == (len(chosen), chosen.mean())
    assert above.reached["70"] == (chosen >= 70).mean() > 0.5
    assert calibration.expect(BLANK) == 100
    assert calibration.expect(Translation([], "", -1.0, -1.0, True)) == 0


def test_quality_of_few_or_equal_lines():
    quality = Quality.of(np.array([40.0, 40.0]), np.array([0.0, 100.0]))
    assert (quality.correlation, quality.error) == (None, 50)
    assert quality.rows[0].chrf is None
    assert "\t\t\t\t" in quality.tsv()
    assert " - " in quality.table()


@pytest.fixture
def run(short_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(short_run, tmp_path / "run"))


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    capsys.readouterr()
    assert translate([*argv, "--confidence"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    return printed.err


def test_a_calibrated_run_writes_what_to_expect(run, tmp_path, capsys):
    text = tmp_path / "text"
    text.write_text("3 1 4\n\n2 7 1 8\n", encoding="utf-8")
    argv = [str(run), "--input", str(text), "--device", "cpu"]
    place = run / "confidence.json"
    assert f"{place}: " in refused(capsys, *argv)
    assert calibrate([str(run), "--json"]) == 0
    printed = capsys.readouterr()
    stored = json.loads(place.read_text(encoding="utf-8"))
    assert json.loads(printed.out)["calibration"] == stored
    assert (stored["search"]["beam"], stored["search"]["precision"]) == (2, "fp32")

    assert translate([*argv, "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert translate([*argv, "--json", "--confidence"]) == 0
    both = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    calibration = read_calibration([str(run)], stored["model"])
    for plain, line in zip(found, both, strict=True):
        made = Translation(plain["pieces"], plain["text"], plain["score"], plain["log_prob"], True)
        assert line.pop("expected_chrf") == round(calibration.expect(made), 2)
        assert line == plain
    assert translate([*argv, "--scores", "--confidence"]) == 0
    printed = capsys.readouterr()
    rows = [line.split("\t") for line in printed.out.splitlines()]
    assert [row[2] for row in rows] == [line["text"] for line in found]
    assert [float(row[1]) for row in rows] == pytest.approx([x["score"] for x in found], abs=1e-4)
    assert rows[1] == ["100.00", "0.0000", ""]
    assert "note: share of 2 translations" in printed.err
    assert translate([*argv, "--beam", "1", "--confidence"]) == 0
    assert "the confidence was calibrated with beam=2 (now 1), and" in capsys.readouterr().err
    assert translate([*argv, "--quantization", "int8", "--confidence"]) == 0
    assert "calibrated with precision=fp32 (now int8), and" in capsys.readouterr().err

    other = next(name for name in ("u000004", "u000008", "u000012") if name != best_of(run))
    model = str(tmp_path / "model")
    assert average([str(run), "--checkpoints", other, "-o", model]) == 0
    shutil.copy(place, model)
    assert "for another model" in refused(capsys, model, *argv[1:])
    assert "of one model" in refused(capsys, str(run), *argv)
    for more in (["--n-best", "2"], ["--score-target", str(text)], ["--reverse", str(run)]):
        assert f"{more[0]} cannot be combined with --confidence" in refused(capsys, *argv, *more)
    place.write_text(json.dumps({**stored, "points": 3}), encoding="utf-8")
    assert f"{place}: is damaged\n  -> write it again: nmt-calibrate" in refused(capsys, *argv)


def best_of(run: Path) -> str:
    best = RunFolder(run).best()
    assert best is not None
    return best


def test_the_dev_set_of_the_run_is_what_counts(run, capsys):
    """So few lines make one step: the mean chrF of the translations that the training wrote."""
    assert calibrate([str(run)]) == 0
    header, *rows = (line.split("\t") for line in capsys.readouterr().out.splitlines())
    assert header == ["expected", "lines", "share", "chrf", "chrf>=30", "chrf>=50", "chrf>=70"]
    assert [row[0] for row in rows] == ["90", "80", "70", "60", "50"]
    hyps = (run / "dev" / f"{best_of(run)}.hyp").read_text(encoding="utf-8").splitlines()
    stored = json.loads((run / "confidence.json").read_text(encoding="utf-8"))
    refs = dev_references(run)
    (scores,) = sentence_scores(hyps, refs, ["chrf"], "en")
    assert np.mean([y for _, y in stored["points"]]) == pytest.approx(np.mean(scores.values))
    with pytest.raises(SystemExit) as stop:
        calibrate([str(run), "--split", "test"])
    assert stop.value.code == 2
    assert "--split: 'test' is not dev" in capsys.readouterr().err


def dev_references(run: Path) -> list[str]:
    prefix = RunFolder(run).recipe().data.dev[0].path
    return Path(f"{prefix}.en").read_text(encoding="utf-8").splitlines()
