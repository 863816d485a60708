"""Masked language models: which tokens are chosen, and what replaces them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nmt.data.lm import MaskedText, count_chosen, mask_tokens
from nmt.data.vocab import EOS, UNK
from tests.data.lm.test_packing import random_lines, stream_of

MASK = 60
TYPES = np.arange(4, 60)


def masked_text(lines: list[list[int]], length: int = 32, seed: int = 1) -> MaskedText:
    return MaskedText(stream_of(lines), length, MASK, TYPES, seed)


def test_number_of_chosen_tokens():
    tokens = np.array([0, 1, 2, 9, 10, 20, 100, 512])
    assert count_chosen(tokens).tolist() == [0, 1, 1, 1, 2, 3, 15, 77]


def test_shares_of_mask_random_type_and_unchanged():
    rng = np.random.default_rng(5)
    ids = rng.integers(4, 60, 20_000)
    masked, places = mask_tokens(ids, MASK, TYPES, rng)
    assert len(places) == len(set(places)) == 3000
    chosen, shown = ids[places], masked[places]
    # shares of 3,000 draws: three standard deviations are at most 0.022
    assert (shown == MASK).mean() == pytest.approx(0.8, abs=0.022)
    assert (shown == chosen).mean() == pytest.approx(0.1 + 0.1 / 56, abs=0.017)
    others = np.setdiff1d(np.arange(len(ids)), places)
    assert np.array_equal(masked[others], ids[others])
    assert np.histogram(places, 10, (0, 20_000))[0].min() > 240  # everywhere in the block
    random = shown[(shown != MASK) & (shown != chosen)]
    assert random.min() >= 4
    assert len(set(random)) > 50


def test_specials_are_never_chosen():
    ids = np.array([EOS, UNK, 10, EOS, UNK])
    for seed in range(30):
        masked, places = mask_tokens(ids, MASK, TYPES, np.random.default_rng(seed))
        assert places.tolist() == [2]
        assert masked[[0, 1, 3, 4]].tolist() == [EOS, UNK, EOS, UNK]


def test_masks_are_a_function_of_seed_epoch_and_example():
    lines = random_lines(100)
    text = masked_text(lines)
    alone = text.collate(np.array([3]), epoch=1)
    together = text.collate(np.array([7, 3]), epoch=1)
    start = int(text.blocks.lengths[7])
    assert together.ids[start:].tolist() == alone.ids.tolist()
    count = int(text.targets[7])
    assert (together.places[count:] - start).tolist() == alone.places.tolist()
    assert masked_text(lines).collate(np.array([3]), 1).ids.tolist() == alone.ids.tolist()
    different = [
        text.collate(np.array([3]), epoch=2),
        masked_text(lines, seed=2).collate(np.array([3]), epoch=1),
    ]
    assert all(batch.places.tolist() != alone.places.tolist() for batch in different)


def test_targets_are_the_tokens_that_were_hidden():
    text = masked_text(random_lines(100))
    for rows in text.batches(128, seed=1, epoch=0):
        batch = text.collate(rows, epoch=0)
        ids = np.concatenate([text.block(row) for row in rows])
        assert batch.targets.tolist() == ids[batch.places.numpy()].tolist()
        assert batch.tokens == text.targets[rows].sum() > 0
        kept = np.delete(np.arange(len(ids)), batch.places.numpy())
        assert np.array_equal(batch.ids.numpy()[kept], ids[kept])


def test_blocks_without_an_ordinary_token_are_left_out():
    text = masked_text([[UNK, UNK], [10, 11, 12], [], []], length=4)
    assert len(text) == 3
    assert text.targets.tolist() == [0, 1, 0]
    assert [rows.tolist() for rows in text.batches(8, 1, 0)] == [[1]]
    assert masked_text([[UNK]]).batches(8, 1, 0) == []


def test_padding_has_weight_0():
    text = masked_text(random_lines(100))
    rows = np.array([5, 2])
    plain, padded = text.collate(rows, 3), text.collate(rows, 3, batch_tokens=130)
    count = plain.tokens
    assert padded.layout.shape == (4, 32)
    assert padded.ids[: len(plain.ids)].tolist() == plain.ids.tolist()
    assert padded.targets[:count].tolist() == plain.targets.tolist()
    assert padded.places[:count].tolist() == plain.places.tolist()
    assert padded.weights.tolist() == [1.0] * count + [0.0] * (padded.tokens - count)
    other = text.collate(np.array([1, 3, 4, 6]), 3, batch_tokens=130)
    assert other.bucket == padded.bucket
    shapes: list[list[torch.Size]] = [[], []]
    for batch, found in zip((other, padded), shapes, strict=True):
        batch.map(lambda t, found=found: found.append(t.shape) or t)
    assert shapes[0] == shapes[1]
