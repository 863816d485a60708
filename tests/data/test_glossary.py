"""Files of terms, and terms as training pairs."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.config.load import load_recipe
from nmt.data.glossary import read_glossary
from nmt.data.prepare import Prepared, prepare
from nmt.errors import UserError
from nmt.training.tasks import make_task
from tests.toy import toy_corpus, toy_recipe

TEXT = "\ufeffkôň\thorse\r\n\r\nnov* súbor\tnew file\ta note\r\nkôň\tsteed\nkôň\thorse\n"
TERMS = [("kôň", "horse"), ("nov* súbor", "new file"), ("kôň", "steed")]


def test_a_glossary_is_read_as_people_write_it(tmp_path: Path) -> None:
    plain, packed = tmp_path / "terms.tsv", tmp_path / "terms.tsv.gz"
    plain.write_bytes(TEXT.encode())
    packed.write_bytes(gzip.compress(TEXT.encode()))
    assert read_glossary(plain) == read_glossary(packed) == TERMS


@pytest.mark.parametrize(
    ("content", "place", "what"),
    [
        (b"", "", "no term"),
        (b"\n \n", "", "no term"),
        (b"a\tb\nc;d\n", ":2", "1 column; a glossary has 2 or 3"),
        (b"a\tb\tc\td\n", ":1", "4 columns"),
        (b"a\tb\n\tb\n", ":2", "the source term is blank"),
        ("a\t\u200b\n".encode(), ":1", "the target term is blank"),
        (b"a\tb\n* c\td\n", ":2", "* stands alone"),
        (b"a\t" + b"b" * 201, ":1", "the target term has 201 characters, at most 200"),
        ("a\t\u2581b\n".encode(), ":1", "U+2581"),
        (b"a\tb\nk\xf4\xf2\thorse\n", ":2", "not UTF-8"),
        ("a\tb\n".encode("utf-16"), "", "not a text file"),
        (None, "", "No such file"),
    ],
)
def test_wrong_lines_are_named(
    tmp_path: Path, content: bytes | None, place: str, what: str
) -> None:
    file = tmp_path / "terms.tsv"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UserError) as error:
        read_glossary(file)
    assert error.value.at == f"{file}{place}"
    assert what in error.value.what
    assert error.value.fix


# ---------------------------------------------------------------- training


def prepared(folder: Path, terms: Any, *overrides: str, **data: Any) -> Prepared:
    toy_corpus(folder)
    recipe = toy_recipe(folder, {"data": {"terms": terms, "checks": "warn", **data}})
    return prepare(load_recipe(recipe, overrides), progress=False)


def pairs(p: Prepared) -> list[tuple[str, ...]]:
    sides = [[p.train.src(row), p.train.tgt(row)] for row in range(len(p.train))]
    return [tuple(" ".join(p.vocab.pieces(ids)) for ids in pair) for pair in sides]


def test_terms_are_an_ordinary_entry_of_the_training_data(tmp_path: Path) -> None:
    (tmp_path / "terms.tsv").write_text("e-mail\tdon't\nnov*\tnew\n1 2\t2 1\tnote\n", "utf-8")
    p = prepared(tmp_path, {"path": "terms.tsv", "weight": 2.5})
    assert p.train.sizes == [200, 2]
    # the text of the recipe is tokenized, terms are plain text; nov* is no pair
    assert pairs(p)[200:] == [("e-mail", "don &apos;t"), ("1 2", "2 1")]
    assert p.mixture is not None
    assert list(p.mixture.weights) == [1.0, 2.5]
    assert "terms.tsv: 2 pairs, each 2.5 times an epoch" in p.report.draws
    same = prepared(tmp_path, ["terms.tsv"])
    assert same.mixture is None
    assert same.data_hash != p.data_hash
    (tmp_path / "terms.tsv").write_text("e-mail\tmail\n", "utf-8")
    assert prepared(tmp_path, "terms.tsv").content != same.content


def test_terms_may_be_changed_in_each_epoch(tmp_path: Path) -> None:
    (tmp_path / "terms.tsv").write_text("aa\tbb\ncc\tdd\n", "utf-8")
    segment = {"kind": "fastbpe", "merges": 20}
    toy_corpus(tmp_path)
    data = {"terms": "terms.tsv", "augment": {"join": 1.0}, "checks": "warn"}
    recipe = load_recipe(toy_recipe(tmp_path, {"data": data, "segment": segment}))
    task = make_task(recipe, prepare(recipe, progress=False), torch.device("cpu"), "fp32")
    [batch] = [rows for rows in task.plan(0) if 201 in rows]
    assert task.make_batch(0, batch, pad=False).tokens == task.tokens(0, batch)


@pytest.mark.parametrize(
    ("terms", "text", "message"),
    [
        ("gone.tsv", "a\tb", r"gone\.tsv: is not a file"),
        ("terms.tsv", "a\tb\nc\n", r"terms\.tsv:2: 1 column"),
        ("terms.tsv", "a*\tb\n", r"data\.terms\[0\] \(.*terms\.tsv\): the files are empty"),
        ({"path": "terms.tsv", "tag": "<x>"}, "a\tb", r"data\.terms\[0\]\.tag: no entry"),
    ],
)
def test_wrong_terms_of_a_recipe(tmp_path: Path, terms: Any, text: str, message: str) -> None:
    (tmp_path / "terms.tsv").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        prepared(tmp_path, terms)


def test_a_language_model_has_no_terms(tmp_path: Path) -> None:
    toy_corpus(tmp_path)
    recipe = toy_recipe(tmp_path, {"data": {"terms": "terms.tsv"}})
    with pytest.raises(UserError, match=r"data\.terms has no effect with task: causal_lm"):
        load_recipe(recipe, ["task=causal_lm", "tgt="])
