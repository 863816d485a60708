"""Trained toy runs that the tests of reports share."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmt.cli import report, train
from tests import final_reports
from tests.toy import lines_of_digits, toy_corpus, toy_recipe, write_pairs

HOSTILE = '<script>alert(1)</script> & "4" <b>5</b>'
HEBREW = "שלום עולם ."
LAYERNORM = "model.norm=layernorm"


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """A folder with ``plain``, which ended with its report, and ``layernorm``, without.

    A test line is markup, and another one is Hebrew.
    """
    folder = tmp_path_factory.mktemp("runs")
    toy_corpus(folder, {"train": 60, "dev": 4, "test": 12})
    for lang in ("gl", "en"):
        path = folder / f"test.{lang}"
        lines = path.read_text(encoding="utf-8").splitlines()
        lines[1], lines[2] = HOSTILE, HEBREW
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (folder / "README.md").write_text("# Digits\n\n- Licence: CC0, see <b>LICENSE</b>\n")
    recipe = toy_recipe(folder, {"data": {"checks": "warn"}})
    with pytest.MonkeyPatch.context() as patch:
        final_reports.write(patch)
        assert train.main([str(recipe), f"out={folder / 'plain'}"]) == 0
    changes = [LAYERNORM, "seed=2"]
    assert train.main([str(recipe), f"out={folder / 'layernorm'}", *changes]) == 0
    return folder


@pytest.fixture(scope="session")
def several_sets(folder) -> Path:
    """The report of two runs with the test sets ``short`` and ``long``."""
    write_pairs(folder / "long", lines_of_digits(30, seed=3, shortest=6, longest=12))
    sets = f"[{{path: {folder}/test, name: short}}, {{path: {folder}/long, name: long}}]"
    runs = [str(folder / name) for name in ("first", "second")]
    for run, change in zip(runs, ("seed=3", LAYERNORM), strict=True):
        keys = [f"out={run}", f"data.test={sets}", "train.max_validations=1", change]
        assert train.main([str(folder / "toy.yaml"), *keys]) == 0
    output = folder / "several.html"
    assert report.main([*runs, "-o", str(output), "--force"]) == 0
    return output
