"""Preparation: what is dropped and counted, the cache, worker processes, bounded memory."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from nmt.cli import prepare as command
from nmt.config.recipe import Recipe
from nmt.data.bitext import missing_files
from nmt.data.cache import build_cache
from nmt.data.checks import HeldOutPairs
from nmt.data.prepare import prepare
from nmt.data.report import Places
from nmt.data.vocab import UNK
from nmt.errors import UserError
from nmt.runtime.files import open_file
from tests.data.test_entries import write

CHANGED = "changed by the segmentation, in a sample"
TRAIN = [(f"o gato {i} come", f"the cat {i} eats") for i in range(200)]
DEV = [("o gato come", "the cat eats"), ("", "blank source"), ("o zz come", "the zz eats")]


def recipe_for(folder: Path, train=TRAIN, dev=DEV, test=None, **keys) -> Recipe:
    data = {"train": write(folder / "train", train), "dev": write(folder / "dev", dev)}
    if test is not None:
        data["test"] = write(folder / "test", test)
    data |= {"tokenized": True} | keys.pop("data", {})
    values = {"src": "gl", "tgt": "en", "out": str(folder / "run"), "data": data}
    return Recipe.model_validate(values | {"segment": {"merges": 30}} | keys)


def prepared(folder: Path, *args, **keys):
    return prepare(recipe_for(folder, *args, **keys), progress=False)


def text_of(p, corpus, row: int) -> tuple[str, str]:
    return tuple(
        p.segmenter.decode_tokenized(p.vocab.pieces(ids), "gl")
        for ids in (corpus.src(row), corpus.tgt(row))
    )


def test_ids_encode_the_text_and_held_out_sets_keep_every_line(tmp_path: Path):
    p = prepared(tmp_path, test=DEV[:1])
    assert len(p.train) == 200
    assert text_of(p, p.train, 7) == TRAIN[7]
    assert p.dev[0].src_lines == [s for s, _ in DEV]
    assert p.dev[0].ref_lines == [t for _, t in DEV]
    assert p.dev[0].corpus.src_len.tolist()[1] == 0
    assert p.dev[0].corpus.tgt_len.tolist()[1] > 0
    assert UNK in p.dev[0].corpus.src(2)
    assert len(p.test[0].corpus) == 1


def test_monolingual_text_is_copied_and_is_no_direction_of_the_model(tmp_path: Path):
    (tmp_path / "mono.en").write_text(
        "".join(f"the cat {i} eats all the food\n" for i in range(200))
    )
    mono = {"path": f"{tmp_path}/mono", "src": "en", "tgt": "en"}
    recipe = recipe_for(tmp_path)
    recipe = recipe_for(tmp_path, data={"train": [recipe.data.train[0].path, mono]})
    p = prepare(recipe, progress=False)
    assert text_of(p, p.train, len(p.train) - 1) == ("the cat 199 eats all the food",) * 2
    assert not any("same" in finding.text for finding in p.report.findings)
    assert recipe.directions.sources == ["gl"]


def test_drops_are_counted_with_their_lines(tmp_path: Path):
    odd = [("", ""), ("a", ""), ("\u200b", "b"), ("w " * 300, "x"), *TRAIN, TRAIN[0]]
    p = prepared(tmp_path, train=odd)
    train = p.report.splits["train"]
    assert len(p.train) == train.kept == 201
    assert train.pairs == 205
    assert train.dropped == {
        "blank": Places(3, ["train:1", "train:2", "train:3"]),
        "length": Places(1, ["train:4"]),
    }
    assert p.report.found("duplicates", "train").count == 1
    assert text_of(p, p.train, 0) == TRAIN[0]


def test_lines_that_the_segmentation_changes_are_counted(tmp_path: Path):
    odd = [(f"can {i}", f"dog , {i} .") for i in range(10)]
    raw = {"data": {"tokenized": False}, "train": TRAIN + odd}
    report = prepared(tmp_path / "bpe", **raw).report
    trip = report.found(CHANGED, "train")
    assert (trip.count, trip.share) == (10, 10 / (len(TRAIN) + 10))
    (message,) = (text for text in report.warnings if "detokenized" in text)
    assert "'dog , 0 .' becomes 'dog, 0.'" in message
    assert "segment.kind=sentencepiece" in message
    segment = {"kind": "sentencepiece", "vocab_size": 60}
    report = prepared(tmp_path / "spm", segment=segment, **raw).report
    assert report.found(CHANGED, "train").count == 0
    report = prepared(tmp_path / "tokenized", train=raw["train"]).report
    assert report.found(CHANGED, "train").count == 0


def test_overlap_of_dev_and_train_is_an_error_that_can_be_lowered(tmp_path: Path):
    with pytest.raises(UserError) as error:
        prepared(tmp_path / "a", dev=[*DEV, *TRAIN[:2]])
    assert "dev: 50.0% of the pairs (2) are also in the training data" in str(error.value)
    assert TRAIN[0][0] in str(error.value)
    for keys in ({"checks": "warn"}, {"max_overlap": 0.9}):
        report = prepared(tmp_path / "b", dev=[*DEV, *TRAIN[:2]], data=keys).report
        assert report.found(HeldOutPairs.name, "dev").count == 2


def test_dev_sources_in_train_with_other_targets_are_a_warning(tmp_path: Path):
    names = [f"{a}{b}" for a in "bcdfghjklmnp" for b in "aeiouyrls"]
    dev = [(f"{w} gato {v} come ben", f"the {w} cat eats {v}") for w, v in pairwise(names)]
    train = [*TRAIN, *((src, f"something else {i}") for i, (src, _) in enumerate(dev[:30]))]
    report = prepared(tmp_path, train=train, dev=dev, data={"checks": "error"}).report
    (message,) = (w for w in report.warnings if "source texts of" in w)
    assert message.startswith("dev: 28.0% of 107 source texts of at least 4 words are also in the ")
    assert message.endswith(f"for example train:201: {dev[0][0]}")


def test_unequal_files_report_both_counts_and_a_line(tmp_path: Path):
    recipe = recipe_for(tmp_path)
    lines = [t for _, t in TRAIN]
    lines.insert(50, "")
    (tmp_path / "train.en").write_text("\n".join(lines) + "\n")
    with pytest.raises(UserError) as error:
        prepare(recipe, progress=False)
    assert "has 200 lines, but train.en has 201" in str(error.value)
    assert "line 51" in str(error.value)
    (tmp_path / "train.gl").write_text("unha\n")
    with pytest.raises(UserError, match=r"has 1 line, but train\.en has 201"):
        prepare(recipe, progress=False)
    assert not (tmp_path / "run").exists()
    assert not list(tmp_path.glob(".cache/*"))


def test_missing_files_are_named(tmp_path: Path):
    recipe = recipe_for(tmp_path)
    assert missing_files(recipe) == []
    (tmp_path / "dev.en").unlink()
    assert missing_files(recipe) == [str(tmp_path / "dev")]
    with pytest.raises(UserError, match=r"dev\.en"):
        prepare(recipe, progress=False)


def test_cache_is_used_until_something_changes(tmp_path: Path, monkeypatch):
    first = prepared(tmp_path)
    assert len(list((tmp_path / ".cache").iterdir())) == 1
    monkeypatch.setattr("nmt.data.prepare._write", lambda *_: pytest.fail("made again"))
    again = prepared(tmp_path, model={"dim": 64, "heads": 2})
    assert again.data_hash == first.data_hash
    monkeypatch.undo()
    assert prepared(tmp_path, segment={"merges": 20}).data_hash != first.data_hash
    assert prepared(tmp_path, train=TRAIN[1:]).data_hash != first.data_hash


def test_the_text_is_read_twice(tmp_path: Path, monkeypatch):
    opened: Counter[str] = Counter()

    def count(path: Path, *args, **keys):
        opened[path.name] += 1
        return open_file(path, *args, **keys)

    monkeypatch.setattr("nmt.runtime.files.open_file", count)
    monkeypatch.setattr("nmt.data.lines.open_file", count)
    keys = {"segment": {"merges": 30, "dropout": 0.5}, "data": {"tokenized": False}}
    prepared(tmp_path, **keys)
    assert (opened["train.gl"], opened["train.en"]) == (2, 2)  # to hash it, and to check it
    prepared(tmp_path, **keys)
    assert opened["train.gl"] == 3  # only hashed


def test_noise_prepares_versions_of_each_pair_and_changes_no_held_out_set(tmp_path: Path):
    plain = prepared(tmp_path / "a")
    noisy = prepared(tmp_path / "b", segment={"merges": 30, "dropout": 0.5, "draws": 4})
    assert (plain.train.draws, noisy.train.draws) == (1, 4)
    assert len(plain.train) == len(noisy.train) == 200
    assert len(noisy.vocab) > len(plain.vocab)
    for row in (0, 29, 30, 31, 799):
        assert text_of(noisy, noisy.train, row) == TRAIN[row // 4]
    assert np.array_equal(noisy.dev[0].corpus.src_len, plain.dev[0].corpus.src_len)

    def size(p) -> int:
        folder = tmp_path / p / ".cache"
        return sum(path.stat().st_size for path in folder.rglob("src.ids"))

    noisy_ids, plain_ids = (len(p.train.ids("src")) for p in (noisy, plain))
    held_out = sum(len(p.dev[0].corpus.ids("src")) for p in (plain,))
    assert (size("a"), size("b")) == (2 * (plain_ids + held_out), 2 * (noisy_ids + held_out))


def test_what_decides_the_versions_decides_the_cache_and_the_seed_does_not(tmp_path: Path):
    def key(seed: int = 1, augment: dict[str, float] | None = None, **segment) -> str:
        data = {"augment": augment or {}}
        return prepared(tmp_path, seed=seed, data=data, segment={"merges": 30, **segment}).data_hash

    assert key() == key(seed=2) == key(draws=3) == key(augment={"case": 0.0})
    assert key(dropout=0.5) == key(dropout=0.5, seed=2) == key(dropout=0.5, draws=10)
    different = [
        key(),
        key(dropout=0.5),
        key(dropout=0.4),
        key(dropout=0.5, draws=3),
        key(augment={"case": 0.1}),
        key(augment={"case": 0.2}),
        key(augment={"case": 0.1}, draws=3),
        key(augment={"case": 0.1}, dropout=0.5),
    ]
    assert len({*different}) == len(different)


@pytest.mark.slow
def test_any_number_of_processes_prepares_the_same_versions(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("nmt.data.workers.CHUNK", 20)
    keys = {"segment": {"merges": 30, "dropout": 0.3, "draws": 3}}
    keys["data"] = {"augment": {"typos": 0.3, "join": 0.3}}
    made = []
    for cpus in (1, 3):
        monkeypatch.setattr("nmt.data.workers.available_cpus", lambda cpus=cpus: cpus)
        made.append(prepared(tmp_path / str(cpus), **keys))
    one, other = made
    assert one.vocab.hash == other.vocab.hash
    for side in ("src", "tgt"):
        assert np.array_equal(one.train.ids(side), other.train.ids(side))


def test_command_prints_the_summary(tmp_path: Path, capsys):
    recipe_for(tmp_path)
    recipe = tmp_path / "r.yaml"
    recipe.write_text("src: gl\ntgt: en\ndata: {train: train, dev: dev, tokenized: true}\n")
    keys = [f"out={tmp_path}/run", "segment.merges=30"]
    assert command.main([str(recipe), *keys]) == 0
    captured = capsys.readouterr()
    assert "train: 200 pairs" in captured.out
    assert "training pairs with a mean of" in captured.out
    assert f"next: nmt-train {recipe} out={tmp_path}/run segment.merges=30\n" in captured.err
    assert not (tmp_path / "run").exists()


BUILD = """
import sys
from pathlib import Path
from nmt.data.cache import build_cache

def build(folder):
    print(folder, flush=True)
    sys.stdin.readline()

build_cache(Path(sys.argv[1]), 0, build)
"""


@pytest.mark.slow
def test_only_the_drafts_of_killed_processes_are_removed(tmp_path: Path):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    names = ("killed", "running")
    killed, running = (
        subprocess.Popen([sys.executable, "-c", BUILD, tmp_path / name], **pipes) for name in names
    )
    with killed, running:
        drafts = [Path(process.stdout.readline().strip()) for process in (killed, running)]
        killed.kill()
        killed.wait()
        unknown = tmp_path / ".tmp-of-an-earlier-version"
        unknown.mkdir()
        assert all(draft.is_dir() for draft in drafts)
        build_cache(tmp_path / "next", 0, lambda folder: None)
        assert [draft.is_dir() for draft in drafts] == [False, True]
        assert unknown.is_dir()  # nothing tells whether its process is running
        running.communicate("\n")
    assert running.returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [unknown.name, "next", "running"]
