"""Run folders of version 0.2 still load, translate, score and resume.

tests/fixtures/run-0.2 was made by version 0.2.0 with one thread of a CPU in fp32: two trainings of
two validations each, of 60 pairs of template sentences. RESUMED is what version 0.2.0 itself logged
when it resumed these runs.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from nmt.apps.evaluate import command as score
from nmt.cli import train
from nmt.config.load import dump_recipe
from nmt.config.recipe import Recipe
from nmt.data.segmenters import load_segmenter
from nmt.decoding.translator import Translator
from nmt.export.metadata import read_metadata
from nmt.run.folder import RunFolder
from nmt.run.lifecycle import with_stored_form
from nmt.run.results import read_result

pytestmark = pytest.mark.cpu  # scores, translations and losses of another processor

FIXTURES = Path(__file__).parents[1] / "fixtures" / "run-0.2"
KINDS = ["fastbpe", "plain"]
# first update after the checkpoint, and the losses of five updates
RESUMED = {
    "fastbpe": (501, [0.851203, 0.839932, 0.908969, 0.921970, 0.880166]),
    "plain": (121, [1.094297, 1.179748, 1.047323, 1.136892, 1.176937]),
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
def test_old_keys_and_values_get_their_present_names(corpus: Path):
    recipe = RunFolder(corpus / "run").recipe()
    is_plain = corpus.name == "plain"
    assert recipe.data.tokenized == is_plain
    assert recipe.data.normalize == ("none" if is_plain else "nfc")
    assert recipe.data.download == (None if is_plain else "ted_talks")
    assert recipe.train.max_validations == 2
    assert recipe.train.validate_every == (60 if is_plain else 250)
    assert recipe.score.select_by == ("tokenized_bleu" if is_plain else "bleu")
    assert recipe.segment.kind == ("whitespace" if is_plain else "fastbpe")
    assert load_segmenter(corpus / "run").kind == recipe.segment.kind


@both_kinds
def test_a_run_without_the_key_keeps_the_unicode_form_of_its_version(corpus: Path):
    run = RunFolder(corpus / "run")
    text = run.config_file.read_text(encoding="utf-8")
    run.config_file.write_text(re.sub(r"  normalise: \w+\n", "", text), encoding="utf-8")
    assert run.recipe().data.normalize == "none"


def test_a_resumed_run_keeps_its_unicode_form():
    run = FIXTURES / "fastbpe" / "run"
    keys = {"src": "gl", "tgt": "en", "data": {"train": "train", "dev": "dev"}, "out": str(run)}
    recipe = Recipe.model_validate(keys)
    assert recipe.data.normalize == "clean"
    assert with_stored_form(recipe, resume=False) == recipe
    assert with_stored_form(recipe, resume=True).data.normalize == "nfc"
    keys["data"]["normalize"] = "none"  # refused later, as a changed key
    assert with_stored_form(Recipe.model_validate(keys), resume=True).data.normalize == "none"


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
    assert (result.bleu, result.tokenized_bleu) == (stored["bleu"], stored["paper_bleu"])
    assert result.tokenized_bleu > 40
    assert score.main([str(corpus / "run"), "--json"]) == 0
    assert f'"score": {stored["paper_bleu"]}' in capsys.readouterr().out


@both_kinds
def test_a_stored_run_resumes_as_its_own_version_did(corpus: Path):
    run = RunFolder(corpus / "run")
    recipe = corpus / "recipe.yaml"
    recipe.write_text(dump_recipe(run.recipe()), encoding="utf-8")
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
    assert "epoch_updates" not in run.config_file.read_text(encoding="utf-8")


def test_metadata_of_a_stored_export_is_read():
    metadata, decode = read_metadata(FIXTURES / "exported")
    assert (metadata.src, metadata.tgt, metadata.quantization) == ("gl", "en", None)
    assert (decode.beam, decode.length_alpha) == (2, 0.6)
