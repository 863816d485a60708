"""The language model: numbers, what a position sees, names that a Transformer shares, sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nmt.model.config import ModelConfig
from nmt.model.language_model import LanguageModel
from nmt.model.layout import Layout
from nmt.model.transformer import Transformer
from tests.model_cases import ALL_N_PARTS, ALLOWED, TYPES, random_variants, short, tiny
from tests.reference import Reference

pytestmark = pytest.mark.cpu

TEXTS = [[1, 4, 5, 6, 2], [7, 8], [9, 10, 3, 4, 6, 6, 7]]
KINDS = pytest.mark.parametrize("causal", [True, False], ids=["causal", "masked"])


def build_lm(config: ModelConfig, causal: bool) -> LanguageModel:
    """Return a model in eval mode with noise on every parameter, so that none is without effect."""
    generator = torch.Generator().manual_seed(3)
    model = LanguageModel(config, TYPES, causal, ALLOWED)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def text_batch(
    texts: Sequence[Sequence[int]], layout: Layout | None = None, places: Tensor | None = None
) -> tuple[Tensor, Layout, Tensor | None]:
    """Return the arguments of a language model."""
    ids = torch.tensor([kind for text in texts for kind in text])
    return ids, layout or Layout.of([len(text) for text in texts]), places


def logits_of(model: LanguageModel, texts: Sequence[Sequence[int]]) -> Tensor:
    with torch.no_grad():
        return model(*text_batch(texts))


@KINDS
@pytest.mark.parametrize("keys", list(random_variants(12, seed=5)), ids=short)
def test_log_probabilities_equal_the_reference(causal: bool, keys: dict[str, Any]):
    config = tiny(**keys)
    model = build_lm(config, causal)
    ours = logits_of(model, TEXTS).double().log_softmax(-1).numpy()
    reference = Reference(config, model.state_dict(), ALLOWED).language_model(TEXTS, causal)
    allowed = np.isfinite(reference)
    np.testing.assert_allclose(ours[allowed], reference[allowed], rtol=1e-4, atol=1e-4)
    assert (ours[~allowed] < -1000).all()


@KINDS
def test_a_position_sees_later_ones_only_in_a_masked_model(causal: bool):
    model = build_lm(tiny(**ALL_N_PARTS), causal)
    before = logits_of(model, [[4, 5, 6, 7, 9]])
    after = logits_of(model, [[4, 5, 6, 10, 3]])
    assert torch.equal(before[:3], after[:3]) == causal
    assert not torch.equal(before[3:], after[3:])


@KINDS
def test_other_texts_and_padding_change_nothing(causal: bool):
    model = build_lm(tiny(), causal)
    together = logits_of(model, TEXTS)
    alone = torch.cat([logits_of(model, [text]) for text in TEXTS])
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-5)
    lengths = [len(text) for text in TEXTS]
    padded = text_batch([*TEXTS, [0] * 6], Layout.with_padding(lengths, sum(lengths) + 6, 4, 9))
    with torch.no_grad():
        torch.testing.assert_close(model(*padded)[: sum(lengths)], together, rtol=1e-5, atol=1e-5)


def test_logits_at_some_places_are_those_rows():
    model, chosen = build_lm(tiny(), causal=False), torch.tensor([9, 0, 5])
    with torch.no_grad():
        some = model(*text_batch(TEXTS, places=chosen))
    torch.testing.assert_close(some, logits_of(model, TEXTS)[chosen], rtol=1e-5, atol=1e-6)


@KINDS
@pytest.mark.parametrize(
    "keys", [{}, {"tie": "none"}, {"norm_place": "post"}, ALL_N_PARTS], ids=short
)
def test_a_transformer_can_take_every_parameter(causal: bool, keys: dict[str, Any]):
    model, other = LanguageModel(tiny(**keys), TYPES, causal), Transformer(tiny(**keys), TYPES)
    parameters = model.state_dict()
    assert set(parameters) == {name for name, _ in model.named_parameters()}
    rest = other.load_state_dict(parameters, strict=False)
    assert rest.unexpected_keys == []
    side = "encoder" if causal else "decoder"
    assert all(
        name.startswith((side, "src_embed")) or ".cross_attn" in name for name in rest.missing_keys
    )


@KINDS
@pytest.mark.parametrize("place", ["pre", "post"])
def test_fixed_gains_leave_the_norm_before_the_logits_learned(causal: bool, place: str):
    model = LanguageModel(tiny(scalenorm_gain="fixed", norm_place=place), TYPES, causal)
    side = "decoder" if causal else "encoder"
    last = "norm.g" if place == "pre" else "layers.1.ffn_res.norm.g"
    assert [n for n, _ in model.named_parameters() if n.endswith(".g")] == [f"{side}.{last}"]


@KINDS
def test_dropout_is_a_function_of_its_seed(causal: bool):
    model = build_lm(tiny(dropout=0.3, word_dropout=0.3), causal).train()
    draws = []
    for batch in (0, 1, 0):
        model.dropout_rng.seed(1, 2, batch)
        draws.append(logits_of(model, TEXTS))
    assert torch.equal(draws[0], draws[2])
    assert not torch.equal(draws[0], draws[1])
