"""Batches of an epoch, their tensors, and the buckets that they are padded to."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nmt.config.recipe import OptimConfig
from nmt.data.batches import (
    CPU_BUCKETS,
    GPU_BUCKETS,
    Batch,
    Bucket,
    Buckets,
    collate,
    collate_sources,
    make_batches,
    updates,
)
from nmt.data.encoded import EncodedCorpus, Ragged, write_corpus
from nmt.data.vocab import BOS, EOS, PAD
from nmt.model.layout import Layout
from nmt.training.loss import token_losses
from tests.model_cases import TYPES, build, random_variants, short, tiny


@pytest.fixture
def lengths() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    src = np.minimum(rng.lognormal(3, 0.6, 3000), 240).astype(np.int32)
    return src, np.minimum(src * rng.lognormal(0, 0.25, 3000), 240).astype(np.int32)


def corpus_of(folder: Path, pairs: list[tuple[list[int], list[int]]]) -> EncodedCorpus:
    src, tgt = (Ragged.of([pair[side] for pair in pairs]) for side in (0, 1))
    write_corpus(folder, 100, [(src, tgt)])
    return EncodedCorpus(folder)


def padding(batches: list[np.ndarray], src: np.ndarray, tgt: np.ndarray) -> float:
    slots = sum(len(b) * (int(src[b].max()) + int(tgt[b].max()) + 2) for b in batches)
    return 1 - (int(src.sum()) + int(tgt.sum()) + 2 * len(src)) / slots


def test_batches_hold_every_row_once_within_the_limit(lengths):
    src, tgt = lengths
    batches = make_batches(src, tgt, 1024, seed=1, epoch=0)
    assert sorted(np.concatenate(batches)) == list(range(len(src)))
    for rows in batches:
        assert len(rows) * (max(src[rows].max(), tgt[rows].max()) + 1) <= 1024
    assert padding(batches, src, tgt) < 0.13


def test_batches_are_a_function_of_seed_and_epoch(lengths):
    def same(a, b):
        return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))

    first = make_batches(*lengths, 1024, seed=1, epoch=0)
    assert same(first, make_batches(*lengths, 1024, seed=1, epoch=0))
    assert not same(first, make_batches(*lengths, 1024, seed=2, epoch=0))
    second = make_batches(*lengths, 1024, seed=1, epoch=1)
    assert {tuple(sorted(b)) for b in second} != {tuple(sorted(b)) for b in first}
    fixed = make_batches(*lengths, 1024, seed=1, epoch=1, rebatch=False)
    assert {tuple(sorted(b)) for b in fixed} == {tuple(sorted(b)) for b in first}
    assert not same(fixed, first)


def test_pair_over_the_limit_is_a_batch_of_its_own():
    src = np.array([3, 50, 4, 3], dtype=np.int32)
    batches = make_batches(src, src, 20, seed=1, epoch=0)
    assert [1] in [list(b) for b in batches]
    assert sorted(np.concatenate(batches)) == [0, 1, 2, 3]
    assert make_batches(src[:0], src[:0], 20, 1, 0) == []


def test_collate_is_flat_and_ends_with_eos(tmp_path: Path):
    corpus = corpus_of(tmp_path, [([5, 6, 7], [8]), ([9], [10, 11])])
    batch = collate(corpus, np.array([1, 0]))
    assert batch.src.tolist() == [9, EOS, 5, 6, 7, EOS]
    assert batch.tgt_in.tolist() == [BOS, 10, 11, BOS, 8]
    assert batch.tgt_out.tolist() == [10, 11, EOS, 8, EOS]
    assert batch.src_layout.lengths.tolist() == [2, 4]
    assert batch.tgt_layout.positions.tolist() == [0, 1, 2, 0, 1]
    assert batch.tokens == 5
    ids, layout = collate_sources([np.array([4]), np.array([5, 6])])
    assert ids.tolist() == [4, EOS, 5, 6, EOS]
    assert layout.shape == (2, 3)


def test_updates_continue_across_the_end_of_an_epoch(tmp_path: Path):
    corpus = corpus_of(tmp_path, [([5] * n, [6] * (n + 1)) for n in range(1, 40)])

    def plan_epoch(epoch: int) -> list[np.ndarray]:
        return make_batches(corpus.src_len, corpus.tgt_len, 64, 1, epoch)

    def tokens(epoch: int, rows: np.ndarray) -> int:
        return int(corpus.tgt_len[rows].sum()) + len(rows)

    def make(epoch: int, rows: np.ndarray) -> Batch:
        return collate(corpus, rows)

    def places(update):
        return [(p.epoch, p.index) for p in update.own]

    first = len(plan_epoch(0)) - 3
    alone = list(itertools.islice(updates(plan_epoch, tokens, make, 0, first, 4), 3))
    assert places(alone[0]) == [(0, first), (0, first + 1), (0, first + 2), (1, 0)]
    assert (alone[0].epoch, alone[0].next_batch) == (1, 1)
    for update in alone:
        assert update.tokens == sum(p.batch.tokens for p in update.own)
        for p in update.own:
            expected = collate(corpus, plan_epoch(p.epoch)[p.index])
            assert torch.equal(p.batch.src, expected.src)
            assert torch.equal(p.batch.tgt_out, expected.tgt_out)
    # two processes that accumulate half as much share the same updates
    halves = [
        list(itertools.islice(updates(plan_epoch, tokens, make, 0, first, 2, rank, 2), 3))
        for rank in (0, 1)
    ]
    for complete, *shares in zip(alone, *halves, strict=True):
        assert sorted(place for share in shares for place in places(share)) == places(complete)
        for share in shares:
            assert (share.tokens, share.epoch) == (complete.tokens, complete.epoch)
            assert share.next_batch == complete.next_batch


def test_packed_batch_has_one_buffer(tmp_path: Path):
    batch = collate(corpus_of(tmp_path, [([5, 6, 7], [8]), ([9], [10, 11])]), np.array([1, 0]))
    found: list[list[torch.Tensor]] = [[], []]
    for tensors, one in zip(found, (batch, batch.pack(torch.device("cpu"))), strict=True):
        one.map(lambda t, tensors=tensors: tensors.append(t))
    assert len(found[0]) == 13
    assert len({t.untyped_storage().data_ptr() for t in found[1]}) == 1
    for here, there in zip(*found, strict=True):
        assert there.dtype == here.dtype
        assert torch.equal(there, here)


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


@pytest.mark.slow
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
    sums = token_losses(
        model(*batch.inputs), batch.tgt_out, model.allowed, OptimConfig(), batch.weights
    )
    (sums["smoothed"] / 50).backward()
    found: dict[str, Any] = {n: p.grad.clone() for n, p in model.named_parameters()}
    return [sums["smoothed"].item(), sums["nll"].item()], found


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
