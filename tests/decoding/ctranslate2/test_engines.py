"""CTranslate2 and torch are one translator: the same translations, scores and alignments."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.cli import translate
from nmt.config.recipe import DecodeConfig
from nmt.data.vocab import EOS, UNK
from nmt.decoding import translator as translator_module
from nmt.decoding.codec import TextCodec
from nmt.decoding.ctranslate2 import engine as ctranslate2_engine
from nmt.decoding.ctranslate2 import folder as folder_module
from nmt.decoding.ctranslate2.folder import export
from nmt.decoding.translator import Translator
from nmt.errors import MachineError, UserError
from nmt.store.model import Model
from tests.decoding.ctranslate2.cases import made, model_folder, pairs
from tests.run_cases import flip

pytestmark = pytest.mark.cpu
LINES = ["", *(line for line, _ in pairs()[:24]), "o"]
PHRASE = pairs()[3][1].split()[0]
EACH = {"prefix": [PHRASE, "", "the"], "require": [[PHRASE], []]}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = made(norm="layernorm", head_scale=True, dec_layers=3)
    # CTranslate2 gives the probability of UNK, and of EOS at the first position, to the others, and
    # a translation ends right after a forced prefix only if EOS is the most likely token there
    with torch.no_grad():
        model.transformer.out_bias[[UNK, EOS]] -= 20.0
    return model_folder(model, tmp_path_factory.mktemp("run") / "run")


@pytest.fixture(scope="module")
def both(run: Path) -> tuple[Translator, Translator]:
    return Translator.load(run, "cpu"), Translator.load(run, "cpu", engine="torch")


@pytest.mark.parametrize(
    "options",
    [
        {"beam": 1},
        {"beam": 5, "align": True, "token_scores": True},
        {"beam": 4, "n_best": 4, "length_penalty": "mean", "length_alpha": 1.0},
        {"beam": 4, "max_len_offset": 1},
        {"beam": 1, "no_repeat_ngram": 2},
        {"beam": 4, "prefix": True, "align": True, "token_scores": True},
        {"beam": 1, "prefix": True, "max_len_offset": 2},
        {"beam": 4, "require": True},
        {"beam": 4, "require": True, "n_best": 2},
        {"beam": 4, "glossary": ((LINES[1].split()[0], PHRASE),)},
        {"sample": True, "n_best": 2, "top_k": 5},
        {"beam": 4, "stop_rule": "bound"},
    ],
    ids=lambda options: "-".join(options),
)
def test_both_engines_give_the_same(both, options: dict[str, Any]):
    for name in EACH.keys() & options.keys():
        options = {**options, name: [EACH[name][i % len(EACH[name])] for i in range(len(LINES))]}
    ours, theirs = ([*each.stream(LINES, **options)] for each in both)
    if "no_repeat_ngram" in options:  # CTranslate2 forbids tokens before the softmax
        assert [t.text for (t,) in ours] == [t.text for (t,) in theirs]
        return
    for found, expected in zip(ours, theirs, strict=True):
        assert [t.pieces for t in found] == [t.pieces for t in expected]
        assert [t.alignment for t in found] == [t.alignment for t in expected]
        for a, b in zip(found, expected, strict=True):
            # fp32 sums of up to 40 tokens; a wrong prefix or tag changes a score by over 0.1
            assert a.score == pytest.approx(b.score, abs=5e-3)
            assert a.log_prob == pytest.approx(b.log_prob, abs=5e-3)
            assert a.token_log_probs == pytest.approx(b.token_log_probs, abs=2e-4)


@pytest.mark.slow
def test_n_best_lists_by_the_mean_are_those_of_torch(tmp_path):
    """Hypotheses that end early are many, so CTranslate2 must rank by the mean as it searches."""
    model = made(norm="layernorm", fixnorm=False)
    with torch.no_grad():
        model.transformer.out_bias[UNK] -= 20.0
        model.transformer.out_bias[EOS] += 8.0
    run = model_folder(model, tmp_path / "run")
    lines = [line for line, _ in pairs()[:40]]
    options = {"beam": 4, "length_penalty": "mean", "length_alpha": 1.0, "max_len_offset": 30}
    lists = [
        [[t.pieces for t in best] for best in Translator.load(run, "cpu", engine=engine).n_best(
            lines, 4, stop_rule="count", **options
        )]
        for engine in ("ctranslate2", "torch")
    ]  # fmt: skip
    assert lists[0] == lists[1]


def test_given_translations_get_the_same_scores_and_alignment(both):
    """Types that only the source has, as in the last line, are UNK."""
    targets = ["", *(target for _, target in pairs()[:24]), LINES[2]]
    vocab = both[0].codec.vocab
    assert not vocab.types_of("tgt")[vocab.ids(both[0].codec.target_pieces(LINES[2]))].all()
    for found, expected in zip(*(t.score(LINES, targets, align=True) for t in both), strict=True):
        assert found.token_log_probs == pytest.approx(expected.token_log_probs, abs=2e-4)
        assert found.alignment == expected.alignment


def test_torch_searches_only_what_ctranslate2_does_not_support(run):
    translator = Translator.load(run, "cpu")
    lacking = {"sample": True}, {"stop_rule": "bound"}, {"max_len_offset": 9000}
    options = translator.check_options({"beam": 4, "n_best": 2, "align": True})
    assert translator.engine_for(options).name == "ctranslate2"
    assert translator.why_torch(options) == ""
    assert "torch_engine" not in vars(translator)  # it was not loaded
    for given in lacking:
        options = translator.check_options(given)
        assert translator.engine_for(options).name == "torch"
        assert next(iter(given)) in translator.why_torch(options)


@pytest.mark.parametrize(
    ("keys", "options", "why"),
    [
        ({"ffn_norm": True}, {}, "model.ffn_norm"),
        ({"res_scale": "all"}, {}, "model.res_scale"),
        ({}, {"precision": "bf16"}, "bf16"),
    ],
)
def test_a_model_that_ctranslate2_cannot_compute_is_for_torch(keys, options, why, tmp_path):
    folder = model_folder(made(**keys), tmp_path / "run")
    translator = Translator.load(folder, "cpu", **options)
    assert translator.engine.name == "torch"
    assert why in translator.why_torch(translator.check_options({}))
    assert any(translator.translate(LINES, beam=1))
    with pytest.raises(UserError, match=why):
        Translator.load(folder, "cpu", engine="ctranslate2", **options)


def test_an_ensemble_is_for_torch(run):
    ensemble = Translator.load([run, run], "cpu")
    assert ensemble.engine.name == "torch"
    assert "ensembles" in ensemble.why_torch(ensemble.check_options({}))


def test_the_model_for_ctranslate2_is_kept_and_belongs_to_the_weights(tmp_path):
    def search(path: Path) -> tuple[list[str], int]:
        found = Translator.load(path, "cpu", engine="ctranslate2").translate(LINES, beam=1)
        return found, (path / "ctranslate2" / "model.bin").stat().st_mtime_ns

    model = model_folder(made(), tmp_path / "model")
    first = search(model)
    assert search(model) == first
    other = model_folder(made(seed=2), tmp_path / "other")
    shutil.copytree(model / "ctranslate2", other / "ctranslate2")
    assert (
        search(other)[0]
        == Translator.load(other, "cpu", engine="torch").translate(LINES, beam=1)
        != first[0]
    )


@pytest.mark.parametrize("damage", ["flipped", "missing", "not a folder", "a link"])
def test_a_damaged_model_for_ctranslate2_is_made_again(damage, tmp_path):
    model = model_folder(made(), tmp_path / "model")
    expected = Translator.load(model, "cpu", engine="ctranslate2").translate(LINES, beam=1)
    folder = model / "ctranslate2"
    if damage == "flipped":
        flip(folder / "model.bin")
    elif damage == "missing":
        (folder / "config.json").unlink()
    else:
        shutil.move(folder, tmp_path / "moved")
        folder.touch() if damage == "not a folder" else folder.symlink_to(tmp_path / "moved")
    assert Translator.load(model, "cpu", engine="ctranslate2").translate(LINES, beam=1) == expected


def test_a_model_that_cannot_be_written_gets_a_temporary_one(tmp_path, monkeypatch, capsys):
    model = model_folder(made(), tmp_path / "model")
    expected = Translator.load(model, "cpu", engine="torch").translate(LINES, beam=1)
    real = os.mkdir

    def refuse(path, *arguments, **named):
        if Path(path).parent == model:
            raise OSError(errno.EROFS, "Read-only file system")
        return real(path, *arguments, **named)

    monkeypatch.setattr(os, "mkdir", refuse)
    before = list(model.iterdir())
    assert Translator.load(model, "cpu", engine="ctranslate2").translate(LINES, beam=1) == expected
    assert list(model.iterdir()) == before
    assert capsys.readouterr().err.count(f"nmt-export {model} -o DIR") == 1
    monkeypatch.undo()
    for _ in range(2):  # it is kept once it can be written, and then nothing is said
        Translator.load(model, "cpu", engine="ctranslate2")
        assert capsys.readouterr().err == ""


def test_without_any_place_for_ctranslate2_torch_searches(tmp_path, monkeypatch):
    model = model_folder(made(), tmp_path / "model")
    (model / "ctranslate2").touch()

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(folder_module, "write_engine", refuse)
    assert Translator.load(model, "cpu").engine.name == "torch"
    with pytest.raises(MachineError) as full:
        Translator.load(model, "cpu", engine="ctranslate2")
    assert full.value.at == tempfile.gettempdir()


def test_model_json_is_parsed_once_for_each_engine(run, monkeypatch):
    opened = []
    real = Model.open
    monkeypatch.setattr(Model, "open", lambda path: opened.append(path) or real(path))
    translator = Translator.load(run, "cpu")
    assert translator.torch_engine.name == "torch"
    assert opened == [run]


@pytest.mark.parametrize("engine", ["auto", "torch"])
def test_a_model_that_is_replaced_is_loaded_again_or_refused(engine, tmp_path, monkeypatch):
    """A translator never has two models: torch is loaded late, for what CTranslate2 lacks."""
    model, other = (model_folder(made(seed=n), tmp_path / str(n)) for n in (1, 2))
    expected = Translator.load(other, "cpu", engine=engine).translate(LINES, beam=1)
    real = translator_module.codec_of

    def late(opened: Model) -> TextCodec:
        monkeypatch.undo()
        model.rename(tmp_path / "old")
        shutil.copytree(other, model)
        return real(opened)

    monkeypatch.setattr(translator_module, "codec_of", late)
    translator = Translator.load(model, "cpu", engine=engine)
    assert translator.translate(LINES, beam=1) == expected
    shutil.rmtree(model)
    (tmp_path / "old").rename(model)
    if engine == "torch":
        assert translator.translate(LINES, sample=True, top_k=1)
    else:
        with pytest.raises(UserError) as replaced:
            translator.translate(LINES, sample=True)
        assert replaced.value.at == str(model)


def test_an_export_can_be_moved_and_names_what_it_does_not_support(run, both, tmp_path):
    """Once it is loaded, even its folder may go."""
    export(Model.open(run), tmp_path / "model")
    moved = Translator.load(shutil.move(tmp_path / "model", tmp_path / "moved"), "cpu")
    shutil.rmtree(tmp_path / "moved")
    assert moved.translate(LINES, beam=1) == both[1].translate(LINES, beam=1)
    for options, lacking in (
        ({"sample": True, "temperature": 0.7}, "sample, temperature"),
        ({"beam": 2, "stop_rule": "bound"}, "stop_rule bound"),
    ):
        with pytest.raises(UserError, match=f"does not support {lacking}"):
            moved.stream(LINES, **options)


def test_names_of_engines(run):
    for name in ("torch", "ctranslate2"):
        chosen = Translator.load(run, "cpu", engine=name)
        assert chosen.engine.name == name
        assert chosen.why_torch(chosen.check_options({})) == ""
    with pytest.raises(UserError, match="'x' is not one of auto, ctranslate2, torch"):
        Translator.load(run, engine="x")


def test_nmt_translate_says_which_engine_searches(run, tmp_path, capsys):
    source = tmp_path / "in"
    source.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    command = [str(run), "--device", "cpu", "--input", str(source), "--json", "--verbose"]
    for flags, engine, why in (
        ([], "ctranslate2", None),
        (["--sample"], "torch", "CTranslate2 does not support sample"),
        (["--engine", "torch"], "torch", None),
    ):
        assert translate.main([*command, *flags]) == 0
        out, err = capsys.readouterr()
        assert f"note: engine {engine}" in err
        for line in out.splitlines():
            values = json.loads(line)
            assert (values["engine"], values.get("why_torch")) == (engine, why)


def test_int8_is_chosen_by_the_call_or_the_recipe(run, tmp_path):
    """It is fp32 again if a call says so, and no other engine takes its place."""
    full, call = Translator.load(run, "cpu"), Translator.load(run, "cpu", quantization="int8")
    assert (full.engine.precision, call.engine.precision) == ("fp32", "int8")
    assert full.engine.model_hash() != call.engine.model_hash()
    made_int8 = made()
    decode = made_int8.info.decode.model_copy(update={"quantization": "int8"})
    made_int8.info = dataclasses.replace(made_int8.info, decode=decode)
    folder = model_folder(made_int8, tmp_path / "model")
    by_recipe = Translator.load(folder, "cpu")
    assert by_recipe.engine.translator.compute_type.startswith("int8")
    assert Translator.load(folder, "cpu", quantization="fp32").engine.precision == "fp32"
    assert Translator.load(folder, "cpu", engine="torch").engine.precision == "fp32"
    for engine, models in (("torch", run), ("auto", [run, run])):
        with pytest.raises(UserError):
            Translator.load(models, "cpu", engine=engine, quantization="int8")
    with pytest.raises(UserError, match="sample"):
        call.translate(LINES, sample=True)
    for value in ("int4", "INT8", ""):  # torch does not take its place
        with pytest.raises(UserError, match="quantization"):
            Translator.load(run, "cpu", quantization=value)
    export(Model.open(folder), tmp_path / "stored", "int8")
    stored = Translator.load(tmp_path / "stored", "cpu")
    again = Translator.load(tmp_path / "stored", "cpu", quantization="fp32")
    assert (stored.engine.precision, again.engine.precision) == ("int8", "fp32")
    assert stored.engine.model_hash() != again.engine.model_hash()


def test_a_full_temporary_disk_ends_a_validation(monkeypatch):
    """torch instead would give other scores, so what is trained would depend on the machine."""
    model = made()

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(ctranslate2_engine, "save_model", refuse)
    with pytest.raises(MachineError) as full:
        ctranslate2_engine.from_model(model.transformer, model.codec, model.info.decode, 1)
    assert full.value.at == tempfile.gettempdir()


def test_the_engine_that_searched_scores_the_tokens(run, monkeypatch):
    translator = Translator.load(run, "cpu")
    monkeypatch.setattr(translator.engine, "score", None)
    ((sampled,),) = translator.stream(["o can"], sample=True, token_scores=True)
    assert sum(sampled.token_log_probs) == pytest.approx(sampled.log_prob)


def test_an_export_searches_by_the_stop_rule_of_ctranslate2(tmp_path):
    model = made()
    model.info = dataclasses.replace(model.info, decode=DecodeConfig(stop_rule="bound"))
    folder = model_folder(model, tmp_path / "model")
    export(Model.open(folder), tmp_path / "export")
    moved = Translator.load(tmp_path / "export", "cpu")
    assert moved.translate(LINES, max_len_offset=4) == Translator.load(folder, "cpu").translate(
        LINES, max_len_offset=4, stop_rule="count"
    )
