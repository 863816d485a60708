"""nmt-export: what it writes, what it rejects, and that the folder works by itself."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nmt.cli.export import main
from nmt.config.recipe import FastBpeConfig, SentencePieceConfig, WhitespaceConfig
from nmt.data.segmenters import Segmenter
from nmt.data.vocab import Vocab
from nmt.decoding.engine import ModelInfo
from nmt.decoding.translator import Translator
from nmt.store.model import Model
from nmt.text.sentences import UsualLine
from tests.decoding.ctranslate2.cases import made, model_folder, pairs
from tests.decoding.untrained import learned
from tests.run_cases import edit_model

pytest.importorskip("ctranslate2")
LINES = [line for line, _ in pairs()[:10]]


Export = Callable[..., tuple[int, str]]


@pytest.fixture
def export(capsys: pytest.CaptureFixture[str]) -> Export:
    """Return a function that runs nmt-export: (exit code, standard error)."""

    def export(*argv: str | Path) -> tuple[int, str]:
        code = main([str(word) for word in argv])
        error = capsys.readouterr().err
        assert "Traceback" not in error
        assert "internal error" not in error
        return code, error

    return export


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return model_folder(made(), tmp_path / "run")


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_files_and_location_of_an_export(run: Path, tmp_path: Path, export: Export) -> None:
    code, error = export(run, "--format", "ctranslate2", "--quantization", "int8")
    assert code == 0
    folder = run / "export-int8"
    assert str(folder) in error
    assert names(folder) == {
        "ctranslate2", "vocab.txt", "segmenter.json", "codes.txt", "model.json", "translate.json",
        "README.md", "translate.py", "unicode.py", "moses.py", "sentences.py",
    }  # fmt: skip
    assert names(folder / "ctranslate2") == {
        "model.bin", "config.json", "shared_vocabulary.json", "manifest.json",
    }  # fmt: skip
    about = Model.open(folder).about
    assert (about.src, about.tgt, about.decode.max_len_offset) == ("gl", "en", 4)
    manifest = json.loads((folder / "ctranslate2" / "manifest.json").read_text())
    assert manifest["quantization"] == "int8"
    assert export(run, "--output", tmp_path / "new" / "folder")[0] == 0
    assert names(tmp_path / "new" / "folder") == names(folder)


def test_an_existing_export_is_replaced_only_with_force(run, tmp_path, export):
    output = tmp_path / "model"
    assert export(run, "--output", output)[0] == 0
    before = (output / "ctranslate2" / "model.bin").read_bytes()
    code, error = export(run, "--output", output, "--quantization", "int8")
    assert code == 2
    assert "--force" in error
    assert (output / "ctranslate2" / "model.bin").read_bytes() == before
    assert export(run, "--output", output, "--quantization", "int8", "--force")[0] == 0
    assert len((output / "ctranslate2" / "model.bin").read_bytes()) < len(before)
    assert names(tmp_path) == {"run", "model"}


@pytest.mark.slow
def test_the_scores_on_dev_are_printed_for_a_quantized_run(trained, tmp_path, export):
    """The first are those of the last validation of this model."""
    code, error = export(trained, "--quantization", "int8", "--output", tmp_path / "int8")
    lines = [line for line in error.splitlines() if line.startswith("dev in ")]
    assert (code, [line.split()[2] for line in lines]) == (0, ["float32:", "int8:"])
    assert f"bleu {Model.open(trained).about.scores['dev bleu']:.2f}, chrf " in lines[0]


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_folders_that_are_not_exports_are_never_replaced(run, tmp_path, export, force):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").write_text("1")
    (tmp_path / "file").write_text("1")
    for output in (tmp_path / "thesis", tmp_path / "file"):
        code, error = export(run, "--output", output, *force)
        assert code == 2
        assert "is not a model" in error
    assert (tmp_path / "thesis" / "chapter").read_text() == "1"


def test_one_message_lists_every_obstacle(tmp_path: Path, export: Export) -> None:
    keys: dict[str, Any] = {
        "normformer": True, "head_scale": True, "post_attn_norm": True, "ffn_norm": True,
        "qkv_norm": True, "res_scale": "ffn", "norm_eps": 0.1,
    }  # fmt: skip
    run = model_folder(made(**keys), tmp_path / "run")
    code, error = export(run)
    assert code == 2
    found = re.findall(r"^  model\.(\w+): (\S+),", error, re.M)
    assert found == [
        ("ffn_norm", "true"), ("post_attn_norm", "true"), ("qkv_norm", "true"),
        ("res_scale", "ffn"), ("norm_eps", "0.1"),
    ]  # fmt: skip
    assert not (run / "export").exists()


def test_a_missing_package_is_an_error_with_its_install_command(run, export, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    code, error = export(run)
    assert code == 2
    assert "pip install -c constraints.txt -e ." in error


# fails if the program imports this toolkit
RUN_WITHOUT_NMT = (
    "import runpy, sys; sys.modules['nmt'] = None; del sys.argv[0]; "
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)

SEGMENTERS = {
    "fastbpe": (FastBpeConfig(merges=300), False, "clean"),
    "trimmed": (FastBpeConfig(merges=300), False, "none"),
    "tokenized": (FastBpeConfig(merges=300), True, "none"),
    "sentencepiece": (SentencePieceConfig(vocab_size=150), False, "nfc"),
    "bytes": (SentencePieceConfig(vocab_size=400, byte_fallback=True), False, "clean"),
    "sentencepiece-tokenized": (SentencePieceConfig(vocab_size=150), True, "none"),
    "whitespace": (WhitespaceConfig(), False, "none"),
}


def text_of(kind: str) -> tuple[Segmenter, Vocab]:
    config, tokenized, normalize = SEGMENTERS[kind]
    segmenter, vocab = learned(config, pairs(), tokenized, normalize)
    if kind != "trimmed":
        return segmenter, vocab
    segmenter, kept = segmenter.trimmed(set(vocab.types), set(vocab.types[:100]))
    return segmenter, vocab.with_types(kept)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SEGMENTERS)
def test_the_exported_program_translates_like_the_toolkit(kind, tmp_path, export):
    """It prints the text of our own search and imports no module of this toolkit."""
    translator = made(words=text_of(kind), logit_mask=kind != "whitespace")
    translator.info = ModelInfo(translator.info.decode.model_copy(update={"beam": 1}))
    folder = tmp_path / "model"
    assert export(model_folder(translator, tmp_path / "run"), "--output", folder)[0] == 0
    controls = [LINES[0].replace(" ", char, 1) for char in "\r\t\0\x85"]
    forms = [unicodedata.normalize("NFD", "hoxe cho\u00adve, señor\u200b")]
    lines = [*LINES, "", "\u200b", "\ufe0f", "\u3164", *controls, LINES[0]]
    lines += forms if SEGMENTERS[kind][2] == "clean" else []
    ran = subprocess.run(
        [sys.executable, "-c", RUN_WITHOUT_NMT, folder / "translate.py"],
        input=("\ufeff" + "\n".join(lines)).encode(),  # a byte-order mark is not text
        env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0"},
        capture_output=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.decode().split("\n")[:-1] == translator.translate(lines)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fastbpe", "sentencepiece-tokenized"])
def test_the_exported_program_splits_lines_like_the_toolkit(kind, tmp_path, export):
    translator = made(words=text_of(kind))
    translator.info = ModelInfo(translator.info.decode.model_copy(update={"beam": 1}))
    translator.codec.usual = UsualLine(2, abbreviations={"gl": ["gata"]})
    folder = tmp_path / "model"
    assert export(model_folder(translator, tmp_path / "run"), "--output", folder)[0] == 0
    sentences = [f"{line.strip(' .?!')}. " for line, _ in pairs()[:5]]
    lines = ["".join(sentences[:count]).strip() for count in range(6)]
    whole = translator.translate(lines, split="line")
    assert [a == b for a, b in zip(translator.translate(lines), whole, strict=True)][:4] == [
        True, True, True, False,
    ]  # fmt: skip

    def program(*argv: str) -> tuple[list[str], str]:
        ran = subprocess.run(
            [sys.executable, "-c", RUN_WITHOUT_NMT, folder / "translate.py", *argv],
            input="".join(f"{line}\n" for line in lines).encode(),
            capture_output=True,
            check=True,
        )
        return ran.stdout.decode().splitlines(), ran.stderr.decode()

    assert program() == (translator.translate(lines), "")
    assert program("--split", "line") == (whole, "")
    loaded = Translator.load(folder, "cpu")
    assert loaded.codec.usual == translator.codec.usual
    assert loaded.translate(lines) == translator.translate(lines)


@pytest.mark.slow
def test_the_exported_program_has_the_rules_of_codes_of_three_letters(run, tmp_path, export):
    languages = {"src": "glg", "tgt": "eng_Latn"}
    edit_model(run, **languages, directions=[languages | {"tag": None, "tgt_tag": None}])
    folder = tmp_path / "model"
    assert export(run, "--output", folder)[0] == 0
    assert json.loads((folder / "translate.json").read_text())["rules"] == {
        "eng_Latn": "en",
        "glg": "gl",
    }
    words = ["I", "don", "&apos;t", "know", ",", "it", "&apos;s", "Ann", "&apos;s", "."]
    program = (
        f"from translate import *; print(Translator('.').segmenter.decode({words}, 'eng_Latn'))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True
    )
    assert (ran.stdout, ran.stderr) == ("I don't know, it's Ann's.\n", "")


@pytest.mark.slow
def test_the_exported_program_names_a_line_that_it_cannot_translate(run, tmp_path, export):
    folder = tmp_path / "model"
    assert export(run, "--output", folder)[0] == 0
    for bad, problem in (
        (b"o \xff", "not UTF-8: invalid start byte at byte 3 of the line"),
        (b"o " * 3000, "CTranslate2 cannot translate a line of 3,000 subwords: "),
        (b"o" * 100_001, "100,001 characters, at most 100,000 are allowed"),
    ):
        ran = subprocess.run(
            [sys.executable, folder / "translate.py"],
            input=b"\n".join([LINES[0].encode(), b"", bad, LINES[0].encode(), b""]),
            capture_output=True,
            check=False,
        )
        assert ran.returncode == 2
        assert len(ran.stdout.splitlines()) == 2
        (line,) = ran.stderr.decode().splitlines()
        assert line.startswith(f"translate.py: line 3: {problem}")


@pytest.mark.slow
@pytest.mark.parametrize("kind", SEGMENTERS)
def test_the_readme_names_the_packages_that_the_program_imports(kind, tmp_path, export):
    run = model_folder(made(words=text_of(kind)), tmp_path / "run")
    assert export(run, "--output", tmp_path / "model")[0] == 0
    readme = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    (packages,) = re.findall(r"^pip install (.*)$", readme, re.M)
    ours = {"ctranslate2", "sentencepiece", "sacremoses", "subword-nmt"}
    imported = {
        "fastbpe": ours - {"sentencepiece"},
        "whitespace": {"ctranslate2", "sacremoses"},
        "sentencepiece": {"ctranslate2", "sentencepiece"},
    }[SEGMENTERS[kind][0].kind]
    if SEGMENTERS[kind][1]:
        imported |= {"sacremoses"}
    assert set(packages.split()) == {*imported, "regex"}
    assert "$" not in readme
