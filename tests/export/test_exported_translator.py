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
from nmt.decoding.codec import MAX_SOURCE_PIECES
from nmt.decoding.engine import ModelInfo
from nmt.decoding.translator import Translator
from nmt.errors import UserError
from tests.export.cases import made, model_folder, pairs
from tests.toy import lines_of_digits
from tests.trained import LONGEST

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


@pytest.mark.slow
def test_options_and_long_lines_are_handled_as_by_torch(translator, exported, nmt_translate):
    long = " ".join(["a"] * (MAX_SOURCE_PIECES + 9))
    code, (line,), error = nmt_translate(exported, "--batch-tokens", "999", lines=[long])
    assert code == 0
    assert "translated in 2 parts" in error
    assert line == translator.translate([long])[0]
    code, lines, _ = nmt_translate(exported, "--beam", "3", "--n-best", "2", "--length-alpha", "1")
    assert code == 0
    assert [row.split(" ||| ")[0] for row in lines][:4] == ["0", "1", "1", "2"]
    assert nmt_translate(exported, "--beam", "0")[0] == 2


def test_a_trained_model_gives_the_same_beams(trained, nmt_translate):
    """Most lines agree: the two searches stop by different rules, and the model is confident."""
    lines = lines_of_digits(60, seed=5, longest=LONGEST)
    ours, theirs = (
        nmt_translate(trained, *engine, "--device", "cpu", lines=lines)
        for engine in ((), ("--engine", "ctranslate2"))
    )
    assert ours[0] == theirs[0] == 0
    assert len(ours[1]) == len(theirs[1]) == len(lines)
    assert sum(a == b for a, b in zip(ours[1], theirs[1], strict=True)) >= 0.95 * len(lines)


# ---------------------------------------------------------------- errors


def test_unsupported_options_are_named(exported, monkeypatch, nmt_translate):
    code, _, error = nmt_translate(exported, "--sample", "--temperature", "0.7")
    assert code == 2
    assert "does not support sample, temperature" in error
    moved = Translator.load(exported, "cpu")
    for options, lacking in (({"beam": 2, "stop_rule": "bound"}, "stop_rule bound"),):
        with pytest.raises(UserError, match=f"does not support {lacking}"):
            moved.stream(LINES, **options)


def test_a_model_that_ctranslate2_cannot_express_is_an_error(tmp_path, nmt_translate):
    run = model_folder(made(ffn_norm=True), tmp_path / "run")
    code, _, error = nmt_translate(run, "--engine", "ctranslate2")
    assert code == 2
    assert "model.ffn_norm" in error


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("model.json", lambda content: b'{"src": "gl"}'),
        ("ctranslate2/model.bin", lambda content: content[:1000]),
        ("vocab.txt", lambda content: content + b"more\t1\t1\n"),
        ("codes.txt", None),
    ],
)
def test_a_damaged_export_is_an_error(name, change, exported, tmp_path):
    folder = shutil.copytree(exported, tmp_path / "model")
    if change is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(change((folder / name).read_bytes()))
    with pytest.raises(UserError) as refused:
        Translator.load(folder, "cpu")
    assert refused.value.at == str(folder / name)


def test_a_folder_that_is_neither_a_run_nor_an_export_is_an_error(tmp_path, nmt_translate):
    code, _, error = nmt_translate(tmp_path, "--engine", "ctranslate2")
    assert code == 2
    assert "not a model or run folder" in error


def test_a_reverse_model_chooses_among_the_candidates_of_an_export(run, exported, tmp_path):
    other = made(seed=3)
    other.codec.src, other.codec.tgt = "en", "gl"
    folder = model_folder(other, tmp_path / "reverse")
    reverse = Translator.load(folder, "cpu")
    options = {"candidates": 4, "reverse_weight": 2}
    both = Translator.load(exported, "cpu", reverse=folder)
    lines = [line for line in LINES if line.strip()]
    for line, found in zip(lines, both.n_best(lines, 4, **options), strict=True):
        (candidates,) = Translator.load(exported, "cpu").n_best([line], 4)
        sums = [one.score + 2 * reverse.score([one.text], [line])[0].score for one in candidates]
        pieces = [one.pieces for one in candidates]
        order = [pieces.index(one.pieces) for one in found]
        assert sorted(order) == list(range(len(candidates)))
        # other batches round in another way, so nearly equal sums may change places
        expected = pytest.approx(sorted(sums, reverse=True), rel=1e-4)
        assert [sums[index] for index in order] == expected
