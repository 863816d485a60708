"""Faulty corpora: each fault is an error or is counted, before anything is written."""

from __future__ import annotations

import gzip
import hashlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nmt.cli.prepare import main
from nmt.config.recipe import Recipe
from nmt.data import cache as cache_module
from nmt.data import checks as checks_module
from nmt.data import encoded, workers
from nmt.data import prepare as prepare_module
from nmt.data.batches import make_batches
from nmt.data.checks import over_batch
from nmt.data.lines import OPENERS, require_line_feeds
from nmt.data.prepare import Prepared, prepare
from nmt.data.report import Places
from nmt.data.segmenters import bpe
from nmt.data.vocab import UNK
from nmt.errors import MachineError, UserError

PAIRS = [(f"o gato {i} come ben", f"the cat {i} eats well") for i in range(60)]
DEV = [("o gato come", "the cat eats")]


KINDS = pytest.mark.parametrize("kind", ["fastbpe", "sentencepiece", "whitespace"])


class Corpus:
    """A small corpus in a folder, and its preparation."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, pairs in (("train", PAIRS), ("dev", DEV)):
            self.both(name, *("".join(pair[side] + "\n" for pair in pairs) for side in (0, 1)))

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.folder / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def both(self, name: str, src: str, tgt: str) -> str:
        self.write(f"{name}.gl", src)
        self.write(f"{name}.en", tgt)
        return str(self.folder / name)

    def recipe(self, **keys) -> Recipe:
        data = {name: str(self.folder / name) for name in ("train", "dev")}
        data |= {"tokenized": True} | keys.pop("data", {})
        values = {"src": "gl", "tgt": "en", "out": str(self.folder / "run"), "data": data}
        return Recipe.model_validate(values | {"segment": {"merges": 30}} | keys)

    def file(self, segment: str = "{merges: 30}") -> str:
        text = f"src: gl\ntgt: en\nsegment: {segment}\n"
        text += "data: {train: train, dev: dev, tokenized: true}\n"
        return str(self.write("r.yaml", text))

    def prepared(self, **keys) -> Prepared:
        return prepare(self.recipe(**keys), progress=False)

    def cached(self) -> list[Path]:
        cache = self.folder / ".cache"
        return list(cache.iterdir()) if cache.exists() else []

    def refused(self, **keys) -> str:
        """Return the error of a preparation, which must leave nothing behind."""
        with pytest.raises(UserError) as error:
            self.prepared(**keys)
        assert not (self.folder / "run").exists()
        assert self.cached() == []
        return str(error.value)


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus(tmp_path)


def ids(p: Prepared) -> list[list[int]]:
    return [[*p.train.src(row), 0, *p.train.tgt(row)] for row in range(len(p.train))]


def warned(p: Prepared, text: str) -> bool:
    return any(text in warning for warning in p.report.warnings)


# --- files --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "put",
    [
        lambda path: None,
        Path.mkdir,
        os.mkfifo,
        pytest.param(
            lambda path: path.touch(mode=0),
            marks=pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything"),
        ),
    ],
    ids=["missing", "folder", "pipe", "permission"],
)
def test_files_that_cannot_be_read_are_named(corpus, put):
    paths = [corpus.folder / name for name in ("train.gl", "dev.en")]
    for path in paths:
        path.unlink()
        put(path)
    found = [f"{path}: " in corpus.refused() for path in paths]
    assert all(found) if not paths[0].exists() else any(found)


@KINDS
def test_empty_files(corpus, kind):
    segment = {"kind": kind}
    corpus.both("train", "", "")
    assert "no training pair is left (the files are empty)" in corpus.refused(segment=segment)
    corpus.both("dev", "", "")
    message = corpus.refused(segment=segment)
    assert "data.dev" in message
    assert "no pair has text on both sides (the files are empty)" in message


def test_two_files_of_one_side_must_have_the_same_lines(corpus: Corpus):
    plain = corpus.folder / "train.en"
    packed = corpus.write("train.en.gz", gzip.compress(plain.read_bytes()))
    report = corpus.prepared().report
    assert str(plain) in report.inputs
    assert str(packed) not in report.inputs
    for other in (plain.read_bytes()[:-1] + b" x\n", plain.read_bytes() + b"\n", b""):
        packed.write_bytes(gzip.compress(other))
        with pytest.raises(
            UserError, match=r"train\.en: differs from train\.en\.gz in the same folder"
        ):
            corpus.prepared()


def append(path: Path) -> None:
    with open(path, "a") as file:
        file.write("late\n")


def replace(path: Path) -> None:
    """By a file of the same size."""
    new = path.with_name("new")
    new.write_text(path.read_text().replace("gato", "pato"))
    os.replace(new, path)


@pytest.mark.parametrize(
    ("name", "change"), [("train.gl", append), ("dev.en", append), ("train.gl", replace)]
)
def test_a_file_that_changes_while_it_is_read_is_an_error(corpus, monkeypatch, name, change):
    real = prepare_module.encode_training

    def meddle(*args):
        change(corpus.folder / name)
        return real(*args)

    monkeypatch.setattr(prepare_module, "encode_training", meddle)
    message = corpus.refused()
    assert name in message
    assert "changed while it was read" in message or "lines, but" in message


# --- bytes and characters -----------------------------------------------------------------------


CONTROL = "control characters read as spaces"


@pytest.mark.parametrize(
    ("change", "normalized"),
    [
        (lambda text: text.replace("\n", "\r\n"), {"CRLF read as LF": 60}),
        (lambda text: "\ufeff" + text, {"byte-order mark removed": 1}),
        (lambda text: text.replace("cat 3 ", "cat\r3\0"), {CONTROL: 1}),
        (lambda text: text.replace("cat 3 ", "cat\x0b3\x0c"), {CONTROL: 1}),
        (lambda text: text.replace("cat 3 ", "cat\x853 "), {CONTROL: 1}),
        (lambda text: text.replace("cat 3 ", "cat\u20283\u2029"), {"U+2028 or U+2029 inside": 1}),
        (lambda text: text.removesuffix("\n"), {}),
    ],
)
def test_line_ends_and_control_characters_change_no_id(corpus, change, normalized):
    plain = corpus.prepared()
    corpus.write("train.en", change((corpus.folder / "train.en").read_bytes().decode()))
    changed = corpus.prepared()
    assert changed.data_hash != plain.data_hash
    assert ids(changed) == ids(plain)
    assert changed.report.splits["train"].normalized == normalized
    assert plain.report.splits["train"].normalized == {}


def test_references_and_sources_for_scoring_are_unchanged(corpus: Corpus):
    corpus.write("dev.gl", "o gato\u00a0come\n\u200b\no gato\n")
    corpus.write("dev.en", "e\u0301 \u2028the  cat\t\n\nthe cat\n")
    p = corpus.prepared(data={"normalize": "nfc"})
    assert p.dev[0].src_lines == ["o gato\u00a0come", "\u200b", "o gato"]
    assert p.dev[0].ref_lines == ["e\u0301 \u2028the  cat\t", "", "the cat"]
    assert p.dev[0].corpus.src_len[1] == p.dev[0].corpus.tgt_len[1] == 0
    assert len(p.dev[0].corpus) == 3


TAGS = "<unk> <s> </s> <pad> @@ a@@ </w> ▁ <b>x</b>"


@KINDS
def test_text_that_looks_like_a_special_is_text(corpus, kind):
    corpus.both("train", f"{TAGS}\n" * 40, f"{TAGS}\n" * 40)
    segment = {"kind": kind} | ({"vocab_size": 60} if kind == "sentencepiece" else {})
    p = corpus.prepared(segment=segment, data={"checks": "warn"})
    assert p.train.src(3).min() > UNK
    pieces = p.vocab.pieces(p.train.src(3))
    assert p.segmenter.decode_tokenized(pieces, "gl").replace("_", "▁") == TAGS


# --- pairs --------------------------------------------------------------------------------------


def test_very_long_line_is_dropped_or_is_a_batch_of_its_own(corpus: Corpus):
    for lang in ("gl", "en"):
        path = corpus.folder / f"train.{lang}"
        path.write_text("word " * 10_000 + "\n" + path.read_text())
    short = corpus.prepared()
    assert len(short.train) == 60
    assert short.report.splits["train"].dropped == {"length": Places(1, ["train:1"])}
    complete = corpus.prepared(data={"max_len": 20_000, "max_pieces": 20_000})
    assert len(complete.train) == 61
    batches = make_batches(complete.train.src_len, complete.train.tgt_len, 256, seed=1, epoch=0)
    assert [0] in [list(rows) for rows in batches]
    assert sorted(np.concatenate(batches)) == list(range(61))


@pytest.mark.parametrize("kind", ["fastbpe", "sentencepiece", "whitespace"])
def test_no_pair_left_error_lists_the_filters(corpus: Corpus, kind: str):
    corpus.write("train.gl", "\n" * 5 + "a b c\n" * 55)
    message = corpus.refused(segment={"kind": kind}, data={"max_len": 2})
    assert "no training pair is left (blank: 5, length: 55)" in message


@pytest.mark.parametrize("kind", ["fastbpe", "sentencepiece", "whitespace"])
def test_pair_with_too_many_pieces_is_dropped_with_its_line(corpus: Corpus, kind: str):
    """A Chinese line counts as one word, so data.max_len does not limit it."""
    rng = random.Random(1)
    chinese = "".join(chr(rng.randrange(0x4E00, 0x4E00 + 20)) for _ in range(19_000))
    if kind == "whitespace":
        chinese = " ".join(chinese[:9000])
    for lang, long in (("gl", chinese), ("en", "x" * 1_000_000)):
        lines = (corpus.folder / f"train.{lang}").read_text().splitlines(keepends=True)
        lines[6] = long + "\n"
        corpus.write(f"train.{lang}", "".join(lines))
    for lang, long in (("gl", chinese), ("en", "a")):
        with open(corpus.folder / f"train.{lang}", "a") as file:
            file.write(f"{long}\n")
    keys = {"segment": {"kind": kind}, "data": {"max_len": 20_000}}
    p = corpus.prepared(**keys)
    train = p.report.splits["train"]
    assert train.dropped == {
        "characters": Places(1, ["train:7"]),
        "subwords": Places(1, ["train:61"]),
    }
    assert (train.pairs, train.kept, len(p.train)) == (61, 59, 59)
    assert max(p.train.src_len.max(), p.train.tgt_len.max()) <= 20


@pytest.mark.slow
def test_places_of_dropped_pairs_are_right_after_other_drops(corpus: Corpus, monkeypatch):
    monkeypatch.setattr(workers, "CHUNK", 7)
    for lang in ("gl", "en"):
        lines = (corpus.folder / f"train.{lang}").read_text().splitlines()
        lines[3] = ""
        lines[40] = lines[50] = "word " * 30
        corpus.write(f"train.{lang}", "\n".join(lines) + "\n")
    train = str(corpus.folder / "train")
    p = corpus.prepared(data={"train": [train, train], "max_pieces": 25})
    dropped = p.report.splits["train"].dropped
    assert dropped["subwords"] == Places(4, ["train:41", "train:51"] * 2)
    left = r"is left \(blank: 2, characters: 4, subwords: 114\)"
    with pytest.raises(UserError, match=left):
        corpus.prepared(data={"train": [train, train], "max_pieces": 1})


def test_pairs_longer_than_a_batch_are_counted(corpus: Corpus):
    letters = {"segment": {"merges": 1}}
    report = corpus.prepared(data={"batch_tokens": 8}, **letters).report
    (found,) = [warning for warning in report.warnings if "data.batch_tokens" in warning]
    assert found.startswith(
        "train: 60 pairs (100.0%) are longer than data.batch_tokens (8 subwords)"
    )
    (one,) = over_batch(np.array([9, 8, 8]), 8)
    assert one.message().startswith("train: 1 pair (33.3%) is longer than")
    assert not any("batch_tokens" in w for w in corpus.prepared(**letters).report.warnings)


@pytest.mark.parametrize("name", ["train", "dev"])
def test_cr_line_ends_are_an_error(corpus: Corpus, name: str):
    for lang in ("gl", "en"):
        text = (corpus.folder / f"{name}.{lang}").read_text() * 2
        corpus.write(f"{name}.{lang}", text.replace("\n", "\r"))
    message = corpus.refused()
    assert f"{corpus.folder / name}.gl:1: has one line with" in message
    assert "end with CR, not LF" in message
    assert f"tr '\\r' '\\n' < {corpus.folder / name}.gl" in message


@pytest.mark.parametrize(("suffix", "unpack"), [("", "tr"), (".gz", "gzip -dc")])
def test_the_advice_for_cr_line_ends_converts_the_file(tmp_path: Path, suffix: str, unpack: str):
    path = tmp_path / f"my corpus{suffix}"
    with OPENERS[suffix](path, "wb") as file:
        file.write(b"one\rtwo\r")
    with pytest.raises(UserError) as error:
        require_line_feeds(path)
    assert f": {unpack} " in error.value.fix
    command = error.value.fix.partition(": ")[2].partition(" > NEW")[0]
    assert subprocess.run(command, shell=True, capture_output=True).stdout == b"one\ntwo\n"


def test_checks_can_be_turned_off(corpus):
    assert warned(corpus.prepared(), "dev: only 1 pair")
    assert corpus.prepared(data={"checks": "off"}).report.warnings == []


GL = "o can dorme na casa vella e a muller do pescador canta cancións ao neno pequeno\n"
EN = "the dog sleeps in the old house and the wife of the fisherman sings songs to the boy\n"


def test_swapped_sides_are_an_error_and_a_wrong_file_is_a_warning(corpus):
    corpus.both("train", GL * 20, EN * 20)
    corpus.both("dev", EN * 9, GL * 9)
    swapped = "source and target are swapped in dev or in train"
    with pytest.raises(UserError, match=swapped):
        corpus.prepared()
    assert warned(corpus.prepared(data={"checks": "warn"}), swapped)
    corpus.write("dev.en", EN * 9)
    wrong = corpus.prepared()
    assert warned(wrong, "dev: the gl side is more like the en side of train")
    assert warned(wrong, "check that the file dev.gl is right")


# --- segmentation and vocabulary ----------------------------------------------------------------


def test_dev_set_of_unknown_pieces_is_an_error(corpus: Corpus):
    corpus.write("dev.gl", "совсем другой алфавит\n")
    with pytest.raises(UserError) as error:
        corpus.prepared()
    assert "dev: 100% of the source subwords are unknown" in str(error.value)
    message = corpus.prepared(data={"checks": "warn"}).report.warnings
    assert any("100% of the source subwords" in warning for warning in message)


def test_byte_fallback_leaves_nothing_unknown(corpus: Corpus):
    corpus.write("dev.gl", "совсем другой алфавит\n")
    segment = {"kind": "sentencepiece", "vocab_size": 320}
    with pytest.raises(UserError, match="of the source subwords are unknown"):
        corpus.prepared(segment=segment)
    p = corpus.prepared(segment=segment | {"byte_fallback": True})
    assert p.report.found("unknown source subwords", "dev").share == 0
    assert (
        p.segmenter.decode(p.vocab.pieces(p.dev[0].corpus.src(0)), "gl") == "совсем другой алфавит"
    )
    assert not p.vocab.types_of("tgt")[p.vocab.ids(["<0x0A>"])].any()


def test_too_many_types_are_an_error(corpus: Corpus, monkeypatch):
    monkeypatch.setattr(encoded, "MAX_TYPES", 50)
    message = corpus.refused(segment={"kind": "whitespace"})
    assert "72 types; at most 50 are allowed" in message
    assert "segment.min_count" in message


# --- processes, disk, cache ---------------------------------------------------------------------


@pytest.mark.slow
def test_killed_worker_is_an_error(corpus, monkeypatch):
    for name, value in {"MIN_PARALLEL_CHUNKS": 1, "CHUNK": 5, "available_cpus": lambda: 2}.items():
        monkeypatch.setattr(workers, name, value)
    parent, real = os.getpid(), encoded.EncodeChunk.__call__

    def die(self, chunk):
        if PAIRS[35] in list(chunk.pairs()) and os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(self, chunk)

    monkeypatch.setattr(encoded.EncodeChunk, "__call__", die)
    with pytest.raises(MachineError, match="worker process that segments text was killed"):
        corpus.prepared()
    assert corpus.cached() == []


WITHOUT_TORCH = """
import sys
from nmt.data import encoded, workers
from nmt.cli.prepare import main
real = encoded.EncodeChunk.__call__
def look(self, chunk):
    assert "torch" not in sys.modules
    return real(self, chunk)
encoded.EncodeChunk.__call__ = look
workers.MIN_PARALLEL_CHUNKS, workers.CHUNK, workers.available_cpus = 1, 4, lambda: 3
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_workers_do_not_load_torch_and_give_the_same_ids(corpus, monkeypatch):
    recipe = corpus.file("{merges: 30, dropout: 0.3}")
    argv = [sys.executable, "-c", WITHOUT_TORCH, recipe, f"out={corpus.folder}/several/run"]
    subprocess.run(argv, check=True, capture_output=True, cwd=Path(__file__).parents[2])
    monkeypatch.setattr(workers, "CHUNK", 4)
    monkeypatch.setattr(workers, "available_cpus", lambda: 1)
    assert main([recipe, f"out={corpus.folder}/one/run"]) == 0
    stored = []
    for name in ("several", "one"):
        (folder,) = (corpus.folder / name / ".cache").iterdir()
        files = (p for p in folder.rglob("*") if p.is_file())
        stored.append({str(p.relative_to(folder)): p.read_bytes() for p in files})
    assert stored[0] == stored[1]


def test_disk_full_is_exit_code_4_and_leaves_nothing(corpus, monkeypatch, capsys):
    def full(*_):
        raise OSError(28, "No space left on device", "train.ids")

    monkeypatch.setattr(encoded, "write_corpus", full)
    assert main([corpus.file(), f"out={corpus.folder}/run"]) == 4
    message = capsys.readouterr().err
    (cache,) = re.findall(r"^nmt-prepare: (.*): the disk .* is full: .* needed, .* free", message)
    assert Path(cache).parent == corpus.folder / ".cache"
    assert "--resume" not in message
    assert corpus.cached() == []


@pytest.mark.slow
def test_without_a_place_for_the_cache_a_temporary_one_is_used_and_removed(corpus):
    corpus.write(".cache", "in the way")
    (temporary := corpus.folder / "tmp").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "nmt.cli.prepare", corpus.file(), f"out={corpus.folder}/run"],
        env={**os.environ, "TMPDIR": str(temporary)},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"preparing in {temporary}/nmt-data-" in done.stderr
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    "name",
    ["report.json", "vocab.txt", "codes.txt", "segmenter.json", "train/src.ids", "train/tgt.len",
     "train/corpus.json"],
)  # fmt: skip
def test_damaged_cache_error_names_the_folder_to_delete(corpus, name):
    first = ids(corpus.prepared())
    (cache,) = corpus.cached()
    file = cache / name
    intact = file.read_bytes()
    for damaged in (intact[:-3], intact[: intact.rstrip(b"\n").rfind(b"\n") + 1], None):
        file.unlink() if damaged is None else file.write_bytes(damaged)
        with pytest.raises(MachineError) as error:
            corpus.prepared()
        assert error.value.at == str(cache)
        assert "delete this folder" in error.value.fix
    shutil.rmtree(cache)
    assert ids(corpus.prepared()) == first


def test_merges_are_learned_from_the_most_frequent_words(monkeypatch):
    words = {"abc": 5, "abd": 4, "xyxy": 3, "zzz": 1}
    complete = bpe.learn_codes(words, 20)
    monkeypatch.setattr(bpe, "MAX_LEARNED_WORDS", 2)
    assert bpe.learn_codes(words, 20) == bpe.learn_codes({"abc": 5, "abd": 4}, 20) != complete
    monkeypatch.setattr(bpe, "MAX_LEARNED_WORDS", 4)
    assert bpe.learn_codes(words, 20) == complete


def test_files_in_other_roles_have_another_data_hash(corpus):
    """A cache with the same files in other roles has another overlap check."""
    train, dev = (str(corpus.folder / name) for name in ("train", "dev"))
    roles = [{}, {"dev": train, "train": dev}, {"test": train}, {"train": [train, dev]}]
    assert len({corpus.prepared(data=r | {"checks": "off"}).data_hash for r in roles}) == 4


@pytest.mark.parametrize("package", ["sacremoses", "sentencepiece", "subword-nmt", "Unicode"])
def test_versions_of_packages_change_the_data_hash(corpus: Corpus, monkeypatch, package):
    first = corpus.prepared()
    assert set(first.report.versions) >= {package}
    monkeypatch.setattr(cache_module, "versions", lambda: {**first.report.versions, package: "99"})
    monkeypatch.setattr(prepare_module, "versions", cache_module.versions)
    again = corpus.prepared()
    assert again.data_hash != first.data_hash
    assert again.report.versions[package] == "99"


def test_newer_checks_are_not_answered_by_the_cache(corpus: Corpus, monkeypatch):
    with monkeypatch.context() as older:
        older.setattr(checks_module, "MIN_HELD_OUT", 0)
        assert not corpus.prepared().report.found("size", "dev").count
    assert not corpus.prepared().report.found("size", "dev").count  # from the cache
    monkeypatch.setattr(checks_module, "VERSION", "a newer one")
    assert corpus.prepared().report.found("size", "dev").count == 1


def test_corpus_named_twice_counts_twice(corpus: Corpus):
    train = str(corpus.folder / "train")
    once, twice = corpus.prepared(), corpus.prepared(data={"train": [train, train]})
    assert ids(twice) == ids(once) * 2
    assert twice.report.found("duplicates", "train").count == 60


@pytest.mark.parametrize("name", ["dev", "copy"])
def test_test_set_equal_to_dev_is_a_warning(corpus, name):
    corpus.both("copy", *(f"{text}\n" for text in DEV[0]))
    found = corpus.prepared(data={"test": str(corpus.folder / name)})
    assert warned(found, "test: 100.0% of the pairs (1) are also in dev")
    assert not warned(corpus.prepared(), "also in dev")


def test_report_has_the_files_and_their_hashes(corpus: Corpus):
    report = corpus.prepared().report
    for name in ("train.gl", "train.en", "dev.gl", "dev.en"):
        path = corpus.folder / name
        assert report.inputs[str(path)] == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("the 312\ncat 17\na@@ 4\n", "a vocabulary entry (WORD COUNT), not a merge"),
        ("t h\nth e\n", "two columns, but the first line is not #version"),  # or of version 0.1
        ("t h 312\nth e 17\n", None),
    ],
)
def test_a_vocabulary_given_as_codes_is_an_error(corpus, text, what):
    segment = {"codes": str(corpus.write("vocab", text))}
    if what is None:
        assert corpus.prepared(segment=segment)
    else:
        message = corpus.refused(segment=segment)
        assert message.startswith(f"{corpus.folder / 'vocab'}:1: {what}")
        assert "\n  -> " in message
