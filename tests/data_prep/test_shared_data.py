"""The real corpora next to the repository can be prepared with from_moses."""

import json
from pathlib import Path

import pytest

from data_prep import from_moses

DATA = Path(__file__).resolve().parents[2] / "../shared/data"
CORPORA = [
    ("bible-en-ar-vi-tl", "en", "tl"),
    ("evbnews-en-vi", "en", "vi"),
    ("lafand-en-sw", "en", "sw"),
    ("multi30k/raw", "en", "de"),
    ("tanaka-ja-en", "ja", "en"),
    ("tatoeba-ar-en", "ar", "en"),
    ("ted-az-en", "az", "en"),
    ("ted-gl-en", "gl", "en"),
    ("ui-he-en", "he", "en"),
    ("ui-sk-en", "sk", "en"),
]
SCRIPTS = {"ar": "ARABIC", "he": "HEBREW"}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "src", "tgt"), CORPORA, ids=[name for name, _, _ in CORPORA])
def test_given_splits(name, src, tgt, tmp_path):
    folder = DATA / name
    if not folder.is_dir():
        pytest.skip("needs the corpora in ../shared/data")
    out = tmp_path / "out"
    argv = [str(folder / "train"), "--dev", str(folder / "dev"), "--test", str(folder / "test")]
    argv += ["--src-lang", src, "--tgt-lang", tgt, "--output", str(out)]
    argv += ["--script-src", SCRIPTS[src]] if src in SCRIPTS else []
    assert from_moses.main(argv) == 0
    check(out, src, tgt)


def test_a_split_is_made(tmp_path):
    prefix = DATA / "tatoeba-ar-en" / "train"
    if not prefix.parent.is_dir():
        pytest.skip("needs the corpora in ../shared/data")
    out = tmp_path / "out"
    sizes = ["--dev-size", "500", "--test-size", "500"]
    argv = [str(prefix), "--src-lang", "ar", "--tgt-lang", "en", "--output", str(out), *sizes]
    assert from_moses.main([*argv, "--script-src", "ARABIC", "--script-tgt", "LATIN"]) == 0
    check(out, "ar", "en")


def check(out, src, tgt):
    """Every line of the input is in the output or counted as dropped."""
    manifest = json.loads((out / "MANIFEST.json").read_text("utf-8"))
    for split, pairs in manifest["pairs"].items():
        for lang in (src, tgt):
            assert (out / f"{split}.{lang}").read_bytes().count(b"\n") == pairs > 300
    assert sum(manifest["pairs"].values()) > 5_000
    for dropped in manifest["dropped"].values():
        assert dropped["count"] > 0
        assert dropped["first"]
