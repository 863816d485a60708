"""Two languages with weights and tags in one model, through the commands."""

from __future__ import annotations

import json
import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest

from nmt import Translator
from nmt.cli import score, train, translate
from nmt.errors import UserError
from nmt.training.trainer import Trainer
from tests.run_cases import edit_model
from tests.test_resume import difference, result, stop_and_resume
from tests.toy import lines_of_digits, toy_recipe, write_lines

SHIFTED = str.maketrans("0123456789", "abcdefghij")


def write(folder: Path, name: str, lines: list[str], src: str, tagged: bool) -> None:
    targets = [line.translate(SHIFTED) if tagged else line for line in lines]
    write_lines(folder / f"{name}.{src}", lines)
    write_lines(folder / f"{name}.en", targets)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    """Digits are copied without a tag, and become letters with the tag <es>."""
    folder = tmp_path_factory.mktemp("related")
    lines = lines_of_digits(700, longest=4)
    write(folder, "train", lines[:150], "gl", tagged=False)
    write(folder / "es", "train", lines[150:650], "es", tagged=True)
    write(folder, "dev", lines[650:675], "gl", tagged=False)
    write(folder / "es", "dev", lines[675:], "es", tagged=True)
    return folder


def recipe_for(corpus: Path, data: dict[str, Any] | None = None, **groups: Any) -> str:
    entries = {
        "train": ["train", {"path": "es/train", "src": "es", "tag": "<es>", "weight": 0.75}],
        "dev": ["dev", {"path": "es/dev", "src": "es", "tag": "<es>"}],
        "test": [{"path": "es/dev", "src": "es", "tag": "<es>"}, "dev"],
        "checks": "off",
        "temperature": 2,
        "batch_tokens": 128,
    }
    return str(toy_recipe(corpus, {"data": {**entries, **(data or {})}, **groups}))


LEARNING: dict[str, Any] = {
    "data": {"batch_tokens": 256},
    "model": {"dim": 32, "ffn_dim": 64, "dropout": 0.0, "word_dropout": 0.0},
    "optim": {"kind": "muon", "betas": [0.9, 0.98], "label_smoothing": 0.0},
    "schedule": {"kind": "linear", "lr": 0.02, "warmup_updates": 20, "total_updates": 160},
    "train": {"validate_every": 160, "log_every": 160},
}


@pytest.fixture(scope="module")
def learned(corpus, tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("learned") / "run"
    assert train.main([recipe_for(corpus, **LEARNING), f"out={run}"]) == 0
    return run


@pytest.mark.slow
def test_the_tag_decides_what_a_source_becomes(learned, corpus, tmp_path, capsys):
    source, out = tmp_path / "in", tmp_path / "out"
    lines = (corpus / "dev.gl").read_text().splitlines()
    write_lines(source, lines)
    for options, expected in (
        ([], lines),
        (["--tag", "<es>"], [line.translate(SHIFTED) for line in lines]),
    ):
        argv = [str(learned), "--input", str(source), "--output", str(out), "--force", *options]
        assert translate.main(argv) == 0
        found = out.read_text().splitlines()
        assert sum(a == b for a, b in zip(found, expected, strict=True)) >= 0.8 * len(lines)

    translator = Translator.load(learned, "cpu")
    assert translator.translate(lines, tag="<es>") == found
    assert translate.main([str(learned), "--input", str(source), "--tag", "<pt>"]) == 2
    assert "the model has no tag <pt>; its tags are <es>" in capsys.readouterr().err


@pytest.mark.slow
def test_a_tag_is_not_a_word_of_the_source(learned):
    translator = Translator.load(learned, "cpu")
    [[one]] = list(translator.stream(["4 2 7"], tag="<es>", align=True, token_scores=True))
    words = {source for source, _ in one.alignment}
    assert words <= {0, 1, 2}
    assert {target for _, target in one.alignment} == set(range(len(one.pieces)))
    [given] = translator.score(["4 2 7"], [one.text], tag="<es>", align=True)
    assert given.alignment == one.alignment
    assert given.log_prob == pytest.approx(one.log_prob, abs=1e-4)  # another batch, fp32
    [other] = translator.score(["4 2 7"], [one.text])
    assert other.log_prob < given.log_prob - 1


def test_several_sets_are_scored_and_their_mean_selects(learned, capsys):
    records = [json.loads(line) for line in (learned / "metrics.jsonl").read_text().splitlines()]
    [dev] = [record for record in records if record["kind"] == "dev"]
    assert dev["bleu"] == pytest.approx((dev["gl-en/bleu"] + dev["es-en/bleu"]) / 2)
    assert dev["ppl"] == pytest.approx((dev["gl-en/ppl"] + dev["es-en/ppl"]) / 2)
    assert dev["gl-en/bleu"] != dev["es-en/bleu"]
    summary = json.loads((learned / "summary.json").read_text())
    assert summary["dev"] == pytest.approx(dev["bleu"])
    sets = {name: of_set[0]["value"] for name, of_set in summary["test_sets"].items()}
    assert list(sets) == ["es-en", "gl-en"]
    assert summary["test"][0]["value"] == pytest.approx(sum(sets.values()) / 2)
    assert sets["gl-en"] == pytest.approx(dev["gl-en/bleu"])  # the same lines
    names = {path.name for path in learned.glob("dev/*.hyp")}
    assert names == {"u000160.gl-en.hyp", "u000160.es-en.hyp"}

    assert score.main([str(learned), "--split", "test.gl-en", "--metrics", "bleu"]) == 0
    assert f"{sets['gl-en']:.2f}" in capsys.readouterr().out
    assert score.main([str(learned)]) == 2
    error = capsys.readouterr().err
    assert "the run has several test sets" in error
    assert "--split test.es-en or --split test.gl-en" in error


def test_an_exported_model_takes_the_tag(learned, tmp_path):
    pytest.importorskip("ctranslate2")
    from nmt.decoding.ctranslate2.folder import export
    from nmt.store.model import Model

    translator = Translator.load(learned, "cpu")
    export(Model.open(learned), tmp_path / "model")
    lines = ["4 2 7", "1 9"]
    exported = Translator.load(tmp_path / "model", "cpu")
    assert exported.translate(lines, tag="<es>") == translator.translate(lines, tag="<es>")
    with pytest.raises(UserError, match="the model has no tag <x>"):
        exported.translate(lines, tag="<x>")
    program = runpy.run_path(str(tmp_path / "model" / "translate.py"))
    alone = program["Translator"](tmp_path / "model", device="cpu")
    assert [alone.translate(line, "<es>") for line in lines] == translator.translate(
        lines, tag="<es>"
    )
    with pytest.raises(ValueError, match="its tags: <es>"):
        alone.translate("4", "<x>")


@pytest.mark.slow
def test_an_export_searches_as_the_recipe_says(learned, tmp_path):
    pytest.importorskip("ctranslate2")
    from nmt.decoding.ctranslate2.folder import export
    from nmt.store.model import Model

    model = shutil.copytree(Path(learned) / "model", tmp_path / "model")
    decode = json.loads((model / "model.json").read_text())["decode"]
    edit_model(model, decode={**decode, "no_repeat_ngram": 1})
    translator = Translator.load(model, "cpu")
    assert translator.translate(["7 7 7"], no_repeat_ngram=0, tag="<es>") == ["h h h"]
    (once,) = translator.translate(["7 7 7"], tag="<es>")
    assert once.count("h") == 1
    export(Model.open(model), tmp_path / "export")
    program = runpy.run_path(str(tmp_path / "export" / "translate.py"))
    assert program["Translator"](tmp_path / "export").translate("7 7 7", "<es>") == once


@pytest.mark.slow
def test_a_resumed_run_with_weights_equals_an_uninterrupted_one(corpus, tmp_path, monkeypatch):
    recipe, whole = recipe_for(corpus, data={"test": "dev"}), tmp_path / "whole"
    assert train.main([recipe, f"out={whole}"]) == 0
    found = stop_and_resume(recipe, tmp_path / "run", monkeypatch, Trainer, "update", 5)
    assert not difference(found, result(whole))


@pytest.mark.slow
def test_other_entries_are_refused_on_resume(corpus, tmp_path, capsys):
    run = tmp_path / "run"
    recipe = recipe_for(corpus)
    assert train.main([recipe, f"out={run}"]) == 0
    es = f"path: {corpus / 'es' / 'train'}, src: es"
    capsys.readouterr()
    for entries, problem in (
        (f"{corpus / 'train'}, {{{es}, tag: <es>, weight: 0.5}}", "weight: 0.75 -> 0.5"),
        (f"{{path: {corpus / 'train'}, weight: 2}}, {{{es}, tag: <es>}}", "weight: 1.0 -> 2.0"),
        (f"{corpus / 'train'}, {{{es}, tag: <es>, tokenized: no}}", "tokenized: true -> false"),
    ):
        more = ["--resume", "train.max_validations=4", f"data.train=[{entries}]"]
        assert train.main([recipe, f"out={run}", *more]) == 2
        error = capsys.readouterr().err
        assert "data.train[" in error
        assert problem in error
    assert train.main([recipe, f"out={run}", "--resume", "data.temperature=3"]) == 2
    assert "data.temperature: 2.0 -> 3.0" in capsys.readouterr().err
