"""Damaged text, codes, models and vocabularies on the disk, with any bytes."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nmt.config.recipe import FastBpeConfig, SentencePieceConfig
from nmt.data.lines import clean_line, file_type, find_side, is_blank, read_lines
from nmt.data.segmenters import Segmenter, bpe, learn_segmenter, load_segmenter, save_segmenter
from nmt.data.segmenters.bpe import WordSplitter, join, learn_codes, read_codes
from nmt.data.vocab import UNK, Vocab
from nmt.errors import UserError
from tests.toy import one_corpus

TEXT = "".join(f"sentence number {i * i}\n" for i in range(60))
PACKERS = [(".gz", gzip.compress), (".xz", lzma.compress)]
same_folder = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def segmenter(config: FastBpeConfig | SentencePieceConfig) -> Segmenter:
    pairs = [("o gato negro", "the black cat"), ("a casa", "the house")] * 20
    return learn_segmenter(config, False, "none", one_corpus(pairs))


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def require_place(error: UserError, path: Path) -> None:
    assert (error.at or "").startswith(str(path))


# ------------------------------------------------------------------------------------------- text


@same_folder
@given(st.binary(max_size=60))
def test_any_bytes_give_lines_or_an_error_with_line_and_byte(tmp_path: Path, data: bytes):
    path = write(tmp_path / "t.en", data)
    if file_type(data):
        with pytest.raises(UserError, match=f"{path}: is not a text file"):
            list(read_lines(path))
        return
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        with pytest.raises(UserError, match=rf"{path}:\d+: not UTF-8: .* at byte \d+ of the line"):
            list(read_lines(path))
        return
    lines = list(read_lines(path))
    assert len(lines) == text.removesuffix("\n").count("\n") + 1 if text else not lines
    assert not any(set(line) & set("\n\r\t\0\x85") for line in lines)


@pytest.mark.parametrize(("suffix", "pack"), PACKERS)
def test_archive_truncated_at_any_byte_is_an_error(
    tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]
):
    complete = pack(TEXT.encode())
    for size in range(len(complete)):
        with pytest.raises(UserError, match="damaged or truncated"):
            list(read_lines(write(tmp_path / f"t.en{suffix}", complete[:size])))


@pytest.mark.parametrize(("suffix", "pack"), PACKERS)
def test_archive_with_a_flipped_bit_never_gives_other_text(
    tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]
):
    complete, draw = pack(TEXT.encode()), random.Random(1)
    for _ in range(200):
        damaged = bytearray(complete)
        damaged[draw.randrange(len(complete))] ^= 1 << draw.randrange(8)
        try:
            lines = list(read_lines(write(tmp_path / f"t.en{suffix}", bytes(damaged))))
        except UserError:
            continue
        assert lines == TEXT.splitlines()


@pytest.mark.parametrize(
    ("prefix", "message"),
    [
        ("x" * 5000, "too long"),
        ("a\0b", "no such file"),
        ("gone/t", "no such file"),
        ("round", "no such file"),
        ("link", "no such file"),
    ],
)
def test_impossible_prefixes_and_broken_links_are_errors(tmp_path, monkeypatch, prefix, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "round.en").symlink_to(tmp_path / "round.en")
    (tmp_path / "link.en").symlink_to(tmp_path / "nothing")
    with pytest.raises(UserError, match=message):
        find_side(prefix, "en")


@given(st.text())
def test_cleaning_keeps_line_count_and_blank_lines(line: str):
    cleaned = clean_line(line)
    assert clean_line(cleaned) == cleaned
    assert len(cleaned) == len(line)
    assert is_blank(cleaned) == is_blank(line)
    assert "\n" not in cleaned
    cleaned.encode()


# ------------------------------------------------------------------------------------------ codes

CODES = st.text(st.sampled_from("ab é\t\r\u2028\u00a0@#</w>0 19 \n\n"), max_size=40)


@same_folder
@given(CODES)
def test_any_codes_give_merges_or_an_error_with_the_file(tmp_path, text):
    path = write(tmp_path / "codes", text.encode())
    try:
        merges = read_codes(path)
    except UserError as error:
        require_place(error, path)
        return
    for word in ("abab", "é", "ba9", "a@@b"):
        assert join(WordSplitter(merges)([word])) == word


ODD_CODES = [
    "a b 2\nab</w> c 1\n",  # an end of a word inside, which no word has
    "a bc 2\nab c 1\n",  # two ways to one piece
    "a b 2\na b 1\n",  # a merge twice
    "a\tx b 1\n",  # white space other than a space
    "a\0 b 1\n",
    "a\u2028 b 1\n",
    "a b 99999999999999999999999\n",
]


def test_bad_codes_never_end_the_process(tmp_path: Path):
    """fastBPE calls exit() or aborts on many of these files, so a subprocess reads them."""
    program = """
import pathlib, sys
from nmt.data.segmenters.bpe import WordSplitter, read_codes
from nmt.errors import UserError
for name in sys.argv[1:]:
    try:
        print(*WordSplitter(read_codes(pathlib.Path(name)))(["abcb"]))
    except UserError:
        print("refused")
"""
    draw = random.Random(2)
    complete = "".join(f"{a} {b} 3\n" for a in "abc" for b in "abc").encode()
    contents = [text.encode() for text in ODD_CODES] + [complete[:n] for n in range(12)]
    contents += [draw.randbytes(n) for n in (1, 10, 1000)] + [b"\n" * 9, b"#version: 0.2\n", b" "]
    names = [str(write(tmp_path / str(n), data)) for n, data in enumerate(contents)]
    done = subprocess.run(
        [sys.executable, "-c", program, *names],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": "."},
    )
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    assert len(printed) == len(names)
    assert printed[:4] == ["ab@@ c@@ b", "a@@ b@@ c@@ b"] * 2
    assert set(printed[-5:]) == {"refused"}


WORDS = st.text(st.sampled_from("abAB@<>/wé日\u0301\ue000\u2581"), min_size=1, max_size=8)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.lists(WORDS, min_size=1, max_size=25), st.integers(1, 40), st.randoms())
def test_fastbpe_and_subword_nmt_split_any_words_alike(
    words: list[str], count: int, draw: random.Random
):
    pytest.importorskip("fastBPE", reason="the extra fastbpe is not installed")
    merges = learn_codes(Counter(words), count)
    draw.shuffle(merges)
    package, other = WordSplitter(merges), WordSplitter(merges)
    for word in words:
        with pytest.MonkeyPatch.context() as patch:
            expected = package([word])
            patch.setattr(bpe, "fastBPE", None)
            assert other([word]) == expected


@pytest.mark.parametrize("words", [{}, {"a": 3, "b": 2}])
def test_words_with_nothing_to_merge(words: dict[str, int], monkeypatch: pytest.MonkeyPatch):
    merges = learn_codes(words, 10)
    assert merges == []
    assert WordSplitter(merges)(["abé"]) == ["a@@", "b@@", "é"]
    monkeypatch.setattr(bpe, "fastBPE", None)  # subword-nmt exits without merges
    assert WordSplitter(merges)(["abé"]) == ["a@@", "b@@", "é"]


# ------------------------------------------------------------------------- models, saved segmenters


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"", "not a SentencePiece model"), (b"\0garbage", "not a SentencePiece model"), (None, "No")],
)
def test_file_that_is_not_a_model_is_an_error(tmp_path: Path, data: bytes | None, message: str):
    path = tmp_path / "spm.model"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(UserError, match=message) as error:
        segmenter(SentencePieceConfig(model=str(path)))
    assert "segment.model" in str(error.value)
    with pytest.raises(UserError, match="Is a directory"):
        segmenter(SentencePieceConfig(model=str(tmp_path)))


@pytest.mark.parametrize(
    "change",
    [
        lambda facts: [],
        lambda facts: None,
        lambda facts: {**facts, "sha256": []},
        lambda facts: {**facts, "sha256": None},
        lambda facts: {**facts, "sha256": {"../../secret": ""}},
        lambda facts: {**facts, "kind": ["fastbpe"]},
        lambda facts: {**facts, "kind": "other"},
        lambda facts: {key: value for key, value in facts.items() if key != "tokenised"},
        *("", "{", "[" * 100_000, "1" * 10_000),
    ],
)
def test_a_segmenter_with_wrong_metadata_or_broken_json_is_an_error(tmp_path, change):
    save_segmenter(segmenter(FastBpeConfig(merges=5)), tmp_path)
    path = tmp_path / "segmenter.json"
    text = change if isinstance(change, str) else json.dumps(change(json.loads(path.read_text())))
    path.write_text(text)
    with pytest.raises(UserError, match="the segmenter cannot be read") as error:
        load_segmenter(tmp_path)
    assert error.value.at == str(path)


# ------------------------------------------------------------------------------------- vocabulary


@same_folder
@given(st.text(st.sampled_from("ab\t19٣²-\n\r\u2028\0"), max_size=30))
def test_any_vocabulary_file_is_read_or_is_an_error(tmp_path, text):
    path = write(tmp_path / "vocab.txt", text.encode())
    try:
        vocab = Vocab.load(tmp_path)
    except UserError as error:
        require_place(error, path)
        return
    types = vocab.pieces(range(4, len(vocab)))
    assert [line.split("\t")[0] for line in text.split("\n")[:-1]] == types
    assert vocab.ids(types) == list(range(4, len(vocab)))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.text(max_size=30))
def test_no_text_becomes_a_special(line: str):
    made = segmenter(FastBpeConfig(merges=5))
    pieces = [*made.encode(clean_line(line), "en"), "<s>", "</s>", "<pad>", "<unk>"]
    ids = Vocab.build(Counter(pieces), Counter()).ids(pieces)
    assert min(ids) > UNK
