"""nmt-translate with a model of several source languages, whose training data has tags."""

from __future__ import annotations

import json
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import nmt
from nmt.apps.serve.limits import Limits
from nmt.apps.serve.model import ServedModel
from nmt.cli import synthesize
from nmt.cli.translate import main
from nmt.decoding.ctranslate2.folder import export
from nmt.errors import UserError
from nmt.store.model import Model
from tests.run_cases import edit_model
from tests.toy import toy_corpus, toy_recipe


def joint_run(folder: Path, name: str, src: str, tgt: str, tags: tuple[str, str]) -> Path:
    """Return a run of Galician to English and of another pair, whose corpus is in a folder."""
    toy_corpus(folder, {"train": 60, "dev": 6, "test": 6})
    toy_corpus(folder / name, {"train": 30}, langs=(src, tgt))
    entries = [
        {"path": "train", "tag": tags[0]},
        {"path": f"{name}/train", "src": src, "tgt": tgt, "tag": tags[1]},
    ]
    data = {"train": entries, "dev": {"path": "dev", "tag": tags[0]}, "tokenized": False}
    one = {"validate_every": 2, "max_validations": 1}
    recipe = toy_recipe(folder, {"data": {**data, "checks": "off"}, "train": one})
    return nmt.train(recipe, quiet=True).run


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """Return a run of Galician and Italian to English, with a tag for each."""
    return joint_run(tmp_path_factory.mktemp("joint"), "it", "it", "en", ("<gl>", "<it>"))


@pytest.fixture(scope="module")
def to_two(tmp_path_factory) -> Path:
    """Return a run of Galician to English and French, with a tag for each."""
    return joint_run(tmp_path_factory.mktemp("to-two"), "fr", "gl", "fr", ("<2en>", "<2fr>"))


@pytest.fixture
def source(tmp_path) -> Path:
    """Return a file with a line to translate."""
    (tmp_path / "in").write_text("1 2\n")
    return tmp_path / "in"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dev", "options"),
    [
        ({"path": "dev", "tag": "<gl>"}, " --tag '<gl>'"),
        ({"path": "it/dev", "src": "it", "tag": "<it>"}, " --src-lang it --tag '<it>'"),
        ({"path": "it/dev", "src": "es", "tag": "<it>"}, " --tag '<it>'"),  # not a source of train
    ],
)
def test_the_command_at_the_end_of_a_training_fits_the_dev_set(run, tmp_path, dev, options):
    folder = run.parent
    for lang in ("it", "es", "en"):
        shutil.copy(folder / f"dev.{'en' if lang == 'en' else 'gl'}", folder / f"it/dev.{lang}")
    entry = json.dumps({**dev, "path": str(folder / dev["path"])})
    keys = [f"data.dev={entry}", f"out={tmp_path / 'run'}"]
    result = nmt.train(folder / "toy.yaml", keys, quiet=True)
    end = f" | nmt-translate {result.run}{options}\nbrowser:    nmt-serve {result.run}"
    assert end in result.text
    assert main([str(result.run), *shlex.split(options), "--input", str(folder / "dev.gl")]) == 0


def test_a_missing_tag_is_noted_with_the_tags(run, source, capsys):
    for more, noted in (([], True), (["--tag", "<it>"], False)):
        assert main([str(run), "--input", str(source), *more]) == 0
        err = capsys.readouterr().err
        assert ('choose one with --tag: "<gl>", "<it>"' in err) == noted


@pytest.mark.slow
def test_a_missing_tag_is_noted_by_both_programs_of_an_export(run, tmp_path, source, capsys):
    pytest.importorskip("ctranslate2")
    model = tmp_path / "model"
    export(Model.open(run), model)
    for options, noted in (([], True), (["--tag", "<it>"], False)):
        assert main([str(model), "--input", str(source), *options]) == 0
        assert ('choose one with --tag: "<gl>", "<it>"' in capsys.readouterr().err) == noted
        ran = subprocess.run(
            [sys.executable, "-B", model / "translate.py", *options],
            check=True,
            input=b"1 2\n",
            capture_output=True,
        )
        assert (b"choose one with --tag: <gl>, <it>" in ran.stderr) == noted


def test_a_model_with_an_entry_without_a_tag_needs_none(run, tmp_path, source, capsys):
    model = shutil.copytree(run / "model", tmp_path / "model")
    directions = json.loads((model / "model.json").read_text())["directions"]
    edit_model(model, directions=[directions[0], directions[1] | {"tag": None}])
    assert main([str(model), "--input", str(source)]) == 0
    assert "--tag" not in capsys.readouterr().err


def test_the_source_language_chooses_the_rules_of_the_tokenizer(run):
    """In Italian an apostrophe belongs to the word before it."""
    translator = nmt.Translator.load(run)
    pieces = {src: translator.codec.source_pieces("dell'anno", src) for src in (None, "gl", "it")}
    assert pieces[None] == pieces["gl"] == ["dell&apos;anno"]
    assert pieces["it"] == ["dell&apos;", "anno"]


def test_the_words_that_nmt_serve_returns_are_those_of_the_source_language(run):
    """The alignment counts them."""
    served = ServedModel("m", nmt.Translator.load(run), Limits())
    line = "dell'anno 1"
    for src, expected in (("it", ["dell'", "anno", "1"]), (None, ["dell'anno", "1"])):
        options = served.translator.check_options({"align": True, "src": src})
        [result] = served.translate([line], (options, None), 0, lambda: None)
        assert [line[w["start"] : w["end"]] for w in result["source_words"]] == expected
    served.batcher.close()


def test_an_export_knows_the_source_languages(run, tmp_path):
    """In Italian an apostrophe belongs to the word before it."""
    pytest.importorskip("ctranslate2")
    model = tmp_path / "model"
    export(Model.open(run), model)
    program = runpy.run_path(str(model / "translate.py"))
    alone = program["Translator"](model, device="cpu")
    found, given = SimpleNamespace(hypotheses=[["1"]]), []
    alone.engine = SimpleNamespace(
        translate_batch=lambda lines, **options: (given.extend(lines), [found])[1]
    )
    for src in (None, "gl", "it"):
        alone.translate("dell'anno", src=src)
    assert given == [["dell&apos;anno"]] * 2 + [["dell&apos;", "anno"]]
    with pytest.raises(ValueError, match="its source languages: gl, it"):
        alone.translate("1", src="fr")


@pytest.mark.parametrize("more", [[], ["--score-target", "TARGET"]])
def test_the_flag_reaches_every_kind_of_input(run, source, monkeypatch, more):
    from nmt.decoding.codec import TextCodec

    used = []
    real = TextCodec.source_pieces

    def source_pieces(self: TextCodec, line: str, src: str | None = None) -> list[str]:
        used.append(src)
        return real(self, line, src)

    monkeypatch.setattr(TextCodec, "source_pieces", source_pieces)
    words = [word.replace("TARGET", str(source)) for word in more]
    assert main([str(run), "--input", str(source), "--src-lang", "it", *words]) == 0
    assert used == ["it"]


def test_a_language_that_the_model_does_not_have_is_an_error(run, capsys):
    assert main([str(run), "--src-lang", "fr"]) == 2
    assert "was not trained to translate fr; its source languages are gl, it" in (
        capsys.readouterr().err
    )
    with pytest.raises(UserError, match="src"):
        nmt.Translator.load(run).translate(["1"], src="f r")


def test_the_tag_chooses_the_rules_of_the_target_language(to_two, tmp_path):
    """In French an apostrophe belongs to the word before it, and a space is before "!"."""
    translator = nmt.Translator.load(to_two)
    for tag, is_french in ((None, False), ("<2en>", False), ("<2fr>", True)):
        [text] = translator.translate(["1 2"], prefix=["oui !"], tag=tag)
        assert text.startswith("oui !") == is_french
        [scored] = translator.score(["1 2"], ["l'homme"], tag=tag)
        assert scored.pieces == (["l&apos;", "homme"] if is_french else ["l", "&apos;homme"])

    pytest.importorskip("ctranslate2")
    export(Model.open(to_two), tmp_path / "model")
    assert nmt.Translator.load(tmp_path / "model").codec.for_tag("<2fr>").tgt == "fr"
    program = runpy.run_path(str(tmp_path / "model" / "translate.py"))
    alone = program["Translator"](tmp_path / "model", device="cpu")
    found = SimpleNamespace(hypotheses=[["l&apos;", "homme"]])
    alone.engine = SimpleNamespace(translate_batch=lambda lines, **options: [found])
    assert [alone.translate("1", tag) for tag in ("<2en>", "<2fr>")] == ["l' homme", "l'homme"]


def test_the_tag_names_the_files_of_a_synthetic_corpus(to_two, tmp_path, source, capsys):
    argv = [str(to_two), "--input", str(source), "-o", str(tmp_path / "bt"), "--tag", "<2fr>"]
    assert synthesize.main([*argv, "--max-copied", "1", "--no-repeat-ngram", "1"]) == 0
    assert "bt.gl and " in (err := capsys.readouterr().err)
    assert "bt.fr: 1 of 1 pair kept" in err
