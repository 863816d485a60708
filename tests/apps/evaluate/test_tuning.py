"""nmt-score --tune-length: dev with several exponents of the length penalty."""

from __future__ import annotations

import json

import pytest

from nmt.apps.evaluate.tuning import ALPHAS
from nmt.cli.score import main
from nmt.decoding.translator import Translator
from nmt.scoring.systems import from_runs
from nmt.store.folder import RunFolder
from tests.trained import short_run as short_run


@pytest.mark.slow
def test_each_value_is_scored_and_the_best_is_named(short_run, capsys):
    """The value of the recipe is the baseline, whose output the run wrote when it validated."""
    words = ["--tune-length", "--metrics", "bleu,chrf++", "--resamples", "100", "--json"]
    assert main([str(short_run), *words]) == 0
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    own = RunFolder(short_run).recipe().decode.length_alpha
    names = [f"length_alpha={alpha:g}" for alpha in dict.fromkeys([own, *ALPHAS])]
    assert [system["name"] for system in found["systems"]] == names
    assert found["baseline"] == names[0]
    scores = {(row["system"], row["metric"]): row["score"] for row in found["scores"]}
    systems = from_runs([str(short_run)], "dev", sources=True)
    again = Translator.load(short_run).translate(systems.sources, length_alpha=3.0, split="line")
    same = again == systems.texts[str(short_run)]
    assert same == (scores[names[-1], "bleu"] == scores[names[0], "bleu"])
    best = max(names, key=lambda name: scores[name, "bleu"])
    assert f"{best}" in shown.err.splitlines()[-1]


@pytest.mark.parametrize(
    "words", [["RUN", "RUN"], ["RUN", "--split", "test"], ["--hyp", "a", "--ref", "a"]]
)
def test_only_dev_of_one_run(words, capsys):
    assert main([*words, "--tune-length"]) == 2
    assert "--tune-length" in capsys.readouterr().err
