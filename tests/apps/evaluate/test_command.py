"""nmt-score from the command line."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from nmt.apps.evaluate.report import COLUMNS
from nmt.cli.score import main
from nmt.data.prepare import prepare
from nmt.decoding.codec import Translation
from nmt.model.config import ModelConfig
from nmt.model.transformer import Transformer
from nmt.store.folder import RunFolder
from nmt.training.translation import Translation as TranslationTask
from tests.scoring.runs import make_run, write_lines
from tests.scoring.texts import hypothesis, reference

REFS = reference(30)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    texts = {"ref": REFS, "base": hypothesis(REFS, 40), "better": hypothesis(REFS, 5)}
    return {name: str(write_lines(tmp_path / name, lines)) for name, lines in texts.items()}


def test_a_pipe_gets_tab_separated_lines(files, capsys):
    assert main(["--hyp", files["base"], "--ref", files["ref"], "--resamples", "100"]) == 0
    captured = capsys.readouterr()
    rows = [line.split("\t") for line in captured.out.splitlines()]
    assert tuple(rows[0]) == COLUMNS
    assert [row[1] for row in rows[1:]] == ["bleu", "chrf", "chrf++", "ter", "tokenized_bleu"]
    assert captured.err.startswith(f"note: {files['base']}: ")


def test_an_option_of_several_files_may_be_repeated(files, capsys):
    """The last one once replaced those before, without a word."""
    options = ["--ref", files["ref"], "--metrics", "bleu", "--json", "--resamples", "100"]

    def scores(*hyps: str) -> list[object]:
        assert main([*hyps, *options]) == 0
        return json.loads(capsys.readouterr().out)["scores"]

    repeated = scores("--hyp", files["base"], "--hyp", files["better"])
    assert [row["system"] for row in repeated] == [files["base"], files["better"]]
    assert repeated == scores("--hyp", files["base"], files["better"])


def test_json_of_two_runs(tmp_path, capsys):
    runs = [
        str(make_run(tmp_path / name, REFS, hypothesis(REFS, damage), {}, "u000100", name=name))
        for name, damage in (("base", 40), ("better", 5))
    ]
    options = ["--split", "test", "--json", "--metrics", "chrf,bleu", "--resamples", "100"]
    assert main([*options, *runs]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["baseline"] == runs[0]
    assert [(s["system"], s["metric"]) for s in found["scores"]] == [
        (run, metric) for run in runs for metric in ("chrf", "bleu")
    ]
    assert found["scores"][2]["p_value"] < 0.05


def test_dev_split_and_language_options(tmp_path, files, capsys):
    run = make_run(tmp_path, REFS, None, {"u000300": REFS}, "u000300")
    assert (
        main([str(run), "--split", "dev", "--metrics", "tokenized_bleu", "--resamples", "0"]) == 0
    )
    row = capsys.readouterr().out.splitlines()[1].split("\t")
    assert row[:5] == [str(run), "tokenized_bleu", "100.0000", "", ""]
    given = ["--hyp", files["ref"], "--ref", files["ref"], "--metrics", "bleu,tokenized_bleu"]
    assert main([*given, "--tgt-lang", "fr", "--src", files["ref"], "--resamples", "0"]) == 0
    captured = capsys.readouterr()
    assert "tok:moses-fr" in captured.out
    assert "hypotheses repeat the source" in captured.err


@pytest.mark.parametrize("tokenized", [True, False])
def test_a_run_has_the_scores_that_its_training_logged(tmp_path, capsys, monkeypatch, tokenized):
    """Also with words that detokenizing and tokenizing changes."""
    words = ["“", "the", "”", "old", "house", "n't", "a/b", "&apos;", "@-@", ",", "3.", "is", "big"]
    refs = [" ".join(words[i:] + words[:i]) for i in range(len(words))]
    run = make_run(
        tmp_path, refs, refs, {}, "u000100", f"data.tokenized={tokenized}", "data.checks=warn"
    )
    recipe = RunFolder.open(run).recipe()
    prepared = prepare(recipe, progress=False)
    assert prepared.test is not None
    segmenter = prepared.segmenter

    def translate_ids(*_: object, **options: object) -> list[Translation]:
        """Return each reference and one more word, so that scores are between 0 and 100."""
        return [
            Translation(pieces, segmenter.decode(pieces, "en"), 0.0, 0.0, True)
            for pieces in (segmenter.encode(f"{ref} cat", "en") for ref in refs)
        ]

    codec = SimpleNamespace(segmenter=segmenter, vocab=prepared.vocab)
    translator = SimpleNamespace(translate_ids=translate_ids, codec=codec)
    monkeypatch.setattr(TranslationTask, "_translator", lambda *_: translator)
    model = Transformer(ModelConfig(dim=8, heads=1), len(prepared.vocab))
    task = TranslationTask(recipe, prepared, torch.device("cpu"), "fp32")
    evaluation = task.evaluate_set(model, prepared.test[0], lambda: False, intervals=False)
    evaluation.write(run / "test.hyp")
    argv = [str(run), "--json", "--metrics", "bleu,chrf,tokenized_bleu", "--resamples", "0"]
    assert main(argv) == 0
    found = json.loads(capsys.readouterr().out)["scores"]
    assert [(s["metric"], s["score"], s["signature"]) for s in found] == [
        (s.name, s.value, s.signature) for s in evaluation.scores
    ]
    assert "tok:model-words" in found[2]["signature"]
    (run / "test.words").unlink()  # the score of the retokenized plain text may differ
    assert main(argv) == 0
    captured = capsys.readouterr()
    again = json.loads(captured.out)["scores"][2]["score"]
    assert (again != evaluation.values["tokenized_bleu"]) == tokenized
    assert f"{run / 'test.words'} is missing" in captured.err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ref", "is also an input, which would be overwritten"),
        ("recipe.yaml", "add --force to replace it"),
    ],
)
def test_a_file_of_sentences_that_cannot_be_written_is_refused_before_scoring(
    files, tmp_path, capsys, name, message
):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("src: gl\n", "utf-8")
    argv = ["--hyp", files["base"], "--ref", files["ref"], "--metrics", "bleu"]
    assert main([*argv, "--sentences", str(tmp_path / name)]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert recipe.read_text("utf-8") == "src: gl\n"
    assert captured.out == ""
    assert Path(files["ref"]).read_text("utf-8").splitlines() == REFS


def test_a_full_disk_is_explained_without_an_option_that_does_not_exist(
    files, tmp_path, capsys, monkeypatch
):
    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("nmt.runtime.files.write_synced", full)
    argv = ["--hyp", files["base"], "--ref", files["ref"], "--metrics", "bleu"]
    assert main([*argv, "--resamples", "0", "--sentences", str(tmp_path / "x.tsv")]) == 4
    printed = capsys.readouterr()
    assert "free some space, then run the same command again\n" in printed.err
    assert "\tbleu\t42.59" in printed.out  # the scores are not lost


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--ref", "r", "s"], "'s'"),
        (["--ref", "r", "--metrics", "bleu", "chrf"], "'chrf'"),
        (["--ref", "r", "--metrics", "bleu", "chrf,ter"], "--metrics bleu,chrf,ter"),
    ],
)
def test_a_stray_word_is_named(options, word, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in "hrs":
        Path(name).write_text("a\n")
    assert main(["--hyp", "h", *options]) == 2
    assert word in capsys.readouterr().err
