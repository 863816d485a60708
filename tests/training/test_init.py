"""A run that starts from a parent takes its weights by name and its vocabulary by piece."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor

from nmt.cli import prepare as prepare_command
from nmt.cli.train import main
from nmt.config.load import as_recipe, dump_recipe, load_recipe, recipe_from_text
from nmt.config.model import model_config
from nmt.config.recipe import Recipe
from nmt.data.prepare import prepare
from nmt.data.segmenters import load_segmenter, segmenter_hash
from nmt.data.vocab import BOS, EOS, PAD, UNK, Vocab
from nmt.errors import UserError
from nmt.model.transformer import Transformer
from nmt.store.checkpoint import load_checkpoint
from nmt.store.folder import RunFolder
from nmt.store.model import Description, Model
from nmt.store.parent import TextOfParent, with_keys_of_parent
from nmt.store.tensors import read_weights
from nmt.training.init import Parent, Transfer, freeze, make_transfer
from nmt.training.trainer import Trainer
from tests.test_resume import terminate_after
from tests.toy import toy_corpus, toy_recipe
from tests.training.helpers import equal, moments, records, started, weights
from tests.training.test_distributed import torchrun

FIXTURES = Path(__file__).parents[1] / "fixtures" / "runs"
CPU = torch.device("cpu")
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


def synthetic(vocabulary: Vocab, remove: Sequence[str] = (), **model: Any) -> Parent:
    """Return a parent with random weights, without the tensors whose names begin as given."""
    recipe = recipe_from_text(
        yaml.safe_dump(
            {"src": "es", "tgt": "en", "data": {"train": "t", "dev": "d"}, "model": _small(model)}
        ),
        "recipe",
    )
    weights = Transformer(model_config(recipe.model), len(vocabulary)).state_dict()
    torch.manual_seed(1)
    return Parent(
        Path("parent"),
        Description.of(recipe, "u000001", None),
        TextOfParent(load_segmenter(FIXTURES / "plain" / "run" / "model"), vocabulary),
        "",
        {
            name: torch.randn(tensor.shape)
            for name, tensor in weights.items()
            if not name.startswith(tuple(remove))
        },
    )


def _small(model: dict[str, Any]) -> dict[str, Any]:
    return {"dim": 8, "ffn_dim": 16, "heads": 2, "enc_layers": 1, "dec_layers": 1, **model}


def taken(
    parent: Parent, vocabulary: Vocab, **model: Any
) -> tuple[Transfer, dict[str, Tensor], dict[str, Tensor]]:
    """Return the transfer into a model, its tensors, and those of the same model without it."""
    same = {
        key: value for key, value in parent.about.model.model_dump().items() if value is not None
    }
    values = {
        "src": "es", "tgt": "en", "data": {"train": "t", "dev": "d"}, "init": {"from": "parent"},
        "model": same | {"normformer": False, **model},
    }  # fmt: skip
    recipe = recipe_from_text(yaml.safe_dump(values), "recipe")
    both = [Transformer(model_config(recipe.model), len(vocabulary)) for _ in range(2)]
    transfer = make_transfer(recipe, both[0], vocabulary, parent)
    transfer.load_into(both[0])
    return transfer, both[0].state_dict(), both[1].state_dict()


def test_rows_go_by_piece_and_specials_by_position():
    parent = synthetic(vocab("a b c", "x y"))
    small = vocab("c d", "y z")
    transfer, now, fresh = taken(parent, small)
    for name in ("embed.weight", "out_bias"):
        theirs = parent.tensors[name]
        for special in (PAD, BOS, EOS, UNK):
            assert torch.equal(now[name][special], theirs[special])
        for piece in "cy":
            rows = [v.ids([piece])[0] for v in (small, parent.text.vocab)]
            assert torch.equal(now[name][rows[0]], theirs[rows[1]])
        for row in small.ids("dz"):
            assert torch.equal(now[name][row], fresh[name][row])
            assert row != UNK
    layers = [name for name in now if name not in ("embed.weight", "out_bias")]
    assert all(torch.equal(now[name], parent.tensors[name]) for name in layers)
    assert not transfer.missing
    assert not transfer.unexpected
    assert transfer.record["rows"] == {
        "pieces": 4, "from_parent": 2, "new": 2, "share": {"src": 0.5, "tgt": 0.5}, "means": 0
    }  # fmt: skip
    assert "2 of 4 subwords load the rows of the parent (50.0% of the source" in transfer.lines[2]


def test_a_shared_embedding_becomes_several():
    same = vocab("a b", "x y")
    parent = synthetic(same)
    _, now, _ = taken(parent, same, tie="none")
    for name in ("embed", "src_embed", "out_embed"):
        assert torch.equal(now[f"{name}.weight"], parent.tensors["embed.weight"])


def test_several_embeddings_become_one():
    """Pieces that only occur on the source side take the rows that were trained there."""
    same = vocab("a b both", "x y both")
    parent = synthetic(same, tie="none")
    transfer, now, _ = taken(parent, same, tie="src_tgt_out")
    target, source = parent.tensors["embed.weight"], parent.tensors["src_embed.weight"]
    tables = {"a": source, "b": source, "x": target, "y": target, "both": target}
    for piece, table in tables.items():
        row = same.ids([piece])[0]
        assert torch.equal(now["embed.weight"][row], table[row])
    assert torch.equal(now["embed.weight"][:4], target[:4])
    assert transfer.unexpected == ["out_embed.weight"]
    transfer, now, _ = taken(parent, same, tie="tgt_out")
    assert torch.equal(now["embed.weight"], target)
    assert torch.equal(now["src_embed.weight"], source)


def test_more_and_fewer_layers_are_listed():
    same = vocab("a", "b")
    parent = synthetic(same, dec_layers=3)
    transfer, now, fresh = taken(parent, same, enc_layers=2, dec_layers=2)
    assert {name.rsplit(".", 3)[0] for name in transfer.missing} <= {"encoder.layers.1"} | {
        "encoder.layers.1.self_attn", "encoder.layers.1.ffn", "encoder.layers.1"
    }  # fmt: skip
    assert all(name.startswith("encoder.layers.1.") for name in transfer.missing)
    assert all(name.startswith("decoder.layers.2.") for name in transfer.unexpected)
    assert (
        transfer.lines[2]
        == "  missing (start at their initial values): encoder.layers.1 (10 tensors)"
    )
    unexpected = f"decoder.layers.2 ({len(transfer.unexpected)} tensors)"
    assert transfer.lines[3] == f"  unexpected (not loaded): {unexpected}"
    assert all(torch.equal(now[name], fresh[name]) for name in transfer.missing)


def test_another_norm_eps_is_noted():
    same = vocab("a", "b")
    parent = synthetic(same)
    assert "norm_eps" not in " ".join(taken(parent, same)[0].lines)
    notes = [line for line in taken(parent, same, norm_eps=1e-3)[0].lines if "norm_eps" in line]
    theirs = f"{parent.about.model.norm_eps:g}"
    assert notes == [
        f"  note: model.norm_eps is 0.001, but {theirs} in the parent; to compute what the parent "
        f"did, set model.norm_eps={theirs}"
    ]


def test_normformer_can_be_added():
    same = vocab("a", "b")
    parent = synthetic(same, dec_layers=2, enc_layers=2)
    transfer, _, _ = taken(parent, same, head_scale=True, post_attn_norm=True, ffn_norm=True)
    assert "encoder.layers.*.ffn.norm.weight (2 tensors)" in transfer.lines[2]
    assert not transfer.unexpected


@pytest.mark.parametrize(
    ("theirs", "ours", "message"),
    [
        ({"dim": 16}, {"dim": 8}, "model.dim: 16 -> 8"),
        ({"heads": 4}, {"heads": 2}, "model.heads: 4 -> 2"),
        ({"norm": "layernorm"}, {"norm": "scalenorm"}, "model.norm: layernorm -> scalenorm"),
        ({"fixnorm": False}, {"fixnorm": True}, "model.fixnorm: false -> true"),
        ({"ffn_norm": True}, {"ffn_norm": False}, "model.ffn_norm: true -> false"),
        ({"res_scale": "ffn"}, {"res_scale": "none"}, "model.res_scale: ffn -> none"),
        ({}, {"scalenorm_gain": "fixed"}, "model.scalenorm_gain: learned -> fixed"),
    ],
)
def test_another_function_of_the_same_weights_is_refused(theirs, ours, message):
    same = vocab("a", "b")
    with pytest.raises(UserError, match=message) as error:
        taken(synthetic(same, **theirs), same, **ours)
    key, value = message.partition(" ->")[0].split(": ")
    assert f"set these keys as in the parent: {key}={value}" in str(error.value)


def test_a_language_model_gives_the_part_that_it_has():
    same = vocab("a", "b")
    cross = [f"decoder.layers.0.cross_attn{end}" for end in (".", "_res.")]
    parent = synthetic(same, remove=["encoder.", *cross])
    transfer, now, _ = taken(parent, same)
    assert all(name.startswith(("encoder.", *cross)) for name in transfer.missing)
    name = "decoder.layers.0.self_attn.qkv.weight"
    assert torch.equal(now[name], parent.tensors[name])
    for line in ("encoder.layers.0 (10 tensors)", "decoder.layers.*.cross_attn.q.weight"):
        assert line in transfer.lines[2]


def test_a_parent_without_any_layer_is_refused():
    same = vocab("a", "b")
    parent = synthetic(same, remove=["encoder.", "decoder."])
    with pytest.raises(UserError, match=r"no layer of the parent fits.*: the parent has em"):
        taken(parent, same)


@pytest.mark.slow
def test_an_equal_recipe_continues_with_the_parents_model(digits, tmp_path):
    task, transfer, _, model = started(child(digits, digits / "run", f"out={tmp_path / 'run'}"))
    assert equal(model.state_dict(), tensors(digits / "run"))
    found = task.evaluate(model, "dev", lambda: False).values
    (dev,) = records(digits / "run", "dev")
    assert found == {name: dev[name] for name in found}
    assert "dev bleu" in transfer.lines[0]


@pytest.mark.slow
def test_another_vocabulary_shares_what_it_can(digits, letters, tmp_path):
    words = child(letters, digits / "run", f"out={tmp_path / 'run'}")
    task, transfer, _, model = started(words)
    fresh = task.make_model()
    theirs = tensors(digits / "run")["embed.weight"]
    here, there = task.prepared.vocab, Model.open(digits / "run").vocab
    for piece in "01234567":
        rows = here.ids([piece])[0], there.ids([piece])[0]
        assert torch.equal(model.embed.weight[rows[0]], theirs[rows[1]])
    for row in here.ids("ab"):
        assert torch.equal(model.embed.weight[row], fresh.embed.weight[row])
    assert transfer.record["rows"]["new"] == 2


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


def test_the_perplexity_of_a_parent_that_has_not_ended(digits, tmp_path):
    """The history of its state has the negative of it."""
    run, ended = tmp_path / "parent", tmp_path / "parent" / "summary.json"
    words = [str(digits / "toy.yaml"), "train.validate_every=1", "score.select_by=ppl"]
    assert main([*words, f"out={run}", "train.max_validations=1"]) == 0
    recipe = load_recipe(digits / "toy.yaml", [f"init.from={run}"])
    expected = json.loads(ended.read_text())["dev"]
    ended.unlink()
    parent = Parent.of(recipe)
    assert parent is not None
    assert parent.about.scores == {"dev ppl": pytest.approx(expected)}


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
    model = synthetic_model()
    freeze(model, [])
    with pytest.raises(UserError, match=r'"encodr.\*"; did you mean "encoder.\*"\?'):
        freeze(model, ["encodr.*"])
    with pytest.raises(UserError, match=r"these: decoder.\*, embed.\*, encoder.\*, out_bias"):
        freeze(model, ["x"])
    with pytest.raises(UserError, match="nothing is left to train"):
        freeze(model, ["e*", "decoder", "out_bias"])
    assert all(p.requires_grad for p in model.parameters())
    freeze(model, ["*.bias", "embed.*"])
    for name, parameter in model.named_parameters():
        assert parameter.requires_grad != (name.endswith(".bias") or "embed." in name), name


@pytest.mark.parametrize(
    ("word", "model", "expected"),
    [
        ("embeddings", {"tie": "src_tgt_out"}, {"embed.weight"}),
        (
            "embeddings",
            {"tie": "none", "positions": "learned", "embed_norm": True, "norm": "layernorm"},
            {"embed", "src_embed", "out_embed", "src_input", "tgt_input"},
        ),
        ("encoder", {}, {"encoder"}),
        ("decoder", {}, {"decoder"}),
    ],
)
def test_words_of_freeze_are_parts_of_the_model(word, model, expected):
    recipe = synthetic(vocab("a", "b"), **model).about
    transformer = Transformer(model_config(recipe.model), 6)
    freeze(transformer, [word])
    frozen = {name for name, p in transformer.named_parameters() if not p.requires_grad}
    first = {name.partition(".")[0] for name in expected}
    assert {name.partition(".")[0] for name in frozen} == first
    assert frozen == {n for n, _ in transformer.named_parameters() if n.partition(".")[0] in first}


def test_a_word_of_freeze_that_matches_nothing():
    model = torch.nn.Module()
    model.encoder = torch.nn.Linear(2, 2)
    model.embed = torch.nn.Embedding(3, 2)
    with pytest.raises(UserError, match='no parameter of the model matches "decoder"'):
        freeze(model, ["decoder"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "untrained", "fix"),
    [
        (["init.freeze=embed.*"], "2 of 14 rows of embed.weight", "set init.vocab=parent, or "),
        (
            ["init.freeze=encoder.*", "model.enc_layers=2"],
            "encoder.layers.1 (10 tensors)",
            "",
        ),
        (["init.freeze=encoder.*"], "", ""),
        (["init.freeze=embed.*", "init.vocab=parent"], "", ""),
    ],
)
def test_a_warning_names_what_stays_untrained(digits, letters, tmp_path, overrides, untrained, fix):
    words = child(letters, digits / "run", *overrides)
    _, transfer, _, _ = started([*words, f"out={tmp_path / 'run'}"])
    warnings = [line for line in transfer.lines if "untrained" in line]
    assert warnings == (
        [
            "  warning: init.freeze keeps values untrained, because the parent lacks "
            f"them: {untrained}\n  -> {fix}choose patterns of init.freeze that do not match them"
        ]
        if untrained
        else []
    )


def synthetic_model() -> Transformer:
    return Transformer(model_config(synthetic(vocab("a", "b")).about.model), 6)


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


def test_each_model_key_either_belongs_to_the_parent_or_to_the_run():
    """A key that decides what weights compute, or the shape of the model, is the parent's."""
    from nmt.store.parent import OWN_MODEL_KEYS
    from nmt.training.init import ADDITIONS, SAME_FUNCTION

    assert OWN_MODEL_KEYS.isdisjoint({*SAME_FUNCTION, *ADDITIONS, "enc_layers", "dec_layers"})
    own = {"dropout", "attn_dropout", "ffn_dropout", "word_dropout", "init", "logit_mask"}
    assert own | {"normformer"} == OWN_MODEL_KEYS


def stored_parent(
    tmp_path: Path, kind: str, changes: dict[str, dict[str, Any]], **groups: Any
) -> tuple[Path, dict[str, Any]]:
    """Return a stored run, some of whose keys are changed and groups replaced, and its keys."""
    parent = shutil.copytree(FIXTURES / kind / "run", tmp_path / "parent")
    values = yaml.safe_load(dump_recipe(RunFolder(parent).recipe()))
    values |= {name: {**values[name], **change} for name, change in changes.items()} | groups
    recipe = recipe_from_text(yaml.safe_dump(values), "recipe")
    before = Model.open(parent).about
    about = dataclasses.replace(Description.of(recipe, before.name, None), files=before.files)
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
    task, _, _, model = started([*words, f"out={tmp_path / 'run'}"])
    prepared = task.prepared
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
        assert f"set them as in the parent: {message.split(' ->')[0].replace(': ', '=')}" in printed
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


def test_parent_and_child_learn_one_segmentation(tmp_path):
    """From both corpora, which have other languages, in both runs."""
    both = []
    for src, lines in {"pt": "carro casa casas", "gl": "carro coche coches"}.items():
        for split in ("train", "dev"):
            path = tmp_path / src / split
            path.parent.mkdir(exist_ok=True)
            text = "".join(f"{line} {split} {i}\n" for line in lines.split() for i in range(20))
            path.with_suffix(f".{src}").write_text(text)
            path.with_suffix(".en").write_text(text.upper())
        both.append({"path": f"{src}/train", "src": src})
    hashes, alone = [], []
    for src in ("pt", "gl"):
        recipe = {
            "src": src, "tgt": "en", "out": str(tmp_path / f"run-{src}"),
            "data": {"train": f"{src}/train", "dev": f"{src}/dev", "checks": "off"},
            "segment": {"merges": 15, "learn_from": both},
        }  # fmt: skip
        file = tmp_path / f"{src}.yaml"
        file.write_text(yaml.safe_dump(recipe))
        for overrides, found in (([], hashes), (["segment.learn_from=none"], alone)):
            prepared = prepare(load_recipe(file, overrides))
            found.append(segmenter_hash(prepared.segmenter))
    assert len(set(hashes)) == 1
    assert len({*hashes, *alone}) == 3
    for language in ("pt", "gl"):
        for side in (language, "en"):
            (tmp_path / language / f"empty.{side}").write_text("\n\n")
    empty = f"segment.learn_from=[{{path: {tmp_path}/gl/empty}}]"
    with pytest.raises(UserError, match="no pair has text on both sides"):
        prepare(load_recipe(tmp_path / "gl.yaml", [empty]))
    (tmp_path / "gl" / "train.gl").write_text("")
    with pytest.raises(UserError, match=r"train\.gl"):
        prepare(load_recipe(tmp_path / "pt.yaml"))


def test_a_language_model_learns_its_segmentation_on_other_texts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path, text in {"train.en": "low lower", "dev.en": "low", "train.gl": "casa casas"}.items():
        (tmp_path / path).write_text(f"{text}\n\n" * 20)
    recipe = {
        "task": "causal_lm", "src": "en", "out": str(tmp_path / "run"),
        "data": {"train": "train", "dev": "dev", "checks": "off"}, "segment": {"merges": 4},
    }  # fmt: skip
    file = tmp_path / "lm.yaml"
    file.write_text(yaml.safe_dump(recipe))
    both = "segment.learn_from=[train, {path: train, src: gl}]"
    alone, joint = (prepare(load_recipe(file, given)) for given in ([], [both]))
    assert segmenter_hash(alone.segmenter) != segmenter_hash(joint.segmenter)
    (tmp_path / "train.gl").write_text("\n\n")
    with pytest.raises(UserError, match=r"learn_from \(.*train\.gl\): no line has text"):
        prepare(load_recipe(file, ["segment.learn_from=[{path: train, src: gl}]"]))
    with pytest.raises(UserError, match=r"learn_from\[0\]\.tgt has no effect with task: causal_lm"):
        load_recipe(file, ["segment.learn_from=[{path: train, tgt: gl}]"])


@pytest.mark.parametrize(
    ("segment", "message"),
    [
        ({"learn_from": [{"path": "a", "tag": "<x>"}]}, r"learn_from\[0\].tag has no effect"),
        ({"learn_from": [{"path": "a", "tgt_tag": "<x>"}]}, r"\[0\].tgt_tag has no effect"),
        ({"learn_from": "a", "codes": "b"}, "learn_from has no effect with segment.codes"),
        ({"learn_from": [{"path": "a", "scr": "pt"}]}, r'learn_from\[0\].scr"; did you mean "src"'),
        ({"learn_from": [{"path": "a", "weight": 0}]}, r"learn_from\[0\].weight: \"0\" is not a"),
        ({"kind": "whitespace", "learn_from": "a"}, "is a key of kind: fastbpe or sentencepiece"),
    ],
)
def test_wrong_corpora_to_learn_from(segment, message):
    recipe = {"src": "gl", "tgt": "en", "data": {"train": "t", "dev": "d"}, "segment": segment}
    with pytest.raises(UserError, match=message):
        recipe_from_text(yaml.safe_dump(recipe), "recipe")


# --- parents that cannot be used ----------------------------------------------------------------


def without_model(run: Path) -> None:
    shutil.rmtree(run / "model")


def damaged(run: Path) -> None:
    path = run / "model" / "weights.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def other_words(run: Path) -> None:
    lines = (run / "model" / "vocab.txt").read_text().splitlines(keepends=True)
    (run / "model" / "vocab.txt").write_text("".join(reversed(lines)))


@pytest.mark.parametrize(
    ("spoil", "overrides", "message"),
    [
        (shutil.rmtree, [], "init.from: {parent}: no such model or run folder"),
        (without_model, [], "init.from: {parent}: the run has no model yet"),
        (damaged, [], "weights.safetensors: damaged"),
        (other_words, [], "vocab.txt: damaged"),
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


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fastbpe", "plain"])
def test_a_run_of_version_0_2_is_a_parent(kind, tmp_path, capsys):
    folder = shutil.copytree(FIXTURES / kind, tmp_path / "corpus")
    text = dump_recipe(RunFolder(folder / "run").recipe()).replace("/corpus", str(folder))
    values = yaml.safe_load(text)
    values["data"]["download"] = "none"
    for vocabulary in ("new", "parent"):
        values["init"] = {"from": str(folder / "run"), "vocab": vocabulary}
        values["out"] = str(tmp_path / "run")
        recipe = tmp_path / "recipe.yaml"
        recipe.write_text(yaml.safe_dump(values))
        assert main([str(recipe), "--dry-run"]) == 0
        printed = capsys.readouterr().err
        count = len(tensors(folder / "run"))
        assert f"weights: {count} of {count} tensors loaded from the parent" in printed
        expected = {"new": "100.0% of the source text", "parent": "subwords of the parent\n"}
        assert expected[vocabulary] in printed
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_two_processes_start_equal(digits, letters, tmp_path):
    words = child(letters, digits / "run", "init.vocab=parent", "train.validate_every=4")
    assert main([*words, f"out={tmp_path / 'alone'}", "optim.accumulate=2"]) == 0
    done = torchrun("terminates", "99", *words, f"out={tmp_path / 'run'}")
    assert done.returncode == 0, done.stderr
    one, two = tensors(tmp_path / "alone"), tensors(tmp_path / "run")
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, atol=1e-6, rtol=0)
