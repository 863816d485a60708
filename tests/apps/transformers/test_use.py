"""What commands do with a converted model: translate, export, train from it."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import nmt
from nmt.cli.convert import main as convert
from nmt.cli.export import main as export
from nmt.store.model import Model
from tests.apps.transformers import folders
from tests.test_pages import blocks

pytest.importorskip("transformers")

PAGE = "docs/howto/public-models.md"
ODD = " a\t b\u2581c \uff21e\u0301\u200b \U0001f600 "
# the folders of the page, as this test can make them
MADE: dict[str, tuple[str, dict[str, Any]]] = {
    "opus-mt-en-fr": ("marian", {}),
    "opus-mt-en-ROMANCE": ("marian", {"tags": ("fra", "glg", "pt_br")}),
    "opus-mt-ROMANCE-en": ("marian", {"source": "ROMANCE", "target": "en"}),
    "nllb-600M": ("nllb", {}),
    "m2m100-418M": ("m2m100", {}),
    "mbart50": ("mbart50", {}),
}


@pytest.mark.slow
def test_the_commands_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("models").mkdir()
    text = "".join(block.text for block in blocks(PAGE, "sh"))
    commands = [shlex.split(line) for line in text.splitlines() if line.startswith("nmt-convert")]
    assert [command[1] for command in commands] == [*MADE]
    for name, *arguments in (command[1:] for command in commands):
        assert f"--local-dir {name}\n" in text
        family, options = MADE[name]
        folders.FAMILIES[family](Path(name), **options)
        assert convert([name, *arguments]) == 0
    tags = {
        path.name: nmt.Translator.load(path).codec.vocab.tags for path in Path("models").iterdir()
    }
    assert tags["opus-mt-en-fr"] == []
    assert "<glg>" in tags["en-gl"]
    assert tags["gl-en"] == []
    assert {"<eng_Latn>", "<swh_Latn>"} < {*tags["nllb-en-sw"]}
    assert {"<en>", "<sw>"} < {*tags["m2m100-en-sw"]}
    assert {"<en_XX>", "<sw_KE>"} < {*tags["mbart50-en-sw"]}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of MarianMT."""
    root = tmp_path_factory.mktemp("use")
    folders.marian(root / "hub")
    (root / "hub" / "README.md").write_text("---\nlicense: apache-2.0\n---\n")
    options = ["--src-lang", "en", "--tgt-lang", "fr", "--source", "Helsinki-NLP/opus-mt-en-fr"]
    assert convert([str(root / "hub"), "-o", str(root / "run"), *options]) == 0
    return root / "run"


@pytest.mark.slow
def test_an_export_segments_as_the_run_and_names_the_license(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    folder = tmp_path / "model"
    assert export([str(run), "--hub", str(folder), "--example", "a b"]) == 0
    _, head, card = (folder / "README.md").read_text().split("---\n", 2)
    values = yaml.safe_load(head)
    assert values["license"] == "apache-2.0"
    assert values["base_model"] == "Helsinki-NLP/opus-mt-en-fr"
    assert "datasets" not in values
    assert "converted by the toolkit nmt" in card
    code = (
        "import json, sys; from translate import Translator; "
        "print(json.dumps(Translator('.').segmenter.encode(sys.argv[1], 'en')))"
    )
    command = [sys.executable, "-B", "-c", code, ODD]
    out = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    assert json.loads(out) == nmt.Translator.load(run).codec.segmenter.encode(ODD, "en")


def _counts(run: Path) -> dict[str, tuple[int, int]]:
    rows = (
        line.split("\t") for line in (Model.open(run).path / "vocab.txt").read_text().splitlines()
    )
    return {piece: (int(src), int(tgt)) for piece, src, tgt in rows}


@pytest.mark.slow
def test_a_child_starts_from_all_weights_and_keeps_the_license(run: Path, tmp_path: Path) -> None:
    """With the vocabulary of the parent, the child has all rows, and no piece is forbidden."""
    lines = folders.lines(11)
    for split, part in (("train", lines[:100]), ("dev", lines[100:110])):
        for lang in ("en", "fr"):
            (tmp_path / f"{split}.{lang}").write_text("\n".join(part) + "\n")
    parent = Model.open(run).about
    values = {
        "src": "en",
        "tgt": "fr",
        "out": str(tmp_path / "child"),
        "device": "cpu",
        "precision": "fp32",
        "data": {
            "train": str(tmp_path / "train"), "dev": str(tmp_path / "dev"), "checks": "off",
        },
        "segment": {"kind": "sentencepiece"},
        "model": parent.model.model_dump(exclude_none=True),
        "init": {"from": str(run), "vocab": "parent"},
        "schedule": {"kind": "constant", "lr": 1e-6},
        "train": {"validate_every": 1, "max_validations": 1},
    }  # fmt: skip
    result = nmt.train(values, quiet=True)
    record = json.loads((result.run / "init.json").read_text())
    assert not record["missing"]
    assert not record["unexpected"]
    assert Model.open(result.run).about.origin == parent.origin
    models = [nmt.Translator.load(path) for path in (run, result.run)]
    before, after = (_counts(path) for path in (run, result.run))
    for side, segment in enumerate((models[0].codec.source_pieces, models[0].codec.target_pieces)):
        seen = Counter(piece for line in lines[:100] for piece in segment(line))
        found = {piece: counts[side] - before[piece][side] for piece, counts in after.items()}
        assert found == {piece: seen[piece] for piece in after}
    assert models[0].codec.vocab.pieces(range(50)) == models[1].codec.vocab.pieces(range(50))
    assert torch.equal(*(model.transformer.allowed for model in models))
    tensors = [model.transformer.state_dict() for model in models]
    for name, tensor in tensors[0].items():
        torch.testing.assert_close(tensors[1][name], tensor, rtol=0, atol=1e-4)
