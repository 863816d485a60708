"""nmt-translate with a model of several source languages, whose training data has tags."""

from __future__ import annotations

from pathlib import Path

import pytest

import nmt
from nmt.cli.translate import main
from nmt.errors import UserError
from tests.toy import toy_corpus, toy_recipe


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """Return a run of Galician and Italian to English, with a tag for each."""
    folder = tmp_path_factory.mktemp("joint")
    toy_corpus(folder, {"train": 60, "dev": 6, "test": 6})
    toy_corpus(folder / "it", {"train": 30}, langs=("it", "en"))
    entries = [
        {"path": "train", "tag": "<gl>"},
        {"path": "it/train", "src": "it", "tag": "<it>"},
    ]
    data = {"train": entries, "dev": {"path": "dev", "tag": "<gl>"}, "tokenized": False}
    one = {"validate_every": 2, "max_validations": 1}
    recipe = toy_recipe(folder, {"data": {**data, "checks": "off"}, "train": one})
    return nmt.train(recipe, quiet=True).run


def test_a_missing_tag_is_noted_with_the_tags(run, tmp_path, capsys):
    source = tmp_path / "in"
    source.write_text("1 2\n")
    for more, noted in (([], True), (["--tag", "<it>"], False)):
        assert main([str(run), "--input", str(source), *more]) == 0
        err = capsys.readouterr().err
        assert ('choose one with --tag: "<gl>", "<it>"' in err) == noted


def test_a_model_with_an_entry_without_a_tag_needs_none(run, tmp_path, capsys):
    config = run / "config.yaml"
    text = config.read_text()
    source = tmp_path / "in"
    source.write_text("1 2\n")
    try:
        config.write_text(text.replace("tag: <it>", "tag: none"))
        assert main([str(run), "--input", str(source)]) == 0
    finally:
        config.write_text(text)
    assert "--tag" not in capsys.readouterr().err


def test_the_source_language_chooses_the_rules_of_the_tokenizer(run):
    """In Italian an apostrophe belongs to the word before it."""
    translator = nmt.Translator.load(run)
    pieces = {
        src: translator.codec.encode_line(1, "dell'anno", src=src)[0].pieces
        for src in (None, "gl", "it")
    }
    assert pieces[None] == pieces["gl"] == ["dell", "&apos;", "anno"]
    assert pieces["it"] == ["dell&apos;", "anno"]


@pytest.mark.parametrize("more", [[], ["--score-target", "TARGET"]])
def test_the_flag_reaches_every_kind_of_input(run, tmp_path, monkeypatch, more):
    from nmt.decoding.codec import TextCodec

    used = []
    real = TextCodec.source_pieces

    def source_pieces(self: TextCodec, line: str, src: str | None = None) -> list[str]:
        used.append(src)
        return real(self, line, src)

    monkeypatch.setattr(TextCodec, "source_pieces", source_pieces)
    for name in ("in", "target"):
        (tmp_path / name).write_text("1 2\n")
    words = [word.replace("TARGET", str(tmp_path / "target")) for word in more]
    assert main([str(run), "--input", str(tmp_path / "in"), "--src", "it", *words]) == 0
    assert used == ["it"]


def test_a_language_that_the_model_does_not_have_is_an_error(run, capsys):
    assert main([str(run), "--src", "fr"]) == 2
    assert "was not trained to translate fr; its source languages are gl, it" in (
        capsys.readouterr().err
    )
    with pytest.raises(UserError, match="src"):
        nmt.Translator.load(run).translate(["1"], src="f r")
