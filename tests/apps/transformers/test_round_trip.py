"""A run, exported for transformers and converted again, is the same parent as the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from nmt.cli.convert import main as convert
from nmt.cli.export import main as export
from nmt.cli.train import main as train
from nmt.data.vocab import EOS, SPECIALS, UNK, Vocab
from nmt.store.model import Model
from nmt.store.tensors import read_weights
from tests.toy import toy_corpus, toy_recipe

MARIAN: dict[str, Any] = {
    "data": {"tokenized": False, "batch_tokens": 64, "checks": "off", "normalize": "none"},
    "segment": {"kind": "sentencepiece", "vocab_size": 24, "model_type": "unigram"},
    "model": {
        "dim": 16, "ffn_dim": 32, "heads": 2, "enc_layers": 1, "dec_layers": 1, "dropout": 0.0,
        "word_dropout": 0.0, "norm": "layernorm", "norm_place": "post", "fixnorm": False,
        "activation": "swish",
    },
    "train": {"validate_every": 4, "max_validations": 1},
}  # fmt: skip


def by_piece(run: Path) -> dict[str, torch.Tensor]:
    """Return the final weights, with the rows of EOS, UNK and the pieces in order of their text."""
    model = Model.open(run)
    vocab = model.vocab
    pieces = vocab.pieces(range(len(SPECIALS), len(vocab)))
    order = [EOS, UNK, *vocab.ids(sorted(pieces))]
    weights = read_weights(model)
    rows = {name: weights[name][order] for name in ("embed.weight", "out_bias")}
    return {**weights, **rows}


@pytest.mark.slow
def test_children_of_a_run_and_of_its_converted_export_are_equal(tmp_path: Path):
    """The child predicts digits that the parent has seen in sources only."""
    parent, child = tmp_path / "parent", tmp_path / "child"
    for folder in (parent, child):
        folder.mkdir()
        toy_corpus(folder)
    for path in parent.glob("*.en"):
        path.write_text(path.read_text().replace("7", "1"))
    run, exported, converted = (parent / name for name in ("run", "exported", "converted"))
    assert train([str(toy_recipe(parent, MARIAN))]) == 0
    assert export([str(run), "--format", "transformers", "-o", str(exported)]) == 0
    assert convert([str(exported), "-o", str(converted), "--license", "MIT"]) == 0
    vocab = Vocab.load(converted)
    assert not vocab.types_of("tgt")[vocab.ids(["\u25817"])].any()
    recipe = toy_recipe(child, {key: MARIAN[key] for key in ("data", "train")})
    values = yaml.safe_load(recipe.read_text(encoding="utf-8"))
    del values["segment"]
    values["model"] = {"dropout": 0.0, "word_dropout": 0.0}  # the rest is the parent's
    recipe.write_text(yaml.safe_dump(values), encoding="utf-8")
    results = []
    for number, start_from in enumerate((run, converted)):
        out = tmp_path / f"child-{number}"
        words = [str(recipe), f"out={out}", f"init.from={start_from}", "init.vocab=parent"]
        assert train(words) == 0
        results.append((by_piece(out), (out / "test.hyp").read_text(encoding="utf-8")))
    (first, output), (second, other_output) = results
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        torch.testing.assert_close(tensor, second[name], rtol=1e-5, atol=1e-6, msg=name)
    assert output == other_output
