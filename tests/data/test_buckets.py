"""Batches padded to a few buckets: the same tokens, and padding without effect."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from nmt.data.batches import CPU_BUCKETS, GPU_BUCKETS, Batch, Bucket, Buckets, collate, make_batches
from nmt.data.vocab import PAD
from nmt.model.layout import Layout
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


def bucket_of(
    corpus: Corpus, rows: np.ndarray, limit: int, buckets: Buckets = GPU_BUCKETS
) -> Bucket | None:
    return buckets.fit(corpus.src_len[rows] + 1, corpus.tgt_len[rows] + 1, limit)


def test_a_cpu_has_few_grids_and_few_numbers_of_tokens(corpus):
    found = {
        bucket_of(corpus, rows, 2048, CPU_BUCKETS)
        for rows in make_batches(corpus.src_len, corpus.tgt_len, 2048, seed=1, epoch=0)
    }
    buckets = [bucket for bucket in found if bucket is not None]
    assert len({(b.sentences, b.max_length) for b in buckets}) <= len(CPU_BUCKETS.max_lengths)
    assert len({n for b in buckets for n in (b.src_tokens, b.tgt_tokens)}) <= 16


@pytest.mark.parametrize("kind", [GPU_BUCKETS, CPU_BUCKETS], ids=["gpu", "cpu"])
@pytest.mark.parametrize("limit", [512, 2048])
def test_every_batch_fits_a_bucket(corpus, limit, kind):
    buckets = set()
    for rows in make_batches(corpus.src_len, corpus.tgt_len, limit, seed=1, epoch=0):
        bucket = bucket_of(corpus, rows, limit, kind)
        longest = max(corpus.src_len[rows].max(), corpus.tgt_len[rows].max()) + 1
        if bucket is None:
            assert longest > min(limit, kind.max_lengths[-1])
            continue
        buckets.add(bucket)
        padded, plain = collate(corpus, rows, bucket), collate(corpus, rows)
        assert padded.src.shape == (bucket.src_tokens,)
        assert padded.tgt_in.shape == padded.tgt_out.shape == (bucket.tgt_tokens,)
        for layout in (padded.src_layout, padded.tgt_layout):
            assert layout.shape == (bucket.sentences, bucket.max_length)
            # each token has a slot of its own, so that the inverse is well defined
            assert len(layout.to_flat.unique()) == len(layout.to_flat)
        real = plain.tokens
        assert torch.equal(padded.tgt_out[:real], plain.tgt_out)
        assert (padded.tgt_out[real:] == PAD).all()
        assert padded.weights is not None
        assert padded.weights.tolist() == [1.0] * real + [0.0] * (bucket.tgt_tokens - real)
        assert bucket.tgt_tokens - real < -(-limit // kind.steps)
    if kind is GPU_BUCKETS:  # each may become a CUDA graph
        assert 5 < len(buckets) < (70 if limit == 512 else 30)


def test_padded_layout_keeps_every_token_in_its_sentence():
    layout = Layout.with_padding([2, 3], tokens=8, sentences=4, max_length=4)
    x = torch.arange(1.0, 9.0)[:, None]
    grid = layout.pad(x)[..., 0]
    assert torch.equal(layout.flat(layout.pad(x)), x)
    real = torch.tensor([[1, 2, 0, 0], [3, 4, 5, 0], [0] * 4, [0] * 4])
    seen = layout.visible.clone()
    assert seen[2:].tolist() == [[True, False, False, False]] * 2  # attention to nothing is NaN
    seen[2:] = False
    assert torch.equal(seen, real > 0)
    assert torch.equal(grid[seen], real[seen].float())
    with pytest.raises(ValueError, match="do not fit"):
        Layout.with_padding([2, 3], tokens=4, sentences=4, max_length=4)
    with pytest.raises(ValueError, match="do not fit"):
        Layout.with_padding([2, 5], tokens=8, sentences=4, max_length=4)


def losses(model: torch.nn.Module, batch: Batch) -> tuple[list[float], dict[str, torch.Tensor]]:
    model.zero_grad()
    sums = label_smoothed_loss(
        model(*batch.inputs), batch.tgt_out, model.allowed, 0.1, batch.weights
    )
    (sums.smoothed / 50).backward()
    found: dict[str, Any] = {n: p.grad.clone() for n, p in model.named_parameters()}
    return [sums.smoothed.item(), sums.nll.item()], found


@pytest.mark.parametrize("keys", VARIANTS, ids=short)
def test_padding_changes_neither_losses_nor_gradients(keys, corpus):
    model = build(tiny(**{**keys, "out_bias": True})).double()
    batches = make_batches(corpus.src_len, corpus.tgt_len, 200, seed=1, epoch=0)
    sized = [(rows, bucket_of(corpus, rows, 200)) for rows in batches]
    few = next((r, s) for r, s in sized if s and s.sentences > len(r) > 3)
    long = next((r, s) for r, s in sized if s and s.max_length > 24)
    for rows, bucket in (few, long):
        plain, plain_gradients = losses(model, collate(corpus, rows))
        padded, gradients = losses(model, collate(corpus, rows, bucket))
        assert padded == pytest.approx(plain, rel=1e-7)
        for name, gradient in plain_gradients.items():
            torch.testing.assert_close(gradients[name], gradient, atol=1e-7, rtol=1e-6)
