"""Fixed batch sizes (buckets), for CUDA graphs, which are recorded once per size.

Most of the time goes into matrix products over flat tokens, little into the [B, L] grid of
attention. So the grid is coarse and the numbers of tokens are fine. Three epochs of ted-gl-en
(3,000 merges, batches of 4,096 tokens) need 20 buckets; 6.5 % of their tokens are padding.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass

import numpy as np

MAX_LENGTHS = (4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
STEPS = 8  # different numbers of tokens per side


@dataclass(frozen=True)
class Bucket:
    """The size that a batch is padded to.

    Attributes:
        sentences, max_length: the grid of attention [B, L], the same for both sides.
        src_tokens, tgt_tokens: flat tokens, padding included.
    """

    sentences: int
    max_length: int
    src_tokens: int
    tgt_tokens: int


def bucket_for(src_len: np.ndarray, tgt_len: np.ndarray, batch_tokens: int) -> Bucket | None:
    """Return the smallest bucket for a batch.

    Args:
        src_len, tgt_len: [B], lengths including EOS.

    Returns:
        None for a pair that is longer than ``batch_tokens`` or than any bucket.
    """
    longest = max(int(src_len.max()), int(tgt_len.max()))
    if longest > MAX_LENGTHS[-1] or longest * len(src_len) > batch_tokens:
        return None
    at = bisect.bisect_left(MAX_LENGTHS, longest)
    shorter = MAX_LENGTHS[at - 1] if at else 0
    step = -(-batch_tokens // STEPS)
    # as many sentences as make_batches can put there, and a slot for each token and its padding
    sentences = max(batch_tokens // (shorter + 1), -(-step * STEPS // MAX_LENGTHS[at]))
    src_tokens, tgt_tokens = (-(-int(n.sum()) // step) * step for n in (src_len, tgt_len))
    return Bucket(sentences, MAX_LENGTHS[at], src_tokens, tgt_tokens)
