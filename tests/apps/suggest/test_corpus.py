"""Finding the languages of a corpus, and its dev and test sets; what to type if that fails."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from nmt.apps.suggest.corpus import CorpusPaths, find_corpus
from nmt.errors import UserError


def write(folder: Path, *names: str, lines: int = 3) -> str:
    """Write files of a few lines; return the prefix of train."""
    for name in names:
        text = "".join(f"line {n}\n" for n in range(lines)).encode()
        (folder / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return str(folder / "train")


def error(prefix: str, src: str | None = None, tgt: str | None = None) -> str:
    with pytest.raises(UserError) as raised:
        find_corpus(prefix, src, tgt)
    return str(raised.value)


def test_languages_come_from_the_file_names_and_english_is_the_target(tmp_path):
    prefix = write(tmp_path, "train.en", "train.sw.gz", "dev.en.gz", "dev.sw", "train.credits")
    assert find_corpus(prefix, None, None) == CorpusPaths(
        "sw", "en", prefix, str(tmp_path / "dev"), None
    )


def test_one_given_language_decides_the_direction(tmp_path):
    prefix = write(tmp_path, "train.en", "train.sw", "dev.en", "dev.sw", "test.sw", "test.en")
    for src, tgt in (("en", None), (None, "sw"), ("en", "sw")):
        found = find_corpus(prefix, src, tgt)
        assert (found.src, found.tgt, found.test) == ("en", "sw", str(tmp_path / "test"))


@pytest.mark.parametrize(("src", "tgt"), [("es", "shp"), ("shp", "es"), ("en", "gl")])
def test_a_manifest_says_the_languages(tmp_path, src, tgt):
    write(tmp_path, *(f"{split}.{lang}" for split in ("train", "dev") for lang in (src, tgt)))
    prefix = str(tmp_path / "train")
    (tmp_path / "MANIFEST.json").write_text(f'{{"src": "{src}", "tgt": "{tgt}"}}')
    found = find_corpus(prefix, None, None)
    assert (found.src, found.tgt) == (src, tgt)
    assert find_corpus(prefix, tgt, src).src == tgt  # the options decide
    (tmp_path / "MANIFEST.json").write_text('{"src": "xx", "tgt": "yy"}')  # of other files
    if "en" in (src, tgt):
        assert find_corpus(prefix, None, None).tgt == "en"
    else:
        assert "--src-lang" in error(prefix)


@pytest.mark.parametrize(
    ("train", "dev"),
    [
        ("train", "valid"),
        ("gl-en.train", "gl-en.validation"),
        ("all", "dev"),
        ("training", "dev"),
        ("constrained", "dev"),
    ],
)
def test_other_names_of_a_dev_set(tmp_path, train, dev):
    write(tmp_path, *(f"{name}.{lang}" for name in (train, dev) for lang in ("gl", "en")))
    assert find_corpus(str(tmp_path / train), None, None).dev == str(tmp_path / dev)


def test_a_prefix_that_is_not_utf8_is_an_error(tmp_path):
    prefix = str(tmp_path / os.fsdecode(b"\xff"))
    assert error(prefix, "gl", "en").startswith(f"{prefix}: this path has bytes that are not UTF-8")


def test_a_held_out_set_of_one_language_is_none(tmp_path):
    prefix = write(tmp_path, "train.gl", "train.en", "dev.en", "val.en", "val.gl", "test.gl")
    found = find_corpus(prefix, None, None)
    assert (found.dev, found.test) == (str(tmp_path / "val"), None)


@pytest.mark.parametrize(
    ("names", "given", "command"),
    [
        (("de", "fr"), (None, None), "--src-lang de --tgt-lang fr"),
        (("de", "en", "fr"), (None, None), "--src-lang de --tgt-lang fr"),
        (("de", "en", "fr"), ("en", None), "--src-lang en --tgt-lang fr"),
        (("de", "en", "fr"), (None, "de"), "--src-lang en --tgt-lang de"),
    ],
)
def test_ambiguous_languages_say_what_to_type(tmp_path, names, given, command):
    prefix = write(tmp_path, *(f"train.{name}" for name in names))
    assert error(prefix, *given) == (
        f"{prefix}: it is not clear which language to translate from and to: there are files for "
        f"{', '.join(names)}\n  -> name both: nmt-suggest {prefix} {command}"
    )


@pytest.mark.parametrize(
    ("name", "langs", "parts"),
    [
        ("missing/train", (), ["no files PREFIX.SRC and PREFIX.TGT", "nmt-suggest corpus/train"]),
        ("one.gl.gz", (), ["is one file", "nmt-suggest {folder}/one\n"]),
        ("one", (), ["there is only a file for gl", "as one.LANG"]),
        ("train", ("pt", "en"), ["train.pt: no such file", "train.en, train.gl"]),
        ("train", ("en", "en"), ['"en" is both']),
    ],
)
def test_a_prefix_or_language_without_files_says_what_to_type(tmp_path, name, langs, parts):
    write(tmp_path, "train.gl", "train.en", "dev.gl", "dev.en", "one.gl.gz")
    found = error(str(tmp_path / name), *langs) + "\n"
    assert all(part.format(folder=tmp_path) in found for part in parts)


@pytest.mark.parametrize(("lines", "sizes"), [(600, " --dev-size 60 --test-size 60"), (10_000, "")])
def test_a_corpus_without_dev_is_split_by_data_prep(tmp_path, lines, sizes):
    prefix = write(tmp_path, "train.gl", "train.en", lines=lines)
    langs = "--src-lang gl --tgt-lang en"
    assert error(prefix).endswith(
        f"-> split the corpus: nmt-import moses {prefix} {langs} -o {tmp_path}/gl-en{sizes}\n"
        f"     then run: nmt-suggest {tmp_path}/gl-en/train {langs}"
    )


def test_a_corpus_that_is_too_small_to_split_needs_another_dev_set(tmp_path):
    write(tmp_path, "gl-en.train.gl", "gl-en.train.en", lines=99)
    assert error(f"{tmp_path}/gl-en.train").endswith(
        "which chooses the best checkpoint, and a corpus of 99 pairs is too small to split\n"
        f"  -> collect at least 100 pairs, or save other pairs as {tmp_path}/gl-en.dev.gl and "
        f"{tmp_path}/gl-en.dev.en"
    )


@pytest.mark.parametrize("pairs", [100, 175])
def test_the_split_command_works(tmp_path, pairs):
    from nmt.cli.import_corpus import main

    words = [f"{a}{b}{c}" for a in "bcdfg" for b in "aeiou" for c in "lmnprst"]
    for lang in ("gl", "en"):  # data_prep drops pairs that are nearly the same
        lines = [" ".join(words[n * k % 175] + lang for k in (1, 3, 7, 9)) for n in range(pairs)]
        (tmp_path / f"all.{lang}").write_text("".join(f"{line}\n" for line in lines))
    message = error(str(tmp_path / "all"))
    words = message.partition("nmt-import ")[2].partition("\n")[0].split()
    assert main(words) == 0
    found = find_corpus(message.rpartition("nmt-suggest ")[2].split()[0], "gl", "en")
    assert Path(f"{found.dev}.gl").is_file()
    assert found.test is not None
