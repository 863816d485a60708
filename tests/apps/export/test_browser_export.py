"""nmt-export --format web: files, storage, refusals."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import numpy as np
import pytest

from nmt.apps.export import browser
from nmt.cli import train
from nmt.cli.export import main
from nmt.config.recipe import FastBpeConfig, SentencePieceConfig, WhitespaceConfig
from nmt.store.model import Model
from tests.apps.export.pages import words
from tests.decoding.ctranslate2.cases import made, model_folder, pairs
from tests.decoding.untrained import learned
from tests.toy import toy_corpus, toy_recipe

FILES = {
    "index.html", "model.js", "translate.js", "sw.js", "manifest.webmanifest", "icon.svg",
    "README.md", "nmt-export.json",
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return model_folder(made(words=words()), tmp_path_factory.mktemp("web") / "run")


def test_the_kernel_is_assembled_from_its_text(tmp_path):
    if not shutil.which("wat2wasm"):
        pytest.skip("needs the Debian package wabt")
    text, file = browser.SOURCES / "kernel.wat", tmp_path / "kernel.wasm"
    subprocess.run(["wat2wasm", text, "-o", file], check=True)
    assert file.read_bytes() == (browser.SOURCES / "kernel.wasm").read_bytes()


@pytest.mark.slow
def test_the_folder_is_complete_and_smaller_with_fewer_bits(run, tmp_path):
    sizes = []
    for storage in (None, "fp32", "int8"):
        output = tmp_path / str(storage)
        options = ["--quantization", storage] if storage else []
        assert main([str(run), "--format", "web", "-o", str(output), *options]) == 0
        assert {file.name for file in output.iterdir()} == FILES
        sizes.append((output / "model.js").stat().st_size)
        about = json.loads((output / "nmt-export.json").read_text())
        assert about["storage"] == (storage or "fp16")
        for file in output.iterdir():  # nothing is left to fill in
            assert not re.search(r"\$\w|^//= |RULES_TABLE|KERNEL_BASE64", file.read_text(), re.M)
    assert sizes[2] < sizes[0] < sizes[1]
    command = [str(run), "--format", "web", "-o", str(tmp_path / "int8")]
    assert main(command) == 2
    assert main([*command, "--force", "--license", "cc0-1.0"]) == 0
    assert "cc0-1.0" in (tmp_path / "int8" / "index.html").read_text()


@pytest.mark.slow
def test_the_cost_of_the_storage_on_dev_is_printed(tmp_path, capsys):
    toy_corpus(tmp_path, {"train": 60, "dev": 4, "test": 4})
    keys = {
        "data": {"tokenized": False},
        "segment": {"kind": "sentencepiece", "vocab_size": 60},
        "train": {"validate_every": 4, "max_validations": 1},
    }
    assert train.main([str(toy_recipe(tmp_path, keys))]) == 0
    capsys.readouterr()
    assert main([str(tmp_path / "run"), "--format", "web", "--quantization", "int8"]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("dev in ")]
    assert [line.split()[2] for line in lines] == ["fp32:", "int8:"]
    assert lines[1].endswith(" of 4 lines change")
    assert (tmp_path / "run" / "web" / "index.html").is_file()


@pytest.mark.parametrize("storage", browser.STORAGES)
def test_weights_are_stored_with_the_precision_that_is_scored(storage):
    array = np.random.default_rng(1).normal(size=(5, 7)).astype(np.float32)
    array[2] = 0
    tolerance = {"fp32": 0, "fp16": 1e-3, "int8": np.abs(array).max() / 250}[storage]
    assert np.abs(browser.rounded(array, storage) - array).max() <= tolerance
    size = {"fp32": 140, "fp16": 70, "int8": 55}[storage]
    assert len(browser.stored(array, storage)) == size
    assert len(browser.stored(array[0], storage)) == 28  # a vector is always fp32


@pytest.mark.parametrize(
    ("segment", "tokenized", "key"),
    [
        (FastBpeConfig(merges=50), False, "segment.kind: fastbpe"),
        (WhitespaceConfig(), False, "segment.kind: whitespace"),
        (SentencePieceConfig(vocab_size=150), True, "data.tokenized: true"),
    ],
)
def test_segmentation_that_a_page_lacks_is_refused(tmp_path, capsys, segment, tokenized, key):
    run = model_folder(made(words=learned(segment, pairs(), tokenized)), tmp_path / "run")
    assert main([str(run), "--format", "web"]) == 2
    assert key in capsys.readouterr().err
    assert not (run / "web").exists()


@pytest.mark.parametrize("key", ["activation", "ffn_norm", "init"])
def test_a_setting_that_the_engine_does_not_know_is_refused(run, capsys, monkeypatch, key):
    monkeypatch.delitem(browser.COMPUTED, key)
    assert main([str(run), "--format", "web"]) == 2
    assert f"model.{key}: " in capsys.readouterr().err


def test_a_model_that_is_too_large_for_a_phone_is_refused(run, capsys, monkeypatch):
    monkeypatch.setattr(browser, "LARGEST", 10_000)
    assert main([str(run), "--format", "web"]) == 2
    assert "int8" in capsys.readouterr().err
    assert not (run / "web").exists()


@pytest.mark.parametrize(
    "options",
    [["--quantization", "int8_float32"], ["--quantization", "fp16", "--format", "argos"],
     ["--hub", "hub"]],
)  # fmt: skip
def test_options_that_exclude_each_other(run, options):
    assert main([str(run), "--format", "web", *options]) == 2


def test_directions_without_a_tag_hide_those_of_marked_data(run):
    model = Model.open(run)
    from dataclasses import replace

    from nmt.config.entries import Direction

    trained = [("gl", "en", "<bt>"), ("pt", "en", None), ("gl", "en", None), ("es", "en", "<a>")]
    about = replace(model.about, directions=[Direction(*one) for one in trained])
    offered = browser.directions(Model(model.path, about, ""))
    assert [(one.src, one.tag) for one in offered] == [("gl", None), ("pt", None), ("es", "<a>")]
