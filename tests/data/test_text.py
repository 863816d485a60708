"""Reading text: what a line is, and errors with file and line."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path

import pytest

from nmt.data.text import clean_line, find_side, is_blank, read_lines
from nmt.errors import UserError


def lines_of(tmp_path: Path, data: bytes, name: str = "a.en") -> list[str]:
    path = tmp_path / name
    path.write_bytes(data)
    return list(read_lines(path))


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\ntwo", ["one", "two"]),
        (b"one\r\ntwo\r\n", ["one", "two"]),
        (b"one\rstill one\n", ["one still one"]),
        ("\ufeffone\ntwo".encode(), ["one", "two"]),
        ("a\u2028b\u2029c\u0085d\x0be\x0cf\n".encode(), ["a\u2028b\u2029c d e f"]),
        (b"nul\x00 bell\x07\n\n", ["nul  bell ", ""]),
        (b"", []),
    ],
)
def test_only_lf_ends_a_line(tmp_path: Path, data: bytes, lines: list[str]):
    assert lines_of(tmp_path, data) == lines
    assert lines_of(tmp_path, gzip.compress(data), "a.en.gz") == lines
    assert lines_of(tmp_path, lzma.compress(data), "a.en.xz") == lines


def test_references_are_not_cleaned(tmp_path: Path):
    (tmp_path / "r").write_bytes("a\tb\u00a0 e\u0301\n".encode())
    assert list(read_lines(tmp_path / "r", clean=False)) == ["a\tb\u00a0 e\u0301"]


def test_clean_is_idempotent_and_keeps_text():
    text = "Ça va? \u00a0 “ok” 日本語 e\u0301"
    assert clean_line(text) == text
    assert clean_line(clean_line("a\tb")) == clean_line("a\tb") == "a b"


@pytest.mark.parametrize("line", ["", " ", "\u00a0\u3000", "\u200b", "\ufeff \u2060", "\u00ad"])
def test_blank(line: str):
    assert is_blank(line)


def test_not_blank():
    assert not is_blank("\u200ba")


def test_invalid_utf8_names_file_line_and_byte(tmp_path: Path):
    with pytest.raises(UserError) as error:
        lines_of(tmp_path, b"fine\nab\xff\n")
    assert f"{tmp_path / 'a.en'}:2: not UTF-8" in str(error.value)
    assert "byte 3 of the line" in str(error.value)


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [(".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)],
)
def test_truncated_archive_is_an_error(tmp_path: Path, suffix: str, pack):
    complete = pack("".join(f"sentence number {i * i}\n" for i in range(5000)).encode())
    with pytest.raises(UserError, match="damaged or truncated"):
        lines_of(tmp_path, complete[: len(complete) // 2], f"a.en{suffix}")
    with pytest.raises(UserError, match="damaged or truncated"):
        lines_of(tmp_path, b"no archive", f"b.en{suffix}")


def test_compressed_bomb_is_an_error(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("nmt.data.text.LONGEST_LINE", 1000)
    with pytest.raises(UserError, match="this line has over 1,000 bytes"):
        lines_of(tmp_path, gzip.compress(b"x" * 10_000), "a.en.gz")


def test_find_side_finds_archives_but_not_folders(tmp_path: Path):
    (tmp_path / "t.gl.gz").touch()
    (tmp_path / "t.en").mkdir()
    assert find_side(str(tmp_path / "t"), "gl") == tmp_path / "t.gl.gz"
    with pytest.raises(UserError, match="not a regular file"):
        find_side(str(tmp_path / "t"), "en")
    with pytest.raises(UserError) as error:
        find_side(str(tmp_path / "t"), "sk")
    assert "t.sk" in str(error.value)
    assert ".gz" in str(error.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x28\xb5\x2f\xfd\x24\x0d", "a zstd file, which is not supported: unpack it"),
        (gzip.compress(b"text\n", mtime=0), "a gzip file: rename it so that its name ends in .gz"),
        (lzma.compress(b"text\n"), "an xz file: rename it so that its name ends in .xz"),
        (bz2.compress(b"some text\n" * 9), "a bzip2 file: rename it so that its name ends in .bz2"),
        (b"PK\x03\x04\xff", "a zip archive: unpack it"),
        ("text\n".encode("utf-16"), "UTF-16: convert it"),
    ],
)
def test_error_names_the_type_of_a_binary_file(tmp_path, data, message):
    with pytest.raises(UserError) as error:
        lines_of(tmp_path, data, "a.en")
    assert message in str(error.value)


def test_a_line_does_not_decide_the_type_of_the_file(tmp_path):
    with pytest.raises(UserError, match=r"a\.en:2: not UTF-8: .*\n.*convert the file to UTF-8"):
        lines_of(tmp_path, b"text\n\xff\xfe\n", "a.en")


def test_zstd_file_is_an_error_of_its_own(tmp_path):
    (tmp_path / "t.gl.zst").touch()
    with pytest.raises(
        UserError, match=r"t\.gl\.zst: zstd files are not supported\n.*zstd -d t\.gl\.zst"
    ):
        find_side(str(tmp_path / "t"), "gl")
