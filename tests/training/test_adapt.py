"""A run adapts the vocabulary of its parent: ``init.vocab: extend``, ``init.trim``, new tags."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
import yaml

from nmt.cli import prepare as prepare_command
from nmt.cli.train import main
from nmt.config.load import load_recipe
from nmt.config.model import model_config
from nmt.data.vocab import SPECIALS, UNK
from nmt.errors import UserError
from nmt.model.transformer import Transformer
from nmt.store.checkpoint import load_checkpoint
from nmt.store.folder import RunFolder
from nmt.store.model import Model
from nmt.store.tensors import read_weights
from nmt.training.trainer import Trainer
from tests.test_resume import terminate_after
from tests.training.helpers import equal, records, started
from tests.training.test_distributed import torchrun

UNITS = {
    "cero": "zero", "uno": "one", "dos": "two", "tres": "three", "cuatro": "four",
    "cinco": "five", "seis": "six", "siete": "seven", "ocho": "eight", "nueve": "nine",
}  # fmt: skip
TENS = {"veinti": "twenty", "treinta": "thirty", "cuarenta": "forty", "ochenta": "eighty"}
WORDS = UNITS | {ten + unit: TENS[ten] + UNITS[unit] for ten in TENS for unit in UNITS}
GEORGIAN = str.maketrans("abcdefghijklmnopqrstuvwxyz", "აბცდეფგჰიჯკლმნოპქრსტუვწხყზ")
SEGMENTS: dict[str, dict[str, Any]] = {
    "fastbpe": {"kind": "fastbpe", "merges": 40},
    "bpe": {"kind": "sentencepiece", "vocab_size": 70},
    "unigram": {"kind": "sentencepiece", "vocab_size": 70, "model_type": "unigram"},
    "bytes": {"kind": "sentencepiece", "vocab_size": 320, "byte_fallback": True},
}
RECIPE: dict[str, Any] = {
    "tgt": "en",
    "device": "cpu",
    "precision": "fp32",
    "data": {"batch_tokens": 256, "checks": "off"},
    "schedule": {"kind": "constant", "lr": 1e-2},
    "decode": {"beam": 1, "max_len_offset": 4},
    "score": {"metrics": ["bleu"], "select_by": "ppl"},
}
MODEL = {
    "dim": 32, "ffn_dim": 64, "heads": 2, "enc_layers": 1, "dec_layers": 1, "dropout": 0.0,
    "word_dropout": 0.0,
}  # fmt: skip


def write_corpus(folder: Path, src: str, georgian: bool) -> None:
    rng = Random(src)
    folder.mkdir()
    for split, size in {"train": 200, "dev": 12, "test": 6}.items():
        lines = [rng.choices(list(WORDS), k=rng.randint(2, 5)) for _ in range(size)]
        text = "".join(" ".join(line) + "\n" for line in lines)
        text = text.translate(GEORGIAN) if georgian else text
        (folder / f"{split}.{src}").write_text(text, encoding="utf-8")
        english = "".join(" ".join(map(WORDS.__getitem__, line)) + "\n" for line in lines)
        (folder / f"{split}.en").write_text(english, encoding="utf-8")


def write_recipe(path: Path, corpus: Path, src: str, **changes: Any) -> Path:
    data = {split: str(corpus / split) for split in ("train", "dev", "test")}
    values = {**RECIPE, "src": src, "data": {**RECIPE["data"], **data}, **changes}
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def corpora(tmp_path_factory) -> Path:
    """Return a folder with Spanish numbers, and the same language in Georgian letters."""
    folder = tmp_path_factory.mktemp("corpora")
    write_corpus(folder / "es", "es", georgian=False)
    write_corpus(folder / "ka", "ka", georgian=True)
    return folder


@pytest.fixture(scope="module")
def parents(corpora) -> dict[str, Path]:
    """Return runs that hardly trained, one for each kind of segmenter."""
    runs = {}
    for name, segment in SEGMENTS.items():
        train = {"validate_every": 2, "max_validations": 1}
        entry = {"path": str(corpora / "es" / "train"), "tag": "<es>"}
        data = {**RECIPE["data"], "train": [entry], "dev": str(corpora / "es" / "dev")}
        path = corpora / f"{name}.yaml"
        values = {**RECIPE, "src": "es", "segment": segment, "model": MODEL, "train": train}
        path.write_text(yaml.safe_dump({**values, "data": data}))
        runs[name] = corpora / name
        assert main([str(path), f"out={runs[name]}"]) == 0
    return runs


def child_recipe(corpora: Path, parent: Path, out: Path, *overrides: str) -> list[str]:
    """Return the words of nmt-train for a child whose source has Georgian letters."""
    path = out.parent / "child.yaml"
    write_recipe(path, corpora / "ka", "ka", train={"validate_every": 3, "max_validations": 2})
    return [str(path), f"init.from={parent}", f"out={out}", *overrides]


# --- extend -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", SEGMENTS)
def test_rows_of_new_pieces_are_means_of_the_rows_that_they_replace(
    kind, corpora, parents, tmp_path
):
    words = child_recipe(corpora, parents[kind], tmp_path / "run", "init.vocab=extend")
    training, model = started([*words, "init.new_pieces=30"])
    now, before = model.state_dict(), read_weights(Model.open(parents[kind]))
    vocab, theirs = training.task.prepared.vocab, Model.open(parents[kind]).vocab
    assert training.start.text is not None
    parts = training.start.text.parts
    assert 12 < len(parts) <= 30
    assert len(vocab) == len(theirs) + len(parts)
    for piece, replaced in parts.items():
        known = [i for i in theirs.ids(replaced) if i != UNK]
        expected = before["embed.weight"][known or slice(len(SPECIALS), None)].mean(0)
        torch.testing.assert_close(now["embed.weight"][vocab.ids([piece])[0]], expected)
    assert not (training.task.prepared.train.ids("src") == UNK).any()
    assert f"{len(parts)} start as means of its rows" in "\n".join(training.start.notes)
    record = training.start.record
    assert (record["rows"]["means"], record["new_pieces"]) == (len(parts),) * 2
    unknown = record["training_text"]["unknown"]
    assert unknown[1] == 0
    assert (unknown[0] > 0) == (kind != "bytes")


@pytest.mark.slow
def test_an_unknown_script_is_learned(corpora, tmp_path):
    """The child needs few updates with new pieces, and cannot learn its source as UNK."""
    parent = tmp_path / "parent"
    recipe = write_recipe(
        tmp_path / "es.yaml", corpora / "es", "es", model=MODEL,
        segment={**SEGMENTS["unigram"], "vocab_size": 150},  # English words have few pieces
        train={"validate_every": 150, "max_validations": 1},
    )  # fmt: skip
    assert main([str(recipe), f"out={parent}"]) == 0
    ppl = {}
    for vocab in ("parent", "extend"):
        words = child_recipe(corpora, parent, tmp_path / f"with-{vocab}", f"init.vocab={vocab}")
        assert main([*words, "train.validate_every=100", "train.max_validations=1"]) == 0
        ppl[vocab] = records(tmp_path / f"with-{vocab}", "dev")[-1]["ppl"]
    assert 1.5 * ppl["extend"] < ppl["parent"]  # of the same target pieces


@pytest.mark.slow
def test_new_pieces_are_learned_from_other_texts(corpora, parents, tmp_path, capsys):
    more = f"segment.learn_from=[{{path: {corpora}/ka/train, src: ka}}]"
    words = child_recipe(corpora, parents["unigram"], tmp_path / "run", "init.vocab=extend")
    kind = "segment.kind=sentencepiece"
    runs = [started([*words, kind, text])[0] for text in (more, more.replace("ka", "es"))]
    one, other = (run.start.text.parts for run in runs if run.start.text is not None)
    assert one
    assert set(one) - set(other)
    assert main([*words, kind, more, "--dry-run"]) == 0
    assert "new subwords: " in capsys.readouterr().err
    assert prepare_command.main([*words, kind, more]) == 0
    assert "new subwords: " in capsys.readouterr().out


# --- trim ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SEGMENTS)
def test_logits_of_kept_pieces_are_those_of_the_parent(kind, corpora, parents, tmp_path):
    """Before any update, on the ids of the same text."""
    words = child_recipe(corpora, parents[kind], tmp_path / "run", "init.vocab=parent")
    words += ["init.trim=true", "init.keep_pieces=5", "model.logit_mask=false", "src=es"]
    words += [f"data.{split}={corpora}/es/{split}" for split in ("train", "dev", "test")]
    small = tmp_path / "small"
    small.mkdir()
    for side in ("es", "en"):
        lines = (corpora / "es" / f"train.{side}").read_text().splitlines(keepends=True)
        (small / f"some.{side}").write_text("".join(lines[:2]))
    words += [f"data.{split}={small}/some" for split in ("train", "dev", "test")]
    words = list({word.partition("=")[0]: word for word in words}.values())
    training, model = started(words)
    parent = Model.open(parents[kind])
    task, vocab, theirs = training.task, training.task.prepared.vocab, parent.vocab
    assert len(vocab) < len(theirs)
    assert set(vocab.types) <= set(theirs.types)
    rows = torch.tensor([*range(4), *theirs.ids(vocab.types)])
    config = model_config(task.recipe.model)
    own, full = Transformer(config, len(vocab)), Transformer(config, len(theirs))
    own.load_state_dict(
        {**own.state_dict(), **model.state_dict(), "allowed": own.allowed}, strict=False
    )
    full.load_state_dict({**full.state_dict(), **read_weights(parent)}, strict=False)
    batch = task.make_batch(0, task.plan(0)[0], pad=False)
    src, src_layout, tgt, tgt_layout = batch.inputs
    ours = own.eval()(src, src_layout, tgt, tgt_layout)
    expected = full.eval()(rows[src], src_layout, rows[tgt], tgt_layout)[:, rows]
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)
    assert training.start.record["training_text"]["changed"] == 0
    lines = "\n".join(training.start.notes)
    assert f"subwords: {len(theirs) - 4:,} in the parent, {len(vocab) - 4:,} here" in lines
    assert " MB in fp32" in lines
    assert "0.0% of 4 sentences have other subwords" in lines


def test_the_most_frequent_pieces_and_all_tags_stay(corpora, parents, tmp_path):
    words = child_recipe(corpora, parents["bpe"], tmp_path / "run", "init.vocab=extend")
    sizes = []
    for keep in (0, 10, 10_000):
        training, _ = started([*words, "init.trim=true", f"init.keep_pieces={keep}"])
        vocab, theirs = training.task.prepared.vocab, Model.open(parents["bpe"]).vocab
        frequent = [t for t in theirs.most_frequent if not t.startswith(" ")][:keep]
        assert set(frequent) <= set(vocab.types)
        assert "<es>" in vocab.tags
        assert {t for t in theirs.types if len(t) == 1} <= set(vocab.types)
        sizes.append(len(vocab))
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]
    assert set(theirs.types) <= set(vocab.types)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SEGMENTS)
def test_a_resumed_run_needs_no_parent(kind, corpora, parents, tmp_path, monkeypatch):
    parent = shutil.copytree(parents[kind], tmp_path / "parent")
    words = child_recipe(corpora, parent, tmp_path / "whole", "init.vocab=extend")
    words += ["init.trim=true", "init.keep_pieces=20", "init.freeze=encoder"]
    assert main(words) == 0
    run = tmp_path / "run"
    words = [f"out={run}" if word.startswith("out=") else word for word in words]
    with monkeypatch.context() as patch:
        terminate_after(patch, Trainer, "update", 4)
        assert main(words) == 143
    parent.rename(tmp_path / "moved")
    shutil.rmtree(tmp_path / ".cache")
    for path in (run, tmp_path / "whole"):
        assert (path / "checkpoints" / "parent" / "vocab.txt").exists()
    config = (run / "config.yaml").read_text()
    assert main([*words, "--resume"]) == 0
    assert (run / "config.yaml").read_text() == config
    latest = [load_checkpoint(RunFolder.open(path)).model for path in
              (run, tmp_path / "whole")]  # fmt: skip
    assert equal(*latest)
    model = Model.open(run)
    types = model.vocab.types
    segmenter = model.segmenter
    for line in (corpora / "ka" / "test.ka").read_text().splitlines():
        assert set(segmenter.encode(line, "ka")) <= set(types)
    stored = json.loads((run / "init.json").read_text())
    assert stored["vocab"] == "extend"
    assert stored["types"][0] > 0
    # the run is a parent, too
    words = child_recipe(corpora, run, tmp_path / "grandchild", "init.vocab=parent")
    assert main([*words, "--dry-run"]) == 0


@pytest.mark.slow
def test_two_processes_start_equal(corpora, parents, tmp_path):
    keys = ["init.vocab=extend", "init.trim=true", "train.max_validations=1"]
    alone = child_recipe(corpora, parents["unigram"], tmp_path / "alone", *keys)
    assert main([*alone, "optim.accumulate=2"]) == 0
    words = child_recipe(corpora, parents["unigram"], tmp_path / "run", *keys)
    done = torchrun("terminates", "99", *words)
    assert done.returncode == 0, done.stderr
    one, two = (read_weights(Model.open(tmp_path / name)) for name in ("alone", "run"))
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, atol=1e-5, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("vocabulary", ["new", "parent", "extend"])
def test_new_tags_start_as_tags_of_the_parent(vocabulary, corpora, parents, tmp_path):
    """The relative of a target tag may be a source tag: both name a language."""
    words = child_recipe(corpora, parents["bpe"], tmp_path / "run", f"init.vocab={vocabulary}")
    entries = ", ".join(
        f"{{path: {corpora}/ka/train, tag: {tag}, tgt_tag: <en>}}" for tag in ("<es>", "<ka>")
    )
    training, model = started([*words, f"data.train=[{entries}]", "init.tag_rows={<en>: <es>}"])
    vocab, parent = training.task.prepared.vocab, Model.open(parents["bpe"])
    theirs = read_weights(parent)["embed.weight"][parent.vocab.ids([" <es>"])[0]]
    for row in vocab.ids([" <es>", " <ka>", " <en>"]):
        assert torch.equal(model.embed.weight[row], theirs)


# --- recipes that are refused -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["init.vocab=extend"], "init.vocab requires init.from"),
        (["init.trim=true"], "init.trim requires init.from"),
        (["init.from=p", "init.trim=true"], "init.trim requires init.vocab: parent or extend"),
        (["init.from=p", "init.vocab=extend", "init.new_pieces=0"], "an integer from 1 to"),
        (["init.from=p", "init.new_pieces=5"], "init.new_pieces requires init.vocab: extend"),
        (["init.from=p", "init.keep_pieces=5"], "init.keep_pieces requires init.trim: true"),
        (["init.from=p", "init.tag_rows={a: <b>}"], "init.tag_rows"),
        (["init.from=p", "init.tag_rows=<b>"], "a mapping of tags to tags"),
        (["init.from=p", "init.vocab=extend", "lora.rank=4"], "lora.rank excludes init.vocab: ext"),
    ],
)
def test_keys_that_contradict_each_other(overrides, message, corpora, tmp_path):
    path = write_recipe(tmp_path / "ka.yaml", corpora / "ka", "ka")
    with pytest.raises(UserError, match=message):
        load_recipe(path, overrides)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["init.vocab=extend", "init.trim=true"])
def test_a_parent_of_words_is_refused_before_anything_is_written(key, corpora, tmp_path, capsys):
    parent = tmp_path / "parent"
    recipe = write_recipe(
        tmp_path / "es.yaml", corpora / "es", "es", segment={"kind": "whitespace"}, model=MODEL,
        train={"validate_every": 1, "max_validations": 1},
    )  # fmt: skip
    assert main([str(recipe), f"out={parent}"]) == 0
    words = child_recipe(corpora, parent, tmp_path / "run")
    given = {"init.vocab": "init.vocab=parent", key.partition("=")[0]: key}
    capsys.readouterr()
    assert main([*words, *given.values()]) == 2
    printed = capsys.readouterr().err
    assert "segment.kind: whitespace has no subwords" in printed
    assert "set init.vocab=new" in printed
    assert not (tmp_path / "run").exists()
