"""Batch plans and collation."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from nmt.data.batches import Batch, collate, collate_sources, make_batches, updates
from nmt.data.encoded import CorpusWriter, EncodedCorpus, Ragged
from nmt.data.vocab import BOS, EOS


@pytest.fixture
def lengths() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    src = np.minimum(rng.lognormal(3, 0.6, 3000), 240).astype(np.int32)
    return src, np.minimum(src * rng.lognormal(0, 0.25, 3000), 240).astype(np.int32)


def corpus_of(folder: Path, pairs: list[tuple[list[int], list[int]]]) -> EncodedCorpus:
    writer = CorpusWriter(folder, 100)
    writer.add(Ragged.of([s for s, _ in pairs]), Ragged.of([t for _, t in pairs]))
    writer.finish()
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


@pytest.mark.slow  # learns 3,000 merges
def test_padding_of_a_real_corpus_at_4096_tokens(tmp_path: Path):
    from nmt.config.recipe import Recipe
    from nmt.data.prepare import prepare

    corpus = Path(__file__).parents[2].parent / "shared/data/ted-gl-en"
    if not corpus.exists():
        pytest.skip("needs ted-gl-en")
    data = {name: str(corpus / name) for name in ("train", "dev")}
    recipe = Recipe.model_validate(
        {
            "src": "gl",
            "tgt": "en",
            "out": str(tmp_path / "run"),
            "data": {**data, "tokenized": True},
            "segment": {"merges": 3000},
        }
    )
    train = prepare(recipe, progress=False).train
    batches = make_batches(train.src_len, train.tgt_len, 4096, seed=1, epoch=0)
    assert padding(batches, train.src_len, train.tgt_len) <= 0.13


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
        return [(p.epoch, p.index) for p in update.planned]

    first = len(plan_epoch(0)) - 3
    alone = list(itertools.islice(updates(plan_epoch, tokens, make, 0, first, 4), 3))
    assert places(alone[0]) == [(0, first), (0, first + 1), (0, first + 2), (1, 0)]
    assert (alone[0].epoch, alone[0].next_batch) == (1, 1)
    for update in alone:
        assert update.tokens == sum(p.batch.tokens for p in update.planned)
        for p in update.planned:
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
