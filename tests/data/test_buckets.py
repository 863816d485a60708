"""Batches filled up to a few shapes: the same tokens, and filler that nothing sees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from nmt.data.batches import Batch, collate, make_batches
from nmt.data.buckets import LENGTHS, Bucket, shape_for
from nmt.data.layout import Layout
from nmt.data.vocab import PAD
from nmt.training.loss import label_smoothed_loss
from tests.model_cases import TYPES, build, random_variants, short, tiny

VARIANTS = list(random_variants(6, seed=5))


class Corpus:
    """Pairs of random ids."""

    def __init__(self, src_len: np.ndarray, tgt_len: np.ndarray) -> None:
        self.src_len, self.tgt_len = src_len, tgt_len

    def src(self, row: int) -> np.ndarray:
        return np.random.default_rng([1, row]).integers(4, TYPES, self.src_len[row])

    def tgt(self, row: int) -> np.ndarray:
        return np.random.default_rng([2, row]).choice([3, 4, 6, 7, 9, 10], self.tgt_len[row])


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    rng = np.random.default_rng(3)
    src = np.clip(rng.lognormal(2.5, 0.9, 3000), 0, 700).astype(np.int32)
    return Corpus(src, np.clip(src * rng.lognormal(0, 0.25, 3000), 0, 700).astype(np.int32))


def shape_of(corpus: Corpus, rows: np.ndarray, limit: int) -> Bucket | None:
    return shape_for(corpus.src_len[rows] + 1, corpus.tgt_len[rows] + 1, limit)


@pytest.mark.parametrize(("limit", "most"), [(512, 70), (2048, 30)])
def test_every_batch_of_a_plan_fits_one_of_few_shapes(corpus, limit, most):
    shapes = set()
    for rows in make_batches(corpus.src_len, corpus.tgt_len, limit, seed=1, epoch=0):
        shape = shape_of(corpus, rows, limit)
        longest = max(corpus.src_len[rows].max(), corpus.tgt_len[rows].max()) + 1
        if shape is None:
            assert longest > min(limit, LENGTHS[-1])
            continue
        shapes.add(shape)
        filled, plain = collate(corpus, rows, shape), collate(corpus, rows)
        assert filled.src.shape == (shape.src_tokens,)
        assert filled.tgt_in.shape == filled.tgt_out.shape == (shape.tgt_tokens,)
        for layout in (filled.src_layout, filled.tgt_layout):
            assert layout.shape == (shape.sentences, shape.longest)
            # a slot for each token, so that the way back is well defined
            assert len(layout.to_flat.unique()) == len(layout.to_flat)
        real = plain.tokens
        assert torch.equal(filled.tgt_out[:real], plain.tgt_out)
        assert (filled.tgt_out[real:] == PAD).all()
        assert filled.weights is not None
        assert filled.weights.tolist() == [1.0] * real + [0.0] * (shape.tgt_tokens - real)
        assert shape.tgt_tokens - real < -(-limit // 8)
    assert 5 < len(shapes) < most


def test_a_filled_layout_keeps_every_token_in_its_sentence():
    layout = Layout.filled([2, 3], tokens=8, sentences=4, longest=4)
    x = torch.arange(1.0, 9.0)[:, None]
    padded = layout.pad(x)[..., 0]
    assert torch.equal(layout.flat(layout.pad(x)), x)
    real = torch.tensor([[1, 2, 0, 0], [3, 4, 5, 0], [0] * 4, [0] * 4])
    seen = layout.visible.clone()
    assert seen[2:].tolist() == [[True, False, False, False]] * 2  # attention to something
    seen[2:] = False
    assert torch.equal(seen, real > 0)
    assert torch.equal(padded[seen], real[seen].float())
    with pytest.raises(ValueError, match="do not fit"):
        Layout.filled([2, 3], tokens=4, sentences=4, longest=4)
    with pytest.raises(ValueError, match="do not fit"):
        Layout.filled([2, 5], tokens=8, sentences=4, longest=4)


def losses(model: torch.nn.Module, batch: Batch) -> tuple[list[float], dict[str, torch.Tensor]]:
    model.zero_grad()
    sums = label_smoothed_loss(model(batch), batch.tgt_out, model.allowed, 0.1, batch.weights)
    (sums.smoothed / 50).backward()
    found: dict[str, Any] = {n: p.grad.clone() for n, p in model.named_parameters()}
    return [sums.smoothed.item(), sums.nll.item()], found


@pytest.mark.parametrize("keys", VARIANTS, ids=short)
def test_filler_changes_neither_losses_nor_gradients(keys, corpus):
    model = build(tiny(**{**keys, "out_bias": True})).double()
    batches = make_batches(corpus.src_len, corpus.tgt_len, 200, seed=1, epoch=0)
    shaped = [(rows, shape_of(corpus, rows, 200)) for rows in batches]
    few = next((r, s) for r, s in shaped if s and s.sentences > len(r) > 3)
    long = next((r, s) for r, s in shaped if s and s.longest > 24)
    for rows, shape in (few, long):
        plain, plain_gradients = losses(model, collate(corpus, rows))
        filled, gradients = losses(model, collate(corpus, rows, shape))
        assert filled == pytest.approx(plain, rel=1e-7)
        for name, gradient in plain_gradients.items():
            torch.testing.assert_close(gradients[name], gradient, atol=1e-7, rtol=1e-6)
