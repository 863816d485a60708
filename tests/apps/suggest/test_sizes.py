"""The table of sizes, and the advice about models that are too large."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nmt.config.load import load_recipe
from nmt.config.model import model_config
from nmt.config.recipe import ModelConfig
from nmt.config.sizes import (
    CPU,
    GPU,
    LONG,
    LONGEST,
    TOO_LARGE,
    advice_on_size,
    lengthened,
    most_passes,
    size_for,
)
from nmt.model.transformer import Transformer
from nmt.runtime.memory import parameter_count

PIECES_PER_WORD = 1.4  # gl-en: 347k pieces, 237k words
RECIPES = Path(__file__).parents[3] / "recipes"
PAPER = "papers/transformers-without-tears"


@pytest.mark.parametrize("sizes", [CPU, GPU], ids=["cpu", "gpu"])
def test_more_data_never_means_a_smaller_model_or_more_dropout(sizes):
    assert sizes[-1].words == math.inf
    for less, more in itertools.pairwise(sizes):
        assert less.words < more.words
        assert less.dim <= more.dim
        assert less.layers <= more.layers
        assert less.types <= more.types
        assert less.long_types <= more.long_types
        assert less.dropout >= more.dropout
        assert less.passes >= more.passes


def test_the_row_of_a_corpus_is_the_first_that_is_large_enough():
    assert size_for(1, CPU) == CPU[0]
    assert size_for(20_000, CPU) == CPU[0]
    assert size_for(20_001, CPU) == CPU[1]
    assert size_for(10**12, CPU) == CPU[-1]


@pytest.mark.parametrize(
    ("words", "sizes", "name"),
    [
        (237_317, CPU, "pairs/gl-en-cpu"),
        (237_317, GPU, f"{PAPER}/gl-en"),
        (1_200_000, GPU, f"{PAPER}/sk-en"),
    ],
)
def test_rows_are_those_of_the_recipes_that_they_name(words, sizes, name):
    size, recipe = size_for(words, sizes), load_recipe(RECIPES / f"{name}.yaml")
    model, segment = recipe.model, recipe.segment
    assert segment.kind == "fastbpe"
    assert (size.dim, 4 * size.dim) == (model.dim, model.ffn_dim)
    assert (size.heads, size.layers) == (model.heads, model.enc_layers)
    assert (size.dropout, size.types) == (model.dropout, segment.merges)
    assert sizes is GPU or size.word_dropout == model.word_dropout
    assert size.batch_tokens == recipe.data.batch_tokens


@pytest.mark.parametrize("row", CPU[:-1])
def test_a_long_training_has_the_settings_of_the_best_recipe_and_a_short_one_those_of_its_row(row):
    assert lengthened(row, row.passes) == row
    assert lengthened(row, 1) == replace(row, passes=1)
    assert lengthened(row, LONG * row.passes - 1).dropout == row.dropout
    long = lengthened(row, LONG * row.passes)
    assert (long.batch_tokens, long.dropout) == (2 * row.batch_tokens, round(row.dropout + 0.1, 1))
    assert lengthened(row, 10**9) == lengthened(row, most_passes(row))
    assert most_passes(row) == int(LONGEST * row.passes)


def model_of(size):
    return ModelConfig(
        dim=size.dim, ffn_dim=4 * size.dim, heads=size.heads,
        enc_layers=size.layers, dec_layers=size.layers,
    )  # fmt: skip


@pytest.mark.parametrize("sizes", [CPU, GPU], ids=["cpu", "gpu"])
def test_no_row_is_too_large_for_its_smallest_corpus_of_1000_pairs(sizes):
    smallest = [20_000, *(size.words for size in sizes[:-1])]
    for words, size in zip(smallest, sizes, strict=True):
        with torch.device("meta"):
            model = Transformer(model_config(model_of(size)), size.types, initialize=False)
        assert parameter_count(model) <= TOO_LARGE * PIECES_PER_WORD * words


@pytest.mark.parametrize("sizes", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("words", [1, 2_000, 20_000, 20_001, 90_001, 120_001, 10**7])
def test_no_advice_for_a_model_that_suggest_chooses(words, sizes):
    """Also for a few hundred pairs, which have too few pieces for any model."""
    chosen = model_of(size_for(words, sizes))
    assert advice_on_size(chosen, 10**12, words) is None
    for key in ("dim", "ffn_dim", "enc_layers", "dec_layers"):
        larger = chosen.model_copy(update={key: 10 * getattr(chosen, key)})
        assert advice_on_size(larger, 10**12, words) is not None


def test_advice_for_transformer_base_on_5000_pairs_but_not_for_what_the_paper_trains():
    """T's gl-en: 31.0M parameters and 0.35M pieces; az-en has 6k pairs and 0.2M pieces."""
    model = load_recipe(RECIPES / PAPER / "gl-en.yaml").model
    assert advice_on_size(model, 31_030_390, 347_000) is None
    assert advice_on_size(model, 31_030_390, 202_000) is None
    base = ModelConfig(dim=512, ffn_dim=2048, heads=8, enc_layers=6, dec_layers=6)
    found = advice_on_size(base, 44_000_000 + 512 * 8000, 140_000)
    assert found is not None
    assert "48,096,000 parameters, 344 for each target subword" in found
    assert "nmt-suggest" in found
    assert advice_on_size(base, TOO_LARGE * 10, 10) is None
    assert advice_on_size(base, TOO_LARGE * 10 + 10, 10) is not None
