"""Stored run folders load, translate, score and resume; those of older versions are refused.

tests/fixtures/runs has two runs of two validations each, of 60 pairs of template sentences,
with one thread of a CPU in fp32. RESUMED is what the first resume of these runs logged.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from nmt.cli import score, train
from nmt.decoding.translator import Translator
from nmt.errors import UserError
from nmt.store.folder import RunFolder
from nmt.store.results import read_result

pytestmark = pytest.mark.cpu  # scores, translations and losses of another processor

FIXTURES = Path(__file__).parents[1] / "fixtures" / "runs"
KINDS = ["fastbpe", "plain"]
# first update after the checkpoint, and the losses of five updates
RESUMED = {
    "fastbpe": (501, [0.927986, 0.908602, 0.922143, 0.927400, 0.885137]),
    "plain": (121, [1.093919, 1.179624, 1.046755, 1.136910, 1.177494]),
}


@pytest.fixture
def corpus(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a corpus and its run folder; config.yaml names the copy."""
    folder = tmp_path / request.param
    shutil.copytree(FIXTURES / request.param, folder)
    config = folder / "run" / "config.yaml"
    text = config.read_text(encoding="utf-8").replace("/corpus", str(folder))
    config.write_text(text, encoding="utf-8")
    return folder


def both_kinds(test):
    return pytest.mark.parametrize("corpus", KINDS, indirect=True)(test)


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


@both_kinds
def test_a_stored_run_gives_the_same_translations(corpus: Path):
    translator = Translator.load(corpus / "run")
    translations = translator.translate(lines(corpus / "test.gl"))
    assert translations == lines(corpus / "run" / "test.hyp")


@both_kinds
def test_scores_of_a_stored_run_are_found_and_computed(
    corpus: Path, capsys: pytest.CaptureFixture[str]
):
    summary = json.loads((corpus / "run" / "summary.json").read_text(encoding="utf-8"))
    stored = {test["name"]: test["value"] for test in summary["test"]}
    result = read_result(corpus / "run")
    assert (result.status, result.dev) == ("finished", summary["dev"])
    assert stored["tokenized_bleu"] > 40
    assert score.main([str(corpus / "run"), "--json"]) == 0
    assert f'"score": {stored["tokenized_bleu"]}' in capsys.readouterr().out


@pytest.mark.parametrize(
    "corpus", [pytest.param("fastbpe", marks=pytest.mark.slow), "plain"], indirect=True
)
def test_a_stored_run_resumes_as_it_did_before(corpus: Path):
    run = RunFolder(corpus / "run")
    recipe = corpus / "recipe.yaml"
    shutil.copy(run.config_file, recipe)
    changes = [f"out={run.path}", "train.max_validations=3", "train.log_every=1"]
    assert train.main([str(recipe), *changes, "--resume"]) == 0
    records = list(map(json.loads, lines(run.metrics_file)))
    first, expected = RESUMED[corpus.name]
    losses = {r["update"]: r["loss"] for r in records if r["kind"] == "train"}
    # rounding of other processors grows with each update: 1 % after 250, far less after 5
    assert [losses[first + i] for i in range(5)] == pytest.approx(expected, rel=1e-3)
    *_, dev, test = (r for r in records if r["kind"] != "train")
    assert (dev["kind"], test["kind"]) == ("dev", "test")
    assert dev["update"] == max(losses) == (first - 1) * 3 // 2  # the third of three validations
    assert test["tokenized_bleu"] > 40
    assert run.recipe().train.max_validations == 3


def test_a_run_of_an_older_version_is_refused(tmp_path: Path):
    """Version 0.2 did not write the Unicode form, or called it normalise."""
    run = RunFolder(shutil.copytree(FIXTURES / "plain" / "run", tmp_path / "run"))
    text = run.config_file.read_text(encoding="utf-8")
    run.config_file.write_text(text.replace("normalize:", "normalise:"), encoding="utf-8")
    with pytest.raises(UserError, match=r"config\.yaml: this run was .* version 0\.2") as refused:
        run.recipe()
    assert "train again" in str(refused.value.fix)
    config = run.config_file.read_text(encoding="utf-8")
    run.config_file.write_text(re.sub(r"  normalise: \w+\n", "", config), encoding="utf-8")
    with pytest.raises(UserError, match=r"version 0\.2"):
        run.recipe()
