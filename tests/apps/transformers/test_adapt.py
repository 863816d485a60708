"""A converted model is a parent whose vocabulary can be extended and trimmed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from nmt.cli.convert import main as convert
from nmt.cli.train import main
from nmt.data.segmenters import load_segmenter
from nmt.data.vocab import UNK, Vocab
from nmt.decoding.translator import Translator
from tests.apps.transformers import folders

pytest.importorskip("transformers")
LANGUAGES = {"mbart50": ("en", "sw"), "m2m100": ("en", "sw"), "nllb": ("en", "sw")}
NEW = ("აბგდევზთიკლმნოპრს",)


@pytest.mark.slow
@pytest.mark.parametrize("family", folders.FAMILIES)
def test_a_converted_model_gets_a_script_and_loses_the_others(family: str, tmp_path: Path) -> None:
    folders.FAMILIES[family](tmp_path / "model")
    src, tgt = LANGUAGES.get(family, ("", ""))
    options = ["--src-lang", src, "--tgt-lang", tgt] if src else []
    parent = tmp_path / "parent"
    assert convert([str(tmp_path / "model"), "-o", str(parent), *options]) == 0
    theirs = json.loads((parent / "model.json").read_text())
    entry = theirs["directions"][0]
    sources = folders.lines(7, NEW, 60)
    targets = folders.lines(8, (folders.SCRIPTS[0],), 60)
    for side, text in (("ka", sources), (theirs["tgt"], targets)):
        for split in ("train", "dev"):
            (tmp_path / f"{split}.{side}").write_text("".join(f"{line}\n" for line in text))
    tags = {key: entry[key] for key in ("tag", "tgt_tag") if entry.get(key)}
    new = {**tags, "tag": "<xmf_Geor>"}
    recipe = {
        "src": "ka",
        "tgt": theirs["tgt"],
        "device": "cpu",
        "precision": "fp32",
        "data": {
            "train": [{"path": "train", **new}],
            "dev": [{"path": "dev", **new}],
            "checks": "off",
        },
        "init": {
            "from": str(parent),
            "vocab": "extend",
            "new_pieces": 60,
            "trim": True,
            "keep_pieces": 20,
            **({"tag_rows": {"<xmf_Geor>": tags["tag"]}} if "tag" in tags else {}),
        },
        "decode": {"beam": 1, "max_len_offset": 4},
        "train": {"validate_every": 1, "max_validations": 1},
    }
    (tmp_path / "child.yaml").write_text(yaml.safe_dump(recipe))
    run = tmp_path / "run"
    assert main([str(tmp_path / "child.yaml"), f"out={run}"]) == 0
    record = json.loads((run / "init.json").read_text())
    assert 20 < record["new_pieces"] <= (120 if family == "marian" else 60)
    assert record["types"][1] < record["types"][0] + record["new_pieces"]
    assert record["training_text"]["unknown"][1] == 0
    vocab, segmenter = Vocab.load(run / "model"), load_segmenter(run / "model")
    assert UNK not in vocab.ids(piece for line in sources for piece in segmenter.encode(line, "ka"))
    old, parent_segmenter = Vocab.load(parent), load_segmenter(parent)
    for line in folders.lines(9):
        if UNK not in old.ids(parent_segmenter.encode(line, "en")):
            assert UNK not in vocab.ids(segmenter.encode(line, "en"))
    assert len(Translator.load(run).translate(sources[:2])) == 2
