"""Every format has what nmt-import needs, and every corpus a row in docs/data.md."""

import dataclasses
import gzip
import importlib.util
import re
from pathlib import Path

import pytest
import yaml

from data_prep.formats import CORPORA, IMPORTERS, Format
from data_prep.write import Request
from nmt.cli.import_corpus import main

FOLDER = Path(__file__).parents[2]


def test_recipes_download_registered_corpora():
    recipes = [yaml.safe_load(p.read_text("utf-8")) for p in (FOLDER / "recipes").rglob("*.yaml")]
    groups = [recipe["data"] for recipe in recipes if "data" in recipe]
    named = {group["download"] for group in groups if "download" in group}
    assert named
    assert named <= set(CORPORA)


@pytest.mark.parametrize("name", [*CORPORA, *IMPORTERS])
def test_each_module_has_prepare_and_a_command(name, capsys):
    assert callable(Format.load(name).prepare)
    with pytest.raises(SystemExit) as caught:
        main([name, "--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert "--output" in text
    assert ("--from" in text) == (name in CORPORA)


def test_the_documentation_has_a_row_for_each():
    text = (FOLDER / "docs" / "data.md").read_text("utf-8")
    table = text.partition("\n| NAME |")[2].partition("\n\n")[0]
    rows = [line.split("|")[1].strip(" `") for line in table.splitlines()[2:]]
    assert sorted(rows) == sorted(CORPORA)
    for name in IMPORTERS:
        assert re.search(rf"nmt[ -]import {name} ", text)


def test_a_module_registers_by_its_file_name():
    assert {"ted_talks", "ui_sk_en", "wmt14_en_de"} <= set(CORPORA)
    assert not {"tsv", "pairs", "remote"} & set(CORPORA)


@pytest.mark.parametrize(("src", "tgt"), [("en", "cy"), ("cym", "eng")])
def test_the_example_of_the_documentation_works(tmp_path, src, tgt):
    text = (FOLDER / "docs" / "extending.md").read_text("utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    path = tmp_path / "example_en_cy.py"
    path.write_text(code, "utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    unpinned = dataclasses.replace(module.SOURCE, sha256="")
    held_out = {"dev": 30, "test": 30}
    corpus = dataclasses.replace(module.CORPUS, files=[unpinned], held_out=held_out)

    letters = [chr(ord("a") + i) for i in range(26)]
    words = [a + b + c for a in letters for b in letters for c in letters]
    rows = [f"{' '.join(words[5 * i : 5 * i + 5])}\t cy{words[i]}  x\t{i // 3}" for i in range(300)]
    (tmp_path / "pairs.tsv.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
    out = tmp_path / "out"
    corpus.prepare(Request(out, src, tgt, local=tmp_path))
    sizes = {
        split: [len((out / f"{split}.{lang}").read_text().splitlines()) for lang in (src, tgt)]
        for split in ("train", "dev", "test")
    }
    assert sizes["dev"][0] > 0
    assert all(one == other for one, other in sizes.values())
    welsh = src if src.startswith("cy") else tgt
    assert (out / f"train.{welsh}").read_text().startswith("cy")
