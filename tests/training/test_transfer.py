"""A run that starts from a parent takes its weights by name and its vocabulary by piece."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor

from nmt.cli import prepare as prepare_command
from nmt.cli.train import main
from nmt.config.errors import format_value
from nmt.config.load import as_recipe, dump_recipe, load_recipe, recipe_from_text
from nmt.config.recipe import ModelConfig, Recipe
from nmt.data.vocab import BOS, EOS, PAD, UNK, Vocab
from nmt.errors import UserError
from nmt.store.checkpoint import load_checkpoint
from nmt.store.folder import RunFolder
from nmt.store.model import Description, Model
from nmt.store.parent import require_same_function, with_keys_of_parent
from nmt.store.tensors import read_weights
from nmt.training.freeze import freeze
from nmt.training.tasks import model_without_memory
from nmt.training.trainer import Trainer
from nmt.training.transfer import (
    EMBED,
    SRC_EMBED,
    describe_transfer,
    parts_of_tags,
    start_from,
    transfer,
)
from tests.model_cases import build, tiny
from tests.test_resume import terminate_after
from tests.text_toy import text_recipe
from tests.toy import toy_corpus, toy_recipe
from tests.training.helpers import equal, moments, records, started, weights

OUT_EMBED = "out_embed.weight"
FIXTURES = Path(__file__).parents[1] / "fixtures" / "runs"
LETTERS = str.maketrans("89", "ab")  # the new pieces of the child
TRAINING: dict[str, Any] = {"train": {"validate_every": 20, "max_validations": 1}}


@pytest.fixture(scope="module")
def digits(tmp_path_factory) -> Path:
    """Return a folder with a corpus of digits, a recipe, and a trained run."""
    folder = tmp_path_factory.mktemp("digits")
    toy_corpus(folder, {"train": 100, "dev": 10, "test": 4})
    assert main([str(toy_recipe(folder, TRAINING))]) == 0
    return folder


@pytest.fixture(scope="module")
def letters(tmp_path_factory) -> Path:
    """Return a folder with a corpus in which letters replace two digits, and a recipe."""
    folder = tmp_path_factory.mktemp("letters")
    toy_corpus(folder, {"train": 100, "dev": 10, "test": 4})
    for path in folder.glob("*.*"):
        path.write_text(path.read_text().translate(LETTERS))
    toy_recipe(folder, TRAINING)
    return folder


def child(folder: Path, parent: Path, *overrides: str) -> list[str]:
    """Return the words of nmt-train for a run that starts from a parent."""
    return [str(folder / "toy.yaml"), f"init.from={parent}", *overrides]


def tensors(run: Path) -> dict[str, Tensor]:
    return read_weights(Model.open(run))


# --- what is taken ------------------------------------------------------------------------------


def vocab(src: str, tgt: str) -> Vocab:
    return Vocab.build(Counter(src.split()), Counter(tgt.split()))


def numbered(vocabulary: Vocab, first: float = 0.0) -> Tensor:
    """Return a table whose rows are their numbers: [V, 2]."""
    return torch.arange(first, first + len(vocabulary))[:, None].expand(-1, 2)


def test_rows_go_by_piece_and_other_tensors_by_name():
    parent, child = vocab("a b c", "x y"), vocab("c d", "u y z")  # c, d, u, y, z: ids 4 to 8
    tensors = {EMBED: numbered(parent), "out_bias": torch.arange(9.0), "encoder.g": torch.ones(1)}
    names = [EMBED, "out_bias", "encoder.g", "decoder.g"]
    parts = {"d": ["a", "?", "x"], "z": ["?"]}  # the mean of two rows, and of all
    found = transfer({**tensors, "encoder.old": torch.ones(1)}, parent, names, child, parts)
    assert found.ids.tolist() == [PAD, BOS, EOS, UNK, 4, 5, 7, 8]
    expected = torch.tensor([PAD, BOS, EOS, UNK, 6, (4 + 7) / 2, 8, 6.0])
    assert torch.equal(found.rows[EMBED], expected[:, None].expand(-1, 2))
    assert torch.equal(found.rows["out_bias"], expected)
    assert found.loaded == {"encoder.g": tensors["encoder.g"]}
    assert (found.missing, found.unexpected) == (["decoder.g"], ["encoder.old"])
    model = torch.nn.Module()
    model.embed = torch.nn.Embedding(9, 2)
    before = model.embed.weight.detach().clone()
    replace(found, loaded={}, rows={EMBED: found.rows[EMBED]}).load_into(model)
    assert torch.equal(model.embed.weight[found.ids], found.rows[EMBED])
    assert torch.equal(model.embed.weight[6], before[6])  # u


def test_the_same_model_is_loaded_completely():
    same = vocab("a b", "x")
    tensors = {name: torch.randn(len(same), 3) for name in (EMBED, SRC_EMBED, OUT_EMBED)}
    found = transfer(tensors, same, [*tensors], same, {})
    assert found.ids.tolist() == [*range(len(same))]
    assert equal(found.rows, tensors)
    assert not [*found.missing, *found.unexpected, *found.loaded]


def test_a_shared_embedding_becomes_several_and_several_become_one():
    """Pieces that only occur on the source side take the rows that were trained there."""
    same = vocab("a b both", "x y both")
    target, source = numbered(same), numbered(same, 100.0)
    found = transfer({EMBED: target}, same, [EMBED, SRC_EMBED, OUT_EMBED], same, {})
    assert all(torch.equal(rows, target) for rows in found.rows.values())
    assert len(found.rows) == 3
    tensors = {EMBED: target, SRC_EMBED: source, OUT_EMBED: numbered(same, 200.0)}
    found = transfer(tensors, same, [EMBED], same, {})
    only_source = [piece in "ab" for piece in same.pieces(range(len(same)))]
    expected = torch.where(torch.tensor(only_source)[:, None], source, target)
    assert torch.equal(found.rows[EMBED], expected)
    assert found.unexpected == [OUT_EMBED]


def tagged_vocab(*tags: str) -> Vocab:
    return Vocab.build(Counter(["a", "b", *(f" {tag}" for tag in tags)]), Counter("x"))


def test_a_new_tag_starts_as_its_relative_or_as_the_mean_of_all_tags():
    parent, child = tagged_vocab("<es>", "<pt>"), tagged_vocab("<es>", "<gl>", "<xx>")
    parts = parts_of_tags(child, parent, {"<gl>": "<pt>"})
    assert parts == {" <gl>": [" <pt>"], " <xx>": [" <es>", " <pt>"]}
    assert parts_of_tags(child, vocab("a", "b"), {}) == {" <es>": [], " <gl>": [], " <xx>": []}


@pytest.mark.parametrize(
    ("rows", "wrong", "allowed"),
    [
        ({"<gl>": "<de>"}, "<de>", "<es>, <pt>"),
        ({"<nl>": "<es>"}, "<nl>", "<gl>, <xx>"),
        ({"<es>": "<es>"}, "<es>", "<gl>, <xx>"),
    ],
)
def test_wrong_rows_of_tags(rows, wrong, allowed):
    parent, child = tagged_vocab("<es>", "<pt>"), tagged_vocab("<es>", "<gl>", "<xx>")
    with pytest.raises(UserError, match=wrong) as error:
        parts_of_tags(child, parent, rows)
    assert error.value.at == "init.tag_rows"
    assert allowed in error.value.fix


@pytest.mark.parametrize(
    ("theirs", "ours", "key"),
    [
        *(({key: a}, {key: b}, key) for key, a, b in [
            ("dim", 16, 8), ("heads", 4, 2), ("ffn_dim", 8, 16), ("activation", "relu", "gelu"),
            ("norm", "layernorm", "scalenorm"), ("norm_place", "pre", "post"),
            ("fixnorm", False, True), ("positions", "learned", "sinusoidal"),
            ("max_positions", 99, 98), ("embed_norm", True, False), ("src_eos", False, True),
            ("bias", True, False),
            ("ffn_norm", True, False), ("res_scale", "ffn", "none"), ("res_scale", "ffn", "all"),
            ("scalenorm_gain", "learned", "fixed"),
        ]),
        (
            {"head_scale": True, "head_scale_place": "inside"},
            {"head_scale": True, "head_scale_place": "outside"},
            "head_scale_place",
        ),
        (
            {"ffn_norm": True, "extra_norm": "rmsnorm"},
            {"ffn_norm": True, "extra_norm": "layernorm"},
            "extra_norm",
        ),
    ],
)  # fmt: skip
def test_another_function_of_the_same_weights_is_refused(theirs, ours, key):
    configs = [ModelConfig().model_copy(update=values) for values in (theirs, ours)]
    with pytest.raises(UserError) as error:
        require_same_function(*configs)
    old, new = (format_value(getattr(config, key)) for config in configs)
    assert f"model.{key}: {old} -> {new}" in error.value.what
    assert f"model.{key}={old}" in error.value.fix


def test_parts_may_be_added():
    added = {"bias": True, "head_scale": True, "post_attn_norm": True, "ffn_norm": True,
             "res_scale": "all", "scalenorm_gain": "learned", "norm_eps": 1e-3, "dropout": 0.5,
             "enc_layers": 9, "tie": "none", "extra_norm": "rmsnorm"}  # fmt: skip
    without = {"bias": False, "scalenorm_gain": "fixed"}
    require_same_function(*(ModelConfig().model_copy(update=keys) for keys in (without, added)))


def test_an_equal_recipe_continues_with_the_parents_model(digits, tmp_path):
    training, model = started(child(digits, digits / "run", f"out={tmp_path / 'run'}"))
    assert equal(model.state_dict(), tensors(digits / "run"))
    found = training.task.evaluate(model, "dev", lambda: False).values
    (dev,) = records(digits / "run", "dev")
    assert found == {name: dev[name] for name in found}
    shown = training.describe()
    for part in ("gl-en, u000020, dev bleu", "100.0% of the target text"):
        assert part in shown


def test_what_is_taken_is_recorded_and_shown(digits, letters, tmp_path):
    """Layers, a vocabulary and normalizations that only one of them has."""
    words = child(letters, digits / "run", "model.enc_layers=2", "model.ffn_norm=true")
    training, _ = started([*words, "init.freeze=decoder.*.self_attn.*", f"out={tmp_path / 'run'}"])
    taken = training.start.record
    assert taken["rows"] == {"loaded": 8, "means": 0, "missing": 2}
    layers = {name[: len("encoder.layers.1")] for name in taken["missing"]}
    assert layers == {"encoder.layers.0", "encoder.layers.1", "decoder.layers.0"}
    assert not taken["unexpected"]
    assert all(name.startswith("decoder.layers.0.self_attn.") for name in taken["frozen"])
    shown = "\n".join(training.start.notes)
    for part in (
        "8 of 10 subwords",
        "2 are missing and start at random",
        "decoder.layers.0 (2 tensors)",
        f"{len(taken['frozen'])} of {len(taken['loaded'] + taken['missing'])} tensors, ",
    ):
        assert part in shown  # fmt: skip
    fewer = {**taken, "share": {"src": 0.4}, "unexpected": ["encoder.layers.3.ffn.g"]}
    shown = "\n".join(describe_transfer(training.task.recipe, fewer, None))
    assert "warning: under 50%" in shown
    assert "unexpected (not loaded): encoder.layers.3" in shown


@pytest.mark.parametrize(
    ("overrides", "at"),
    [
        (["init.freeze=embed.*"], "init.freeze"),  # two rows
        (["init.freeze=encoder.*", "model.enc_layers=2"], "init.freeze"),
        (["lora.rank=2"], "lora.rank"),
        (["lora.rank=2", "init.vocab=parent", "model.enc_layers=2"], "lora.rank"),
    ],
)
def test_weights_must_be_loaded_or_train(digits, letters, tmp_path, overrides, at):
    with pytest.raises(UserError, match="the parent lacks") as error:
        started(child(letters, digits / "run", *overrides, f"out={tmp_path / 'run'}"))
    assert error.value.at == at


def test_a_parent_without_a_layer_of_the_model(digits):
    recipe = load_recipe(digits / "toy.yaml", [f"init.from={digits / 'run'}"])
    parent = Model.open(digits / "run")
    model = model_without_memory(recipe, len(parent.vocab))
    table = {EMBED: tensors(digits / "run")[EMBED]}
    with pytest.raises(UserError, match=r"the parent has embed\.\*;") as error:
        start_from(recipe, model, parent.vocab, parent, table, None)
    assert error.value.at == f"init.from ({digits / 'run'})"


@pytest.mark.parametrize("vocabulary", ["new", "parent"])
def test_a_language_model_starts_from_a_part_of_a_translation_model(digits, tmp_path, vocabulary):
    init = {"from": str(digits / "run"), "vocab": vocabulary}
    recipe = text_recipe(digits, "causal_lm", {"init": init})
    training, _ = started([str(recipe), f"out={tmp_path / 'run'}"])
    stacks = {name.partition(".")[0] for name in training.start.record["unexpected"]}
    assert (stacks, training.start.record["missing"]) == ({"encoder", "decoder"}, [])
    assert training.start.record["share"] == {"src": 1.0}
    assert "100.0% of the text)" in training.describe()


# --- training -----------------------------------------------------------------------------------


def ppl(run: Path) -> float:
    return records(run, "dev")[-1]["ppl"]


@pytest.mark.slow
def test_a_child_learns_faster_than_from_random_weights(digits, letters, tmp_path):
    long = ["train.validate_every=60", "train.max_validations=1"]
    assert main([str(digits / "toy.yaml"), f"out={tmp_path / 'parent'}", *long]) == 0
    words = [str(letters / "toy.yaml"), "train.validate_every=3"]
    assert main([*words, f"out={tmp_path / 'scratch'}"]) == 0
    run = tmp_path / "child"
    assert main([*words, f"out={run}", f"init.from={tmp_path / 'parent'}"]) == 0
    assert ppl(run) < 0.9 * ppl(tmp_path / "scratch")
    stored = json.loads((run / "init.json").read_text())
    assert stored["parent"] == str(tmp_path / "parent")
    assert stored["checkpoint"] == "u000060"
    log = (run / "train.log").read_text()
    assert "8 of 10 subwords load the rows of the parent" in log
    assert load_checkpoint(RunFolder.open(run)).state.update == 3  # the schedule starts again


@pytest.mark.slow
def test_a_start_without_a_parent_after_a_killed_one_with_it(digits, tmp_path, monkeypatch):
    run = tmp_path / "run"
    command = [str(digits / "toy.yaml"), f"out={run}", "train.max_validations=1"]
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "run", lambda trainer: 1 / 0)
        assert main([*command, f"init.from={digits / 'run'}"]) == 3
    assert (run / "init.json").exists()
    assert main(command) == 0
    assert not (run / "init.json").exists()


@pytest.mark.parametrize("kind", ["adam", "radam", "muon"])
def test_frozen_parameters_have_no_gradient_and_no_state(digits, tmp_path, kind, start):
    trainer = start(f"optim.kind={kind}", f"init.from={digits / 'run'}", "init.freeze=encoder.*")
    frozen = [name for name in weights(trainer) if name.startswith("encoder.")]
    before = weights(trainer)
    updates = trainer.updates()
    for _ in range(2):
        trainer.update(next(updates))
    after = weights(trainer)
    assert frozen
    assert all(torch.equal(before[name], after[name]) for name in frozen)
    assert not torch.equal(before["embed.weight"], after["embed.weight"])
    assert not [key for key in moments(trainer) if key.startswith("encoder.")]
    assert moments(trainer)


@pytest.mark.parametrize("patterns", ["*coder.*.weight", "[embed.*, out_bias, '*.bias', '*.g']"])
def test_muon_trains_without_matrices_and_without_others(digits, patterns, start):
    words = [f"init.from={digits / 'run'}", f"init.freeze={patterns}"]
    trainer = start("optim.kind=muon", *words)
    before = weights(trainer)
    trainer.update(next(trainer.updates()))
    assert not equal(before, weights(trainer))


def test_freezing_needs_patterns_that_match():
    model = build(tiny(tie="none", positions="learned", embed_norm=True, norm="layernorm"))
    freeze(model, [])
    for patterns, found in {"encodr.*": '"encoder.*"', "x": "decoder.*, embed.*"}.items():
        with pytest.raises(UserError, match=re.escape(found)) as error:
            freeze(model, [patterns])
        assert error.value.at == "init.freeze"
    with pytest.raises(UserError, match="nothing is left to train"):
        freeze(model, ["e*", "*src*", "*tgt*", "decoder", "out_*"])
    assert all(p.requires_grad for p in model.parameters())
    parts = {
        "embeddings": {"embed", "src_embed", "out_embed", "src_input", "tgt_input"},
        "encoder": {"encoder"},
        "decoder": {"decoder"},
        "*.bias": {"*.bias"},
    }
    for word, expected in parts.items():
        model.requires_grad_(True)
        freeze(model, [word])
        for name, parameter in model.named_parameters():
            matches = name.partition(".")[0] in expected or fnmatch(name, min(expected))
            assert parameter.requires_grad != matches, name


@pytest.mark.slow
@pytest.mark.parametrize("vocabulary", ["new", "parent"])
def test_a_resumed_child_needs_no_parent(digits, letters, tmp_path, vocabulary, monkeypatch):
    parent = shutil.copytree(digits / "run", tmp_path / "parent")
    words = child(letters, parent, f"init.vocab={vocabulary}", "init.freeze=encoder.*")
    words += ["train.validate_every=3", "train.max_validations=2"]
    assert main([*words, f"out={tmp_path / 'uninterrupted'}"]) == 0
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        terminate_after(patch, Trainer, "update", 4)
        assert main([*words, f"out={run}"]) == 143
    parent.rename(tmp_path / "moved")
    config = (run / "config.yaml").read_text()
    assert main([*words, f"out={run}", "--resume"]) == 0
    assert (run / "config.yaml").read_text() == config
    assert equal(tensors(run), tensors(tmp_path / "uninterrupted"))
    for name, tensor in tensors(tmp_path / "moved").items():
        if name.startswith("encoder."):
            assert torch.equal(tensor, tensors(run)[name])
    assert "of them train)" in (run / "train.log").read_text()


@pytest.mark.slow
def test_keys_of_init_stay_in_a_resumed_run(digits, letters, tmp_path, capsys):
    run = tmp_path / "run"
    words = [str(letters / "toy.yaml"), f"out={run}", "train.validate_every=2"]
    assert main([*words, f"init.from={digits / 'run'}"]) == 0
    more = [*words, "--resume", "train.max_validations=2"]
    assert main([*more, f"init.from={digits / 'run'}", "init.freeze=encoder.*"]) == 2
    assert "init.freeze: [] -> [encoder.*]" in capsys.readouterr().err
    assert main(more) == 2
    assert f"init.from: {digits / 'run'} -> none" in capsys.readouterr().err
    other = shutil.copytree(digits / "run", tmp_path / "other")
    assert main([*more, f"init.from={other}"]) == 0
    assert "resuming with init.from" in capsys.readouterr().err
    wrong = shutil.copytree(run, tmp_path / "wrong")
    more[-1] = "train.max_validations=3"
    for _ in range(2):  # without a checkpoint of the parent's name, and with another one
        assert main([*more, f"init.from={wrong}"]) == 2
        assert "is not the parent that this run started from" in capsys.readouterr().err
        if not (wrong / "checkpoints" / "u000020").exists():
            (wrong / "checkpoints" / "u000004").rename(wrong / "checkpoints" / "u000020")


# --- the model keys of the parent ---------------------------------------------------------------


@pytest.mark.slow
def test_model_keys_that_a_recipe_does_not_set_are_those_of_the_parent(digits, tmp_path, capsys):
    values = yaml.safe_load((digits / "toy.yaml").read_text())
    del values["model"]
    path = digits / "without-model.yaml"
    path.write_text(yaml.safe_dump(values))
    words = [str(path), f"init.from={digits / 'run'}", "model.dropout=0"]
    own = [f"out={tmp_path / 'run'}", "train.validate_every=1"]
    recipe = load_recipe(path, [*words[1:], *own])
    found = with_keys_of_parent(recipe, resume=False)
    theirs = RunFolder(digits / "run").recipe().model
    assert found.model == theirs.model_copy(update={"dropout": 0.0, "word_dropout": 0.1})
    assert main([*words, *own, "train.max_validations=1"]) == 0
    assert RunFolder(tmp_path / "run").recipe().model == found.model
    capsys.readouterr()
    assert main([*words, "model.dim=32", f"out={tmp_path / 'other'}"]) == 2
    assert "model.dim: 16 -> 32" in capsys.readouterr().err
    # a resumed run takes its own keys, although its parent is gone
    (tmp_path / "run" / "init.json").unlink()
    words[1] = f"init.from={tmp_path / 'gone'}"
    assert main([*words, *own, "train.max_validations=2", "--resume"]) == 0


def stored_parent(
    tmp_path: Path, kind: str, changes: dict[str, dict[str, Any]], **groups: Any
) -> tuple[Path, dict[str, Any]]:
    """Return a stored run, some of whose keys are changed and groups replaced, and its keys."""
    parent = shutil.copytree(FIXTURES / kind / "run", tmp_path / "parent")
    values = yaml.safe_load(dump_recipe(RunFolder(parent).recipe()))
    values |= {name: {**values[name], **change} for name, change in changes.items()} | groups
    recipe = recipe_from_text(yaml.safe_dump(values), "recipe")
    before = Model.open(parent).about
    about = replace(Description.of(recipe, before.name, None), files=before.files)
    (parent / "model" / "model.json").write_bytes(about.to_json())
    return parent, values


def with_parent(values: dict[str, Any], parent: Path, vocab: str = "new") -> Recipe:
    """Return the recipe of a child, with the keys of its parent."""
    values = {**values, "init": {"from": str(parent), "vocab": vocab}}
    return with_keys_of_parent(recipe_from_text(yaml.safe_dump(values), "recipe"), False)


PLAIN = {"src": "gl", "tgt": "en", "data": {"train": "t", "dev": "d"}}


def test_layers_of_a_stack_that_the_parent_lacks_are_those_of_the_recipe(tmp_path):
    changes = {
        "data": {"max_len": 250, "batch_tokens": 4096},
        "model": {"enc_layers": 6, "dec_layers": 3, "tie": "none"},
    }  # fmt: skip
    groups = {"task": "causal_lm", "src": "en", "tgt": "", "score": {"select_by": "ppl"}}
    parent, values = stored_parent(tmp_path, "plain", changes, decode={}, **groups)
    found = with_parent({**PLAIN, "model": {"enc_layers": 2}}, parent).model
    assert (found.enc_layers, found.dec_layers, found.tie) == (2, 3, "src_tgt_out")
    assert found.dim == values["model"]["dim"]


def test_a_recipe_that_does_not_fit_the_keys_of_its_parent(tmp_path):
    changes = {"model": {"norm": "scalenorm", "scalenorm_gain": "fixed"}}
    parent, _ = stored_parent(tmp_path, "plain", changes)
    with pytest.raises(UserError, match=r"scalenorm_gain: fixed contradicts model.norm: layer"):
        with_parent({**PLAIN, "model": {"norm": "layernorm"}}, parent)


# --- the vocabulary of the parent ---------------------------------------------------------------


def test_the_parents_vocabulary_is_kept(digits, letters, tmp_path, capsys):
    words = child(letters, digits / "run", "init.vocab=parent")
    training, model = started([*words, f"out={tmp_path / 'run'}"])
    prepared = training.task.prepared
    theirs = Model.open(digits / "run").vocab
    everything = range(len(theirs))
    assert prepared.vocab.pieces(everything) == theirs.pieces(everything)
    assert prepared.vocab.types_of("tgt").tolist() == theirs.types_of("tgt").tolist()
    assert equal(model.state_dict(), tensors(digits / "run"))
    ids = prepared.train.ids("src")
    text = (letters / "train.gl").read_text().split()
    assert (ids == UNK).sum() == sum(piece in "ab" for piece in text)
    found = prepared.report.found("unknown source subwords", "train")
    assert found.share == pytest.approx((ids == UNK).mean())
    assert sorted(found.examples[0].split()) == list("ab")
    assert prepare_command.main([*words, f"out={tmp_path / 'run'}", "data.checks=warn"]) == 0
    printed = capsys.readouterr().out
    assert "train: the vocabulary of the parent lacks" in printed
    assert "set init.vocab=new" in printed


def test_targets_of_parent_or_child_are_allowed(tmp_path):
    mine = vocab("a", "b")
    both = mine.with_counts(Counter("b"), Counter("a"))
    assert both.types_of("tgt")[both.ids("ab")].all()
    assert mine.types_of("tgt")[mine.ids("ab")].tolist() == [False, True]


def test_segment_keys_are_those_of_the_parent(digits, letters, tmp_path, capsys):
    words = child(letters, digits / "run", "init.vocab=parent", f"out={tmp_path / 'run'}")
    for wrong, message in {
        "segment.kind=fastbpe": "segment.kind: whitespace -> fastbpe",
        "segment.min_count=2": "segment.min_count: 1 -> 2",
        "data.tokenized=false": "data.tokenized: true -> false",
    }.items():
        assert main([*words, wrong, "--dry-run"]) == 2
        printed = capsys.readouterr().err
        assert message in printed
        assert f"as in the parent: {message.split(' ->')[0].replace(': ', '=')}" in printed
    values = yaml.safe_load((letters / "toy.yaml").read_text())
    del values["segment"]
    other = letters / "without-segment.yaml"
    other.write_text(yaml.safe_dump(values))
    assert main([str(other), *words[1:], "train.validate_every=1"]) == 0
    assert RunFolder(tmp_path / "run").recipe().segment.kind == "whitespace"


def test_noise_of_the_segmentation_may_differ_from_the_parent(tmp_path):
    parent, values = stored_parent(tmp_path, "fastbpe", {})
    found = with_parent({**values, "segment": {"dropout": 0.25}}, parent, "parent")
    assert (found.segment.dropout, found.segment.merges) == (0.25, 90)


def test_noise_of_the_parent_that_the_recipe_excludes(tmp_path):
    parent, values = stored_parent(tmp_path, "fastbpe", {"segment": {"dropout": 0.1}})
    del values["segment"]
    values["data"]["rebatch"] = False
    with pytest.raises(UserError, match=r"parent:\n  data\.rebatch: false excludes"):
        with_parent(values, parent, "parent")
    found = with_parent({**values, "segment": {"dropout": 0}}, parent, "parent")
    assert recipe_from_text(dump_recipe(found), "config.yaml") == found


def test_a_loaded_recipe_takes_the_segmentation_of_the_parent_as_its_file_does(tmp_path):
    parent = FIXTURES / "fastbpe" / "run"
    values = yaml.safe_load(dump_recipe(RunFolder(parent).recipe()))
    kept = {key: values[key] for key in ("src", "tgt", "out", "data")}
    path = tmp_path / "child.yaml"
    path.write_text(yaml.safe_dump({**kept, "init": {"from": str(parent), "vocab": "parent"}}))
    for recipe in (path, load_recipe(path)):
        found = with_keys_of_parent(as_recipe(recipe), resume=False)
        assert found.segment == RunFolder(parent).recipe().segment
    assert as_recipe(load_recipe(path)) == as_recipe(path)


# --- parents that cannot be used ----------------------------------------------------------------


def without_model(run: Path) -> None:
    shutil.rmtree(run / "model")


@pytest.mark.parametrize(
    ("spoil", "overrides", "message"),
    [
        (shutil.rmtree, [], "init.from: {parent}: no such model or run folder"),
        (without_model, [], "init.from: {parent}: the run has no model yet"),
        (None, ["model.dim=32"], "model.dim: 16 -> 32"),
        (None, ["out={parent}", "--fresh"], "is in the folder that this run is written to"),
        (None, ["init.freeze=encode"], 'did you mean "encoder.*"?'),
        (None, ["init.from=none", "init.vocab=parent"], "init.vocab requires init.from"),
    ],
)
def test_bad_parents(
    digits, tmp_path, capsys, spoil: Callable[[Path], None], overrides: list[str], message: str
):
    parent = shutil.copytree(digits / "run", tmp_path / "parent")
    if spoil is not None:
        spoil(parent)
    run = tmp_path / "run"
    given = {word.partition("=")[0]: word for word in child(digits, parent, f"out={run}")[1:]}
    given |= {word.partition("=")[0]: word.format(parent=parent) for word in overrides}
    assert main([str(digits / "toy.yaml"), *given.values()]) == 2
    printed = capsys.readouterr().err
    assert message.format(parent=parent) in printed
    assert "\n  -> " in printed or "command line" in printed
    assert not run.exists()
