"""nmt-export --hub: a model card that says what is true, and a folder that every command reads."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from nmt.apps.export import hub as module
from nmt.cli import export as command
from nmt.cli import train, translate
from nmt.data.lines import find_side
from nmt.decoding.translator import Translator
from nmt.errors import UserError
from nmt.store.folder import RunFolder
from nmt.store.results import read_summary
from tests.toy import lines_of_digits, toy_corpus, toy_recipe

pytest.importorskip("ctranslate2")


@pytest.fixture(scope="module")
def hub(trained: Path) -> Path:
    """The folder of a trained run; its corpus has the manifest that data_prep writes."""
    manifest = {
        "corpus": "digits",
        "sources": [
            {"name": "Digits", "license": "CC0 1.0", "url": "https://example.org/digits/train.gl"},
            {"name": "Digits", "license": "CC0 1.0", "url": "https://example.org/digits/train.en"},
        ],
    }
    (trained.parent / "MANIFEST.json").write_text(json.dumps(manifest), encoding="utf-8")
    output = trained.parent / "digits-model"
    argv = ["--hub", output, "--license", "cc0-1.0", "--example", "1 2 3", "--example", "7"]
    assert command.main([str(trained), *map(str, argv)]) == 0
    return output


def card(folder: Path) -> tuple[dict[str, Any], str]:
    _, head, text = (folder / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    return yaml.safe_load(head), text


@pytest.mark.slow
def test_the_head_names_languages_license_data_and_scores(trained, hub):
    head, _ = card(hub)
    recipe = yaml.safe_load((trained / "config.yaml").read_text())
    assert head["language"] == [recipe["src"], recipe["tgt"]]
    assert (head["license"], head["datasets"]) == ("cc0-1.0", ["digits"])
    assert (head["library_name"], head["pipeline_tag"]) == ("ctranslate2", "translation")
    (model,) = head["model-index"]
    (result,) = model["results"]
    assert model["name"] == "digits-model"
    tests = json.loads((trained / "summary.json").read_text())["test"]
    assert [(m["type"], m["value"], m["args"]["signature"]) for m in result["metrics"]] == [
        (score["name"], round(score["value"], 2), score["signature"])
        for score in tests
        if score["name"] != "tokenized_bleu"
    ]


def test_the_text_has_scores_with_signatures_and_the_origin_of_the_data(trained, hub):
    _, text = card(hub)
    for score in json.loads((trained / "summary.json").read_text())["test"]:
        assert f"| {score['value']:.2f} |" in text
        assert score["signature"].replace("|", "\\|") in text
    assert "| digits | gl-en | CC0 1.0 | https://example.org/digits |" in text
    pairs = json.loads((trained / "data_report.json").read_text())["splits"]["train"]["kept"]
    assert f"trained on {pairs:,} pairs" in text
    for section in ("Use", "Intended use", "Limits", "Training"):
        assert f"\n## {section}\n" in text


@pytest.mark.slow
def test_the_example_of_the_card_prints_what_the_card_says(hub):
    _, text = card(hub)
    code = text.split("```python\n")[1].split("```")[0]
    shown = text.split("printed:\n\n```\n")[1].split("```")[0]
    assert '"1 2 3"' in code
    ran = subprocess.run(
        [sys.executable, "-B", "-c", code], cwd=hub, check=True, capture_output=True, text=True
    )
    assert ran.stdout == shown
    assert len(shown.splitlines()) == 2
    lines = Translator.load(hub).translate(["1 2 3", "7"])
    assert shown == "".join(f"{line}\n" for line in lines)


def example_and_text(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Export the run of a folder without running the example; return it and the card's text."""
    ran: list[str] = []
    monkeypatch.setattr(module, "_run_example", lambda folder, code: ran.append(code) or "")
    output = folder / "model"
    assert command.main([str(folder / "run"), "--hub", str(output), "--example", "1 2"]) == 0
    return ran[0], card(output)[1]


def test_the_example_has_the_tag_that_the_dev_set_has(tmp_path, monkeypatch):
    toy_corpus(tmp_path)
    sets: dict[str, Any] = {
        split: [{"path": split, "tag": "<2en>"}] for split in ("train", "dev", "test")
    }
    changes = {"data": sets, "train": {"max_validations": 1}}
    assert train.main([str(toy_recipe(tmp_path, changes))]) == 0
    code, text = example_and_text(tmp_path, monkeypatch)
    assert 'print(translator.translate(line, tag="<2en>"))\n' in code
    assert code.rstrip() in text
    assert '`nmt-translate DIR --tag "<2en>" < input.txt`' in text


@pytest.mark.slow
def test_the_example_and_the_command_have_the_source_language_of_the_dev_set(tmp_path, monkeypatch):
    toy_corpus(tmp_path)
    toy_corpus(tmp_path / "it", langs=("it", "en"))
    dev = {"path": "it/dev", "src": "it"}
    data = {"train": ["train", {"path": "it/train", "src": "it"}], "dev": dev, "checks": "off"}
    assert train.main([str(toy_recipe(tmp_path, {"data": data}))]) == 0
    code, text = example_and_text(tmp_path, monkeypatch)
    assert 'print(translator.translate(line, src="it"))\n' in code
    assert '`nmt-translate DIR --src-lang "it" < input.txt`' in text


def test_commands_and_library_read_the_folder(trained, hub, monkeypatch, capsys):
    lines = lines_of_digits(20, seed=9)
    loaded = Translator.load(hub)
    assert loaded.engine.name == "ctranslate2"
    found = loaded.translate(lines, beam=1)
    assert found == Translator.load(trained, "cpu").translate(lines, beam=1)
    given = io.BytesIO("".join(f"{line}\n" for line in lines).encode())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(given))
    capsys.readouterr()
    assert translate.main([str(hub), "--beam", "1"]) == 0
    assert capsys.readouterr().out.splitlines() == found
    for runs, options in (
        (hub, {"engine": "torch"}),
        ([hub, trained], {"engine": "torch"}),
        ([hub, trained], {}),
        (hub, {"precision": "bf16"}),
    ):
        with pytest.raises(UserError) as refused:
            Translator.load(runs, **options)
        assert "weights" in f"{refused.value.fix} {refused.value.what}"


def test_the_folder_is_complete_and_the_advice_on_it_fits_the_option(trained, hub, capsys):
    names = {path.name for path in hub.iterdir()}
    assert {"README.md", "USAGE.md", ".gitattributes", "ctranslate2", "model.json"} <= names
    assert "__pycache__" not in names
    assert "*.bin filter=lfs" in (hub / ".gitattributes").read_text()
    assert command.main([str(trained), "--hub", str(hub)]) == 2
    fix = capsys.readouterr().err.partition("->")[2]
    assert "choose another folder" in fix
    assert "--output" not in fix  # it cannot be combined with --hub


@pytest.mark.slow
def test_what_is_not_known_is_not_invented(trained, hub, tmp_path, capsys):
    """Scores of other weights, a license that nobody stated, a commit, examples of the dev set."""
    summary = trained / "summary.json"
    kept = summary.read_text()
    manifest = trained.parent / "MANIFEST.json"
    entry = RunFolder.open(trained).recipe().data.dev[0]
    dev = find_side(entry.path, "gl")
    try:
        dev.rename(tmp_path / "dev")
        values = read_summary(RunFolder(trained)) | {"best": "u000001"}
        values["versions"] = {"nmt": "0.2.0", "commit": None}  # as of an installed copy
        summary.write_text(json.dumps(values))
        manifest.rename(tmp_path / "manifest")
        argv = [str(trained), "--hub", str(tmp_path / "m"), "--quantization", "int8"]
        assert command.main(argv) == 2
        assert "--example TEXT" in capsys.readouterr().err
        assert not (tmp_path / "m").exists()
        (tmp_path / "dev").rename(dev)
        assert command.main(argv) == 0
    finally:
        summary.write_text(kept)
        (tmp_path / "manifest").rename(manifest)
    head, text = card(tmp_path / "m")
    assert f'    "{dev.read_text().splitlines()[0]}",\n' in text
    assert "license" not in head
    assert "model-index" not in head
    assert "no test scores of these weights" in text
    assert "weights in int8" in text
    assert "| versions | nmt 0.2.0 |" in text
    assert "The license of the model is not stated" in text


@pytest.mark.slow
def test_the_card_has_the_warnings_about_the_corpus_without_its_lines(trained, tmp_path):
    file = trained / "data_report.json"
    kept = file.read_text()
    share = "dev: 20.0% of the pairs (2) are also in the training data"
    report = json.loads(kept) | {"warnings": [f"{share}, for example train:1: secret; remove them"]}
    try:
        file.write_text(json.dumps(report))
        argv = [str(trained), "--hub", str(tmp_path / "m"), "--example", "1 2 3"]
        assert command.main(argv) == 0
    finally:
        file.write_text(kept)
    _, text = card(tmp_path / "m")
    assert f"- Check of the training data: {share}\n" in text
    assert "secret" not in text


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--hub", "h", "--example", "\udcff"], "the text is not UTF-8"),
        (["--license", "mit"], "--license is only for the model card of --hub"),
        (["--example", "x"], "--example is only for the model card of --hub"),
        (["--hub", "h", "--output", "o"], "leave out --output"),
    ],
)
def test_wrong_options_are_explained(trained, capsys, argv, message):
    assert command.main([str(trained), *argv]) == 2
    assert message in capsys.readouterr().err
