"""engine auto: CTranslate2 where it finds the same translations, this toolkit elsewhere."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from nmt.cli import translate
from nmt.decoding.options import SearchOptions
from nmt.decoding.translator import Translator
from nmt.errors import UserError
from nmt.export import engines
from nmt.export.engines import load_translator
from tests.export.cases import made, model_folder, pairs
from tests.run_cases import flip

pytest.importorskip("ctranslate2")
LINES = ["", *(line for line, _ in pairs()[:10]), "o"]
NOTE = "note: engine ctranslate2 for greedy search and stop rule count\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(made(), tmp_path_factory.mktemp("run") / "run")


@pytest.mark.slow
def test_an_ensemble_is_for_torch(run, capsys):
    auto = load_translator([run, run], "cpu", engine="auto")
    expected = Translator.load([run, run], "cpu").translate(LINES, beam=1)
    assert auto.translate(LINES, beam=1) == expected
    assert "engine torch, because" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "exports"),
    [
        ({"beam": 1}, 1),
        ({"beam": 1, "align": True, "max_len_offset": 9}, 1),
        ({"beam": 1, "src": "gl"}, 1),
        ({"stop_rule": "count"}, 1),
        ({"stop_rule": "count", "beam": 7, "align": True, "max_len_offset": 3}, 1),
        ({"stop_rule": "count", "n_best": 2}, 0),
        ({}, 0),
        ({"beam": 1, "token_scores": True}, 0),
        ({"beam": 1, "no_repeat_ngram": 2}, 0),
        ({"sample": True}, 0),
        ({"beam": 1, "forbid_all": ("the",)}, 0),
        ({"beam": 1, "glossary": (("no line", "the"),)}, 1),
        ({"beam": 1, "glossary": ((LINES[1].split()[0], "the"),)}, 1),  # a free search first
        ({"beam": 1, "prefix": ["the"] * len(LINES)}, 0),
    ],
    ids=lambda value: "-".join(value) or "beam" if isinstance(value, dict) else "",
)
def test_each_search_gives_the_translations_of_torch(run, options, exports, capsys):
    auto = load_translator(run, "cpu", engine="auto")
    capsys.readouterr()
    expected = [of[0] for of in Translator.load(run, "cpu").stream(LINES, **options)]
    for _ in range(2):
        found = [of[0] for of in auto.stream(LINES, **options)]
        assert [one.text for one in found] == [one.text for one in expected]
        assert [one.alignment for one in found] == [one.alignment for one in expected]
    assert capsys.readouterr().err == NOTE * exports  # said once


def test_a_length_limit_above_that_of_the_export_is_for_torch(run, capsys):
    auto = load_translator(run, "cpu", engine="auto")
    capsys.readouterr()
    for offset, note in ((1534, ""), (1533, NOTE)):
        auto.translate([""], beam=1, max_len_offset=offset)
        assert capsys.readouterr().err == note


def test_the_model_for_ctranslate2_is_kept_and_belongs_to_the_weights(tmp_path):
    def search(path: Path) -> tuple[list[str], int]:
        found = load_translator(path, "cpu", engine="ctranslate2").translate(LINES, beam=1)
        return found, (path / "ctranslate2" / "model.bin").stat().st_mtime_ns

    model = model_folder(made(), tmp_path / "model")
    first = search(model)
    assert search(model) == first
    other = model_folder(made(seed=2), tmp_path / "other")
    shutil.copytree(model / "ctranslate2", other / "ctranslate2")
    assert search(other)[0] == Translator.load(other, "cpu").translate(LINES, beam=1) != first[0]


@pytest.mark.parametrize("damage", ["flipped", "missing", "not a folder", "a link"])
def test_a_damaged_model_for_ctranslate2_is_made_again(damage, tmp_path):
    model = model_folder(made(), tmp_path / "model")
    expected = load_translator(model, "cpu", engine="ctranslate2").translate(LINES, beam=1)
    folder = model / "ctranslate2"
    if damage == "flipped":
        flip(folder / "model.bin")
    elif damage == "missing":
        (folder / "config.json").unlink()
    else:
        shutil.move(folder, tmp_path / "moved")
        folder.touch() if damage == "not a folder" else folder.symlink_to(tmp_path / "moved")
    assert load_translator(model, "cpu", engine="ctranslate2").translate(LINES, beam=1) == expected


def test_a_model_that_cannot_be_written_gets_a_temporary_one(tmp_path, monkeypatch):
    model = model_folder(made(), tmp_path / "model")
    expected = Translator.load(model, "cpu").translate(LINES, beam=1)
    real = os.mkdir

    def refuse(path, *arguments, **named):
        if Path(path).parent == model:
            raise OSError(errno.EROFS, "Read-only file system")
        return real(path, *arguments, **named)

    monkeypatch.setattr(os, "mkdir", refuse)
    before = list(model.iterdir())
    assert load_translator(model, "cpu", engine="ctranslate2").translate(LINES, beam=1) == expected
    assert list(model.iterdir()) == before


def test_a_model_that_cannot_be_exported_is_searched_by_torch_with_a_note(tmp_path, capsys):
    run = model_folder(made(ffn_norm=True), tmp_path / "run")
    expected = Translator.load(run, "cpu").translate(LINES, beam=1)
    assert load_translator(run, "cpu", engine="auto").translate(LINES, beam=1) == expected
    assert "note: engine torch, because " in capsys.readouterr().err


def test_names_of_engines(run, tmp_path):
    assert load_translator(run, "cpu", engine="torch").engine.name == "torch"
    assert load_translator(run, "cpu", engine="ctranslate2").engine.name == "ctranslate2"
    auto = load_translator(run, "cpu", engine="auto")
    assert auto.engine.name.startswith("torch; ctranslate2 for")
    with pytest.raises(UserError, match="'x' is not one of auto, torch, ctranslate2"):
        load_translator(run, engine="x")


def test_a_new_search_option_is_searched_by_torch():
    """Until somebody has shown that CTranslate2 gives the same."""
    assert set(SearchOptions.model_fields) >= engines.SAME_RESULT


@pytest.mark.slow
def test_nmt_translate_auto_writes_what_torch_writes(run, tmp_path, capsys):
    source = tmp_path / "in"
    source.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    for flags, note in ((["--beam", "1"], True), (["--beam", "1", "--scores"], False), ([], False)):
        written = []
        for engine in ("auto", "torch"):
            command = [str(run), "--engine", engine, "--input", str(source), "--device", "cpu"]
            assert translate.main([*command, *flags]) == 0
            out, err = capsys.readouterr()
            written.append(out)
            assert (NOTE in err) == (note and engine == "auto")
        assert written[0] == written[1]
