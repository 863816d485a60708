"""The vocabulary: specials, order, masks, and its file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from nmt.data.vocab import BOS, EOS, PAD, UNK, Vocab
from nmt.errors import UserError

SRC = Counter({"casa": 3, "a": 5, "<unk>": 1, "</s>": 2})
TGT = Counter({"house": 3, "a": 2, "rare": 1})


def test_order_is_by_count_then_text():
    vocab = Vocab.build(SRC, TGT)
    assert vocab.pieces(range(4, len(vocab))) == ["a", "casa", "house", "</s>", "<unk>", "rare"]
    assert len(vocab) == 10


def test_text_never_becomes_a_special():
    vocab = Vocab.build(SRC, TGT)
    ids = vocab.ids(["<unk>", "</s>", "<s>", "<pad>"])
    assert ids[:2] == [8, 7]
    assert ids[2:] == [UNK, UNK]
    assert vocab.ids(vocab.pieces([PAD, BOS, EOS, UNK])) == [UNK, UNK, 7, 8]


def test_masks_have_the_types_of_each_side():
    vocab = Vocab.build(SRC, TGT)
    assert vocab.pieces(np.flatnonzero(vocab.types_of("tgt"))) == [
        "</s>",
        "<unk>",
        "a",
        "house",
        "rare",
    ]
    assert not vocab.types_of("src")[vocab.ids(["house"])[0]]
    assert vocab.types_of("src")[[EOS, UNK]].all()
    assert not vocab.types_of("src")[[PAD, BOS]].any()


def test_min_count_counts_both_sides():
    assert "rare" not in Vocab.build(SRC, TGT, min_count=2).pieces(range(4, 8))


def test_save_and_load(tmp_path: Path):
    vocab = Vocab.build(Counter({"\u2028": 1, "é": 2, "e\u0301": 2}), TGT)
    vocab.save(tmp_path)
    loaded = Vocab.load(tmp_path)
    assert loaded.pieces(range(len(loaded))) == vocab.pieces(range(len(vocab)))
    assert (loaded.types_of("src") == vocab.types_of("src")).all()
    assert loaded.hash == vocab.hash
    assert vocab.hash != Vocab.build(SRC, TGT).hash


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "0 types"),
        ("a\t1\t2\nb\t1\n", "vocab.txt:2"),
        ("a\t1\t2\na\t1\t2\n", "duplicate type"),
        ("a\t1\tx\n", "vocab.txt:1"),
        ("\t1\t2\n", "vocab.txt:1"),
    ],
)
def test_error_of_a_bad_file_has_the_line(tmp_path: Path, text: str, message: str):
    (tmp_path / "vocab.txt").write_text(text)
    with pytest.raises(UserError, match=message):
        Vocab.load(tmp_path)


def test_the_error_of_a_bad_byte_has_its_line(tmp_path: Path):
    lines = [f"piece{i}\t1\t2\n".encode() for i in range(1000)]
    lines[300] = b"caf\xe9\t1\t2\n"
    (tmp_path / "vocab.txt").write_bytes(b"".join(lines))
    with pytest.raises(UserError, match=r"vocab\.txt:301: not UTF-8"):
        Vocab.load(tmp_path)


def test_missing_or_huge_file_is_an_error(tmp_path: Path, monkeypatch):
    with pytest.raises(UserError, match=r"vocab\.txt"):
        Vocab.load(tmp_path)
    monkeypatch.setattr("nmt.data.vocab.MAX_TYPES", 2)
    Vocab.build(SRC, TGT).save(tmp_path)
    with pytest.raises(UserError, match="between 1 and 2"):
        Vocab.load(tmp_path)
