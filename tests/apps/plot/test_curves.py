"""Curves have the values of metrics.jsonl."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt.apps.plot.curves import Curve, RunMetrics, final_mean, running_mean, short_labels
from nmt.errors import UserError

RECIPE = """\
src: gl
tgt: en
data: {train: t, dev: d, normalize: nfc}
model: {enc_layers: 2, dec_layers: 1}
"""


def run_of(folder: Path, *records: dict[str, Any], recipe: str = RECIPE) -> RunMetrics:
    """Write the log of a run, whose last line is cut."""
    folder.mkdir()
    (folder / "config.yaml").write_text(recipe, encoding="utf-8")
    lines = "".join(json.dumps({"update": 4, **record}) + "\n" for record in records)
    (folder / "metrics.jsonl").write_text(lines + '{"kind": "dev", "upd', encoding="utf-8")
    return RunMetrics(folder)


def test_a_curve_has_the_records_of_its_kind(tmp_path):
    run = run_of(
        tmp_path / "run",
        {"kind": "train", "update": 5, "loss": 9.0},
        {"kind": "dev", "update": 10, "bleu": 3.5},
        {"kind": "dev", "update": 20, "bleu": None},  # was not finite
    )
    curve = run.curve("dev", "bleu")
    assert curve.updates.tolist() == [10, 20]
    np.testing.assert_array_equal(curve.values, [3.5, np.nan])
    assert len(run.curve("dev", "chrf").updates) == 0


def test_layers_come_in_order(tmp_path):
    seen = {
        "gains/encoder.layers.1.ffn_res.norm": 2.0,
        "gains/encoder.layers.0.ffn_res.norm": 1.0,
        "gains/encoder.layers.0.ffn_res.norm.std": 0.5,
        "gains/encoder.norm": 7.0,
        "gains/decoder.layers.0.cross_attn_res.norm": 3.0,
    }
    run = run_of(tmp_path / "run", {"kind": "observed", "update": 5, **seen})
    curves = run.by_layer("gains", "encoder", "ffn_res.norm")
    assert {i: curve.values.tolist() for i, curve in curves.items()} == {0: [1.0], 1: [2.0]}
    assert run.modules("gains", "encoder") == ["ffn_res.norm"]
    assert run.modules("gains", "decoder") == ["cross_attn_res.norm"]
    assert run.by_layer("grad_l1", "encoder", "ffn.fc1") == {}


def test_a_folder_that_is_not_a_run_is_an_error(tmp_path):
    with pytest.raises(UserError, match="not a run folder"):
        RunMetrics(tmp_path)


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["/a/runs/post", "/a/runs/pre"], ["post", "pre"]),
        (["/a/one/post", "/a/two/post"], ["one/post", "two/post"]),
        (["/a/post", "/a/post"], ["/a/post", "/a/post"]),
    ],
)
def test_labels_are_as_short_as_possible_and_differ(paths, expected):
    assert short_labels([Path(path) for path in paths]) == expected


def test_a_running_mean_is_at_the_middle_of_its_points():
    curve = Curve(np.arange(0, 60, 10), np.array([0.0, 3, 6, 0, 3, 6]))
    mean = running_mean(curve, 3)
    assert mean.updates.tolist() == [10, 20, 30, 40]
    np.testing.assert_allclose(mean.values, [3, 3, 3, 3])
    assert running_mean(curve, 4) is curve


def test_the_final_mean_is_over_updates_950_to_1000_as_in_the_paper():
    updates = np.arange(10, 1001, 10)
    assert final_mean(Curve(updates, updates.astype(float))) == np.mean(
        [950, 960, 970, 980, 990, 1000]
    )
    assert final_mean(Curve(np.array([7]), np.array([2.5]))) == 2.5
