"""A FIFO, a link to a device or a huge file under the name of any file that is read."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from nmt.apps.report.runs import read_runs
from nmt.cli import train
from nmt.config.merge import MAX_BYTES
from nmt.data.lines import read_lines
from nmt.data.segmenters import load_segmenter
from nmt.data.segmenters.bpe import read_codes
from nmt.data.segmenters.sentencepiece import SentencePiece
from nmt.data.vocab import Vocab
from nmt.errors import UserError
from nmt.runtime.files import SMALL, file_digest
from nmt.store.folder import RunFolder
from nmt.store.metrics_log import MetricsLog
from nmt.store.results import read_metrics, read_summary
from nmt.store.same_run import require_same_parent
from nmt.text.tokenizer import Moses
from tests.run_cases import trained
from tests.toy import toy_corpus, toy_recipe

READERS: dict[str, Callable[[Path], object]] = {
    "config.yaml": lambda folder: RunFolder(folder).recipe(),
    "vocab.txt": Vocab.load,
    "segmenter.json": load_segmenter,
    "codes.txt": lambda folder: read_codes(folder / "codes.txt"),
    "spm.model": lambda folder: SentencePiece.load(folder, Moses(False), {}),
    "summary.json": lambda folder: read_summary(RunFolder(folder)),
    "model.bin": lambda folder: file_digest(folder / "model.bin"),
}


def put_fifo(path: Path) -> None:
    os.mkfifo(path)


def put_link_to_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


SPECIAL = [put_fifo, put_link_to_device]


@pytest.mark.parametrize("put", SPECIAL)
@pytest.mark.parametrize("name", READERS)
def test_a_special_file_of_a_folder_is_refused_by_name(name, put, tmp_path: Path):
    put(tmp_path / name)
    with pytest.raises(UserError, match=rf"{re.escape(name)}: not a regular file") as refused:
        READERS[name](tmp_path)
    assert refused.value.fix


@pytest.mark.parametrize("put", SPECIAL)
@pytest.mark.parametrize("name", ["metrics.jsonl", "data_report.json", "train.log", "init.json"])
def test_a_special_file_never_blocks_a_reader_of_a_run(name, put, tmp_path: Path):
    run = trained(tmp_path / "run", 1)
    put(run.path / name)
    for read in (
        lambda: list(read_metrics(run)),
        lambda: read_runs([run.path])[0].times(),
        lambda: MetricsLog(run).rewind(0),
        lambda: require_same_parent(run, run.recipe().model_copy(update={"init": Init})),
    ):
        with contextlib.suppress(UserError):
            read()


class Init:
    parent = "nowhere"


def test_a_sparse_file_is_refused_before_it_is_read(tmp_path: Path):
    for name in ("config.yaml", "segmenter.json", "spm.model"):
        path = tmp_path / name
        path.touch()
        os.truncate(path, 100 << 30)
        with pytest.raises(UserError, match=rf"{name}: has 100\.0 GB; at most"):
            READERS[name](tmp_path)
    assert SMALL < 100 << 30


def test_a_config_larger_than_a_recipe_may_be_is_refused(tmp_path: Path):
    run = trained(tmp_path / "run", 1)
    text = run.config_file.read_text()
    run.config_file.write_text(text + "#" * (MAX_BYTES - len(text)))
    assert RunFolder(run.path).recipe() == run.recipe()
    run.config_file.write_text(text + "#" * (MAX_BYTES - len(text) + 1))
    with pytest.raises(UserError, match="at most") as refused:
        RunFolder(run.path).recipe()
    assert refused.value.at == str(run.config_file)


@pytest.mark.parametrize("put", SPECIAL)
@pytest.mark.parametrize("key", ["segment.codes", "segment.model"])
def test_the_files_that_a_recipe_names_are_regular(key, put, tmp_path: Path, capsys):
    toy_corpus(tmp_path)
    put(tmp_path / "given")
    kind = {"segment.codes": "fastbpe", "segment.model": "sentencepiece"}[key]
    recipe = toy_recipe(tmp_path, {"segment": {"kind": kind, key.partition(".")[2]: "given"}})
    assert train.main([str(recipe)]) == 2
    assert "given: not a regular file" in capsys.readouterr().err


@pytest.mark.parametrize("put", SPECIAL)
def test_a_text_file_may_be_a_pipe_but_not_a_device(put, tmp_path: Path):
    path = tmp_path / "text"
    put(path)
    if put is put_fifo:  # nothing writes to it
        assert list(read_lines(path)) == []
    else:
        with pytest.raises(UserError, match="text: not a regular file"):
            next(read_lines(path))
