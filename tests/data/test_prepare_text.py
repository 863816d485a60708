"""Preparation of monolingual text, for language models."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from nmt.config.recipe import Recipe
from nmt.data.bitext import missing_files
from nmt.data.lines import count_words
from nmt.data.lm import CausalText, TokenStream
from nmt.data.prepare import prepare
from nmt.data.report import Places, summary
from nmt.data.vocab import EOS, MASK
from nmt.errors import UserError

SHARED = Path(__file__).parents[2].parent / "shared/data"
TRAIN = ["= Cats =", "", *(f"the cat {i} eats a fish" for i in range(200)), "", "= End ="]
DEV = ["= Cats =", " ", "a fish eats 7 the cat"]


def write(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")


def recipe_for(folder: Path, train=TRAIN, dev=DEV, **keys) -> Recipe:
    for name, lines in (("train", train), ("dev", dev)):
        write(folder / f"{name}.en", lines)
    data = {"train": str(folder / "train"), "dev": str(folder / "dev"), "tokenized": True}
    values = {"task": "causal_lm", "src": "en", "out": str(folder / "run")}
    values |= {"data": data | keys.pop("data", {}), "segment": {"merges": 30}} | keys
    return Recipe.model_validate(values)


def prepared(folder: Path, *args, **keys):
    return prepare(recipe_for(folder, *args, **keys), progress=False)


def text_of(p, ids: np.ndarray) -> str:
    return p.segmenter.decode_tokenized(p.vocab.pieces(ids), "en")


@pytest.mark.parametrize(
    "segment",
    [
        {"kind": "fastbpe", "merges": 30},
        {"kind": "sentencepiece", "vocab_size": 60},
        {"kind": "sentencepiece", "vocab_size": 300, "model_type": "unigram"},
        {"kind": "whitespace"},
    ],
)
def test_ids_encode_every_line(tmp_path: Path, segment):
    p = prepared(tmp_path, segment=segment)
    assert len(p.train) == len(TRAIN)
    for row, line in enumerate(TRAIN):
        assert text_of(p, p.train.src(row)) == line
    assert not p.train.tgt_len.any()
    assert p.train.src_len.tolist()[1] == 0
    assert p.dev[0].src_lines == DEV
    assert p.dev[0].corpus.src_len.tolist()[1] == 0
    stream = TokenStream.of(p.train)
    assert len(stream) == int(p.train.src_len.sum()) + len(TRAIN)
    assert stream.read(len(stream) - 1, len(stream)).tolist() == [EOS]


def test_no_text_becomes_the_mask(tmp_path: Path):
    train = [*TRAIN, " <mask>", "<mask> a"]
    for task in ("causal_lm", "masked_lm"):
        p = prepared(tmp_path, train=train, task=task, segment={"kind": "whitespace"})
        (mask,) = p.vocab.ids([MASK])
        assert not p.vocab.types_of("src")[mask]
        assert mask not in p.train.ids("src")
        assert p.vocab.tags == []
        assert "<mask>" in p.vocab.pieces(p.train.src(len(train) - 1))


def test_drops_and_counts(tmp_path: Path):
    odd = ["x" * 2001, "a b " * 60, "\u200b", *TRAIN, TRAIN[2]]
    p = prepared(tmp_path, train=odd, data={"max_pieces": 100})
    train = p.report.splits["train"]
    assert train.pairs == len(odd) == 208
    assert train.blank == 3
    assert train.kept == 203
    assert p.report.found("duplicates", "train").count == 1
    assert train.dropped == {
        "characters": Places(1, ["train:1"]),
        "subwords": Places(1, ["train:2"]),
    }
    text = summary(p.report)
    assert "train: 208 lines; 3 blank, which separate documents; 2 dropped" in text
    assert "pair" not in text
    assert "source" not in text


def test_a_line_may_have_any_number_of_words(tmp_path: Path):
    p = prepared(tmp_path, train=["a b " * 300, *TRAIN])
    assert p.train.src_len[0] == 600


def test_words_of_a_perplexity():
    assert count_words([]) == 0
    assert count_words(["a b  c", "", " \u3000d "]) == 3 + 1 + 3


@pytest.mark.skipif(not SHARED.exists(), reason="needs wikitext-2")
def test_wikitext_2(tmp_path: Path):
    for name, split in (("dev", "valid"), ("test", "test")):
        data = gzip.decompress((SHARED / f"wikitext-2/{split}.txt.gz").read_bytes())
        (tmp_path / f"{name}.en").write_bytes(data)
    write(tmp_path / "train.en", TRAIN)
    data = {name: str(tmp_path / name) for name in ("train", "dev", "test")}
    values = {"task": "causal_lm", "src": "en", "out": str(tmp_path / "run")}
    values |= {"data": {**data, "tokenized": True}, "segment": {"kind": "whitespace"}}
    values["data"]["checks"] = "off"  # hardly any word of it is in this training text
    p = prepare(Recipe.model_validate(values), progress=False)
    assert count_words(p.dev[0].src_lines) == 217_646
    assert count_words(p.test[0].src_lines) == 245_569
    # a word is a piece here, so that the model predicts as many tokens
    assert len(TokenStream.of(p.dev[0].corpus)) == 217_646
    assert p.report.splits["dev"].blank == 1299


def test_lines_of_dev_in_train_are_an_error(tmp_path: Path):
    dev = [TRAIN[5], *DEV]
    with pytest.raises(UserError) as caught:
        prepared(tmp_path, dev=dev)
    # a heading recurs in any text
    assert "dev: 50.0% of the lines (1) are also in the training data" in str(caught.value)
    assert "train:6: the cat 3 eats a fish; remove" in str(caught.value)
    p = prepared(tmp_path, dev=dev, data={"checks": "warn"})
    assert any("50.0% of 2 texts of at least 4 words are also" in w for w in p.report.warnings)


def test_another_language_is_a_warning(tmp_path: Path):
    english = ["the quick brown fox jumps over the lazy dog in the green garden"] * 30
    other = ["zwölf große boxkämpfer jagen viktor quer über den sylter deich"] * 30
    p = prepared(tmp_path, train=english, dev=other, data={"checks": "warn"})
    assert any("dev: the en side shares only" in w for w in p.report.warnings)
    greek = ["ξεσκεπάζω την ψυχοφθόρα βδελυγμία του κόσμου"] * 30
    p = prepared(tmp_path, train=greek, dev=greek, data={"checks": "warn"})
    assert any("only 0% of the letters of the en side are Latin" in w for w in p.report.warnings)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train", b"", "no training line is left (the files are empty)"),
        ("train", b"\n \n", "no training line is left (all lines are blank)"),
        ("dev", b"", "no line has text"),
        ("dev", b"\n\n", "no line has text"),
        ("dev", "caf\xe9\n".encode("latin-1"), "dev.en:1: not UTF-8"),
        ("dev", "text\n".encode("utf-16"), "iconv -f UTF-16"),
        ("train", b"a b\rc d\re f", "its lines end with CR, not LF"),
    ],
)
def test_bad_files(tmp_path: Path, name, content, message):
    recipe = recipe_for(tmp_path)
    (tmp_path / f"{name}.en").write_bytes(content)
    with pytest.raises(UserError) as caught:
        prepare(recipe, progress=False)
    assert message in str(caught.value)
    assert f"{name}.en" in str(caught.value)


def test_one_line_is_enough(tmp_path: Path):
    p = prepared(tmp_path, train=["one line"], data={"checks": "warn"})
    text = CausalText(TokenStream.of(p.train), 512)
    assert len(text) == 1
    assert text.targets.tolist() == [p.train.src_len[0] + 1]


def test_only_the_files_of_the_source_language_are_read(tmp_path: Path):
    recipe = recipe_for(tmp_path)
    assert missing_files(recipe) == []
    (tmp_path / "train.").mkdir()
    prepare(recipe, progress=False)
    (tmp_path / "dev.en").unlink()
    assert missing_files(recipe) == [str(tmp_path / "dev")]
    with pytest.raises(UserError, match=r"dev\.en: no such file"):
        prepare(recipe, progress=False)


def test_the_cache_is_shared_by_the_tasks_of_text(tmp_path: Path):
    first = prepared(tmp_path)
    assert prepared(tmp_path, task="masked_lm").data_hash == first.data_hash
    write(tmp_path / "dev.en", [*DEV, "more"])
    recipe = recipe_for(tmp_path, dev=[*DEV, "more"])
    assert prepare(recipe, progress=False).data_hash != first.data_hash
    assert len(list((tmp_path / ".cache").iterdir())) == 2


def test_entries_with_languages_weights_and_forms(tmp_path: Path):
    write(tmp_path / "more.sco", [f"the wee cat, {i}." for i in range(100)])
    entries = [
        {"path": str(tmp_path / "train"), "weight": 3},
        {"path": str(tmp_path / "more"), "src": "sco", "tokenized": False},
    ]
    p = prepared(tmp_path, data={"train": entries}, segment={"kind": "whitespace"})
    assert p.train.sizes == [len(TRAIN), 100]
    assert text_of(p, p.train.src(len(TRAIN))) == "the wee cat , 0 ."
    text = CausalText(TokenStream.of(p.train), 50)
    batches = text.batches(200, seed=1, epoch=0, weights=p.mixture.weights)
    counts = np.bincount(text.rows_of(np.concatenate(batches)), minlength=len(text))
    own = text.blocks.last <= text.stream.bounds[1]
    assert set(counts[own]) == {3}
    assert set(counts[~own]) == {1}
    write(tmp_path / "more.sco", [f"the wee cat , {i} ." for i in range(100)])
    with pytest.raises(UserError, match=r"data\.train\[1\] \(.*more\): 100 lines \(100\.0%\) with"):
        prepared(tmp_path, data={"train": entries}, segment={"kind": "whitespace"})
    with pytest.raises(ValueError, match="tag has no effect with task: causal_lm"):
        recipe_for(tmp_path, data={"train": [{"path": str(tmp_path / "train"), "tag": "<x>"}]})
