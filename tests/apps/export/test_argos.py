"""nmt-export --format argos: a package that Argos Translate installs from its file."""

from __future__ import annotations

import importlib
import json
import zipfile
from pathlib import Path

import pytest

from nmt.apps.export.argos import SUFFIX
from nmt.cli.export import main
from nmt.config.recipe import FastBpeConfig, SentencePieceConfig
from nmt.decoding.translator import Translator
from tests.decoding.ctranslate2.cases import made, model_folder, pairs
from tests.decoding.untrained import LINES, learned, untrained
from tests.run_cases import edit_model

ctranslate2 = pytest.importorskip("ctranslate2", reason="the extra ctranslate2 is not installed")


@pytest.fixture(scope="module")
def translator() -> Translator:
    return untrained(segment=SentencePieceConfig(vocab_size=100))


@pytest.fixture
def run(translator: Translator, tmp_path: Path) -> Path:
    return model_folder(translator, tmp_path / "run")


def expected(translator: Translator, model: Path) -> list[str]:
    """Search as Argos Translate does, with our own segmenter."""
    segmenter = translator.codec.segmenter
    engine = ctranslate2.Translator(str(model), compute_type="auto")  # the fastest, such as int8
    found = []
    for line in LINES:
        pieces = [segmenter.encode(line, "gl")]
        settings = {"beam_size": 4, "length_penalty": 0.2, "replace_unknowns": True}
        (result,) = engine.translate_batch(pieces, **settings)
        found.append(segmenter.decode(result.hypotheses[0], "en"))
    return found


def test_argos_translate_installs_the_file_and_translates(translator, run, tmp_path, monkeypatch):
    file = tmp_path / f"gl-en{SUFFIX}"
    assert main([str(run), "--format", "argos", "-o", str(file)]) == 0
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    pytest.importorskip("argostranslate.package", reason="argostranslate is not installed")
    package, translate = map(
        importlib.import_module, ("argostranslate.package", "argostranslate.translate")
    )
    package.install_from_path(file)
    (installed,) = package.get_installed_packages()
    assert (installed.from_code, installed.to_code) == ("gl", "en")
    assert "argospm install" in installed.get_readme()
    translation = translate.get_translation_from_codes("gl", "en")

    class OneSentence:
        """Argos Translate downloads a model that splits text into sentences."""

        def split_sentences(self, text: str) -> list[str]:
            return [text]

    translation.underlying.sentencizer = OneSentence()
    found = [translation.translate(line) for line in LINES]
    assert any(found)
    # Argos Translate reads an underscore as a space, and removes one at the start
    wanted = expected(translator, installed.package_path / "model")
    assert found == [line.replace("_", " ").removeprefix(" ") for line in wanted]


def test_the_package_has_languages_pieces_and_a_model(translator, run, tmp_path):
    sentencepiece = pytest.importorskip("sentencepiece")
    assert main([str(run), "--format", "argos", "--quantization", "int8"]) == 0
    with zipfile.ZipFile(run / f"model{SUFFIX}") as package:
        package.extractall(tmp_path)
        assert package.testzip() is None
    (folder,) = tmp_path.glob("translate-*")
    assert folder.name == "translate-gl_en-1_0"
    metadata = json.loads((folder / "metadata.json").read_text())
    assert (metadata["from_code"], metadata["to_code"]) == ("gl", "en")
    assert metadata["from_name"] == "Galician"
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.model"))
    segmenter = translator.codec.segmenter
    assert [pieces.encode(line, out_type=str) for line in LINES] == [
        segmenter.encode(line, "gl") for line in LINES
    ]
    assert all(isinstance(line, str) for line in expected(translator, folder / "model"))


def test_a_file_is_replaced_only_with_force_and_has_the_ending(run, tmp_path, capsys):
    file = tmp_path / f"gl-en{SUFFIX}"
    argv = [str(run), "--format", "argos", "-o"]
    file.write_text("x")
    assert main([*argv, str(file)]) == 2
    assert "--force" in capsys.readouterr().err
    assert file.read_text() == "x"
    assert main([*argv, str(file), "--force"]) == 0
    assert zipfile.is_zipfile(file)
    assert main([*argv, str(tmp_path / "gl-en.zip")]) == 2
    assert SUFFIX in capsys.readouterr().err
    assert main([*argv[:-1], "--hub", "x"]) == 2
    assert "--hub is not for --format argos" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == [file.name, "run"]
    for _ in range(2):
        assert main([*argv[:-1], "--force"]) == 0  # in the run folder


@pytest.mark.parametrize(
    ("segment", "tokenized", "tags", "message"),
    [
        (FastBpeConfig(merges=50), False, {}, "this model has fastbpe"),
        (SentencePieceConfig(vocab_size=200), True, {}, "sentencepiece of tokenized text"),
        (SentencePieceConfig(vocab_size=200), False, {"tag": "<a>"}, "cannot put a tag"),
        (SentencePieceConfig(vocab_size=200), False, {"tgt_tag": "<a>"}, "cannot put a tag"),
    ],
)
def test_what_argos_translate_cannot_prepare_is_refused_with_a_way_out(
    segment, tokenized, tags, message, tmp_path, capsys
):
    run = model_folder(made(words=learned(segment, pairs(), tokenized)), tmp_path / "run")
    direction = {"src": "gl", "tgt": "en", "tag": None, "tgt_tag": None}
    edit_model(run, directions=[direction | tags])
    assert main([str(run), "--format", "argos"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "serve it with nmt-serve" in error
    assert not (run / f"model{SUFFIX}").exists()
