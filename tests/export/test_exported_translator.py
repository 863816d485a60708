"""nmt-translate --engine ctranslate2, on a model and on an export."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from nmt.cli import export as command
from nmt.cli import translate
from nmt.data.vocab import EOS, UNK
from nmt.decoding.engine import ModelInfo
from nmt.decoding.translator import Translator
from nmt.errors import UserError
from tests.export.cases import made, model_folder, pairs

pytest.importorskip("ctranslate2")
LINES = ["", *(line for line, _ in pairs()[:12]), "\u3000", "o"]


@pytest.fixture(scope="module")
def translator() -> Translator:
    translator = made(norm="layernorm", res_scale="scalar", head_scale=True)
    # CTranslate2 gives the probability of UNK, and of EOS at the first position, to the others
    with torch.no_grad():
        translator.transformer.out_bias[[UNK, EOS]] -= torch.tensor([15.0, 5.0])
    translator.info = ModelInfo(translator.info.decode.model_copy(update={"beam": 1}))
    return translator


@pytest.fixture(scope="module")
def run(translator: Translator, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(translator, tmp_path_factory.mktemp("run") / "run")


@pytest.fixture(scope="module")
def exported(run: Path) -> Path:
    assert command.main([str(run), "--output", str(run.parent / "model")]) == 0
    return run.parent / "model"


@pytest.fixture
def nmt_translate(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, list[str], str]]:
    def run(*argv: str | Path, lines: list[str] = LINES) -> tuple[int, list[str], str]:
        given = io.BytesIO("".join(f"{line}\n" for line in lines).encode())
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(given))
        capsys.readouterr()
        code = translate.main([str(word) for word in argv])
        out, error = capsys.readouterr()
        assert "Traceback" not in error
        assert "internal error" not in error
        return code, out.split("\n")[:-1], error

    return run


def test_both_kinds_of_folder_give_the_text_of_torch(translator, run, exported, nmt_translate):
    expected = translator.translate(LINES)
    assert any(expected)
    engine = ("--engine", "ctranslate2", "--device", "cpu")
    for argv in ((run, *engine), (exported, *engine), (exported,)):
        code, lines, _ = nmt_translate(*argv)
        assert code == 0
        assert lines == expected


def test_an_export_can_be_moved_and_its_run_deleted(translator, exported, tmp_path):
    moved = Translator.load(shutil.copytree(exported, tmp_path / "elsewhere"), "cpu")
    shutil.rmtree(tmp_path / "elsewhere")
    assert moved.translate(LINES) == translator.translate(LINES)


# ---------------------------------------------------------------- errors


def test_unsupported_options_are_named(exported, monkeypatch, nmt_translate):
    code, _, error = nmt_translate(exported, "--sample", "--temperature", "0.7")
    assert code == 2
    assert "does not support sample, temperature" in error
    moved = Translator.load(exported, "cpu")
    for options, lacking in (({"beam": 2, "stop_rule": "bound"}, "stop_rule bound"),):
        with pytest.raises(UserError, match=f"does not support {lacking}"):
            moved.stream(LINES, **options)
