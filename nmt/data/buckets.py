"""A few fixed shapes that hold the batches of a plan, for work that is recorded once per shape.

What costs time is the number of tokens, which every matrix product sees; the grid of attention is
a small share. So the grid is coarse and the numbers of tokens are fine: ted-gl-en (3,000 merges,
batches of 4,096 tokens, three passes) has 20 shapes, and 6.5 % of the tokens in them are filler.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass

import numpy as np

LENGTHS = (4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
STEPS = 8  # numbers of tokens that a side may have


@dataclass(frozen=True)
class Bucket:
    """The size that a batch is filled up to.

    Attributes:
        sentences, longest: the grid of attention, for both sides.
        src_tokens, tgt_tokens: flat tokens, filler included.
    """

    sentences: int
    longest: int
    src_tokens: int
    tgt_tokens: int


def shape_for(src_len: np.ndarray, tgt_len: np.ndarray, batch_tokens: int) -> Bucket | None:
    """The smallest shape for a batch of these lengths incl. EOS.

    None for a pair that is longer than ``batch_tokens``, or than any shape.
    """
    longest = max(int(src_len.max()), int(tgt_len.max()))
    if longest > LENGTHS[-1] or longest * len(src_len) > batch_tokens:
        return None
    at = bisect.bisect_left(LENGTHS, longest)
    shorter = LENGTHS[at - 1] if at else 0
    step = -(-batch_tokens // STEPS)
    # as many sentences as a plan can put there, and a slot for each token and filler
    sentences = max(batch_tokens // (shorter + 1), -(-step * STEPS // LENGTHS[at]))
    src_tokens, tgt_tokens = (-(-int(n.sum()) // step) * step for n in (src_len, tgt_len))
    return Bucket(sentences, LENGTHS[at], src_tokens, tgt_tokens)
