"""The settings of a model and the section of a recipe that they come from."""

from dataclasses import asdict

from nmt.config import recipe
from nmt.config.model import model_config
from nmt.data import vocab
from nmt.model import UNK
from nmt.model.config import ModelConfig


def test_names_and_defaults_are_those_of_a_recipe():
    assert model_config(recipe.ModelConfig()) == ModelConfig()
    assert asdict(ModelConfig()) == recipe.ModelConfig().model_dump(exclude={"normformer"})
    assert UNK == vocab.UNK


def test_values_come_from_the_recipe():
    section = recipe.ModelConfig(normformer=True, dim=8, dropout=0.2, ffn_dropout=0.0)
    config = model_config(section)
    assert (config.dim, config.head_scale, config.ffn_norm) == (8, True, True)
    assert (config.attention_dropout, config.feedforward_dropout) == (0.2, 0.0)
